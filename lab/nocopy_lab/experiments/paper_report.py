# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `paper` measured, next to what the paper says; from results.json alone."""

from __future__ import annotations

import gzip
import itertools
import math
import re
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from nocopy_lab import report, samples
from nocopy_lab.board import BOARDS, CMA_MIB
from nocopy_lab.experiments.paper import (
    AREAS_MIB,
    CAMERA_PAUSE_S,
    CARD_BYTES_PER_S,
    FIG5_PAGES,
    GIVE_UP_S,
    HERE,
    HUGE_PAGES,
    SCORES,
    SIZES,
    USES_PERCENT,
    WARM_S,
)
from nocopy_lab.paths import REPO
from nocopy_lab.report import COLOURS, NAMES, Figure, Goal, Statement, Table, percentile
from nocopy_lab.units import duration

Row = dict[str, Any]
# In the order of the legends: the paper's three, and a fourth.
SHOWN: Final = ("reservation", "cma", "gcma", "file-only")
NAN: Final = math.nan
DOCS: Final = REPO / "docs/results"


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

    def card_rate(self, config: str, name: str, of: Sequence[str] = ("read", "written")) -> float:
        """Bytes that the card read, or wrote, or both, in a second of a phase."""
        for begin, _, end in self._phases(config):
            if begin["name"] == name and "seconds" in begin and end:
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


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else NAN


# ---------------------------------------------------------------------- statements


HOLDS: Final = "holds"
STRONGER: Final = "stronger"


def _not(because: str) -> str:
    return f"does not hold, because {because}"


def _times(value: float) -> str:
    return f"{value:,.0f} ×" if value >= 100 else f"{value:.3g} ×"


def _span(values: Sequence[float]) -> str:
    return f"{duration(min(values))} to {duration(max(values))}"


