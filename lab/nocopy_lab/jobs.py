# SPDX-License-Identifier: MIT OR Apache-2.0
"""The shell scripts of guests: files in lab/guest/jobs, with functions from lab/guest/lib."""

from __future__ import annotations

import shlex

from nocopy_lab.paths import GUEST


def script(name: str, **values: object) -> str:
    """The script of this name, after a variable for each of the values."""
    text = (GUEST / f"jobs/{name}.sh").read_text()
    given = [f"{name}={shlex.quote(str(value))}\n" for name, value in values.items()]
    return "".join(given) + text


def library() -> dict[str, bytes]:
    """What scripts find in the guest's /lib; every script begins as if it read lab.sh."""
    return {f"lib/{file.name}": file.read_bytes() for file in sorted((GUEST / "lib").glob("*.sh"))}
