# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nocopy_lab import series, trees
from nocopy_lab.paths import KERNEL, REPO, LabError

HOOK = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A Developer <a@example.org>
Date: Sat, 21 Nov 2026 20:30:00 +0000
Subject: [PATCH] mm: call it,
 wherever it is

Why.

Signed-off-by: A Developer <a@example.org>
---
 mm/Makefile | 1 +
 mm/cma.c    | 1 +
 2 files changed, 2 insertions(+)

diff --git a/mm/Makefile b/mm/Makefile
--- a/mm/Makefile
+++ b/mm/Makefile
@@ -1 +1,2 @@
 obj-y += cma.o
+obj-$(CONFIG_IT) += it/
diff --git a/mm/cma.c b/mm/cma.c
--- a/mm/cma.c
+++ b/mm/cma.c
@@ -1 +1,2 @@
 int old;
+int hook;
"""
TITLE = "mm: call it, wherever it is"
FILES = ["mm/it/Kconfig", "mm/it/Makefile", "mm/it/first.c", "mm/it/second.c"]
KCONFIG = """# top
config IT
	bool "It"

if IT

choice
	prompt "Which"

config IT_A
	bool "A"

config IT_B
	bool "B"

endchoice

config IT_LATE
	bool "Late"

endif # IT
"""
MAKEFILE = "obj-y\t\t\t+= second.o first.o\nobj-$(CONFIG_IT_LATE)\t+= late.o\n"
OF_VERSIONS = f"#ifdef {series.MAINLINE}\nint now;\n#else\nint before;\n#endif\n"
MANIFEST = """
growing = ["mm/it/Kconfig", "mm/it/Makefile"]
[[patch]]
title = "mm/it: add the first"
text = "Because."
files = ["mm/it/first.c"]
hooks = [["mm: call it, wherever it is", "mm/Makefile"]]
[[patch]]
title = "mm/it: add the second"
text = "Because."
files = ["mm/it/second.c"]
[[follow-up]]
hooks = [["mm: call it, wherever it is"]]
lines = ["EXPORT_SYMBOL(first);"]
"""


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """What kernel/ has, in small."""
    for name, text in {
        "patches/7.3/0001-hook.patch": HOOK,
        "upstream/7.3/series.toml": MANIFEST,
        "upstream/7.3/cover-letter.txt": "mm: it\n\nWhat it is.\n",
        "upstream/7.3/follow-up-letter.txt": "mm: more of it\n\nMore.\n",
        "mm/it/Kconfig": KCONFIG,
        "mm/it/Makefile": MAKEFILE,
        "mm/it/first.c": "int first;\nEXPORT_SYMBOL(first);\n",
        "mm/it/second.c": f"#ifdef CONFIG_IT_B\nint second;\n#endif\n{OF_VERSIONS}",
    }.items():
        path = tmp_path / "kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "kernel"


def changed(ours: Path, old: str, new: str) -> Path:
    manifest = ours / "upstream/7.3/series.toml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    return ours


def test_a_hook_is_divided_by_file_and_keeps_its_message(ours: Path) -> None:
    steps = series.plan("7.3", FILES, ours).steps
    assert [step.title for step in steps] == [
        "mm/it: add the first",
        "mm/it: add the second",
        TITLE,
    ]
    assert [step.touched for step in steps] == [["mm/Makefile"], [], ["mm/cma.c"]]
    assert steps[2].text.startswith("Why.")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('files = ["mm/it/second.c"]', "", "puts into no patch.*mm/it/second.c"),
        ('hooks = [["mm: call it, wherever it is"]]', 'title = "a"\ntext = "b"', r"\(mm/cma.c\)"),
        ("(first);", "(last);", r"not one new file with the line 'EXPORT_SYMBOL\(last\);'"),
        ('files = ["mm/it/second.c"]', 'files = ["mm/it/first.c"]', "first.c is missing or taken"),
        ('wherever it is"]]', 'wherever it was"]]', "there is no patch"),
        ('is", "mm/Makefile"]]', 'is", "mm/Kconfig"]]', "mm/Kconfig of .* is missing or taken"),
        ('is", "mm/Makefile"]]', 'is"]]', "nothing is left of"),
    ],
)
def test_what_is_nowhere_or_twice_is_named(ours: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        series.plan("7.3", FILES, changed(ours, old, new))


def test_letters_count_lines(ours: Path) -> None:
    """Of code: mm/Makefile has a line more. And of the letter's own series."""
    letter, more = (ours / "upstream/7.3" / name for _, name in series.PARTS.values())
    letter.write_text("{existing} and {new}\n")
    more.write_text("{existing}, {fscrypt}\n")
    changed(
        ours, '[["mm: call it, wherever it is"]]', '[["mm: call it, wherever it is"], ["mm: fs"]]'
    )
    lines = "".join(f"+int x{number};\n" for number in range(14))
    hook, _, _ = HOOK.replace(": call it,\n wherever it is", ": fs").partition("diff --git ")
    hook += "diff --git a/fs/crypto/a.c b/fs/crypto/a.c\n--- a/fs/crypto/a.c\n"
    hook += f"+++ b/fs/crypto/a.c\n@@ -1 +1,15 @@\n one\n{lines}"
    (ours / "patches/7.3/0002-fs.patch").write_text(hook)
    (ours / "mm/it/first.c").write_text("int first;\n" * 1251 + "EXPORT_SYMBOL(first);\n")
    covers = series.plan("7.3", FILES, ours).covers
    assert covers == {"1-series": "0 and 1,300\n", "2-follow-up": "20, 14\n"}
    letter.write_text("{no}\n")
    with pytest.raises(LabError, match=r"what is \{no\}\? there are: new, existing"):
        series.plan("7.3", FILES, ours)