class Statements:
    """All statements of sections 1 and 5 that say what was measured. Each method is one of them,
    and says nothing when its runs are missing."""

    def __init__(self, data: Measured) -> None:
        self.data = data

    def all(self) -> list[Statement]:
        made: list[Statement] = []
        for one in (
            self.worst_shot, self.speed, self.predictable, self.no_degradation, self.no_overhead,
            self.migration_fails,
            self.fig4, self.fig4_failures, self.fig4_discards, self.fig5a_gcma, self.fig5a_cma,
            self.fig5b_gcma, self.fig5b_cma, self.dispersed, self.insensitive, self.fig6_idle,
            self.fig6_each, self.fig6_few, self.fig6a_cma, self.fig6a_gcma, self.fig6b_cma,
            self.fig6b_gcma, self.table3_baseline, self.table3_margin, self.fig7_every,
            self.fig7_better, self.fig7_degradation,
        ):  # fmt: skip
            try:
                made.append(one())
            except (ValueError, ZeroDivisionError, statistics.StatisticsError):
                continue  # that was not run
        return made

    # ---------------------------------------------------------------- what is asked often

    def _shots(self, config: str, phase: str = "fig6-loaded") -> list[float]:
        return self.data.shots(config, "pi", "frame_ns", phase)

    def _alloc_sums(self, config: str) -> list[float]:
        return self.data.shots(config, "pi", "pieces_ns")

    @cached_property
    def _scores(self) -> dict[tuple[str, bool, str], float]:
        """Means, as parts of what reservation has."""
        made: dict[tuple[str, bool, str], float] = {}
        for camera in (False, True):
            for field in ("writes", "reads"):
                base = _mean(self.data.scores("reservation", camera, field))
                for config in SHOWN:
                    mine = _mean(self.data.scores(config, camera, field))
                    made[config, camera, field] = mine / base
        if any(math.isnan(made[c, w, f]) for c, w, f in made if c != "file-only"):
            raise ValueError
        return made

    # ------------------------------------------------------------------------- section 1

    def worst_shot(self) -> Statement:
        cma, base = max(self._shots("cma")), max(self._shots("reservation"))
        verdict = STRONGER if cma / base >= 9.8 / 1.6 else _not("CMA's worst case is nearer")
        return Statement(
            "1, fig. 1", "the longest photo shot takes 9.8 s with CMA, 1.6 s with reservation",
            "6.1 ×", f"{duration(cma)}, {duration(base)}: {_times(cma / base)}", verdict,
        )  # fmt: skip

    def speed(self) -> Statement:
        idle, loaded = (list(self.data.ratios(f"fig4-{w}").values()) for w in ("idle", "loaded"))
        least, most = min(idle + loaded), max(idle + loaded)
        ours = f"{_times(least)} to {_times(most)}, idle and under load"
        verdict = STRONGER if least >= 15 else _not(f"one size is only {_times(least)} faster")
        return Statement(
            "1, fig. 4", "allocations are 15 to 130 times as fast as CMA's", "15 to 130 ×", ours,
            verdict,
        )  # fmt: skip

    def predictable(self) -> Statement:
        spread = {
            c: max(v) / percentile(v, 0.5)
            for c in ("cma", "gcma")
            for v in (self.data.allocations(c, "fig5-loaded"),)
        }
        ours = ", ".join(f"{NAMES[c]}: worst = {_times(s)} median" for c, s in spread.items())
        good = spread["gcma"] < spread["cma"]
        return Statement(
            "1, fig. 5b", "and much more predictable", "–", ours,
            HOLDS if good else _not(
                f"GCMA's worst case is further from its median, if only "
                f"{duration(max(self.data.allocations('gcma', 'fig5-loaded')))}; CMA's are ended "
                f"after {GIVE_UP_S} s"
            ),
        )  # fmt: skip

    def no_degradation(self) -> Statement:
        ratios = list(self._against_cma.values())
        return Statement(
            "1, fig. 7", "without degradation of system performance compared with CMA", "≥ 1",
            f"the load's scores are {min(ratios):.2f} to {max(ratios):.2f} of CMA's",
            HOLDS if min(ratios) >= 0.95 else _not(card_bound(self.data)),
        )  # fmt: skip

    def _waited(self) -> str:
        """What GCMA's longest shots are made of."""
        usual = percentile(self._shots("gcma"), 0.5)
        return (
            f"of {duration(max(self._shots('gcma')))} all allocations took "
            f"{duration(max(self._alloc_sums('gcma')))}; a usual shot takes {duration(usual)}, "
            "and what differs is the time that the processors and the camera took for the frame"
        )

    def no_overhead(self) -> Statement:
        gcma, base = max(self._shots("gcma")), max(self._shots("reservation"))
        verdict = HOLDS if gcma <= 1.1 * base else _not(self._waited())
        return Statement(
            "1, fig. 6a", "no overhead on photo shots under load, compared with reservation",
            "1.04 s, 1.6 s at worst", f"{duration(gcma)}, {duration(base)} at worst", verdict,
        )  # fmt: skip

    def migration_fails(self) -> Statement:
        failed, of = self.data.failed("cma", "fig4-loaded", "fig5-loaded", "fig6-loaded")
        if not of:
            raise ValueError
        return Statement(
            "1", "with CMA, migration usually takes long and fails from time to time", "–",
            f"{failed} of {of} allocations and shots under load failed",
            HOLDS if failed else _not("nothing failed in this run, it only took long"),
        )  # fmt: skip

    # ----------------------------------------------------------------------- section 5.2

    def fig4(self) -> Statement:
        ratios = self.data.ratios("fig4-idle")
        least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        ours = (
            f"{_times(ratios[least])} ({least:,} pages) to {_times(ratios[most])} ({most:,} pages)"
        )
        good = ratios[least] >= 14.89
        return Statement(
            "5.2, fig. 4", "in the mean, GCMA is 14.89 to 129.41 times as fast, idle",
            "14.89 to 129.41 ×", ours, STRONGER if good else _not("of one size"),
        )  # fmt: skip

    def fig4_failures(self) -> Statement:
        cma, gcma = (self.data.failed(c, "fig4-idle") for c in ("cma", "gcma"))
        if not cma[1]:
            raise ValueError
        ours = f"CMA {cma[0]} of {cma[1]}, GCMA {gcma[0]} of {gcma[1]}"
        if gcma[0]:
            verdict = _not("GCMA failed")
        elif cma[0]:
            verdict = HOLDS
        else:
            verdict = "holds for GCMA; CMA did not fail, as nothing but the lab was in memory"
        return Statement(
            "5.2, fig. 4", "idle, CMA failed once to get 32,768 pages, GCMA never failed",
            "1 of 300, 0 of 300", ours, verdict,
        )  # fmt: skip

    def fig4_discards(self) -> Statement:
        lost = self._discarded("idle")
        return Statement(
            "5.2", "without a load that wants memory, GCMA need not discard pages", "–",
            f"{lost:,} pages discarded", HOLDS if not lost else _not("there were copies"),
        )  # fmt: skip

    def _discarded(self, which: str) -> int:
        for run in reversed(self.data.runs):
            if f"-{which}-gcma" in run["name"]:
                stats = [row for row in run["rows"] if row.get("type") == "gcma_stats"]
                if stats:
                    return int(stats[-1]["vmstat"]["gcma_discard"])
        raise ValueError

    # ----------------------------------------------------------------------- section 5.3

    def _under(self, phase: str, limit_ns: float, words: str) -> Statement:
        values = self.data.allocations("gcma", phase, FIG5_PAGES)
        share = sum(v < limit_ns for v in values) / len(values)
        good = share > 0.9
        stronger = good and max(values) < limit_ns / 10
        figure = "5a" if "idle" in phase else "5b"
        return Statement(
            f"5.3, fig. {figure}", words, f"mostly < {duration(limit_ns)}",
            f"{share:.0%} below, {_span(values)}",
            STRONGER if stronger else HOLDS if good else _not(f"only {share:.0%} are"),
        )  # fmt: skip

    def fig5a_gcma(self) -> Statement:
        return self._under("fig5-idle", 1e6, "idle, GCMA's 1,024 pages mostly take less than 1 ms")

    def fig5b_gcma(self) -> Statement:
        words = "under load, GCMA's 1,024 pages mostly take less than 2 ms"
        return self._under("fig5-loaded", 2e6, words)

    def fig5a_cma(self) -> Statement:
        values = self.data.allocations("cma", "fig5-idle", FIG5_PAGES)
        good = max(values) > 100e6
        return Statement(
            "5.3, fig. 5a", "idle, CMA's take from 4 ms to more than 100 ms", "4 to > 100 ms",
            _span(values),
            HOLDS if good else _not(
                "nothing but the lab has been in this memory, so that the area is empty; "
                "and " + self.data.whose_times
            ),
        )  # fmt: skip

    def fig5b_cma(self) -> Statement:
        values = self.data.allocations("cma", "fig5-loaded", FIG5_PAGES)
        good = max(values) > 4e9
        return Statement(
            "5.3, fig. 5b", "under load, CMA's take from 4 ms to more than 4 s", "4 ms to > 4 s",
            _span(values),
            HOLDS if good else f"the order of magnitude holds; {self.data.whose_times}"
            if max(values) > 0.4e9 else _not(self.data.whose_times),
        )  # fmt: skip

    def dispersed(self) -> Statement:
        spread = {c: self.data.allocations(c, "fig5-idle") for c in ("cma", "gcma")}
        width = {c: max(v) - min(v) for c, v in spread.items()}
        ours = ", ".join(f"{NAMES[c]}: {duration(w)}" for c, w in width.items())
        good = width["cma"] > width["gcma"]
        return Statement(
            "5.3, fig. 5a", "CMA's latencies are more dispersed even when idle", "–",
            f"longest less shortest: {ours}", HOLDS if good else _not("both are constant"),
        )  # fmt: skip

    def insensitive(self) -> Statement:
        idle, loaded = (
            fmean(self.data.allocations("gcma", f"fig5-{w}")) for w in ("idle", "loaded")
        )
        cma = [fmean(self.data.allocations("cma", f"fig5-{w}")) for w in ("idle", "loaded")]
        good = loaded / idle < cma[1] / cma[0]
        return Statement(
            "5.3, fig. 5", "GCMA is insensitive to background stress", "–",
            f"mean {duration(idle)} → {duration(loaded)} ({_times(loaded / idle)}), "
            f"CMA {duration(cma[0])} → {duration(cma[1])} ({_times(cma[1] / cma[0])})",
            HOLDS if good else _not("CMA's mean grows less"),
        )  # fmt: skip

    # ----------------------------------------------------------------------- section 5.4

    def fig6_idle(self) -> Statement:
        means = {c: fmean(self._shots(c, "fig6-idle")) for c in ("reservation", "cma", "gcma")}
        ours = ", ".join(f"{NAMES[c]} {duration(m)}" for c, m in means.items())
        alike = max(means.values()) <= 1.1 * min(means.values())
        apart = means["cma"] - means["reservation"]
        return Statement(
            "5.4", "idle, photo shots take about 0.9 s in every configuration", "0.9 s", ours,
            HOLDS if alike else _not(
                f"the virtual camera's shot is so short that CMA's {duration(apart)} show; they "
                "would not in one of 0.9 s"
            ),
        )  # fmt: skip

    def fig6_each(self) -> Statement:
        cma, gcma = (fmean(self.data.pieces(c, "fig6-idle")) for c in ("cma", "gcma"))
        good = cma / gcma >= 14
        return Statement(
            "5.4", "each allocation for the camera takes 1 ms with CMA, 69 µs with GCMA",
            "about 15 ×", f"{duration(cma)}, {duration(gcma)}: {_times(cma / gcma)}",
            STRONGER if good else _not("CMA's area is empty here and gives pieces at once"),
        )  # fmt: skip

    def fig6_few(self) -> Statement:
        share = fmean(self.data.shots("cma", "pi", "pieces_ns", "fig6-idle")) / fmean(
            self._shots("cma", "fig6-idle")
        )
        return Statement(
            "5.4", "25 allocations are a small portion of a photo shot's latency (CMA, idle)",
            "25 of 900 ms", f"{share:.0%} of the shot",
            HOLDS if share < 0.1 else _not("a virtual camera has no exposure to wait for"),
        )  # fmt: skip

    def fig6a_cma(self) -> Statement:
        cma, base = self._shots("cma"), self._shots("reservation")
        ratio = fmean(cma) / fmean(base)
        return Statement(
            "5.4, fig. 6a", "under load, CMA's photo shots are much slower", "9.8 s at worst",
            f"mean {_times(ratio)} reservation's, worst {duration(max(cma))}",
            HOLDS if ratio > 2 else _not("the means are near"),
        )  # fmt: skip

    def fig6a_gcma(self) -> Statement:
        gcma, base = self._shots("gcma"), self._shots("reservation")
        ratio = fmean(gcma) / fmean(base)
        return Statement(
            "5.4, fig. 6a", "and GCMA's are similar to reservation's", "1.04 s at worst",
            f"mean {_times(ratio)} reservation's, worst {duration(max(gcma))}",
            HOLDS if ratio <= 1.1 else _not(self._waited()),
        )  # fmt: skip

    def fig6b_cma(self) -> Statement:
        values = self._alloc_sums("cma")
        return Statement(
            "5.4, fig. 6b", "the allocations of a shot take 4 ms to 10 s with CMA", "4 ms to 10 s",
            _span(values),
            HOLDS if max(values) > 1e9
            else f"the order holds, the size does not: {self.data.whose_times}",
        )  # fmt: skip

    def fig6b_gcma(self) -> Statement:
        values = self._alloc_sums("gcma")
        good = max(values) <= 3.32e6
        return Statement(
            "5.4, fig. 6b", "and 750 µs to 3.32 ms with GCMA", "0.75 to 3.32 ms", _span(values),
            STRONGER if good else _not("they take longer here"),
        )  # fmt: skip

    # ----------------------------------------------------------------------- section 5.5

    def _table3(self, config: str, base: str) -> dict[str, float]:
        """By how much better a line is than in another configuration."""
        gains: dict[str, float] = {}
        for what, (_, _, less) in TABLE3.items():
            mine, other = self.data.table3(config, what), self.data.table3(base, what)
            if math.isnan(mine / other):
                raise ValueError
            gains[what] = other / mine - 1 if less else mine / other - 1
        return gains

    def table3_baseline(self) -> Statement:
        gains = {c: self._table3(c, "reservation") for c in ("cma", "gcma")}
        ours = "; ".join(
            f"{NAMES[c]} {min(g.values()):+.2%} to {max(g.values()):+.2%}" for c, g in gains.items()
        )
        least = min(value for g in gains.values() for value in g.values())
        return Statement(
            "5.5, table 3", "CMA and GCMA tend to be a little better than reservation",
            "+0.6 to +3.1 %", ours,
            HOLDS if least > 0 else "holds within 1 %, without the tendency: none of these four "
            "needs the area" if least > -0.01 else _not("a line is more than 1 % slower"),
        )  # fmt: skip

    def table3_margin(self) -> Statement:
        gains = self._table3("gcma", "cma")
        most = max(abs(value) for value in gains.values())
        return Statement(
            "5.5, table 3", "CMA and GCMA differ by the margin of error", "≤ 0.5 %",
            f"at most {most:.2%}", HOLDS if most <= 0.01 else _not("a line differs by more"),
        )  # fmt: skip

    def _cases(self, config: str) -> str:
        cases = (("writes", False), ("reads", False), ("writes", True), ("reads", True))
        return ", ".join(
            f"{field}{' / cam' if camera else ''} {self._scores[config, camera, field]:.2f}"
            for field, camera in cases
        )

    def fig7_every(self) -> Statement:
        least = {
            c: min(v for (which, _, _), v in self._scores.items() if which == c)
            for c in ("cma", "gcma")
        }
        good = min(least.values()) >= 1
        ours = "; ".join(f"{NAMES[c]}: {self._cases(c)}" for c in ("cma", "gcma"))
        return Statement(
            "5.5, fig. 7", "the load does more with CMA and GCMA than with reservation, everywhere",
            "> 1", ours,
            HOLDS if good else _not(card_bound(self.data)),
        )  # fmt: skip

    @cached_property
    def _against_cma(self) -> dict[tuple[bool, str], float]:
        return {
            (camera, field): self._scores["gcma", camera, field]
            / self._scores["cma", camera, field]
            for camera in (False, True)
            for field in ("writes", "reads")
        }

    def fig7_better(self) -> Statement:
        ratios = self._against_cma
        ours = ", ".join(
            f"{field}{' / cam' if camera else ''} {value:.2f}"
            for (camera, field), value in ratios.items()
        )
        return Statement(
            "5.5, fig. 7", "GCMA gains more than CMA", "> 1", f"GCMA / CMA: {ours}",
            HOLDS if min(ratios.values()) >= 1 else _not(card_bound(self.data)),
        )  # fmt: skip

    def fig7_degradation(self) -> Statement:
        lost = {
            c: 1
            - fmean(self.data.scores(c, True, "reads")) / fmean(self.data.scores(c, False, "reads"))
            for c in ("cma", "gcma")
        }
        base = 1 - fmean(self.data.scores("reservation", True, "reads")) / fmean(
            self.data.scores("reservation", False, "reads")
        )
        ours = ", ".join(f"{NAMES[c]} {-value:+.1%}" for c, value in lost.items())
        verdict = HOLDS if lost["gcma"] <= lost["cma"] else _not("GCMA's lost more here")
        if max(lost.values()) <= 0:
            verdict = "not tested: photos cost neither anything"
        return Statement(
            "5.5, fig. 7", "photos cost GCMA's load less than CMA's", "–",
            f"reads with camera against without: {ours}, Reservation {-base:+.1%}", verdict,
        )  # fmt: skip


