# SPDX-License-Identifier: MIT OR Apache-2.0
"""The patches for upstream: what kernel/ has, as mails that `git am` takes, one step each.

kernel/upstream/VERSION/series.toml says which new files and which hooks make up each step. Nothing
is kept twice: files and hooks come from where kernel/apply takes them. A hook may be divided by
file among several steps; one that is a step of its own keeps its message.

There are two series, one to be sent first and one that follows it, each with its cover letter.

The Kconfig and Makefile of new code grow with the steps: an object comes with its source, an
option with the first step whose code, or whose makefiles, ask for it. So each step can be built,
with the option on. Other lines of a new file that nobody needs yet, such as an export, come with
the step that names them. What is there for other versions of Linux stays here.
"""

from __future__ import annotations

import email
import email.utils
import os
import re
import shlex
import shutil
import tempfile
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, kernel, progress, trees
from nocopy_lab.board import Machine
from nocopy_lab.paths import KERNEL, LOGS, LabError, cache, locked, require_tool, sha256_tree
from nocopy_lab.run import Job, boot, ktap

UPSTREAM: Final = KERNEL / "upstream"
# The one version for which there is a series: the newest, as patches go to mainline.
VERSION: Final = trees.SERIES[-1]
# What new files ask for to know it.
MAINLINE: Final = "SWAP_TABLE_HAS_ZEROFLAG"
# The two, in order: the directory of the mails of each. What the manifest calls their patches, and
# the file of the cover letter.
PARTS: Final = {
    "1-series": ("patch", "cover-letter.txt"),
    "2-follow-up": ("follow-up", "follow-up-letter.txt"),
}
# What a letter calls lines that its patches add to code that was there, {iomap}; by directories.
EXISTING: Final = {
    "existing": ("",),
    "filesystems": ("fs/ext4/", "fs/xfs/"),
    "iomap": ("fs/iomap/",),
    "fscrypt": ("fs/crypto/",),
}


@dataclass
class Hook:
    """A patch of existing files, divided by file."""

    path: Path
    author: tuple[str, str]  # name and address
    date: str
    title: str
    text: str  # the message below the title
    parts: dict[str, str]  # the diff of each file


def read_hook(path: Path) -> Hook:
    mail = email.message_from_string(path.read_text())
    title = re.sub(r"^\[PATCH[^]]*\] *", "", " ".join(str(mail["Subject"]).split()))
    text, _, rest = str(mail.get_payload()).partition("\n---\n")
    parts: dict[str, str] = {}
    for part in re.split(r"^(?=diff --git )", rest, flags=re.MULTILINE)[1:]:
        name = re.search(r"^\+\+\+ b/([^\t\n]+)", part, re.MULTILINE)
        if name is None:
            raise LabError(f"{path} has a part that changes no text")
        parts[name[1]] = part
    return Hook(
        path, email.utils.parseaddr(str(mail["From"])), str(mail["Date"]), title, text, parts
    )


@dataclass
class Step:
    """One patch of a series."""

    title: str
    text: str
    part: str
    lines: list[str] = field(default_factory=list)  # of new files of earlier steps
    files: list[str] = field(default_factory=list)  # new ones, by in-tree path
    diffs: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)  # existing files that the diffs change


@dataclass
class Plan:
    steps: list[Step]
    growing: list[str]  # the Kconfig and Makefile that follow the other new files
    author: tuple[str, str]
    date: str
    covers: dict[str, str]  # by part

    def touched(self) -> list[str]:
        return sorted({name for step in self.steps for name in step.touched})


def versions(upstream: Path = UPSTREAM) -> list[str]:
    return sorted(p.parent.name for p in upstream.glob("*/series.toml"))