def test_the_page_has_the_lines_that_the_hooks_add() -> None:
    page = " ".join((REPO / "docs/gcma.md").read_text().split())
    said: list[str] = []
    for version in reversed(trees.SERIES):
        hooks = map(series.read_hook, (KERNEL / "patches" / version).glob("*.patch"))
        lines = series.code_added(part for hook in hooks for part in hook.parts.items())
        what = "" if said else " of code"
        said.append(f"{lines.total()} lines{what} to {len(lines)} files of {version}")
    assert f"The hooks add {', and '.join(said)}." in page


def test_another_version_is_refused(ours: Path) -> None:
    with pytest.raises(LabError, match=r"no series for Linux 6\.1; there are: 7\.3"):
        series.plan("6.1", FILES, ours)


def test_objects_come_with_their_sources() -> None:
    assert series.grown_makefile(MAKEFILE, {"first.c"}) == "obj-y\t\t\t+= first.o\n"
    assert series.grown_makefile(MAKEFILE, {"first.c", "second.c", "late.c"}) == MAKEFILE


def test_options_come_with_who_asks_for_them() -> None:
    assert series.grown_kconfig(KCONFIG, {"IT", "IT_A", "IT_LATE"}) == KCONFIG
    early = series.grown_kconfig(KCONFIG, {"IT"})
    assert "IT_A" not in early and "choice" not in early and "IT_LATE" not in early
    assert early.startswith("# top\nconfig IT\n") and early.endswith("if IT\n\nendif # IT\n")


def test_mails_apply_to_a_clean_tree(ours: Path, tmp_path: Path) -> None:
    pristine = tmp_path / "linux"
    for name, text in {
        "Makefile": "VERSION = 6\n",
        "mm/Makefile": "obj-y += cma.o\n",
        "mm/cma.c": "int old;\n",
    }.items():
        (pristine / name).parent.mkdir(parents=True, exist_ok=True)
        (pristine / name).write_text(text)
    plan = series.plan("7.3", FILES, ours)
    mails = series.write(tmp_path / "mails", plan, pristine, ours)
    first, second = (tmp_path / "mails" / part for part in series.PARTS)
    assert mails == [*sorted(first.iterdir()), *sorted(second.iterdir())]
    assert [mail.name[:4] for mail in mails] == ["0000", "0001", "0002", "0000", "0001"]
    assert "Subject: [PATCH 0/2] mm: it\n" in mails[0].read_text()
    assert "Subject: [PATCH 0/1] mm: more of it\n" in mails[3].read_text()
    # What other versions need does not come.
    assert "int now" in mails[2].read_text() and "int before" not in mails[2].read_text()
    # What is exported comes with who needs it.
    assert not any("EXPORT" in mail.read_text() for mail in mails[:3])
    assert "\n+EXPORT_SYMBOL(first);\n" in mails[4].read_text()
    tree = tmp_path / "tree"
    tree.mkdir()
    series.start(tree, pristine, plan.touched())
    series.git(tree, "am", "-q", "--empty=drop", *mails)
    assert (tree / "mm/cma.c").read_text() == "int old;\nint hook;\n"
    # Nobody asks for IT_LATE, and late.c is not there.
    assert "IT_LATE" not in (tree / "mm/it/Kconfig").read_text()
    assert "config IT_B" in (tree / "mm/it/Kconfig").read_text()