# ------------------------------------------------------------------------- reasons


def card_bound(data: Measured) -> str:
    """Why what is written does not follow what is in memory."""
    used = [data.card_rate(c, "fig6-loaded") for c in ("reservation", "cma", "gcma")]
    if not data.exact:
        mibps = " to ".join(f"{rate / (1 << 20):.1f}" for rate in (min(used), max(used)))
        return (
            f"the emulated card is what takes the time: it moves {mibps} MiB/s, whatever is "
            "in memory, and what few files are written is up to chance"
        )
    share = min(used) / CARD_BYTES_PER_S
    if not share > 0.9:
        return "a score is lower, which the card does not explain: it is not busy"
    base, gcma = (
        data.card_rate(c, "fig6-loaded", ("read",)) / (1 << 20) for c in ("reservation", "gcma")
    )
    return (
        f"writes wait for the card, which is busy at {share:.0%} and more in each of the "
        f"three; memory saves reads from it, and readers that wait less read more: {gcma:.1f} "
        f"MiB/s of it with GCMA, {base:.1f} with reservation"
    )


def interrupted(data: Measured) -> str:
    """How long vivid's buffers take where no other thread had the processor."""
    took, hit = [], []
    for config in ("gcma", "reservation"):
        alone = data.shots(config, "vivid", "reqbufs_ns", interrupted=False)
        of = len(data.shots(config, "vivid", "reqbufs_ns"))
        if not alone:
            return "no shot tells why"
        took.append(max(alone))
        hit.append(f"{of - len(alone)} of {of} with {NAMES[config]}")
    gcma, base = took
    return (
        f"other threads had the processor while buffers were filled, in {' and '.join(hit)}; where "
        f"none had, the longest took {duration(gcma)}, {duration(base)}: {gcma / base:.3f} ×"
    )


