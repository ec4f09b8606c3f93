# SPDX-License-Identifier: MIT OR Apache-2.0
"""What bench_brug measured: against brug's targets, against what its paper reports, in figures.

Everything here comes from results.json alone.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nocopy_lab import report, samples
from nocopy_lab.experiments.bench_brug import (
    ALIGNMENTS,
    ALL,
    COLLECTIONS,
    CONTENDERS,
    FIXED,
    FRAGMENTED,
    IN_TURN,
    KIB,
    MIB,
    NAMED,
    PAPER,
    PEERS,
    QUICK_S,
    QUICK_TIMES,
    REDIS_VALUES,
    SHORT,
    SLOW_ROUNDS,
    SLOW_S,
    START,
    SUITE,
    SUITED,
    THREADS,
    Runs,
    disagreement,
)
from nocopy_lab.report import (
    Figure,
    Statement,
    Table,
    Target,
    quartiles,
)
from nocopy_lab.units import binary_size, duration

Pick = Callable[[dict[str, Any]], float]


def seconds(record: dict[str, Any]) -> float:
    return float(record["seconds"])


def processor(record: dict[str, Any]) -> float:
    """Seconds of processor time."""
    return float(record["cpu_seconds"])


def realloc_seconds(record: dict[str, Any]) -> float:
    return float(record["realloc_seconds"])


def life(number: int) -> Pick:
    """Seconds of one of the repetitions within a process."""
    return lambda record: float(record["lives"][number])


def instructions(record: dict[str, Any]) -> float:
    return float(record["instructions"])


def throughput(record: dict[str, Any]) -> float:
    return float(record["operations"] / record["seconds"])


def peak(record: dict[str, Any]) -> float:
    """Bytes above what was resident before the work."""
    return float(record["peak_rss_bytes"] - record.get("base_rss_bytes", 0))


WAITS: Final = {"realloc": "realloc", "touch": "first touch", "step": "both, 64 KiB"}


def wait_of(what: str, which: str) -> Pick:
    """Nanoseconds: a percentile, or the worst, of single calls or touches."""
    return lambda record: float(record["waits"][what][which])


class Measured:
    """Stored runs, and what can be asked of them; what is missing or failed is an empty list."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.benches: dict[str, dict[str, Any]] = results["benches"]
        self.runs: dict[str, Runs] = results["runs"]

    def records(self, bench: str, name: str) -> list[dict[str, Any]]:
        rows = self.runs.get(bench, {}).get(name, [])
        return [row for row in rows if "failed" not in row]

    def contenders(self, bench: str) -> list[str]:
        """Those that have results."""
        return [name for name in self.runs.get(bench, {}) if self.records(bench, name)]

    def values(self, bench: str, name: str, pick: Pick = seconds) -> list[float]:
        return [pick(record) for record in self.records(bench, name)]

    def ratios(self, bench: str, name: str, other: str, pick: Pick = seconds) -> list[float]:
        """One number for each round that both were in."""
        others = {record["round"]: pick(record) for record in self.records(bench, other)}
        return [
            pick(record) / others[record["round"]]
            for record in self.records(bench, name)
            if others.get(record["round"])
        ]

    def best(self, bench: str, names: Sequence[str], pick: Pick = seconds) -> str:
        """Which of these has the lowest median; empty when none ran."""
        middles = {
            name: statistics.median(values)
            for name in names
            if (values := self.values(bench, name, pick))
        }
        return min(middles, key=lambda name: middles[name], default="")

    def failures(self) -> list[str]:
        return [
            f"{bench}, {CONTENDERS[name].label}: {row['failed']}"
            for bench, runs in self.runs.items()
            for name, rows in runs.items()
            for row in rows
            if "failed" in row
        ]


def effect(paper: float, values: Sequence[float]) -> str:
    """Says if a ratio of the paper is found again: as large, or at least on that side of 1."""
    if not values:
        return "not run"
    low, middle, high = quartiles(values)
    if abs(middle - paper) <= max(0.02, abs(paper - 1) / 2):
        return "reproduces"
    if (paper > 1 and low > 1) or (paper < 1 and high < 1):
        return "same direction, another size"
    return "does not reproduce"


# The paper's experiments in which an allocator can be chosen: what the tuner is compared in.
TUNED: Final = (
    "fig2a", "fig7", "fig8", "fig10", "fig11", "fig12", *(f"fig9-{kind}" for kind in COLLECTIONS),
)  # fmt: skip


def against_best(data: Measured, auto: str) -> dict[str, list[float]]:
    """By benchmark: the tuner's time over that of the best fixed mode, one for each round."""
    found = {}
    for bench in TUNED:
        best = data.best(bench, FIXED)
        if best and (values := data.ratios(bench, auto, best)):
            found[bench] = values
    return found


