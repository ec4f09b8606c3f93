# SPDX-License-Identifier: MIT OR Apache-2.0
"""What bench_pdio measured, and what can be asked of it; from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nocopy_lab.experiments.bench_pdio import MIB

Record = dict[str, Any]


def runs_of(record: Record) -> list[Record]:
    runs: list[Record] = record["runs"]
    return runs


def speeds_of(record: Record) -> list[float]:
    return [run["bytes"] / run["seconds"] / MIB for run in runs_of(record)]


def system_ms_of(record: Record) -> list[float]:
    return [run["system_kernel_ms"] / run["bytes"] * (1 << 30) for run in runs_of(record)]


def fio_speed(row: Record) -> float:
    return float(row["bytes"] / row["ms"] * 1e3 / MIB)


class Measured:
    """Stored results, and what can be asked of them; what is missing is absent or NaN."""

    def __init__(self, results: Record) -> None:
        self.results = results
        self.host: Mapping[str, Record] = results["host"]
        self.board: Mapping[str, Record] = results["board"]

    @staticmethod
    def cells(data: Record) -> dict[tuple[str, str, int], Record]:
        return {
            (one["direction"], one["mode"], one["block"]): one
            for target in data.get("targets", [])
            for one in target["results"]
        }

    def on_host(self, run: str) -> dict[tuple[str, str, int], Record]:
        return self.cells(self.host[run]["data"]) if run in self.host else {}

    def on_board(self, run: str, bench: str = "") -> dict[tuple[str, str, int], Record]:
        """By direction, mode and block; of one of the run's benches, or all."""
        found: dict[tuple[str, str, int], Record] = {}
        for row in self.board.get(run, {"rows": []})["rows"]:
            if row.get("type") == "bench" and bench in ("", row["name"]):
                found |= self.cells(row["data"])
        return found

    def fio(self, run: str, direction: str, block: int, fallocate: str) -> Record | None:
        """fio's fastest stream, of all depths."""
        made = [
            row
            for row in self.board.get(run, {"rows": []})["rows"]
            if row.get("type") == "fio"
            and (row["direction"], row["block"], row["fallocate"]) == (direction, block, fallocate)
        ]
        return max(made, key=fio_speed, default=None)

    def line(self, run: str, direction: str, mode: str, key: str = "mib_per_s") -> dict[int, float]:
        """A quantity of the paper's sweep over block sizes."""
        return {
            block: one[key]
            for (d, m, block), one in self.on_board(run).items()
            if (d, m) == (direction, mode)
        }

    def share(self, run: str, direction: str, mode: str, key: str) -> dict[int, float]:
        """Of the time that was not idle, percent."""
        return {
            block: one["profile"][key]
            for (d, m, block), one in self.on_board(run).items()
            if (d, m) == (direction, mode) and one["profile"]
        }
