# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nocopy_lab import kernel, progress, trees
from nocopy_lab.paths import KERNEL, LabError, sha256_tree


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    tree = tmp_path / "pristine"
    for name in ("Makefile", "mm/cma.c", "mm/other.c"):
        os.utime(write(tree / name, f"{name}, untouched\n"), ns=(10**18, 10**18))
    return tree


def apply_script(tmp_path: Path, body: str) -> Path:
    return write(tmp_path / "apply", f'#!/bin/sh\nset -e\ncd "$1"\n{body}\n', 0o755)


def test_only_what_differs_is_written(cache: Path, pristine: Path, tmp_path: Path) -> None:
    apply = apply_script(tmp_path, "echo new >>mm/cma.c; mkdir mm/g; echo x >mm/g/g.c")
    tree = cache / "tree/t"
    first = trees.sync_tree(pristine, tree, apply, ["mm/cma.c"])
    assert sorted(first) == ["mm/cma.c", "mm/g/g.c"]
    assert trees.sync_tree(pristine, tree, apply, ["mm/cma.c"]) == []
    assert (tree / "mm/other.c").stat().st_mtime_ns == 10**18


def test_the_pristine_tree_is_never_written(cache: Path, pristine: Path, tmp_path: Path) -> None:
    apply = apply_script(tmp_path, "echo new >>mm/cma.c")
    trees.sync_tree(pristine, cache / "tree/t", apply, ["mm/cma.c"])
    assert (pristine / "mm/cma.c").read_text() == "mm/cma.c, untouched\n"


def test_what_a_former_version_touched_is_restored(
    cache: Path, pristine: Path, tmp_path: Path
) -> None:
    tree = cache / "tree/t"
    body = "echo new >>mm/other.c; echo x >mm/extra.c"
    trees.sync_tree(pristine, tree, apply_script(tmp_path, body), ["mm/other.c"])
    written = trees.sync_tree(pristine, tree, apply_script(tmp_path, "true"), [])
    assert sorted(written) == ["mm/extra.c", "mm/other.c"]
    assert not (tree / "mm/extra.c").exists()
    assert (tree / "mm/other.c").read_text() == "mm/other.c, untouched\n"
    # Restored just now: make must see that it changed.
    assert (tree / "mm/other.c").stat().st_mtime_ns != 10**18


def test_fragments_and_dot_config_are_read_alike() -> None:
    assert kernel.parse_config("CONFIG_A=y\n# CONFIG_B is not set\n# words\nCONFIG_C=n\n") == {
        "CONFIG_A": "y",
        "CONFIG_B": "n",
        "CONFIG_C": "n",
    }


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF\xff"])
def test_what_is_no_configuration_is_packaged_as_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    given = tmp_path / "config"
    if content is not None:
        given.write_bytes(content)
    with pytest.raises(LabError, match=r"no configuration .*config; on Debian"):
        kernel.debs("gcma", given, tmp_path)


def test_lines_that_kconfig_did_not_take_are_named() -> None:
    wanted = {"CONFIG_A": "y", "CONFIG_B": "n", "CONFIG_C": "64", "CONFIG_D": "y"}
    actual = {"CONFIG_A": "y", "CONFIG_C": "32", "CONFIG_D": "y"}
    assert kernel.untaken(wanted, actual) == ["CONFIG_C=64 (is 32)"]
    assert kernel.untaken({"CONFIG_B": "n"}, {"CONFIG_B": "y"}) == ["CONFIG_B=n (is y)"]


def linux(tree: Path, patchlevel: int = 12) -> Path:
    text = f"VERSION = 6\nPATCHLEVEL = {patchlevel}\nSUBLEVEL = 30\n"
    write(tree / "Makefile", text)
    write(tree / "Kbuild", "")
    write(tree / "mm/cma.c", "")
    return tree


def test_a_clean_tree_of_the_series_is_accepted(tmp_path: Path) -> None:
    assert trees.require_linux(linux(tmp_path)) == "6.12.30"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda tree: (tree / "Kbuild").unlink(), "not the top of a Linux source tree"),
        (lambda tree: linux(tree, 11), r"6\.12\.y or 7\.3\.y is needed"),
        (lambda tree: write(tree / ".config", ""), "mrproper"),
        (lambda tree: (tree / "mm/gcma").mkdir(), "has GCMA in it already"),
    ],
)
def test_other_trees_are_refused_in_one_line(tmp_path: Path, spoil: object, says: str) -> None:
    tree = linux(tmp_path)
    assert callable(spoil)
    spoil(tree)
    with pytest.raises(LabError, match=says) as caught:
        trees.require_linux(tree)
    assert "\n" not in str(caught.value)