def _tuner_target(data: Measured, auto: str, words: str, limit: float) -> Target:
    compared = against_best(data, auto)
    if not compared:
        return Target(words, limit, [])
    worst = max(compared, key=lambda bench: statistics.median(compared[bench]))
    within = sum(statistics.median(values) <= limit for values in compared.values())
    return Target(
        words, limit, compared[worst], note=f"{worst}; within it in {within} of {len(compared)}"
    )


def against_bases(data: Measured, pick: Pick) -> dict[str, list[float]]:
    """By program of mimalloc-bench: what `libbrug.so` takes over what it takes with the better of
    its own bases, one for each round.
    """
    found = {}
    for bench in (bench for bench in data.benches if bench.startswith(SUITE)):
        best = data.best(bench, NAMED, processor)
        if best and (values := data.ratios(bench, "libbrug", best, pick)):
            found[bench.removeprefix(SUITE)] = values
    return found


def _base_targets(data: Measured) -> list[Target]:
    """Of what the trial's choice costs."""
    compared = against_bases(data, processor)
    if not compared:
        return []
    middles = {program: statistics.median(values) for program, values in compared.items()}
    worst = max(middles, key=lambda program: middles[program])
    within = sum(middle <= 1.05 for middle in middles.values())
    words = "processor time of programs, against the better of its own bases"
    return [
        Target(f"{words}, geometric mean", 1.01, [statistics.geometric_mean(middles.values())]),
        Target(
            f"{words}, each", 1.05, compared[worst],
            note=f"{worst}; within it in {within} of {len(compared)}",
        ),
    ]  # fmt: skip


def _per_life(record: dict[str, Any]) -> float:
    return realloc_seconds(record) / len(record["lives"]) * 1e6


def _growth_excess(data: Measured, bench: str, name: str) -> list[float]:
    """MiB above what the buffers hold, at the peak."""
    return [(peak(record) - record["live_bytes"]) / MIB for record in data.records(bench, name)]


def _burst_excess(data: Measured) -> list[float]:
    return [
        (record["idle_rss_bytes"] - 1.1 * record["live_bytes"]) / MIB
        for record in data.records("burst", "brug")
    ]


# What a mode adds to: by mode, the same base without brug.
BASES: Final = {
    "brug-sys": "glibc",
    "brug": "glibc",
    "libbrug": "glibc",
    "brug-jemalloc": "jemalloc",
    "brug-mimalloc": "mimalloc",
}


def targets(results: dict[str, Any]) -> list[Target]:
    """What brug must reach, in its order, and what was measured."""
    data = Measured(results)
    made: list[Target] = []

    def ratio(
        work: str, limit: float, bench: str, name: str, other: str, pick: Pick = seconds
    ) -> None:
        label = CONTENDERS[other].label
        made.append(
            Target(f"{work}, against {label}", limit, data.ratios(bench, name, other, pick))
        )

    cold = "doubling to 1 GiB, cold"
    ratio(cold, 1.0, "double", "brug", "glibc", life(0))
    ratio(f"{cold}, without huge pages", 1.0, "double", "brug-nothp", "glibc", life(0))
    ratio(f"{cold}, with huge pages", 0.35, "double", "brug-thp", "glibc", life(0))
    for other in ("jemalloc", "mimalloc"):
        ratio(cold, 0.45, "double", "brug", other, life(0))
    ratio("doubling to 1 GiB, warm", 0.05, "double", "brug", "glibc", life(1))
    steps = "64 KiB to 256 MiB by 64 KiB"
    ratio(f"{steps}, with huge pages", 0.35, "linear-64k", "brug-thp", "glibc")
    ratio(f"{steps}, without huge pages", 1.0, "linear-64k", "brug-nothp", "glibc")
    ratio(steps, 0.1, "linear-64k", "brug", "jemalloc")
    for bench, words in (("in-turn-double", "doubling to 1 GiB"), ("in-turn-linear-64k", steps)):
        ratio(f"{words}, as memory comes", 1.1, bench, "brug", "glibc", life(0))
    for name, (memory, _, _) in FRAGMENTED.items():
        if name != "fresh":
            ratio(f"{steps}, {memory}: p99.9 of a step", 1.5, f"fragmented-{name}", "brug", "glibc",
                  wait_of("step", "p999"))  # fmt: skip
    ratio("/bin/true, processor time", 1.15, START, "libbrug", "glibc")
    for align in (64, 128):
        for other in ("glibc", "jemalloc", "mimalloc"):
            ratio(f"doubling to 256 MiB, alignment {align}", 0.45, f"align-{align}", "brug", other)
    for bench, words in (
        ("interleaved-16", "16 vectors in turn, 4 to 128 KiB"),
        ("interleaved-4", "4 vectors in turn, 64 KiB to 4 MiB"),
    ):
        best = data.best(bench, PEERS)
        label = CONTENDERS[best].label if best else "the best peer"
        made.append(Target(f"{words}, against {label}", 1.0, data.ratios(bench, "brug", best)))
    made.append(
        Target("inside realloc, doubling to 1 GiB", 10, data.values("double", "brug", _per_life),
               "µs")
    )  # fmt: skip
    for work in ("malloc-free", "realloc", "linked-list", "btree-map"):
        for mode, base in BASES.items():
            made.append(
                Target(
                    f"instructions, {work}, {CONTENDERS[mode].label} against its base {base}",
                    1.02,
                    data.ratios(f"instructions-{work}", mode, base, instructions),
                )
            )
    made += [
        _tuner_target(data, "brug-trained", "auto against the best fixed mode, trained", 1.02),
        _tuner_target(data, "brug", "auto against the best fixed mode, training inside", 1.05),
        *(
            Target(f"peak memory above the data, {words}", limit,
                   _growth_excess(data, bench, "brug"), "MiB")
            for bench, words, limit in (
                ("peak-1", "1 buffer", 3),
                ("peak-4", "4 buffers", 12),
                ("double", "1 buffer, twice in a process", 3),
            )
        ),
        Target("memory above 1.1 × live, a second after a burst", 16, _burst_excess(data), "MiB"),
        *_base_targets(data),
    ]  # fmt: skip
    for value in REDIS_VALUES:
        made.append(
            Target(
                f"Redis, values of {binary_size(value)}, throughput of jemalloc",
                1.05 if value >= 4 * KIB else 1.0,
                data.ratios(f"fig13-{value}", "libbrug", "jemalloc-deb", throughput),
                at_least=True,
            )
        )
    return made