class _Unplaced:
    """What no step has yet."""

    def __init__(self, hooks: Sequence[Hook], files: Collection[str], manifest: Path) -> None:
        self.hooks = {hook.title: hook for hook in hooks}
        self.parts = {hook.title: list(hook.parts) for hook in hooks}
        self.files = set(files)
        self.manifest = manifest
        if len(self.hooks) != len(hooks):
            raise LabError(f"two patches in {hooks[0].path.parent} have the same subject")

    def take(self, title: str, names: Sequence[str]) -> tuple[Hook, list[str]]:
        """These files of a hook, or all that are left; and the hook."""
        if title not in self.hooks:
            raise LabError(f"{self.manifest}: there is no patch '{title}'")
        wanted = list(names) or list(self.parts[title])
        for name in wanted:
            if name not in self.parts[title]:
                raise LabError(f"{self.manifest}: {name} of '{title}' is missing or taken already")
            self.parts[title].remove(name)
        if not wanted:
            raise LabError(f"{self.manifest}: nothing is left of '{title}'")
        return self.hooks[title], wanted

    def take_file(self, name: str) -> None:
        if name not in self.files:
            raise LabError(f"{self.manifest}: {name} is missing or taken already")
        self.files.remove(name)

    def require_none(self) -> None:
        left = [f"'{title}' ({', '.join(names)})" for title, names in self.parts.items() if names]
        left += sorted(self.files)
        if left:
            raise LabError(f"{self.manifest} puts into no patch of the series: {'; '.join(left)}")


def plan(version: str, new_files: Sequence[str], ours: Path = KERNEL) -> Plan:
    """What each patch has; everything is in one, and in one only."""
    directory = ours / "upstream" / version
    manifest = directory / "series.toml"
    if not manifest.is_file():
        there = ", ".join(versions(ours / "upstream")) or "none"
        raise LabError(f"no series for Linux {version}; there are: {there}")
    text = tomllib.loads(manifest.read_text())
    # Those of other subsystems have directories of their own.
    paths = sorted((ours / "patches" / version).rglob("*.patch"))
    hooks = [read_hook(path) for path in (*paths, *sorted(directory.glob("*.patch")))]
    left = _Unplaced(hooks, new_files, manifest)
    growing: list[str] = text.get("growing", [])
    for name in growing:
        left.take_file(name)
    steps = [
        _step(entry, part, left)
        for part, (name, _) in PARTS.items()
        for entry in text.get(name, [])
    ]
    left.require_none()
    for step in steps:
        for line in step.lines:
            if sum(line in (ours / name).read_text().splitlines() for name in new_files) != 1:
                raise LabError(f"{manifest}: there is not one new file with the line '{line}'")
    newest = max(hooks, key=lambda hook: email.utils.parsedate_to_datetime(hook.date))
    covers = {
        part: _letter(
            directory / PARTS[part][1], [step for step in steps if step.part == part], ours
        )
        for part in {step.part for step in steps}
    }
    return Plan(steps, growing, newest.author, newest.date, covers)


def _step(entry: dict[str, Any], part: str, left: _Unplaced) -> Step:
    taken = [left.take(title, names) for title, *names in entry.get("hooks", [])]
    lines = entry.get("lines", [])
    if "title" in entry:
        step = Step(entry["title"], entry["text"], part, lines)
    elif taken:
        step = Step(taken[0][0].title, taken[0][0].text, part, lines)
    else:
        raise LabError(f"{left.manifest}: an entry has neither a title nor hooks")
    for hook, names in taken:
        step.diffs += [hook.parts[name] for name in names]
        step.touched += names
    for name in entry.get("files", []):
        left.take_file(name)
        step.files.append(name)
    return step


def added(diff: str) -> int:
    """How many lines the diff of a file adds."""
    return len(re.findall(r"^\+", diff.partition("\n@@")[2], re.MULTILINE))


def code_added(diffs: Iterable[tuple[str, str]], places: tuple[str, ...] = ("",)) -> Counter[str]:
    """How many lines of code diffs add below these directories, by file."""
    lines: Counter[str] = Counter()
    for name, diff in diffs:
        if name.endswith((".c", ".h")) and name.startswith(places):
            lines[name] += added(diff)
    return lines


def _letter(path: Path, steps: Sequence[Step], ours: Path) -> str:
    """A cover letter, with the numbers of lines of code that it names in braces.

    Of code that was there, those that the steps add; in all, to tens. {new} are all lines of new
    code but for tests, to hundreds.
    """

    def number(found: re.Match[str]) -> str:
        word = found[1]
        if word == "new":
            names = [name for step in steps for name in step.files if "_test." not in name]
            texts = [for_mainline(ours / name) for name in names if name.endswith((".c", ".h"))]
            return f"{round(sum(len(text.splitlines()) for text in texts), -2):,}"
        if word not in EXISTING:
            known = ", ".join(("new", *EXISTING))
            raise LabError(f"{path}: what is {found[0]}? there are: {known}")
        diffs = (pair for step in steps for pair in zip(step.touched, step.diffs, strict=True))
        lines = code_added(diffs, EXISTING[word]).total()
        return str(lines if EXISTING[word][0] else round(lines, -1))

    return re.sub(r"\{(\w+)\}", number, path.read_text())


