# SPDX-License-Identifier: MIT OR Apache-2.0
"""What --only means, in every command that has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nocopy_lab.paths import LabError


def parts(only: str) -> list[str]:
    return [part.strip() for part in only.split(",") if part.strip()]


def chosen(only: str, names: Collection[str], what: str, hint: str = "") -> Sequence[str]:
    """Those names that have `only` in them; or, if none has, one of the parts of it that commas
    divide. All, if it is empty.

    Raises:
        LabError: no name has one of the parts in it. It ends with `hint`, or with all names.
    """
    if found := [name for name in names if only in name]:
        return found
    for part in parts(only) or [only]:
        if not any(part in name for name in names):
            there = hint or f"there are: {', '.join(names)}"
            raise LabError(f"no {what} has '{part}' in its name; {there}")
    return [name for name in names if any(part in name for part in parts(only))]