def test_mails_replace_only_mails(ours: Path, tmp_path: Path) -> None:
    for name in ("precious.txt", "1-series/precious.txt"):
        directory = tmp_path / name.replace("/", "-")
        (directory / name).parent.mkdir(parents=True)
        (directory / name).write_text("")
        with pytest.raises(LabError, match=f"has other files: {name}"):
            series.write(directory, series.plan("7.3", FILES, ours), tmp_path, ours)


def test_what_only_later_patches_have_is_missed(tmp_path: Path) -> None:
    (tmp_path / "mm/gcma").mkdir(parents=True)
    caller, callee = tmp_path / "mm/vmscan", tmp_path / "mm/gcma/clients"
    caller.with_suffix(".c").write_text("void __gcma_stage(void); void f(void){__gcma_stage();}")
    callee.with_suffix(".c").write_text("void __gcma_stage(void) {}")
    for name in (caller, callee):
        command = ["gcc", "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, check=True)
    assert series.unresolved(tmp_path, ["mm/vmscan.o"]) == []
    callee.with_suffix(".o").unlink()
    assert series.unresolved(tmp_path, ["mm/vmscan.o"]) == ["nothing has __gcma_stage"]


def test_what_a_module_calls_is_exported(tmp_path: Path) -> None:
    asked = "int gcma_key, gcma_other;"
    export = ".pushsection .export_symbol; __export_symbol_gcma_key: .popsection"
    caller = "extern int gcma_key; int f(void) { return gcma_key; }"
    for name, text in {
        "mm/gcma/none": asked,
        "mm/gcma/exports": f'{asked} asm("{export}");',
        "fs/ext4/page-io": f"{caller} extern int gcma_own; int g(void) {{ return gcma_own; }}",
        "fs/ext4/inode": "int gcma_own;",
        "fs/iomap/direct-io": caller,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.c").write_text(text)
        subprocess.run(["gcc", "-c", f"{name}.c", "-o", f"{name}.o"], cwd=tmp_path, check=True)
    (tmp_path / "mm/gcma/exports.o").rename(tmp_path / "exports.o")
    module = ["fs/ext4/inode.o", "fs/ext4/page-io.o"]
    assert series.unresolved(tmp_path, ["fs/iomap/direct-io.o"]) == []
    assert series.unresolved(tmp_path, module) == ["gcma_key is not exported"]
    (tmp_path / "exports.o").rename(tmp_path / "mm/gcma/none.o")
    assert series.unresolved(tmp_path, module) == []


def test_the_repository_of_whoever_calls_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, pristine, tree = (tmp_path / name for name in ("theirs", "linux", "tree"))
    subprocess.run(["git", "init", "-q", theirs], check=True)
    for directory in (pristine / "mm", tree):
        directory.mkdir(parents=True)
    for name in ("Makefile", "mm/cma.c"):
        (pristine / name).write_text("")
    # What git tells a hook of theirs, which may run the checks.
    monkeypatch.setenv("GIT_DIR", str(theirs / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(theirs / ".git/index"))
    series.start(tree, pristine, [])
    assert not (theirs / ".git/refs/tags/start").exists()
    assert (tree / ".git/refs/tags/start").is_file()