# ----------------------------------------------------------------------- Makefile and Kconfig


def grown_makefile(text: str, have: Collection[str]) -> str:
    """A Makefile without the objects whose sources are not there."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if found := re.fullmatch(r"(\S+\s*\+=)((?:\s+[\w-]+\.o)+)\n", line):
            objects = [name for name in found[2].split() if f"{name[:-2]}.c" in have]
            if not objects:
                continue
            if objects != found[2].split():
                line = f"{found[1]} {' '.join(objects)}\n"
        lines.append(line)
    return "".join(lines)


_ENTRY: Final = re.compile(
    r"^(?=(?:config|choice|endchoice|menu|endmenu|if|endif|source|comment)\b)", re.MULTILINE
)


def grown_kconfig(text: str, asked: Collection[str]) -> str:
    """A Kconfig without the options that nobody asks for; a choice is one thing.

    A default that depends on other options asks for those.
    """
    pieces = _ENTRY.split(text)
    defaults = {
        word
        for piece in pieces
        if piece.startswith("config ") and piece.split()[1] in asked
        for word in re.findall(r"^\s+default .* if (\w+)$", piece, re.MULTILINE)
    }
    asked = {*asked, *defaults}
    out: list[str] = []
    choice: list[str] | None = None
    for piece in pieces:
        word = piece.split(maxsplit=1)[0] if piece.strip() else ""
        if word == "choice":
            choice = [piece]
        elif choice is not None:
            choice.append(piece)
            if word == "endchoice":
                whole = "".join(choice)
                names = re.findall(r"^config (\w+)", whole, re.MULTILINE)
                out += [whole] if any(name in asked for name in names) else []
                choice = None
        elif word == "config" and piece.split()[1] not in asked:
            continue
        else:
            out.append(piece)
    return "".join(out)


def _asked(tree: Path, names: Collection[str]) -> set[str]:
    """Options that these files of a tree mention."""
    found: set[str] = set()
    for name in names:
        if name.endswith((".c", ".h", "Makefile")):
            found.update(re.findall(r"\bCONFIG_(\w+)", (tree / name).read_text()))
    return found


def for_mainline(source: Path) -> str:
    """A new file without what is for other versions."""
    if source.suffix not in (".c", ".h"):
        return source.read_text()
    unifdef = require_tool("unifdef", "unifdef")
    # Status 0 whether something was left out or not.
    return child.output([unifdef, "-x2", f"-D{MAINLINE}", source])


def _copy(origin: Path, target: Path, later: Collection[str]) -> None:
    """Put a new file into a tree, without the lines that come later."""
    text = for_mainline(origin).splitlines(keepends=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(line for line in text if line.rstrip("\n") not in later))
    target.chmod(origin.stat().st_mode)


def _grow(tree: Path, growing: Sequence[str], have: Collection[str], ours: Path) -> None:
    """Bring the growing files to what the sources in the tree need."""
    makefiles = [name for name in growing if name.endswith("Makefile")]
    for name in makefiles:
        beside = {Path(one).name for one in have if Path(one).parent == Path(name).parent}
        if beside:
            text = grown_makefile((ours / name).read_text(), beside)
            (tree / name).write_text(text)
    asked = _asked(tree, [*have, *(name for name in makefiles if (tree / name).is_file())])
    for name in growing:
        if name not in makefiles and (tree / name).parent.is_dir():
            (tree / name).write_text(grown_kconfig((ours / name).read_text(), asked))


# ------------------------------------------------------------------------------------- writing

# Nothing of what the user has told git.
_GIT: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(tree: Path, *words: str | Path, name: str = "lab", address: str = "lab@localhost") -> None:
    command = ["git", "-c", f"user.name={name}", "-c", f"user.email={address}", *words]
    log = LOGS / "series-git.log"
    child.run(command, log=log, limit_s=120, what=f"git {words[0]}", cwd=tree, env=_GIT)


def start(tree: Path, pristine: Path, names: Collection[str]) -> None:
    """A repository with some files of the source as it is."""
    for name in sorted({*names, "Makefile", "mm/cma.c"}):
        if not (pristine / name).is_file():
            raise LabError(f"{pristine} has no {name}")
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pristine / name, tree / name)
    git(tree, "init", "-q", "-b", "series")
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "Linux")
    git(tree, "tag", "start")


def commit(tree: Path, what: Plan, ours: Path = KERNEL) -> None:
    """Make a commit of each step, and a branch of each part, in a repository just started."""
    name, address = what.author
    have: set[str] = set()
    files: list[str] = []
    for at, step in enumerate(what.steps):
        for number, diff in enumerate(step.diffs):
            patch = tree / f".git/part{number}.diff"
            patch.write_text(diff)
            git(tree, "apply", "--index", patch)
        files += step.files
        later = {line for after in what.steps[at + 1 :] for line in after.lines}
        for file in files if step.lines else step.files:
            _copy(ours / file, tree / file, later)
        have |= {*step.files, *step.touched}
        _grow(tree, what.growing, have, ours)
        message = tree / ".git/message"
        text = step.text.strip()
        if "Signed-off-by: " not in text:
            text += f"\n\nSigned-off-by: {name} <{address}>"
        message.write_text(f"{step.title}\n\n{text.strip()}\n")
        git(tree, "add", "-A", "-f")
        words = [f"--author={name} <{address}>", f"--date={what.date}", "-F", str(message)]
        git(tree, "commit", "-q", *words)
        git(tree, "branch", "-q", "-f", step.part)


def write(directory: Path, what: Plan, pristine: Path, ours: Path = KERNEL) -> list[Path]:
    """The mails of each part in a directory of its own, in place of those of an earlier time."""
    directory.mkdir(parents=True, exist_ok=True)
    old = [path for path in directory.rglob("*") if path.parent != directory or path.is_file()]
    ours_too = re.compile(rf"({'|'.join(PARTS)})/\d{{4}}-.*\.patch")
    names = sorted(str(path.relative_to(directory)) for path in old)
    if strange := [name for name in names if not ours_too.fullmatch(name)]:
        raise LabError(f"{directory} has other files: {', '.join(strange[:3])}")
    for path in old:
        path.unlink()
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="nocopy-series-") as temp:
        tree = Path(temp)
        start(tree, pristine, what.touched())
        commit(tree, what, ours)
        before = "start"
        for part, cover in sorted(what.covers.items()):
            git(tree, "config", f"branch.{part}.description", cover)
            words = ["--cover-letter", "--cover-from-description=subject", "--no-signature"]
            words += ["--zero-commit", "--no-base", "-o", str((directory / part).resolve())]
            name, address = what.author
            whole = f"{before}..{part}"
            git(tree, "format-patch", "-q", *words, whole, name=name, address=address)
            made += sorted((directory / part).iterdir())
            before = part
    return made


# ------------------------------------------------------------------------- trees, and their builds


def mails() -> list[Path]:
    """All patches in order without the cover letters, written once for each content."""
    directory = cache() / "series" / f"{VERSION}-{sha256_tree(KERNEL)[:16]}"
    with locked(cache() / "series/.lock"):
        if not directory.is_dir():
            # Somebody else, whose patches are others, may be reading the latest ones.
            old = sorted(directory.parent.glob(f"{VERSION}-*"), key=lambda p: p.stat().st_mtime)
            for path in old[: -kernel.KEEP_IMAGES]:
                shutil.rmtree(path)
            fresh = directory.parent / f"new-{VERSION}"
            write(fresh, plan(VERSION, trees.new_files()), trees.source(VERSION).path)
            fresh.rename(directory)
    return [path for path in sorted(directory.glob("*/*")) if not path.name.startswith("0000")]


def sync(tree: Path, upto: str) -> None:
    """Make a tree the source with the series up to the patch of this title."""
    what = plan(VERSION, trees.new_files())
    titles = [step.title for step in what.steps]
    if upto not in titles:
        raise LabError(f"the series has no patch '{upto}'")
    patches = mails()[: titles.index(upto) + 1]
    apply = cache() / "series/apply"
    lines = [f"patch -s -p1 --no-backup-if-mismatch <{shlex.quote(str(p))}" for p in patches]
    apply.write_text('#!/bin/sh\nset -e\ncd "$1"\n' + "\n".join(lines) + "\n")
    apply.chmod(0o755)
    trees.sync_tree(trees.source(VERSION).path, tree, apply, what.touched())


kernel.sync_upto = sync


def code(step: Step) -> list[str]:
    """Files of a step that are compiled."""
    names = [*step.files, *step.touched]
    return [
        name for name in names if not name.startswith(("Documentation", "tools", "MAINTAINERS"))
    ]


# What a module names has to be exported, and the lab's kernels have none, whose build would fail.
# File systems can be modules; these other directories are always built in.
_MODULE: Final = re.compile(r"fs/(?!crypto/|iomap/)\w+/")
_EXPORTED: Final = "__export_symbol_"  # what EXPORT_SYMBOL() adds to an object


def _names(binaries: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Names of ours that objects refer to, and those that they have."""
    needed: set[str] = set()
    there: set[str] = set()
    files = [binary for binary in binaries if binary.is_file()]
    for line in child.output(["nm", "-A", *files]).splitlines() if files else ():
        kind, name = line.split()[-2:]
        if re.search("gcma|dmem", name):
            (needed if kind == "U" else there).add(name)
    return needed, there