# ------------------------------------------------------------------- what the paper says


def _ratio_statement(where: str, text: str, paper: float, values: Sequence[float]) -> Statement:
    ours = "–"
    if values:
        low, middle, high = quartiles(values)
        ours = f"{_percent(middle)} ({_percent(low)} to {_percent(high)})"
    return Statement(where, text, _percent(paper), ours, effect(paper, values))


def _percent(ratio: float) -> str:
    """0.925 is -7.5 %, 1.95 is 1.95 ×."""
    if ratio >= 1.5 or ratio <= 0.5:
        return f"{ratio:.3g} ×"
    return f"{(ratio - 1) * 100:+.1f} %"


def _holds(known: bool, holds: bool) -> str:
    if not known:
        return "not run"
    return "reproduces" if holds else "does not reproduce"


# The four allocators of the paper's figures 1 and 2, and remapping.
FIVE: Final = ("glibc", "jemalloc", "mimalloc", "tcmalloc-deb", "brug-mmap")


def steps_by_size(data: Measured, name: str) -> dict[int, float]:
    """Median seconds of each step in the life of an object."""
    by_size: dict[int, list[float]] = {}
    for record in data.records("fig1", name):
        for step in record.get("steps", []):
            by_size.setdefault(step["size"], []).append(step["seconds"])
    return {size: statistics.median(values) for size, values in by_size.items()}


def best_by_size(data: Measured) -> dict[int, str]:
    """Who of the five is best at each step."""
    all_steps = {name: steps for name in FIVE if (steps := steps_by_size(data, name))}
    sizes = sorted({size for steps in all_steps.values() for size in steps})
    return {
        size: min(
            (name for name in all_steps if size in all_steps[name]),
            key=lambda name: all_steps[name][size],
        )
        for size in sizes
    }


def _order(data: Measured, bench: str, names: Sequence[str], pick: Pick) -> list[str]:
    middles = {n: statistics.median(v) for n in names if (v := data.values(bench, n, pick))}
    return sorted(middles, key=lambda name: middles[name])


def _labels(names: Sequence[str]) -> str:
    return ", ".join(CONTENDERS[name].label for name in names)


def _collections_spread(data: Measured) -> dict[str, float]:
    """By collection: how much longer the worst of the allocators of figure 3 takes."""
    found = {}
    for kind in COLLECTIONS:
        names = ["glibc", "jemalloc", "mimalloc"]
        middles = [statistics.median(v) for n in names if (v := data.values(f"fig9-{kind}", n))]
        if len(middles) == len(names):
            found[kind] = max(middles) / min(middles)
    return found


def _copies(data: Measured, name: str) -> list[float]:
    """Times that the object of a thread moved: the mean over threads and repetitions."""
    found = []
    for count in THREADS:
        records = data.records(f"table1-{count}", name)
        if records:
            lives = re.search(r"--lives (\d+)", data.benches[f"table1-{count}"]["command"])
            found.append(records[-1]["moves"] / count / (int(lives[1]) if lives else 1))
    return found


