# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian packages that are unpacked into the cache and not installed.

apt does it in a directory of its own, so that nothing of the machine changes: not its sources, not
its lists, not its packages. It checks the signature of the lists with Debian's keys, and each
package with the lists.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from nocopy_lab import child, progress
from nocopy_lab.paths import LabError, cache, locked, require_space, require_tool, sha256

MIRROR: Final = "http://deb.debian.org/debian"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIMIT_S: Final = 900.0


def unpacked(
    root: Path,
    packages: Sequence[str],
    *,
    arch: str = "",
    suite: str = "",
    dependencies: bool = False,
) -> None:
    """Fetch packages into a directory unless it is there: of another architecture, or suite; with
    all that they depend on, if wanted."""
    with locked(root.with_name(f".{root.name}.lock")):
        if not root.is_dir():
            _fetch(root, packages, arch, suite, dependencies)


def _fetch(root: Path, packages: Sequence[str], arch: str, suite: str, dependencies: bool) -> None:
    what = f"fetching Debian packages for {arch}" if arch else f"fetching {' '.join(packages)}"
    log = cache() / f"{root.name}.log"
    with (
        progress.meter(what),
        tempfile.TemporaryDirectory(prefix="nocopy-apt-", dir=cache()) as temp,
    ):
        state = Path(temp)
        for name in ("lists/partial", "archives/partial", "root"):
            (state / name).mkdir(parents=True)
        settings = {
            "Dir::State::lists": f"{temp}/lists",
            "Dir::Cache": temp,
            "Dir::State::status": "/dev/null",
            "APT::Sandbox::User": "",
            # A suite that this machine prefers, and these sources may not have.
            "APT::Default-Release": "",
        }
        if arch:
            settings |= {"APT::Architecture": arch, "APT::Architectures": arch}
        if suite:
            if not KEYRING.is_file():
                raise LabError(f"no {KEYRING}; run: apt-get install debian-archive-keyring")
            sources = state / "sources.list"
            sources.write_text(f"deb [signed-by={KEYRING}] {MIRROR} {suite} main\n")
            settings |= {"Dir::Etc::sourcelist": str(sources), "Dir::Etc::sourceparts": "/dev/null"}
        apt = ["apt-get", "-q"]
        for name, value in settings.items():
            apt += ["-o", f"{name}={value}"]
        # A part of the archive may be out of step: what counts is whether there are packages.
        lists = log.with_name(f"{root.name}-update.log")
        child.run([*apt, "update"], log=lists, limit_s=LIMIT_S, what=what, cwd=state, ok=(0, 100))
        get = ["download"]
        if dependencies:
            # Nothing is installed as far as this apt knows, so that nothing is left out.
            get = ["-y", "--no-install-recommends", "--download-only", "-o", "Debug::NoLocking=1"]
            get.append("install")
        try:
            child.run([*apt, *get, *packages], log=log, limit_s=LIMIT_S, what=what, cwd=state)
        except LabError as error:
            said = re.search(r"^[EW]: .*", lists.read_text(errors="replace"), re.MULTILINE)
            raise LabError(f"{error}\n{said[0]} (apt-get update)" if said else error) from error
        found = sorted(state.rglob("*.deb"))
        for package in found:
            unpack = ["dpkg-deb", "-x", str(package), f"{temp}/root"]
            child.run(unpack, log=log, limit_s=LIMIT_S, what=f"unpacking {package.name}")
        _merge(state / "root")
        if dependencies:
            (state / "root/packages").write_text("".join(f"{one.stem}\n" for one in found))
        (state / "root").rename(root)


def _merge(root: Path) -> None:
    """Make /bin and its like links into /usr, as they are in every system.

    Packages of some releases have files in the one, of others in the other, of some in both.
    """
    for name in ("bin", "sbin", "lib", "lib64"):
        apart, merged = root / name, root / "usr" / name
        if apart.is_dir():
            shutil.copytree(apart, merged, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(apart)
        if merged.is_dir():
            apart.symlink_to(f"usr/{name}")


DISK_MIB: Final = 2048


def _root(packages: Sequence[str], arch: str = "") -> Path:
    return cache() / f"debian-root-{arch}{'-' * bool(arch)}{sha256(*packages)[:12]}"


def versions(packages: Sequence[str], arch: str = "") -> list[str]:
    """Names and versions of the packages on a disk of them."""
    lines = (_root(packages, arch) / "packages").read_text().splitlines()
    split = (line.split("_") for line in lines)
    return [f"{name} {unquote(version)}" for name, version, _ in split if name in packages]


def disk(packages: Sequence[str], arch: str = "") -> Path:
    """An ext4 image of a root with these packages and all that they depend on.

    No script of a package has run in it: what those would have set up is not there.
    """
    root = _root(packages, arch)
    unpacked(root, packages, arch=arch, dependencies=True)
    image = root.with_suffix(".ext4")
    with locked(root.with_name(f".{image.name}.lock")):
        if not image.is_file():
            require_space(cache(), DISK_MIB)
            for place in ("dev", "proc", "sys", "tmp", "mnt"):
                (root / place).mkdir(exist_ok=True)
            fresh = image.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            mke2fs = require_tool("mke2fs", "e2fsprogs")
            words = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]
            child.run(
                [mke2fs, *words, root, fresh, f"{DISK_MIB}M"],
                log=cache() / f"{image.name}.log",
                limit_s=LIMIT_S,
                what=f"making a disk of {' '.join(packages)}",
            )
            fresh.replace(image)
    return image


def _inside(root: Path, path: Path) -> Path:
    """Where a path of an unpacked root leads to, without what lies outside."""
    while path.is_symlink():
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path


def program(packages: Sequence[str], name: str) -> dict[str, bytes]:
    """A program of a root with these packages, and the libraries that it loads, by their paths."""
    root = _root(packages)
    unpacked(root, packages, dependencies=True)
    readelf = require_tool("readelf", "binutils")
    known = {path.name: path for path in root.glob("lib/*-linux-gnu/*.so*")}
    known |= {path.name: path for path in root.glob("usr/lib/*-linux-gnu/*.so*")}
    found: dict[str, bytes] = {}
    left = [root / name]
    while left:
        path = left.pop()
        where = str(path.relative_to(root))
        if where in found:
            continue
        file = _inside(root, path)
        if not file.is_file():
            raise LabError(f"no {where} in {root}; remove that and run this again")
        found[where] = file.read_bytes()
        said = child.output([readelf, "--dynamic", "--program-headers", "--wide", file])
        left += [root / one for one in re.findall(r"interpreter: /(\S+?)\]", said)]
        for one in re.findall(r"\(NEEDED\).*\[(.+)\]", said):
            left.append(known.get(one, root / f"usr/lib/{one}"))
    return found