# ------------------------------------------------------------------------- targets


@dataclass(frozen=True)
class Explained(Goal):
    """With what the measurement says of why it was missed."""

    why: Callable[[Measured], str] | None = None


def targets(data: Measured) -> Iterator[Explained]:
    """What GCMA must show, as far as it was run."""
    for pattern, field, words in (
        ("pi", "frame_ns", "photo, 25 × 64 pages"),
        ("vivid", "frame_ns", "photo, vivid's buffers"),
        ("vivid", "reqbufs_ns", "vivid's buffers alone"),
    ):
        gcma, base = (data.shots(c, pattern, field) for c in ("gcma", "reservation"))
        if gcma and base:
            yield Explained(
                f"{words}, worst", "≤ 1.1 × reservation",
                f"{duration(max(gcma))}, {duration(max(base))}: {max(gcma) / max(base):.3f} ×",
                max(gcma) <= 1.1 * max(base), interrupted if field == "reqbufs_ns" else None,
            )  # fmt: skip
    for which, factor in (("idle", 15), ("loaded", 100)):
        ratios = data.ratios(f"fig4-{which}")
        if ratios:
            least = min(ratios, key=ratios.__getitem__)
            yield Explained(
                f"mean of each size, {which}", f"≥ {factor} × as fast as CMA",
                f"{_times(ratios[least])} at least ({least:,} pages)", ratios[least] >= factor,
            )  # fmt: skip
    phases = [f"fig{n}-{w}" for n in (4, 5, 6) for w in ("idle", "loaded")]
    failed, of = data.failed("gcma", *phases)
    hour = [row for row in data.run("hour") if row.get("type") == "alloc"]
    failed, of = failed + sum(not row["ok"] for row in hour), of + len(hour)
    if of:
        yield Explained("allocations and shots that failed", "0", f"{failed} of {of:,}", not failed)
    for what, (name, _, _) in TABLE3.items():
        change = data.table3("gcma", what) / data.table3("reservation", what) - 1
        if not math.isnan(change):
            yield Explained(
                f"table 3, {name}", "within 1 % of reservation", f"{change:+.2%}",
                abs(change) <= 0.01,
            )  # fmt: skip
    for camera in (False, True):
        for field in ("writes", "reads"):
            score = {c: _mean(data.scores(c, camera, field)) for c in SHOWN}
            for other, wanted in (("reservation", 1.0), ("cma", 1.0 if camera else 0.95)):
                ratio = score["gcma"] / score[other]
                if not math.isnan(ratio):
                    yield Explained(
                        f"{field}{', camera on' if camera else ''}",
                        f"≥ {wanted:g} × {NAMES[other]}", f"{ratio:.3f} ×", ratio >= wanted,
                        card_bound,
                    )  # fmt: skip