def statements(results: dict[str, Any]) -> list[Statement]:
    """Every figure and table of the paper."""
    data = Measured(results)
    best = list(dict.fromkeys(best_by_size(data).values()))
    made = [
        Statement(
            "Fig. 1", "the best life of an object needs several allocators", "4",
            f"{len(best)}: {_labels(best)}" if best else "–", _holds(bool(best), len(best) >= 4),
        )
    ]  # fmt: skip
    small = _order(data, "fig2a", FIVE, realloc_seconds)
    made.append(
        Statement(
            "Fig. 2a", "realloc, 4 to 128 KiB: order from the best", "glibc, jemalloc, mremap",
            _labels(small) or "–",
            _holds(bool(small), small[:3] == ["glibc", "jemalloc", "brug-mmap"]),
        )
    )  # fmt: skip
    for name in ("jemalloc", "mimalloc", "tcmalloc-deb"):
        values = data.ratios("fig2b", name, "glibc", realloc_seconds)
        middle = statistics.median(values) if values else 0.0
        made.append(
            Statement(
                "Fig. 2b", f"realloc to 2 GiB, {CONTENDERS[name].label} against glibc",
                "an order of magnitude more", f"{middle:.3g} ×" if values else "–",
                _holds(bool(values), middle >= 5),
            )
        )  # fmt: skip
    large = _order(data, "fig2b", FIVE, realloc_seconds)
    made.append(
        Statement(
            "Fig. 2b", "realloc to 2 GiB: order from the best", "mremap, glibc, the others",
            _labels(large) or "–", _holds(bool(large), large[:2] == ["brug-mmap", "glibc"]),
        )
    )  # fmt: skip
    spreads = _collections_spread(data)
    widest = max(spreads, key=lambda kind: spreads[kind], default="")
    made.append(
        Statement(
            "Fig. 3", "collections: most between allocators", "+20 %",
            f"{_percent(spreads[widest])} ({widest})" if widest else "–",
            effect(1.2, [spreads[widest]]) if widest else "not run",
        )
    )  # fmt: skip
    for name in ("glibc", "glibc-arena"):
        copies = _copies(data, name)
        made.append(
            Statement(
                "Table I", f"copies for each of 1, 2, 4, 8 threads, {CONTENDERS[name].label}",
                "5, 13.5, 49.75, 61.75", ", ".join(f"{n:.4g}" for n in copies) or "–",
                _holds(
                    len(copies) == len(THREADS),
                    all(a < b for a, b in itertools.pairwise(copies)),
                ),
            )
        )  # fmt: skip

    def ratio(where: str, text: str, paper: float, bench: str, name: str,
              other: str = "glibc", pick: Pick = seconds) -> None:  # fmt: skip
        made.append(_ratio_statement(where, text, paper, data.ratios(bench, name, other, pick)))

    ratio("Fig. 7", "integers into a Vec, SYS mode against glibc", 1.035, "fig7", "brug-sys")
    ratio("Fig. 7", "integers into a Vec, Template against glibc", 1.06, "fig7", "brug-template")
    ratio("Fig. 8", "pages into a Vec, jemalloc against glibc", 1.95, "fig8", "jemalloc")
    ratio("Fig. 8", "pages into a Vec, mimalloc against glibc", 1.95, "fig8", "mimalloc")
    for mode in ("brug-mmap", "brug-template"):
        ratio("Fig. 8", f"pages into a Vec, {CONTENDERS[mode].label} against glibc", 1.0, "fig8",
              mode)  # fmt: skip
    first = data.best("fig8", PAPER)
    made.append(
        Statement(
            "Fig. 8", "pages into a Vec, the best of all", "brug SYS",
            CONTENDERS[first].label if first else "–", _holds(bool(first), first == "brug-sys"),
        )
    )  # fmt: skip
    ratio("Fig. 9", "HashMap, jemalloc against glibc", 0.92, "fig9-hash-map", "jemalloc")
    ratio("Fig. 9", "HashMap, mimalloc against glibc", 0.96, "fig9-hash-map", "mimalloc")
    ratio("Fig. 9", "HashMap, auto against glibc", 0.985, "fig9-hash-map", "brug")
    ratio("Fig. 9", "BTreeMap, jemalloc against glibc", 1.04, "fig9-btree-map", "jemalloc")
    ratio("Fig. 9", "BTreeMap, auto against glibc", 1.01, "fig9-btree-map", "brug")
    for kind in ("vec", "vec-deque"):
        winner = data.best(f"fig9-{kind}", PAPER)
        made.append(
            Statement(
                "Fig. 9", f"{kind}, the best of all", "brug, trained",
                CONTENDERS[winner].label if winner else "–",
                _holds(bool(winner), winner == "brug-trained"),
            )
        )  # fmt: skip
    ratio("Fig. 10", "integers into Arrow, glibc against MMAP", 1.33, "fig10", "glibc",
          "brug-mmap")  # fmt: skip
    ratio("Fig. 10", "integers into Arrow, SYS mode against glibc", 0.83, "fig10", "brug-sys")
    ratio("Fig. 11", "pages into Arrow, glibc against MMAP", 1.33, "fig11", "glibc", "brug-mmap")
    ratio("Fig. 11", "pages into Arrow, Template against MMAP", 1.0, "fig11", "brug-template",
          "brug-mmap")  # fmt: skip
    linked = data.best("fig12", PAPER)
    made.append(
        Statement(
            "Fig. 12", "Wasmtime, the best of all", "a mode of brug",
            CONTENDERS[linked].label if linked else "–",
            _holds(bool(linked), linked.startswith("brug")),
        )
    )  # fmt: skip
    for bench, words, auto, worst in (
        ("fig11", "pages into Arrow", 15.21 / 14.99, 19.96 / 14.99),
        ("fig10", "integers into Arrow", 100.33 / 87.76, 261.52 / 87.76),
        ("fig12", "Wasmtime", 1.0, 142.70 / 47.72),
    ):
        ordered = _order(data, bench, ("glibc", "jemalloc", "mimalloc", *FIXED), seconds)
        if ordered:
            ratio("Table III", f"{words}, auto against the best", auto, bench, "brug", ordered[0])
            ratio("Table III", f"{words}, the worst against the best", worst, bench, ordered[-1],
                  ordered[0])  # fmt: skip
    training = against_best(data, "brug")
    if training:
        worst_bench = max(training, key=lambda bench: statistics.median(training[bench]))
        middle = statistics.median(training[worst_bench])
        made.append(
            Statement(
                "Sec. V", "training costs at most", "+20 %",
                f"{_percent(middle)} ({worst_bench})", _holds(True, middle <= 1.2),
            )
        )  # fmt: skip
    for value in REDIS_VALUES:
        large_value = value >= 4 * KIB
        words = f"Redis, {binary_size(value)}, throughput against jemalloc"
        ratio("Fig. 13", f"{words}, brug", 1.05 if large_value else 1.025, f"fig13-{value}",
              "libbrug", "jemalloc-deb", throughput)  # fmt: skip
        ratio("Fig. 13", f"{words}, MMAP", 1.015, f"fig13-{value}", "libbrug-mmap",
              "jemalloc-deb", throughput)  # fmt: skip
    return made


