# SPDX-License-Identifier: MIT OR Apache-2.0
"""Python environments in the cache, of what one command or check needs and the lab does not."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from nocopy_lab import child, progress
from nocopy_lab.paths import LOGS, cache, locked, sha256


def of(name: str, requirements: Sequence[str]) -> Path:
    """Where an environment with these packages is; made when it is not there yet.

    Raises:
        LabError: pip cannot install them; the text says what it said.
    """
    home = cache() / f"{name}-{sha256(sys.version, *requirements)[:12]}"
    with locked(cache() / f"{name}.lock"):
        if not home.is_dir():
            fresh = home.with_name(home.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            with progress.meter(f"installing {', '.join(requirements)} into {home}"):
                commands: dict[str, list[str | Path]] = {
                    "venv": [sys.executable, "-m", "venv", fresh],
                    "pip": [fresh / "bin/python", "-m", "pip", "-q", "install", *requirements],
                }
                for what, words in commands.items():
                    log = LOGS / f"{name}-{what}.log"
                    child.run(words, log=log, limit_s=300, what=f"{what} for {name}")
            fresh.rename(home)
    return home
