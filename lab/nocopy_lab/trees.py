# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the source of a kernel comes from, and the tree with GCMA on it.

source    a pristine tree in the cache, from Debian's package or one in $KERNEL_TREE
tree      source + kernel/apply + kernel/lab, at a fixed path and brought up to date file by
          file, so that make sees what changed and nothing else
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Final

from nocopy_lab import child, debian, progress
from nocopy_lab.paths import (
    KERNEL,
    LabError,
    cache,
    disk_full_is_one_line,
    locked,
    require_space,
    sha256,
    write_if_changed,
)

# The series of Linux that kernel/patches knows; configurations are of the first if they do not say.
SERIES: Final = ("6.12", "7.3")

# Suites of Debian that have the source of a series.
SUITES: Final = {"6.12": "trixie", "7.3": "trixie-backports"}

# What the lab alone adds to the trees that it builds from, and no series of patches has: files at
# their in-tree paths, and patches in a directory for each series of Linux.
ADDITIONS: Final = KERNEL / "lab"

# Space for a source tree, its copy, and the objects of one build.
BUILD_MIB: Final = 4096


@dataclass(frozen=True)
class Source:
    version: str
    ident: str  # changes when the content does
    path: Path


def _version(makefile: str) -> str:
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) *= *(\d+)", makefile, re.MULTILINE))
    if len(found) != 3:
        return ""
    return f"{found['VERSION']}.{found['PATCHLEVEL']}.{found['SUBLEVEL']}"


def _series(version: str) -> str:
    return version.rpartition(".")[0]


def require_linux(tree: Path) -> str:
    """Version of a clean kernel tree of a series of ours, or one line that says what is wrong."""
    makefile = tree / "Makefile"
    if not (makefile.is_file() and (tree / "mm/cma.c").is_file() and (tree / "Kbuild").is_file()):
        raise LabError(f"KERNEL_TREE={tree} is not the top of a Linux source tree")
    version = _version(makefile.read_text(errors="replace"))
    if _series(version) not in SERIES:
        wanted = " or ".join(f"{series}.y" for series in SERIES)
        raise LabError(f"KERNEL_TREE={tree} is Linux {version or '?'}; {wanted} is needed")
    if (tree / ".config").exists() or (tree / "include/config").exists():
        raise LabError(f"KERNEL_TREE={tree} has been built in; run: make -C {tree} mrproper")
    if (tree / "mm/gcma").exists():
        raise LabError(f"KERNEL_TREE={tree} has GCMA in it already; give a tree without")
    return version


def _fingerprint(tree: Path) -> str:
    """Changes whenever a file of the tree does, without reading a gigabyte."""
    digest = hashlib.sha256(str(tree).encode())
    for directory, names, files in os.walk(tree):
        names[:] = sorted(n for n in names if n != ".git")
        for name in sorted(files):
            info = os.lstat(f"{directory}/{name}")
            digest.update(f"{directory}/{name} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _file_hash(path: Path) -> str:
    """Hash of a large file, read once as long as it does not change."""
    info = path.stat()
    note = cache() / "hashes" / sha256(f"{path} {info.st_size} {info.st_mtime_ns}")[:24]
    if not note.is_file():
        with path.open("rb") as file:
            write_if_changed(note, hashlib.file_digest(file, "sha256").hexdigest())
    return note.read_text()


def _given_tree(series: str) -> tuple[Path, str] | None:
    """The tree of this series in $KERNEL_TREE, and its version."""
    for given in filter(None, os.environ.get("KERNEL_TREE", "").split(os.pathsep)):
        tree = Path(given).resolve()
        version = require_linux(tree)
        if _series(version) == series:
            return tree, version
    return None


def _tarball(series: str) -> Path:
    """Debian's source of a series: what is installed, or else a copy in the cache."""
    package = f"linux-source-{series}"
    tarball = Path("usr/src") / f"{package}.tar.xz"
    if (Path("/") / tarball).is_file():
        return Path("/") / tarball
    root = cache() / f"debian-{package}"
    require_space(cache(), BUILD_MIB)
    try:
        debian.unpacked(root, [package], suite=SUITES[series])
    except LabError as error:
        raise LabError(f"{error}\nOr set KERNEL_TREE to a tree of Linux {series}") from error
    return root / tarball


@once
def source(series: str) -> Source:
    """The pristine source tree of a series, unpacked or copied when it is not there yet."""
    given = _given_tree(series)
    if given:
        tree, version = given
        ident = f"{version}-{_fingerprint(tree)[:12]}"
    else:
        tarball = _tarball(series)
        ident = f"debian-{_file_hash(tarball)[:12]}"
    path = cache() / "src" / ident
    with locked(cache() / "src/.lock"):
        if not path.is_dir():
            require_space(cache(), BUILD_MIB)
            fresh = Path(tempfile.mkdtemp(prefix="new-", dir=cache() / "src"))
            try:
                if given:
                    _copy_in(given[0], fresh)
                else:
                    _unpack(tarball, fresh)
                fresh.chmod(0o755)
                fresh.rename(path)
                _forget_unused()
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
        os.utime(path)  # the latest use, for _forget_unused()
    return Source(_version((path / "Makefile").read_text()), ident, path)


def _forget_unused() -> None:
    """Remove sources that nobody used for weeks, and trees and builds of theirs."""
    for path in (cache() / "src").glob("*-*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > SOURCE_KEPT_S:
            of_it = [
                *(cache() / "tree").glob(f"{path.name}*"),
                *(cache() / "build").glob(f"{path.name}-*"),
            ]
            for each in (*of_it, path):
                shutil.rmtree(each, ignore_errors=True)


def _unpack(tarball: Path, into: Path) -> None:
    with progress.meter(f"unpacking {tarball.name}") as meter:
        child.run(
            [*("tar", "-xf", tarball, "-C", into, "--strip-components=1")],
            log=cache() / "unpack.log",
            limit_s=900,
            what=f"unpacking {tarball}",
            on_poll=lambda: meter.at(sum(1 for _ in into.iterdir()) / 27),
        )


def _copy_in(tree: Path, into: Path) -> None:
    with progress.meter(f"copying {tree}"):
        child.run(
            [*("tar", "-C", tree, "--exclude=./.git", "-cf", into / ".copy.tar", ".")],
            log=cache() / "unpack.log",
            limit_s=900,
            what=f"reading {tree}",
        )
        child.run(
            [*("tar", "-C", into, "-xf", into / ".copy.tar")],
            log=cache() / "unpack.log",
            limit_s=900,
            what=f"copying {tree}",
        )
        (into / ".copy.tar").unlink()


def inputs(series: str) -> list[Path]:
    """What of kernel/ ends up in an image."""
    return [KERNEL / name for name in ("mm", "include", f"patches/{series}", "apply", "lab")]


def _files_in(patches: Path, which: str = "*.patch") -> list[str]:
    """Files that the patches of a directory change."""
    names: set[str] = set()
    for patch in patches.glob(which):
        names.update(re.findall(r"^\+\+\+ b/([^\t\n]+)", patch.read_text(), re.MULTILINE))
    return sorted(names)


def patched_files(series: str) -> list[str]:
    """Existing files that the patches change, those of other subsystems too."""
    return _files_in(KERNEL / f"patches/{series}", "**/*.patch")


def new_files() -> list[str]:
    """Files that kernel/apply copies."""
    found: list[str] = []
    for top in ("mm", "include", "Documentation", "tools"):
        found += [str(p.relative_to(KERNEL)) for p in (KERNEL / top).rglob("*") if p.is_file()]
    return sorted(found)


def _snapshot(root: Path) -> dict[str, Path]:
    return {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}


def _put(target: Path, origin: Path) -> bool:
    """Make target a copy of origin unless it is one; never write through a hard link."""
    mode = stat.S_IMODE(origin.stat().st_mode)
    if (
        target.is_file()
        and target.read_bytes() == origin.read_bytes()
        and stat.S_IMODE(target.stat().st_mode) == mode
    ):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".nocopy-new")
    shutil.copyfile(origin, fresh)
    fresh.chmod(mode)
    fresh.replace(target)
    return True


def _add(additions: Path, scratch: Path) -> None:
    """Put files and patches of a directory on a tree."""
    for name, origin in _snapshot(additions).items():
        if not name.endswith(".patch"):
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, scratch / name)
    for patch in sorted(additions.glob("*.patch")):
        child.run(
            [
                "patch",
                "-d",
                scratch,
                "-p1",
                "-F0",
                "-N",
                "-f",
                "-s",
                "--no-backup-if-mismatch",
                "-i",
                patch,
            ],
            log=cache() / "apply.log",
            limit_s=60,
            what=f"applying {patch}",
        )