# ------------------------------------------------------------------------ tables and figures


def target_table(results: dict[str, Any]) -> Table:
    quick = " in a quick run, which measures nothing" if results["scale"] == "quick" else ""
    return Table(
        f"brug against its targets (median, quartiles){quick}",
        ("", "target", "measured", ""),
        report.measured(targets(results)),
    )


def statement_table(results: dict[str, Any]) -> Table:
    return Table(
        "What the paper reports, and here",
        ("", "", "paper", "here", ""),
        [one.row() for one in statements(results) if one.verdict != "not run"],
    )


def _cost(kind: str, record: dict[str, Any]) -> float:
    return instructions(record) if kind == "instructions" else seconds(record)


def all_rows(results: dict[str, Any]) -> Table:
    """Everything that was measured."""
    data = Measured(results)
    rows = []
    for bench, about in data.benches.items():
        kind = about["kind"]

        def pick(record: dict[str, Any], kind: str = kind) -> float:
            return _cost(kind, record)

        names = data.contenders(bench)
        for number, name in enumerate(names):
            low, middle, high = quartiles(data.values(bench, name, pick))
            last = data.records(bench, name)[-1]
            against = data.ratios(bench, name, names[0], pick)
            say = (lambda v: f"{v:.1f} instr.") if kind == "instructions" else _seconds
            rows.append(
                [
                    f"{bench}: {about['what']}" if number == 0 else "",
                    CONTENDERS[name].label,
                    say(middle),
                    f"{say(low)} to {say(high)}" if low < high else "",
                    f"{statistics.median(against):.3g}" if against else "–",
                    binary_size(peak(last)) if "peak_rss_bytes" in last else "",
                    f"{last['minor_faults']:,}" if "minor_faults" in last else "",
                    f"{last['moves']:,}" if "moves" in last else "",
                    ", ".join(f"{n} {c}" for n, c in last.get("system_calls", {}).items()),
                ]
            )
    return Table(
        "All results",
        ("", "", "median", "quartiles", "× first", "peak memory", "faults", "moves", "calls"),
        rows,
    )


def _seconds(value: float) -> str:
    return duration(value * 1e9)


