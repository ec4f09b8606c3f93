# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers as people read them."""

from __future__ import annotations

import math


def duration(ns: float) -> str:
    """Three digits and a unit."""
    if math.isnan(ns):
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def binary_size(size: float) -> str:
    """4096 is 4 KiB."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size:.0f} B"