# -------------------------------------------------------------------------- tables

# What is measured: its name, the unit, whether less is better.
TABLE3: Final = {
    "lat_ctx_us": ("context switch", "µs", True),
    "file_mibps": ("file read again", "MiB/s", False),
    "mem_read_mibps": ("memory read", "MiB/s", False),
    "mem_write_mibps": ("memory write", "MiB/s", False),
}
# The paper's values: reservation, CMA, GCMA.
TABLE3_PAPER: Final = {
    "lat_ctx_us": (147.36, 143.525, 142.93),
    "file_mibps": (511.77, 517.6, 519.73),
    "mem_read_mibps": (1426.33, 1438.33, 1434.5),
    "mem_write_mibps": (696.5, 701.25, 699.966),
}


def statement_table(data: Measured) -> Table:
    return Table(
        "The paper's statements",
        ("where", "what it says", "paper", "here", ""),
        [one.row() for one in Statements(data).all()],
    )


def target_table(data: Measured) -> Table:
    rows, reasons = [], set[str]()
    for target in targets(data):
        verdict = target.verdict
        if target.why and not target.met:
            reason = target.why(data)
            verdict += ", as above" if reason in reasons else f": {reason}"
            reasons.add(reason)
        rows.append([target.what, target.wanted, target.ours, verdict])
    return Table("What GCMA has to show", ("", "target", "measured", ""), rows)


def table3(data: Measured) -> Table | None:
    rows = []
    for what, (name, unit, _) in TABLE3.items():
        values = [data.table3(config, what) for config in SHOWN]
        if math.isnan(sum(values[:3])):
            continue
        paper = " / ".join(f"{value:g}" for value in TABLE3_PAPER[what])
        rows.append([f"{name} [{unit}]", *(f"{value:,.2f}" for value in values), paper])
    head = ("", *(NAMES[config] for config in SHOWN), "paper: reservation / CMA / GCMA")
    return Table("Table 3: an idle system", head, rows) if rows else None


def configurations(data: Measured) -> Table | None:
    """Tables 1 and 2, as the boots say themselves."""
    rows = []
    for config in SHOWN:
        for run in reversed(data.runs):
            found = [row for row in run["rows"] if row.get("type") == "system"]
            if run["config"] != config or not found:
                continue
            one = found[0]
            swap = "zram" if "zram" in one["swap"] else "a file on the card"
            # Of plain CMA's area what is free counts as free memory.
            area_kib = data.results["cma_mib"] << 10 if config == "cma" else 0
            free = [
                row["free_kib"] - area_kib for row in run["rows"] if row.get("type") == "filled"
            ]
            rows.append(
                [
                    NAMES[config],
                    f"Linux {one['linux']}",
                    f"{one['cpus']} × {one['cpu'] or 'ARMv7'}",
                    f"{data.results['memory_mib']:,} MiB",
                    f"{free[0] / 1024:,.0f} MiB" if free else "–",
                    f"{one['swap_kib'] / 1024:.0f} MiB, {swap}",
                    one["area"].strip(),
                ]
            )
            break
    head = (
        "", "kernel", "processors", "memory", "free beside the area before the load", "swap",
        "contiguous area",
    )  # fmt: skip
    return Table("Tables 1 and 2: what was booted", head, rows) if rows else None


def fig4_table(data: Measured, which: str) -> Table | None:
    rows = []
    for pages in SIZES:
        cells = []
        for config in SHOWN:
            values = data.allocations(config, f"fig4-{which}", pages)
            tried = [
                row for row in data.of(config, f"fig4-{which}", "alloc") if row["pages"] == pages
            ]
            bad = len(tried) - len(values)
            said = [duration(_mean(values))] if values else []
            said += [f"{bad} of {len(tried)} failed"] if bad else []
            cells.append(", ".join(said))
        ratio = data.ratios(f"fig4-{which}").get(pages, NAN)
        if any(cells):
            rows.append([f"{pages:,}", *cells, "" if math.isnan(ratio) else _times(ratio)])
    head = ("pages", *(NAMES[config] for config in SHOWN), "CMA / GCMA")
    return Table(f"Fig. 4: mean latency, {which}", head, rows) if rows else None