def life_table(data: Measured) -> Table:
    """Figure 1 in words."""
    best = best_by_size(data)
    rows = [
        [
            binary_size(size),
            CONTENDERS[name].label,
            _seconds(steps_by_size(data, name)[size]),
        ]
        for size, name in best.items()
    ]
    return Table("Who is best along the life of an object", ("grown to", "best", "takes"), rows)


def start_table(data: Measured) -> Table:
    """What short programs pay for a library that is loaded with them."""
    rows = []
    for bench, (program, _, _) in SHORT.items():
        for number, name in enumerate(data.contenders(bench)):
            records = data.records(bench, name)
            low, middle, high = quartiles(data.ratios(bench, name, "glibc", seconds) or [0.0])
            rows.append(
                [
                    program if number == 0 else "",
                    CONTENDERS[name].label,
                    f"{instructions(records[-1]) / 1e3:,.0f}",
                    f"{statistics.median(r['minor_faults'] for r in records):,.0f}",
                    _seconds(statistics.median(data.values(bench, name))),
                    f"{middle:.3f} ({low:.3f}–{high:.3f})" if number else "",
                ]
            )
    return Table(
        "Short programs (median, quartiles)",
        ("", "", "thousand instructions", "page faults", "CPU time", "of glibc's"),
        rows,
    )


def suite_table(data: Measured) -> Table | None:
    """Programs of mimalloc-bench: time and peak memory of glibc's, with geometric means."""
    suite = [bench for bench in data.benches if bench.startswith(SUITE)]
    found = [bench for bench in suite if data.records(bench, "glibc")]
    names = [name for name in SUITED[1:] if any(data.records(bench, name) for bench in found)]
    rows: list[list[str]] = []
    means: dict[str, list[float]] = {}
    for bench in found:
        row = [bench.removeprefix(SUITE), _seconds(statistics.median(data.values(bench, "glibc")))]
        for name in names:
            for pick, key in ((seconds, name), (peak, f"{name} memory")):
                ratios = data.ratios(bench, name, "glibc", pick)
                if not ratios:
                    row.append("failed")
                    continue
                low, middle, high = quartiles(ratios)
                means.setdefault(key, []).append(middle)
                spread = f" ({low:.2f}–{high:.2f})" if pick is seconds else ""
                row.append(f"{middle:.2f}{spread}")
        rows.append(row)
    if not rows:
        return None
    keys = [key for name in names for key in (name, f"{name} memory")]
    mean = [f"{statistics.geometric_mean(means[k]):.2f}" if k in means else "–" for k in keys]
    head = [word for name in names for word in (f"{CONTENDERS[name].label}: time", "memory")]
    return Table(
        "Programs of mimalloc-bench, of glibc's (median, quartiles)",
        ("", "glibc", *head),
        [*rows, ["geometric mean", "", *mean]],
    )


def base_table(data: Measured) -> Table | None:
    """Programs of mimalloc-bench under each base of `libbrug.so`, and what its own choice costs."""
    cost, memory = against_bases(data, processor), against_bases(data, peak)
    rows = []
    for program, values in cost.items():
        glibc, mimalloc = (
            statistics.median(data.values(f"{SUITE}{program}", name, processor)) for name in NAMED
        )
        low, middle, high = quartiles(values)
        rows.append([
            program, _seconds(glibc), _seconds(mimalloc), f"{middle:.2f} ({low:.2f}–{high:.2f})",
            f"{statistics.median(memory[program]):.2f}",
        ])  # fmt: skip
    if not rows:
        return None
    means = (
        statistics.geometric_mean(map(statistics.median, found.values()))
        for found in (cost, memory)
    )
    return Table(
        "libbrug.so and its bases: processor time, and what its own choice takes of the better one",
        ("", "base glibc", "base mimalloc", "its choice: time", "memory"),
        [*rows, ["geometric mean", "", "", *(f"{mean:.2f}" for mean in means)]],
    )


# Growth under two conditions: benchmark, how objects grow, and whose the memory was before.
GROWTH: Final = (
    ("double", "4 KiB to 1 GiB by doubling", "just used by the same program"),
    ("in-turn-double", "4 KiB to 1 GiB by doubling", "as it comes, programs in turn"),
    ("linear-64k", "64 KiB to 256 MiB by 64 KiB", "just used by the same program"),
    ("in-turn-linear-64k", "64 KiB to 256 MiB by 64 KiB", "as it comes, programs in turn"),
)