def test_a_given_tree_is_for_its_series_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "SERIES", ("6.12", "6.13"))
    monkeypatch.setenv("KERNEL_TREE", str(linux(tmp_path, 13)))
    assert trees._given_tree("6.13") == (tmp_path, "6.13.30")
    assert trees._given_tree("6.12") is None
    other = linux(tmp_path / "other")
    monkeypatch.setenv("KERNEL_TREE", f"{tmp_path}:{other}")
    assert trees._given_tree("6.12") == (other, "6.12.30")
    assert trees._given_tree("6.13") == (tmp_path, "6.13.30")


def test_a_changed_tree_has_another_fingerprint(tmp_path: Path) -> None:
    tree = linux(tmp_path)
    before = trees._fingerprint(tree)
    assert trees._fingerprint(tree) == before
    write(tree / "mm/cma.c", "changed\n")
    assert trees._fingerprint(tree) != before


def test_additions_of_the_lab_come_last_and_go_again(
    cache: Path, pristine: Path, tmp_path: Path
) -> None:
    additions, tree = tmp_path / "lab", cache / "tree/t"
    change = "--- a/mm/other.c\n+++ b/mm/other.c\n@@ -1 +1 @@\n-mm/other.c, untouched\n+changed\n"
    write(additions / "other.patch", change)
    write(additions / "drivers/ours.c", "ours\n")
    apply = apply_script(tmp_path, "echo new >>mm/cma.c")
    written = trees.sync_tree(pristine, tree, apply, ["mm/cma.c"], additions)
    assert sorted(written) == ["drivers/ours.c", "mm/cma.c", "mm/other.c"]
    assert (tree / "mm/other.c").read_text() == "changed\n"
    later = change.replace("-mm/other.c, untouched", "-changed").replace("+changed", "+again")
    write(additions / "7.3/other.patch", later)
    both = trees.sync_tree(pristine, tree, apply, ["mm/cma.c"], additions, additions / "7.3")
    assert both == ["mm/other.c"]
    assert (tree / "mm/other.c").read_text() == "again\n"
    assert sorted(trees.sync_tree(pristine, tree, apply, ["mm/cma.c"])) == [
        "drivers/ours.c",
        "mm/other.c",
    ]
    assert (tree / "mm/other.c").read_text() == "mm/other.c, untouched\n"


def test_an_addition_that_does_not_fit_is_named(
    cache: Path, pristine: Path, tmp_path: Path
) -> None:
    change = "--- a/mm/other.c\n+++ b/mm/other.c\n@@ -1 +1 @@\n-something else\n+changed\n"
    write(tmp_path / "lab/other.patch", change)
    with pytest.raises(LabError, match=r"applying .*other\.patch failed"):
        trees.sync_tree(
            pristine, cache / "tree/t", apply_script(tmp_path, "true"), [], tmp_path / "lab"
        )


