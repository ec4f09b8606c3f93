# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of this machine, whose Debian packages are installed if they are missing."""

from __future__ import annotations

import os
import shutil
from functools import cache as once

from nocopy_lab import child
from nocopy_lab.crates import Unavailable
from nocopy_lab.paths import LOGS, LabError, cache, locked


@once
def install(package: str) -> bool:
    """Install a Debian package; false if that fails."""
    apt = shutil.which("apt-get")
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if apt is None or (sudo and shutil.which("sudo") is None):
        return False
    quiet = ["-q", "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    log = LOGS / f"apt-{package}.log"
    with locked(cache() / "setup.lock"):
        for words in (["update"], ["install", "--no-install-recommends", package]):
            try:
                child.run(
                    [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", apt, *quiet, *words],
                    log=log,
                    limit_s=600,
                    what=f"apt-get {words[0]}",
                )
            except LabError:
                return False
    return True


def need(program: str, package: str) -> str:
    """Full path of a program, whose package is installed if it is missing."""
    search = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    for last in (False, True):
        found = shutil.which(program, path=search)
        if found:
            return found
        if last or not install(package):
            break
    raise Unavailable(f"no {program}, and Debian's {package} cannot be installed")