def growth_table(data: Measured) -> Table:
    """The first and the second growth of a new process, of glibc's time, by condition."""
    rows = []
    for bench, words, memory in GROWTH:
        for number, name in enumerate(n for n in IN_TURN if data.records(bench, n)):
            lives = len(data.records(bench, name)[-1]["lives"])
            row = [f"{words}; memory {memory}" if number == 0 else "", CONTENDERS[name].label]
            for life_number in range(2):
                if life_number >= lives:
                    row += ["", ""]
                    continue
                pick = life(life_number)
                low, middle, high = quartiles(data.values(bench, name, pick))
                row.append(f"{_seconds(middle)} ({_seconds(low)} to {_seconds(high)})")
                low, middle, high = quartiles(data.ratios(bench, name, "glibc", pick) or [0.0])
                row.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
            rows.append(row)
    return Table(
        "Growth by where memory comes from (median, quartiles)",
        ("", "", "first in the process", "× glibc", "second", "× glibc"),
        rows,
    )


def fork_table(data: Measured) -> Table | None:
    """What `fork` costs beside a large object, and the first writes while a child has it, too."""
    rows = []
    for bench in ("fork", "snapshot"):
        for number, name in enumerate(data.contenders(bench)):
            low, middle, high = quartiles(data.values(bench, name))
            time = f"{_seconds(middle)} ({_seconds(low)} to {_seconds(high)})"
            low, middle, high = quartiles(data.ratios(bench, name, "glibc") or [math.nan])
            ratio = f"{middle:.3g} ({low:.3g} to {high:.3g})"
            what = str(data.benches[bench]["what"]) if number == 0 else ""
            rows.append([what, CONTENDERS[name].label, time, ratio])
    head = ("", "", "time", "× glibc")
    return Table("fork and snapshots (median, quartiles)", head, rows) if rows else None


def wait_table(data: Measured) -> Table | None:
    """Growth in a guest whose memory is fragmented: the whole, and how long single events took."""
    rows = []
    for name, (memory, _, _) in FRAGMENTED.items():
        bench = f"fragmented-{name}"
        for number, contender in enumerate(data.contenders(bench)):
            record = data.records(bench, contender)[-1]
            waits = (
                f"{duration(wait_of(what, which)(record))}"
                for what in WAITS
                for which in ("p999", "worst")
            )
            events = record["events"]
            ratio = data.ratios(bench, contender, "glibc")
            rows.append(
                [
                    memory if number == 0 else "",
                    CONTENDERS[contender].label,
                    _seconds(seconds(record)),
                    f"{ratio[0]:.2f}" if ratio else "–",
                    *waits,
                    f"{events['thp_fault_alloc']:,}",
                    f"{events['compact_stall']:,}",
                ]
            )
    heads = (f"{label}, {which}" for label in WAITS.values() for which in ("p99.9", "worst"))
    return Table(
        "64 KiB to 256 MiB by 64 KiB where memory is fragmented; one nanosecond an instruction",
        ("", "", "time", "× glibc", *heads, "huge pages", "waits for compaction"),
        rows,
    ) if rows else None  # fmt: skip


def facts(results: dict[str, Any]) -> list[str]:
    """What a reader needs to trust the tables."""
    data = Measured(results)
    machine = results["machine"]
    said = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, "
        f"{binary_size(results['memory_available'])} free, "
        f"Linux {machine['kernel'].partition('-')[0]}, "
        f"{machine['libc']}, huge pages: {machine['huge_pages']}. Scale: {results['scale']}, "
        f"{results['rounds']} rounds that count, {SLOW_ROUNDS} of what takes more than "
        f"{SLOW_S:.0f} s, {results['rounds'] * QUICK_TIMES} of what takes less than {QUICK_S} s "
        "where the tuner is compared. Redis: the median of the laps of a server but the first.",
        "“With huge pages” is brug with BRUG_THP=always, glibc with its tunable "
        "glibc.malloc.hugetlb=1, jemalloc with thp:always: each asks for them itself, the "
        "setting of the machine is left alone. mimalloc 3 asks for them by default.",
        "Sizes are a sixth of free memory at most and stated with each result; the paper appended "
        "100 million integers in figures 7 and 10 and 15 GiB in figures 8 and 11.",
        "Before large work as much memory as it needs is touched and given back, outside of the "
        "time: a hypervisor puts memory behind a page at its first use. The benchmarks “in turn” "
        "leave that out.",
    ]
    if noise := data.ratios("fig7", "glibc-again", "glibc"):
        low, middle, high = quartiles(noise)
        said.append(
            f"Noise: the same binary twice (fig7): {_percent(middle)}, quartiles {_percent(low)} "
            f"to {_percent(high)}."
        )
    said += report.not_measured(targets(results))
    said += [f"Failed: {line}" for line in data.failures()]
    said += [
        f"Wrong data: {bench}: {names}"
        for bench, runs in data.runs.items()
        if (names := disagreement(runs))
    ]
    return said


