# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian packages that are unpacked into the cache and not installed.

apt does it in a directory of its own, so that nothing of the machine changes: not its sources, not
its lists, not its packages. It checks the signature of the lists with Debian's keys, and each
package with the lists.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import child, progress
from nocopy_lab.paths import LabError, cache, locked

MIRROR: Final = "http://deb.debian.org/debian"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIMIT_S: Final = 900.0


def unpacked(root: Path, packages: Sequence[str], *, arch: str = "", suite: str = "") -> None:
    """Fetch packages into a directory unless it is there: of another architecture, or suite."""
    with locked(root.with_name(f".{root.name}.lock")):
        if not root.is_dir():
            _fetch(root, packages, arch, suite)


def _fetch(root: Path, packages: Sequence[str], arch: str, suite: str) -> None:
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
        child.run([*apt, "update"], log=log, limit_s=LIMIT_S, what=what, cwd=state, ok=(0, 100))
        child.run([*apt, "download", *packages], log=log, limit_s=LIMIT_S, what=what, cwd=state)
        for package in sorted(state.glob("*.deb")):
            unpack = ["dpkg-deb", "-x", str(package), f"{temp}/root"]
            child.run(unpack, log=log, limit_s=LIMIT_S, what=f"unpacking {package.name}")
        (state / "root").rename(root)