def unresolved(directory: Path, objects: Sequence[str]) -> list[str]:
    """What the linker would miss of ours, of the kernel and of file systems that are modules."""
    ours = sorted((directory / "mm/gcma").glob("*.o"))
    needed, there = _names([*ours, *(directory / name for name in objects)])
    called, own = _names(directory / name for name in objects if _MODULE.match(name))
    exported = {name.removeprefix(_EXPORTED) for name in there if name.startswith(_EXPORTED)}
    return [f"nothing has {name}" for name in sorted(needed - there)] + [
        f"{name} is not exported" for name in sorted((called & there) - own - exported)
    ]


def build_each(log: Path) -> None:
    """Compile, after every patch, what the patches up to there are about, with CONFIG_GCMA=y."""
    steps = [step for step in plan(VERSION, trees.new_files()).steps if code(step)]
    objects: set[str] = set()
    with progress.meter(f"building {len(steps)} states of the series") as meter:
        for number, step in enumerate(steps):
            meter.at(number / len(steps), step.title)
            objects |= {name[:-2] + ".o" for name in step.touched if name.endswith(".c")}
            with kernel.configured("series", step.title) as (tree, directory):
                for stale in (directory / "mm/gcma").glob("*.o"):
                    if not (tree / "mm/gcma" / f"{stale.stem}.c").is_file():
                        stale.unlink()
                child.run(
                    kernel.make("series", tree, *sorted(objects), "mm/gcma/"),
                    log=log,
                    limit_s=1800,
                    what=f"building with the series up to '{step.title}'",
                )
                found = re.findall(r"^.*warning: .*$", log.read_text(errors="replace"), re.M)
                found += unresolved(directory, sorted(objects))
                if found:
                    raise LabError(f"with the series up to '{step.title}': {found[0]}; see {log}")


def boot_each() -> None:
    """Build a whole kernel after every patch, boot it, and run its KUnit tests.

    From the last patch to the first: what they change in headers that all include is in the first.
    """
    steps = [step for step in plan(VERSION, trees.new_files()).steps if code(step)]
    arch = kernel.CONFIGS["half"].arch
    for number, step in reversed(list(enumerate(steps, 1))):
        with kernel.configured("half", step.title) as (tree, directory):
            with progress.meter(f"building {number} of {len(steps)}: {step.title}"):
                child.run(
                    kernel.make("half", tree, arch.image_name),
                    log=LOGS / f"series-{number}.log",
                    limit_s=kernel.BUILD_LIMIT_S,
                    what=f"building with the series up to '{step.title}'",
                )
            machine = Machine("x86-fast", words=("kunit.enable=1",))
            job = Job(f"series-{number}", "true\n", directory / arch.image, machine)
            outcome = boot(job)
        outcome.require()
        passed, failed = ktap(outcome.said)
        if failed or not passed:
            raise LabError(f"KUnit with the series up to '{step.title}': {failed or 'no tests'}")
        print(f"{number:2} of {len(steps)} boots, {len(passed)} tests passed: {step.title}")