LIFE: Final = Figure(
    "fig1-life", "one step, with writing to what is new",
    "Along the life of an object that doubles; lower is better.",
)  # fmt: skip

# Figures of ratios to the first contender: name, caption, benches by label, contenders, what.
GROUPS: Final[Sequence[tuple[str, str, Mapping[str, str], Sequence[str], Pick, bool]]] = (
    ("fig2-realloc", "Time inside realloc, of glibc's (logarithmic).",
     {"4 to 128 KiB": "fig2a", "4 KiB to 2 GiB": "fig2b"}, (*FIVE, "brug"),
     realloc_seconds, True),
    ("fig9-collections", "Time to fill a collection, of glibc's.",
     {kind: f"fig9-{kind}" for kind in COLLECTIONS}, PAPER, seconds, False),
    ("fig7-12", "The paper's larger experiments, time of glibc's.",
     {"Vec, int": "fig7", "Vec, page": "fig8", "Arrow, int": "fig10", "Arrow, page": "fig11",
      "Wasmtime": "fig12"}, PAPER, seconds, False),
    ("growth", "Growing buffers, time of glibc's (logarithmic).",
     {"double": "double", "+64 KiB": "linear-64k", "+4 KiB": "linear-4k", "+1": "linear-1",
      "× 1.5": "grow-1.5", "16 in turn": "interleaved-16", "4 in turn": "interleaved-4",
      "up and down": "oscillate", "threads": "cross-thread"}, ALL, seconds, True),
    ("alignment", "Doubling to 256 MiB by alignment, time of glibc's.",
     {f"{align} bytes": f"align-{align}" for align in ALIGNMENTS},
     ("glibc", "jemalloc", "mimalloc", "snmalloc", "brug"), seconds, False),
    ("fig13-redis", "Redis, throughput of jemalloc's; higher is better.",
     {binary_size(value): f"fig13-{value}" for value in REDIS_VALUES}
     | {f"append\n{binary_size(v)}": f"append-{v}" for v in REDIS_VALUES[2:]},
     ("jemalloc-deb", "glibc-preload", "mimalloc-deb", "tcmalloc-deb", "libbrug-mmap", "libbrug"),
     throughput, False),
)  # fmt: skip


def _draw_figures(directory: Path, results: dict[str, Any]) -> list[Figure]:
    data = Measured(results)
    colours = {contender.label: contender.colour for contender in CONTENDERS.values()}
    drawn: list[Figure] = []
    lives = {
        CONTENDERS[name].label: steps
        for name in (*FIVE, "brug")
        if (steps := steps_by_size(data, name))
    }
    if lives:
        report.draw_curves(directory, LIFE, lives, colours, "bytes after the step")
        drawn.append(LIFE)
    for name, caption, by_label, contenders, pick, log in GROUPS:
        groups = {}
        for label, bench in by_label.items():
            bars = {
                CONTENDERS[one].label: quartiles(ratios)
                for one in contenders
                if (ratios := data.ratios(bench, one, contenders[0], pick))
            }
            if bars:
                groups[label] = bars
        if groups:
            figure = Figure(name, caption, caption + " Bars: medians; lines: quartiles.")
            what = "throughput" if pick is throughput else "time"
            what = f"{what}, {CONTENDERS[contenders[0]].label} = 1"
            report.draw_groups(directory, figure, groups, colours, what, log)
            drawn.append(figure)
    return drawn


def _tables(results: dict[str, Any]) -> list[Table]:
    """All that anything was measured for, but the rows of all benchmarks."""
    data = Measured(results)
    made = [target_table(results), statement_table(results), start_table(data)]
    more = (
        growth_table(data), life_table(data), wait_table(data), fork_table(data),
        suite_table(data), base_table(data),
    )  # fmt: skip
    return [table for table in (*made, *more) if table and table.rows]


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    figures = _draw_figures(directory, results)
    tables = _tables(results)
    benches = Measured(results).benches
    commands = "\n".join(f"{name}: {about['command']}" for name, about in benches.items())
    report.page(
        directory / "index.html",
        "brug and other allocators",
        [
            *map(report.html_table, tables[:2]),
            *(report.html_figure(directory, figure) for figure in figures),
            *map(report.html_table, tables[2:]),
            report.html_table(all_rows(results)),
            "<h2>How it was measured</h2>\n",
            *map(report.paragraph, facts(results)),
            report.preformatted(commands),
            report.paragraph("All samples: results.json next to this page.", small=True),
        ],
    )
    (directory / "table.md").write_text(
        "".join(map(report.markdown_table, tables))
        + "".join(f"* {fact}\n" for fact in facts(results))
    )
    return directory / "index.html"


def show(directory: Path) -> None:
    """What was measured, on the terminal."""
    results = samples.load(directory)
    report.show(180, _tables(results), facts(results))