def beyond(data: Measured) -> list[Table]:
    """What the paper has not."""
    made: list[Table] = []
    head = ("hit rate of the area", "reads", "writes")
    for title, unit, found in (
        ("The size of the area", "MiB", by_size(data)),
        ("A part of it allocated", "%", by_use(data)),
    ):
        if len(found) > 1:
            rows = [
                [f"{n} {unit}", f"{rate:.1%}", f"{reads:,.0f}/s", f"{writes:,.0f}/s"]
                for n, (rate, reads, writes) in found.items()
            ]
            made.append(Table(title, ("", *head), rows))
    hour = [row for row in data.run("hour") if row.get("type") == "alloc"]
    if hour:
        values = [row["ns"] for row in hour]
        made.append(
            Table(
                "An allocation every second for an hour, 64 to 32,768 pages",
                ("allocations", "failed", "median", "99 %", "worst"),
                [
                    [
                        f"{len(hour):,}", str(sum(not row["ok"] for row in hour)),
                        *(duration(percentile(values, q)) for q in (0.5, 0.99)),
                        duration(max(values)),
                    ]
                ],
            )
        )  # fmt: skip
    rows = []
    for kind, name in HUGE_NAMES.items():
        pools = huge(data, kind)
        if pools:
            times = [row["ns"] for row in pools]
            got = [row["got"] if kind == "compaction" else row["small"] for row in pools]
            rows.append(
                [
                    name, duration(percentile(times, 0.5)), duration(max(times)),
                    f"{min(got)} to {max(got)} of {HUGE_PAGES}",
                    f"{sum(not row['ok'] for row in pools)} of {len(pools)}",
                ]
            )  # fmt: skip
    if rows:
        head5 = ("1 GiB in pages of 2 MiB from", "median", "worst", "pages", "failed")
        made.append(Table("Huge pages while the load runs", head5, rows))
    return made


def _area(data: Measured, name: str) -> tuple[float, float, float] | None:
    """Hit rate of the area, reads and writes of the load in a second."""
    rows = data.run(name)
    at = {row["name"]: n for n, row in enumerate(rows) if row.get("type") == "phase"}
    if "end" not in at:
        return None
    stats = [row for row in rows if row.get("type") == "gcma_stats"]
    reads, writes = (rates(rows[at["begin"] : at["end"]], f)[0] for f in ("reads", "writes"))
    return hit_rate(stats), reads, writes


def by_size(data: Measured) -> dict[int, tuple[float, float, float]]:
    return {mib: found for mib in AREAS_MIB if (found := _area(data, f"area-{mib}"))}


def by_use(data: Measured) -> dict[int, tuple[float, float, float]]:
    names = {n: f"use-{n}" if n else f"area-{CMA_MIB}" for n in USES_PERCENT}
    return {n: found for n, name in names.items() if (found := _area(data, name))}


HUGE_NAMES: Final = {
    "compaction": "compaction",
    "cma": "an area that is CMA",
    "gcma": "an area that is GCMA",
}
HUGE_COLOURS: Final = {
    HUGE_NAMES["compaction"]: "#009E73",
    HUGE_NAMES["cma"]: COLOURS["cma"],
    HUGE_NAMES["gcma"]: COLOURS["gcma"],
}


def huge(data: Measured, kind: str) -> list[Row]:
    return [row for row in data.run(f"huge-{kind}") if row.get("type") == "pool"]


# ------------------------------------------------------------------------- figures

LOADED_WORDS: Final = "while the blog server runs"


def _shots_cdf(data: Measured, pattern: str, field: str) -> dict[str, list[float]]:
    return {config: data.shots(config, pattern, field) for config in SHOWN}


