# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the paper says, and our targets: whether it holds for what was measured, and why not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final

from nocopy_lab.experiments.paper import (
    CARD_BYTES_PER_S,
    FIG5_PAGES,
    GIVE_UP_S,
)
from nocopy_lab.experiments.paper_results import SHOWN, TABLE3, Measured, mean
from nocopy_lab.report import NAMES, Goal, Statement, percentile
from nocopy_lab.units import duration

HOLDS: Final = "holds"
STRONGER: Final = "stronger"


def _not(because: str) -> str:
    return f"does not hold, because {because}"


def times(value: float) -> str:
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
                base = mean(self.data.scores("reservation", camera, field))
                for config in SHOWN:
                    mine = mean(self.data.scores(config, camera, field))
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
            "6.1 ×", f"{duration(cma)}, {duration(base)}: {times(cma / base)}", verdict,
        )  # fmt: skip

    def speed(self) -> Statement:
        idle, loaded = (list(self.data.ratios(f"fig4-{w}").values()) for w in ("idle", "loaded"))
        least, most = min(idle + loaded), max(idle + loaded)
        ours = f"{times(least)} to {times(most)}, idle and under load"
        verdict = STRONGER if least >= 15 else _not(f"one size is only {times(least)} faster")
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
        ours = ", ".join(f"{NAMES[c]}: worst = {times(s)} median" for c, s in spread.items())
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
        ours = f"{times(ratios[least])} ({least:,} pages) to {times(ratios[most])} ({most:,} pages)"
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
            f"mean {duration(idle)} → {duration(loaded)} ({times(loaded / idle)}), "
            f"CMA {duration(cma[0])} → {duration(cma[1])} ({times(cma[1] / cma[0])})",
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
            "about 15 ×", f"{duration(cma)}, {duration(gcma)}: {times(cma / gcma)}",
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
            f"mean {times(ratio)} reservation's, worst {duration(max(cma))}",
            HOLDS if ratio > 2 else _not("the means are near"),
        )  # fmt: skip

    def fig6a_gcma(self) -> Statement:
        gcma, base = self._shots("gcma"), self._shots("reservation")
        ratio = fmean(gcma) / fmean(base)
        return Statement(
            "5.4, fig. 6a", "and GCMA's are similar to reservation's", "1.04 s at worst",
            f"mean {times(ratio)} reservation's, worst {duration(max(gcma))}",
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
    used = [data.card_rate(c) for c in ("reservation", "cma", "gcma")]
    if not data.exact:
        mibps = " to ".join(f"{rate / (1 << 20):.1f}" for rate in (min(used), max(used)))
        return (
            f"the emulated card is what takes the time: it moves {mibps} MiB/s, whatever is "
            "in memory, and what few files are written is up to chance"
        )
    share = min(used) / CARD_BYTES_PER_S
    if not share > 0.9:
        return "a score is lower, which the card does not explain: it is not busy"
    base, gcma = (data.card_rate(c, ("read",)) / (1 << 20) for c in ("reservation", "gcma"))
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
                f"{times(ratios[least])} at least ({least:,} pages)", ratios[least] >= factor,
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
            score = {c: mean(data.scores(c, camera, field)) for c in SHOWN}
            for other, wanted in (("reservation", 1.0), ("cma", 1.0 if camera else 0.95)):
                ratio = score["gcma"] / score[other]
                if not math.isnan(ratio):
                    yield Explained(
                        f"{field}{', camera on' if camera else ''}",
                        f"≥ {wanted:g} × {NAMES[other]}", f"{ratio:.3f} ×", ratio >= wanted,
                        card_bound,
                    )  # fmt: skip
