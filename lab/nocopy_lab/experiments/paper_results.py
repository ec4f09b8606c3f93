# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `paper` measured, and what can be asked of it; from results.json alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

from nocopy_lab.board import BOARDS
from nocopy_lab.experiments.paper import SCORES, SIZES

Row = dict[str, Any]
# In the order of the legends: the paper's three, and a fourth.
SHOWN: Final = ("reservation", "cma", "gcma", "file-only")
NAN: Final = math.nan


class Measured:
    """Stored boots, and what can be asked of them; what is missing is empty or NaN."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.runs: list[dict[str, Any]] = results["runs"]
        self.exact = all(BOARDS[run["board"]].exact for run in self.runs)
        self.whose_times = (
            "the board counts instructions and has neither cache misses nor busy devices; its "
            "times are those of a faster machine"
            if self.exact
            else "the board is emulated, and its times are those of the emulating machine"
        )

    def _phases(self, config: str) -> Iterator[tuple[Row, list[Row], Row]]:
        """Of all boots, the last one first: what begins a phase, its rows, and what ends it."""
        for run in reversed(self.runs):
            if run["config"] != config:
                continue
            rows: list[Row] = run["rows"]
            at = [n for n, row in enumerate(rows) if row.get("type") == "phase"]
            for begin, end in itertools.pairwise([*at, len(rows)]):
                yield rows[begin], rows[begin + 1 : end], rows[end] if end < len(rows) else {}

    def phase(self, config: str, name: str) -> list[Row]:
        """Rows of a phase, of the last boot that had it."""
        found = (rows for begin, rows, _ in self._phases(config) if begin["name"] == name)
        return next(found, [])

    def card_rate(self, config: str, of: Sequence[str] = ("read", "written")) -> float:
        """Bytes that the card read, or wrote, or both, in a second of the photos under load."""
        for begin, _, end in self._phases(config):
            if begin["name"] == "fig6-loaded" and "seconds" in begin and end:
                sectors = sum(end[f"sectors_{k}"] - begin[f"sectors_{k}"] for k in of)
                return float(sectors * 512 / (end["seconds"] - begin["seconds"]))
        return NAN

    def of(self, config: str, phase: str, kind: str) -> list[Row]:
        return [row for row in self.phase(config, phase) if row.get("type") == kind]

    def run(self, name: str) -> list[Row]:
        for run in self.runs:
            if run["name"].endswith(f"-{name}"):
                rows: list[Row] = run["rows"]
                return rows
        return []

    # ------------------------------------------------------------------ allocations

    def allocations(self, config: str, phase: str, pages: int = 0) -> list[float]:
        """Times of those that succeeded."""
        rows = self.of(config, phase, "alloc")
        return [row["ns"] for row in rows if row["ok"] and pages in (0, row["pages"])]

    def failed(self, config: str, *phases: str) -> tuple[int, int]:
        """Of the allocations and shots of phases: how many failed, of how many."""
        rows = [row for phase in phases for row in self.phase(config, phase) if "ok" in row]
        return sum(not row["ok"] for row in rows), len(rows)

    def ratios(self, phase: str) -> dict[int, float]:
        """By size, how many times GCMA's mean CMA's is."""
        found: dict[int, float] = {}
        for pages in SIZES:
            cma, gcma = (self.allocations(c, phase, pages) for c in ("cma", "gcma"))
            if cma and gcma:
                found[pages] = fmean(cma) / fmean(gcma)
        return found

    # ----------------------------------------------------------------------- photos

    def shots(
        self,
        config: str,
        pattern: str,
        field: str,
        phase: str = "fig6-loaded",
        *,
        interrupted: bool = True,
    ) -> list[float]:
        """A time of the shots that take pieces ("pi"), or of the others ("vivid").

        Without those in whose REQBUFS another thread had the processor, if so wished.
        """
        return [
            row[field]
            for row in self.of(config, phase, "shot")
            if ("pieces" in row) == (pattern == "pi") and row["ok"]
            if interrupted or row.get("reqbufs_switches") == 0
        ]

    def pieces(self, config: str, phase: str) -> list[float]:
        rows = self.of(config, phase, "shot")
        return [ns for row in rows for ns in row.get("pieces", ())]

    # ------------------------------------------------------------------------- load

    def scores(self, config: str, camera: bool, field: str) -> list[float]:
        """Pieces a second, of each third of the phase, or Blogbench's scores."""
        blogbench = self.results["load"] == "Blogbench"
        with_camera = "fig7-camera" if blogbench else "fig6-loaded"
        rows = self.phase(config, with_camera if camera else "fig7-alone")
        if blogbench:
            return [row[field] for row in rows if row.get("type") == "score"]
        return rates(rows, field, SCORES)

    def table3(self, config: str, what: str) -> float:
        rows = [row for row in self.run(f"table3-{config}") if row.get("what") == what]
        return fmean([row["value"] for row in rows]) if rows else NAN


def rates(rows: Sequence[Row], field: str, parts: int = 1) -> list[float]:
    """What the load got done in a second, in equal parts of the time."""
    ticks = [row for row in rows if row.get("type") == "blog_tick"]
    if len(ticks) <= parts:
        return []
    at = [ticks[round(n * (len(ticks) - 1) / parts)] for n in range(parts + 1)]
    return [
        (b[field] - a[field]) / (b["seconds"] - a["seconds"]) for a, b in itertools.pairwise(at)
    ]


def hit_rate(rows: Sequence[Row]) -> float:
    """Of the pages that had been evicted and were wanted again: how many the area had."""
    begin, end = (row["vmstat"] for row in rows if row.get("type") == "gcma_stats")
    delta = {name: end[name] - begin.get(name, 0) for name in end}
    served = delta["gcma_read_file"] + delta["gcma_load_file"] + delta["gcma_load_swap"]
    wanted = served + delta["gcma_miss_file"] + delta["gcma_miss_swap"]
    return served / wanted if wanted else NAN


def mean(values: Sequence[float]) -> float:
    return fmean(values) if values else NAN


# What is measured: its name, the unit, whether less is better.
TABLE3: Final = {
    "lat_ctx_us": ("context switch", "µs", True),
    "file_mibps": ("file read again", "MiB/s", False),
    "mem_read_mibps": ("memory read", "MiB/s", False),
    "mem_write_mibps": ("memory write", "MiB/s", False),
}