def figures(data: Measured, directory: Path) -> list[Figure]:
    """Draw each figure of the paper in its own form, and ours beyond."""
    drawn: list[Figure] = []

    def cdf(name: str, axis: str, caption: str, series: Mapping[str, Sequence[float]]) -> None:
        if any(series.values()):
            drawn.append(Figure(name, axis, caption))
            report.draw_cdf(directory, drawn[-1], series)

    cdf(
        "fig1", "photo shot",
        f"Fig. 1: photo shots {LOADED_WORDS}. The paper: at most 9.8 s with CMA, 1.6 s with "
        "reservation.",
        {c: data.shots(c, "pi", "frame_ns") for c in ("reservation", "cma")},
    )  # fmt: skip
    for which, words in (("idle", "idle"), ("loaded", LOADED_WORDS)):
        means = {
            c: {n: _mean(v) for n in SIZES if (v := data.allocations(c, f"fig4-{which}", n))}
            for c in SHOWN
        }
        if any(means.values()):
            drawn.append(
                Figure(
                    f"fig4-{which}", "mean latency",
                    f"Fig. 4: mean latency of contiguous allocations by size, {words}. The paper "
                    "(idle): CMA takes 14.89 to 129.41 times as long as GCMA.",
                )
            )  # fmt: skip
            report.draw_lines(directory, drawn[-1], means, "pages of 4 KiB", times=True)
    paper5 = {
        "idle": "GCMA mostly under 1 ms, CMA from 4 ms to more than 100 ms",
        "loaded": "GCMA mostly under 2 ms, CMA from 4 ms to more than 4 s",
    }
    for letter, which in (("a", "idle"), ("b", "loaded")):
        words = "idle" if which == "idle" else LOADED_WORDS
        cdf(
            f"fig5{letter}", f"allocation of {FIG5_PAGES:,} pages",
            f"Fig. 5{letter}: allocations of {FIG5_PAGES:,} pages, {words}. The paper: "
            f"{paper5[which]}.",
            {c: data.allocations(c, f"fig5-{which}", FIG5_PAGES) for c in SHOWN},
        )  # fmt: skip
    cdf(
        "fig6a", "photo shot",
        f"Fig. 6a: photo shots {LOADED_WORDS}, each with 25 allocations of 64 pages. The paper: "
        "at most 9.8 s with CMA, 1.04 s with GCMA.",
        _shots_cdf(data, "pi", "frame_ns"),
    )  # fmt: skip
    cdf(
        "fig6b", "allocations of a shot",
        "Fig. 6b: the 25 allocations of each of these shots together. The paper: 4 ms to 10 s with "
        "CMA, 750 µs to 3.32 ms with GCMA.",
        _shots_cdf(data, "pi", "pieces_ns"),
    )  # fmt: skip
    cdf(
        "fig6a-vivid",
        "photo shot",
        "The same with the virtual camera's own pattern: six buffers of 1920×1080.",
        _shots_cdf(data, "vivid", "frame_ns"),
    )
    cdf(
        "fig6b-vivid",
        "buffers of a shot",
        "And its buffers alone; with GCMA and reservation that is filling them with zeros.",
        _shots_cdf(data, "vivid", "reqbufs_ns"),
    )
    if bars := _fig7(data):
        drawn.append(
            Figure(
                "fig7", "score, reservation = 1",
                "Fig. 7: what the load gets done, alone and while a photo is taken every "
                f"{CAMERA_PAUSE_S // 2} s; median, least and most of {SCORES} runs. The paper: CMA "
                "and GCMA above 1 in every case, GCMA above CMA.",
            )
        )  # fmt: skip
        names = {NAMES[c]: COLOURS[c] for c in SHOWN}
        report.draw_groups(directory, drawn[-1], bars, names, drawn[-1].title)
    return drawn + _beyond_figures(data, directory)


def _beyond_figures(data: Measured, directory: Path) -> list[Figure]:
    drawn: list[Figure] = []

    def lines(name: str, axis: str, caption: str, points: Mapping[int, float], x: str) -> None:
        if len(points) > 1:
            drawn.append(Figure(name, axis, caption))
            report.draw_lines(directory, drawn[-1], {"gcma": points}, x)

    for name, found, words, x in (
        ("area", by_size(data), "the size of the area", "area [MiB]"),
        ("use", by_use(data), "how much of the area is allocated", "allocated [%]"),
    ):
        lines(
            f"{name}-hits", "hit rate [%]",
            f"Of the evicted pages that were wanted again, how many were in the area, by {words}.",
            {n: 100 * one[0] for n, one in found.items()}, x,
        )  # fmt: skip
        lines(
            f"{name}-reads", "reads in a second", f"What the load reads, by {words}.",
            {n: one[1] for n, one in found.items()}, x,
        )  # fmt: skip
    hour = [row["ns"] for row in data.run("hour") if row.get("type") == "alloc"]
    if hour:
        drawn.append(
            Figure(
                "hour", "cma_alloc()",
                f"An allocation of 64 to 32,768 pages every second for an hour, {len(hour):,} in "
                f"all; the longest took {duration(max(hour))}.",
            )
        )  # fmt: skip
        report.draw_cdf(directory, drawn[-1], {"gcma": hour})
    times = {name: [row["ns"] for row in huge(data, kind)] for kind, name in HUGE_NAMES.items()}
    if all(times.values()):
        drawn.append(
            Figure(
                "huge", "milliseconds",
                "512 huge pages of 2 MiB while the load has files and memory everywhere: gathered "
                "by compaction, or as 1 GiB from an area and taken apart. Median, least and most.",
            )
        )  # fmt: skip
        bars = {
            "512 pages of 2 MiB": {
                name: (min(ns) / 1e6, percentile(ns, 0.5) / 1e6, max(ns) / 1e6)
                for name, ns in times.items()
            }
        }
        report.draw_groups(directory, drawn[-1], bars, HUGE_COLOURS, "milliseconds", log=True)
    return drawn


def _fig7(data: Measured) -> dict[str, dict[str, tuple[float, float, float]]]:
    groups: dict[str, dict[str, tuple[float, float, float]]] = {}
    for camera in (False, True):
        for field in ("writes", "reads"):
            base = _mean(data.scores("reservation", camera, field))
            bars = {}
            for config in SHOWN:
                values = [v / base for v in data.scores(config, camera, field)]
                if values and not math.isnan(base):
                    bars[NAMES[config]] = (min(values), statistics.median(values), max(values))
            if bars:
                groups[f"{field.capitalize()}{' / cam' if camera else ''}"] = bars
    return groups


# --------------------------------------------------------------------------- pages


def how(results: dict[str, Any]) -> str:
    about = results["kernel"]
    board = results["runs"][0]["board"]
    if BOARDS[board].exact:
        times = (
            "Times are virtual, one nanosecond for each instruction of one processor, and the "
            "same in every run of the same programs; caches, memory bandwidth and contention are "
            "not in them."
        )
        card = "its disk gives 20 MiB/s and answers after 400 µs, like an SD card"
    else:
        times = (
            "Times are those of the emulating machine: they vary, and say who is ahead by "
            "multiples, not by per cents."
        )
        card = "its disk is the board's SD card, emulated, with 20 MiB/s at most"
    load = (
        "Blogbench"
        if results["load"] == "Blogbench"
        else "a blog server of 100 readers, 3 writers, 1 rewriter and 5 commenters on 1.2 GiB of "
        "small files, with 160 MiB of memory of its own (lab/guest/blog.c)"
    )
    return (
        f"Linux {about['release']} on the board {board} in QEMU {results['qemu']}, "
        f"{results['memory_mib']} MiB of RAM, an area of {results['cma_mib']} MiB, one kernel "
        f"image for all configurations. {times} The load is {load}; "
        f"{card}. Under load all is measured after {WARM_S} s. "
        f"Seed {results['seed']}."
    )