def sync_tree(
    pristine: Path,
    tree: Path,
    apply: Path,
    touched: Sequence[str],
    *additions: Path,
) -> list[str]:
    """Bring tree up to date with pristine + apply + additions; the files that were written.

    apply runs on a scratch copy of the few files it changes, and only what differs is copied
    into the tree: times of all other files stay, and make rebuilds what it must.
    """
    manifest = tree.with_name(tree.name + ".manifest")
    if not tree.is_dir():
        fresh = tree.with_name(tree.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        tree.parent.mkdir(parents=True, exist_ok=True)
        # Hard links: files are replaced here, never written into.
        child.run(
            ["cp", "-al", pristine.resolve(), fresh],
            log=cache() / "tree.log",
            limit_s=600,
            what="copying the kernel tree",
        )
        fresh.rename(tree)
        manifest.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="nocopy-apply-") as temp:
        scratch = Path(temp) / "tree"
        added = [name for directory in additions for name in _files_in(directory)]
        for name in {*touched, *added, "Makefile", "mm/cma.c"}:
            if (pristine / name).is_file():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(pristine / name, scratch / name)
        if apply.is_file():
            child.run([apply, scratch], log=cache() / "apply.log", limit_s=120, what="kernel/apply")
        for directory in additions:
            _add(directory, scratch)
        wanted = _snapshot(scratch)
        before = set(json.loads(manifest.read_text())) if manifest.is_file() else set()
        write_if_changed(manifest, json.dumps(sorted(before | set(wanted))))
        written = [name for name, origin in wanted.items() if _put(tree / name, origin)]
        for name in sorted(before - set(wanted)):
            if (pristine / name).is_file():
                if _put(tree / name, pristine / name):
                    written.append(name)
            elif (tree / name).is_file():
                (tree / name).unlink()
                written.append(name)
        write_if_changed(manifest, json.dumps(sorted(wanted)))
    return written


def tree_path(series: str) -> Path:
    return cache() / "tree" / source(series).ident


def hold() -> contextlib.AbstractContextManager[None]:
    """Hold the trees, which all labs of this cache share: nobody else changes one meanwhile."""
    return locked(cache() / "tree/.lock")


def patched_tree(series: str) -> Path:
    """The source with GCMA and the lab's additions on it, up to date."""
    with hold(), disk_full_is_one_line(cache()):
        return complete(series)


def complete(series: str) -> Path:
    tree = tree_path(series)
    files = patched_files(series)
    apply, added = KERNEL / "apply", (ADDITIONS, ADDITIONS / series)
    sync_tree(source(series).path, tree, apply, files, *added)
    return tree


# How long a source is kept that nobody uses.
SOURCE_KEPT_S: Final = 30 * 24 * 3600