@pytest.mark.parametrize("name", ["t.manifest", "steps"])
def test_a_note_is_not_left_half_written_by_a_full_disk(
    cache: Path, pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(path: Path, *_: object, **__: object) -> int:
        path.open("w").close()
        raise OSError(errno.ENOSPC, "no space left on device")

    tree, steps = cache / "tree/t", cache / "tree/steps"
    apply = apply_script(tmp_path, "mkdir mm/g; echo x >mm/g/g.c")
    trees.sync_tree(pristine, tree, apply, [])
    log = write(tmp_path / "log", "  CC mm/cma.o\n")
    with progress.meter("building") as meter:
        counted = kernel._Steps(log, steps, meter)
        counted.remember()
        before = (cache / "tree" / name).read_text()
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", full)
            patched.setattr(Path, "write_bytes", full)
            with pytest.raises(OSError, match="no space left"):
                if name == "steps":
                    counted.count = 7
                    counted.remember()
                else:
                    trees.sync_tree(pristine, tree, tmp_path / "none", [])
    assert (cache / "tree" / name).read_text() == before


@pytest.fixture
def applied(tmp_path: Path) -> tuple[Path, Path]:
    """A kernel/ with a patch of one line and one new file, and a tree for it."""
    ours, tree = tmp_path / "kernel", tmp_path / "linux"
    (ours / "apply").parent.mkdir()
    shutil.copy2(KERNEL / "apply", ours / "apply")
    for name in ("include", "Documentation", "tools"):
        (ours / name).mkdir()
    write(ours / "mm/new.c", "int added;\n")
    write(
        ours / "patches/6.12/0001-hook.patch",
        "--- a/mm/cma.c\n+++ b/mm/cma.c\n@@ -1 +1 @@\n-int old;\n+int hook;\n",
    )
    write(
        ours / "patches/6.12/other/0001.patch",
        "--- a/mm/util.c\n+++ b/mm/util.c\n@@ -1 +1 @@\n-int util;\n+int used;\n",
    )
    write(tree / "Makefile", "VERSION = 6\nPATCHLEVEL = 12\n")
    write(tree / "mm/cma.c", "int old;\n")
    write(tree / "mm/util.c", "int util;\n")
    return ours, tree


def test_apply_finds_its_files_whatever_cdpath_is(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    words = ["kernel/apply", tree.name]
    elsewhere = ours.parent / "elsewhere"
    (elsewhere / tree.name).mkdir(parents=True)
    environment = {**os.environ, "CDPATH": f"{elsewhere}:."}
    subprocess.run(words, cwd=ours.parent, env=environment, check=True)
    assert (tree / "mm/cma.c").read_text() == "int hook;\n"
    assert (tree / "mm/new.c").is_file()


def test_apply_does_not_write_through_hard_links(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    pristine = tree.with_name("pristine")
    subprocess.run(["cp", "-al", tree, pristine], check=True)
    subprocess.run([ours / "apply", tree], check=True)
    assert (tree / "mm/cma.c").read_text() == "int hook;\n"
    assert (pristine / "mm/cma.c").read_text() == "int old;\n"


def test_apply_changes_nothing_where_it_cannot_write_all(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    write(ours / "include/linux/new.h", "int declared;\n")
    write(tree / "include", "a file, where a directory has to be\n")
    before = sha256_tree(tree)
    ended = subprocess.run([ours / "apply", tree], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("apply: include/linux/new.h cannot be written ")
    assert sha256_tree(tree) == before


def test_apply_says_in_one_line_what_it_may_not_write(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    write(tree / "fs/inode.c", "int old;\n")
    patch = "--- a/fs/inode.c\n+++ b/fs/inode.c\n@@ -1 +1 @@\n-int old;\n+int inode;\n"
    write(ours / "patches/6.12/0002.patch", patch)
    (tree / "fs").chmod(0o555)
    # Root may write anywhere, unless it is no more than the owner.
    plain = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    words = [*plain, str(ours / "apply"), str(tree)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    (tree / "fs").chmod(0o755)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("apply: fs/inode.c cannot be written ")
    assert (tree / "mm/cma.c").read_text() == "int old;\n"


def test_apply_leaves_files_the_modes_they_have(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    subprocess.run([ours / "apply", tree], umask=0o077, check=True)
    assert (tree / "mm/cma.c").stat().st_mode & 0o777 == 0o644


def test_apply_refuses_a_tree_of_no_version(applied: tuple[Path, Path]) -> None:
    ours, tree = applied
    write(tree / "Makefile", "all:\n")
    ended = subprocess.run([ours / "apply", tree], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "there are patches for: 6.12" in line


def test_a_stored_image_that_was_cut_off_is_not_used(tmp_path: Path) -> None:
    image = kernel.Image("gcma", tmp_path)
    assert not image.is_whole()
    write(tmp_path / "vmlinux", "four")
    write(tmp_path / "build.json", '{"release": "6.12", "sizes": {"vmlinux": 4}}')
    assert image.is_whole()
    assert image.about() == {"release": "6.12"}
    write(tmp_path / "vmlinux", "")
    assert not image.is_whole()
    write(tmp_path / "build.json", "")
    assert not image.is_whole()


def test_what_nobody_uses_of_sources_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path))
    names = (
        "src/6.12.1-old",
        "tree/6.12.1-old",
        "build/6.12.1-old-uml",
        "src/6.12.2-new",
        "build/log",
    )
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    os.utime(tmp_path / "src/6.12.1-old", (1, 1))
    trees._forget_unused()
    assert [name for name in names if (tmp_path / name).is_dir()] == list(names[3:])