def _tables(data: Measured) -> list[Table]:
    found = (
        statement_table(data), target_table(data), configurations(data),
        fig4_table(data, "idle"), fig4_table(data, "loaded"), table3(data), *beyond(data),
    )  # fmt: skip
    return [table for table in found if table and table.rows]


def draw(directory: Path) -> Path:
    """Figures and page of a board; gives the page."""
    results = samples.load(directory)
    data = Measured(results)
    drawn = figures(data, directory)
    report.page(
        directory / "index.html",
        f"The GCMA paper's evaluation, on {results['runs'][0]['board']}",
        [
            report.paragraph(how(results)),
            *(report.html_table(table) for table in _tables(data)),
            "<h2>Figures</h2>\n",
            *(report.html_figure(directory, figure) for figure in drawn),
            report.paragraph("All samples and jobs: results.json next to this page.", small=True),
        ],
    )
    return directory / "index.html"


_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*\.?\d*")
APART: Final = 0.05  # of a figure, from which on two kernels are said to differ


def _apart(one: str, other: str) -> bool:
    """Do two texts have other words, or figures that differ by more than APART?"""
    pairs = [
        (float(a.replace(",", "")), float(b.replace(",", "")))
        for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=False)
    ]
    return _NUMBER.sub("", one) != _NUMBER.sub("", other) or any(
        abs(a - b) > APART * max(abs(a), abs(b)) for a, b in pairs
    )


def side_by_side(older: Measured, newer: Measured, versions: tuple[str, str]) -> Table:
    """Statements and targets whose figures differ on two kernels."""
    rows = []
    for table in (statement_table, target_table):
        before = {tuple(row[:-2]): row for row in table(older).rows}
        for row in table(newer).rows:
            same = before.get(tuple(row[:-2]))
            if same and _apart(same[-2], row[-2]):
                rows.append([*row[-4:-2], same[-2], *row[-2:]])
    return Table(
        f"What differs by more than {APART:.0%}", ("", "", *versions, f"on {versions[1]}"), rows
    )


# What two kernels differ by comes from these, as far as it is known.
WHY: Final = (
    "Plain CMA of 7.3 takes pages of an area that is idle, or full of clean cache, much faster "
    "than that of 6.12, with the lists of active and inactive pages as well, so GCMA is ahead by "
    "less. "
    "Under load its largest allocations still fail. Shots take less in every configuration, also "
    "with reservation; why was not looked into. GCMA's own allocations take what they take on 6.12."
)


def write_docs(boards: Sequence[str], later: Sequence[str] = ()) -> Path:
    """docs/results/paper.md, with the figures and the numbers behind them beside it. Of a later
    kernel, on a board that has its name and a version, it has what differs."""
    text = [
        "# The GCMA paper's evaluation, run again\n\n"
        'S. Park, M. Kim, H. Y. Yeom, "GCMA: Guaranteed Contiguous Memory Allocator", EWiLi 2015: '
        "every statement of its sections 1 and 5, what we measured, and whether it holds. Repeat "
        "it with `make paper`; this page is made by it.\n"
    ]
    for board in boards:
        data = Measured(_kept(board))
        text.append(f"\n## {board}\n\n{how(data.results)}\n\n")
        text += [report.markdown_table(table) for table in _tables(data)]
        for figure in figures(data, HERE / board):
            text.append(_shown(board, figure))
        for name in later:
            if name.rpartition("-")[0] == board and _measured(name):
                newer = Measured(_kept(name))
                versions = (data.results["kernel"]["release"], newer.results["kernel"]["release"])
                text.append(
                    f"\n## {board}, Linux {versions[1]}\n\n{how(newer.results)}\n\n{WHY}\n\n"
                )
                text.append(report.markdown_table(side_by_side(data, newer, versions)))
                for figure in figures(newer, HERE / name):
                    if figure.name in LATER_FIGURES:
                        text.append(_shown(name, figure))
    path = DOCS / "paper.md"
    path.write_text("".join(text).rstrip("\n") + "\n")
    return path


LATER_FIGURES: Final = ("fig1", "fig4-loaded", "fig7")


def _measured(board: str) -> bool:
    own = HERE / board
    return (own / "results.json").is_file() or samples.stored(own) is not None


def _kept(board: str) -> dict[str, Any]:
    """The results of a board; what was measured here is stored."""
    target = DOCS / "paper" / board
    target.mkdir(parents=True, exist_ok=True)
    if (own := HERE / board / "results.json").is_file():
        (target / "results.json.gz").write_bytes(gzip.compress(own.read_bytes(), mtime=0))
    return samples.load(HERE / board)


def _shown(board: str, figure: Figure) -> str:
    origin = HERE / board / f"{figure.name}.png"
    shutil.copyfile(origin, DOCS / "paper" / board / origin.name)
    return f"![{figure.title}](paper/{board}/{figure.name}.png)\n\n{figure.caption}\n\n"


def show(directory: Path) -> None:
    """The tables, on the terminal."""
    report.show(200, _tables(Measured(samples.load(directory))))
