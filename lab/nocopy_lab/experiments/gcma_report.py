# SPDX-License-Identifier: MIT OR Apache-2.0
"""What bench_gcma measured, judged and drawn, from its results.json alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from nocopy_lab import report, samples
from nocopy_lab.board import CMA_MIB
from nocopy_lab.experiments.bench_gcma import (
    ALL_SIZES,
    CALLS,
    CGROUP_MIB,
    CGROUP_SET_MIB,
    COSTS,
    DISK_NS,
    GIVE_UP_S,
    HERE,
    LARGE_MIB,
    LARGEST,
    LAUNCH_APPS,
    LAUNCH_DISKS,
    LAUNCH_WARM,
    NEIGHBOURS,
    ORDERS,
    RANDOM_CMA_ALLOCS,
    RANDOM_GIVE_UP_S,
    REAL_CALL,
    REAL_ROUNDS,
    REREAD_MIB,
    SIZES,
    STATES,
    STREAM_MIB,
)
from nocopy_lab.report import Figure, Table, percentile
from nocopy_lab.units import duration

Run = dict[str, Any]


class Measured:
    """Stored runs by name, and what can be asked of them; what is missing is an empty list."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.runs: dict[str, Run] = {one["name"]: one for one in results["runs"]}

    def rows(self, name: str, kind: str) -> list[dict[str, Any]]:
        run = self.runs.get(f"bench-{name}", {"rows": []})
        return [row for row in run["rows"] if row.get("type") == kind]

    def allocs(
        self, config: str, state: str, pages: int = 0, kind: str = "states"
    ) -> list[dict[str, Any]]:
        """Allocations from an area in a state, of all sizes unless told."""
        found, now = [], ""
        for row in self.runs.get(f"bench-{kind}-{config}", {"rows": []})["rows"]:
            if row.get("type") == "phase":
                now = row["name"]
            elif row.get("type") == "alloc" and now == state and pages in (0, row["pages"]):
                found.append(row)
        return found

    def states(self, config: str, state: str, pages: int) -> list[float]:
        return [row["ns"] for row in self.allocs(config, state, pages)]

    def cleared(self, config: str, state: str) -> list[float]:
        return [row["ns"] for row in self.allocs(config, state, kind="cleared")]

    def failed(self, config: str, state: str, pages: int = 0, kind: str = "states") -> int:
        return sum(not row["ok"] for row in self.allocs(config, state, pages, kind))

    def releases(self, config: str) -> list[float]:
        rows = [row for state in STATES for row in self.allocs(config, state, LARGEST)]
        return [row["release_ns"] for row in rows if row["ok"]]

    def readers(self, config: str) -> list[float]:
        return [row["ns"] for row in self.rows(f"readers-{config}", "alloc")]

    def readers_failed(self, config: str) -> int:
        return sum(not row["ok"] for row in self.rows(f"readers-{config}", "alloc"))

    def failures(self, config: str, kind: str = "random") -> tuple[int, int]:
        """Of the random allocations of a run: how many failed, of how many."""
        rows = self.rows(f"{kind}-{config}", "random_summary")
        return sum(row["failed"] for row in rows), sum(row["allocs"] for row in rows)

    def reread(self, ns: int, config: str, by: str) -> list[float]:
        rows = self.rows(f"reread-{ns // 1000}us-{config}", "reread")
        return [row["ns_total"] / row["reads"] for row in rows if row["by"] == by]

    def calls(self, config: str, size: int, field: str) -> list[float]:
        rows = self.rows(f"calls-{config}", "calls")
        return [row[field] / row["calls"] for row in rows if row["size"] == size]

    def in_place(self, config: str, size: int) -> list[float]:
        """What a page of a long call takes beyond a call of the smallest size.

        In the page cache with CMA, in the area with GCMA.
        """
        field = "evicted_ns" if config == "gcma" else "cached_ns"
        pairs = zip(
            self.calls(config, size, field), self.calls(config, min(CALLS), field), strict=True
        )
        return [(ns - least) / (size >> 12) for ns, least in pairs]

    def moved(self, config: str, field: str) -> list[float]:
        return [row[field] for row in self.rows(f"states-{config}", "dmem")]

    def dmem(self, field: str) -> list[float]:
        return [row[field] - row["copy_ns"] for row in self.rows("states-gcma", "dmem")]

    def order(self, name: str, config: str, kind: str = "reread") -> list[float]:
        rows = self.rows(f"{kind}-{name}-{config}", "reread")
        return [row["ns_total"] / row["reads"] for row in rows]

    def launches(self, disk: str, config: str) -> list[float]:
        rows = self.rows(f"launch-{disk}-{config}", "launch")
        return [row["ns"] for row in rows[LAUNCH_APPS * LAUNCH_WARM :]]

    def cost(self, area: str, way: str) -> list[float]:
        """What a page costs beyond a kernel without GCMA, by batch: batches do the same there."""
        ours, stock = (
            [ns / row["pages"] for row in self.rows(f"cost-{which}", "cost") if row["way"] == way
             for ns in row["ns"]]
            for which in (area, "stock")
        )  # fmt: skip
        return [a - b for a, b in zip(ours, stock, strict=False)]

    def full(self, config: str, state: str) -> list[float]:
        """Share of the area that was in use when an allocation wanted some of it."""
        shares = []
        for row in self.rows(f"states-{config}", "gcma_stats"):
            if row["label"] != state:
                continue
            area = row.get("areas", {}).get("reserved")
            if config == "gcma" and area:
                shares.append((area["file/cached"] + area["swap/cached"]) / area["frames"])
            elif config == "cma":
                shares.append(1 - row["vmstat"]["nr_free_cma"] / (CMA_MIB << 8))
        return shares


def real_time(results: dict[str, Any]) -> Measured:
    """What was measured in real time, all rounds together, under the names of the virtual runs."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        if found := re.fullmatch(r"bench-real-(\w+)-\d+", run["name"]):
            for kind in ("states", "calls"):
                rows.setdefault(f"bench-{kind}-{found[1]}", []).extend(run["rows"])
    return Measured({"runs": [{"name": name, "rows": ours} for name, ours in rows.items()]})


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _instructions(value: float) -> str:
    return f"{value:+.1f}" if abs(value) < 100 else f"{value:+.0f}"


@dataclass(frozen=True)
class Line:
    """One line of the table: what was done, what it cost where, and what it should cost."""

    work: str
    others: dict[str, list[float]]  # configurations to compare with
    gcma: list[float]
    limit: float = float("nan")
    kind: str = "time"  # or "instructions", "count", "ratio"
    whole: dict[str, int] | None = None  # of how many, for counts
    failed: dict[str, int] = field(default_factory=dict)  # how many of the times are failures
    # How many times what another configuration takes it may take.
    bounds: Mapping[str, float] = field(default_factory=dict)

    def one(self, value: float) -> str:
        return duration(value) if self.kind == "time" else _number(value)

    def cell(self, config: str) -> str:
        values = self.gcma if config == "gcma" else self.others.get(config, [])
        if not values:
            return "–"
        if self.whole is not None:
            return f"{values[0]:.0f} of {self.whole[config]:,}"
        middle = percentile(values, 0.5)
        if self.kind == "instructions":
            return _instructions(middle)
        if self.kind == "ratio":
            return f"{middle:.3g} / {max(values):.3g}"
        if len(values) == 1:
            return self.one(middle)
        said = f"{self.one(middle)} / {self.one(max(values))}"
        failed = self.failed.get(config, 0)
        return f"{said}, {failed} of {len(values)} failed" if failed else said

    @property
    def measured(self) -> float:
        """What counts: the worst, for differences of means the middle."""
        return percentile(self.gcma, 0.5) if self.kind == "instructions" else max(self.gcma)

    def target(self) -> str:
        if self.bounds:
            names = {"cma": "CMA", "reservation": "reservation"}
            return ", ".join(f"≤ {most:.3g} × {names[c]}" for c, most in self.bounds.items())
        if self.kind == "ratio":
            return f"worst ≤ {self.limit:.0f} × median"
        if self.kind == "instructions":
            return f"≤ {self.limit:.0f} instr."
        return "0" if self.limit == 0 else f"≤ {self.one(self.limit)}"

    def verdict(self) -> str:
        if not self.gcma:
            return "not run"
        if self.bounds:
            if not all(self.others.get(c) for c in self.bounds):
                return "not compared"
            middle = percentile(self.gcma, 0.5)
            good = all(
                middle <= most * percentile(self.others[c], 0.5) for c, most in self.bounds.items()
            )
            return "met" if good and not self.failed.get("gcma") else "missed"
        if self.kind == "ratio":
            return "met" if max(self.gcma) <= self.limit else "missed"
        good = self.measured <= self.limit and not self.failed.get("gcma")
        return "met" if good else "missed"


LAUNCH_WORDS: Final = {
    "encrypted": "files encrypted by software, disk of 50 µs",
    "plain": "disk of 50 µs",
    "slow": "disk of 400 µs",
}


def lines(results: dict[str, Any]) -> list[Line]:
    """The table, in its order."""
    data = Measured(results)
    return [
        *_allocation_lines(data),
        *_init_on_alloc_lines(data),
        *_failure_lines(data),
        *_use_lines(data),
        *_cost_lines(data),
    ]


def _allocation_lines(data: Measured) -> list[Line]:
    """What allocations and releases take, by the state of the area."""
    made: list[Line] = []
    for pages in SIZES:
        made += [
            Line(
                f"allocate {pages:,} pages, area {words}",
                {"cma": data.states("cma", state, pages)},
                data.states("gcma", state, pages),
                5e3,
                failed={c: data.failed(c, state, pages) for c in ("cma", "gcma")},
            )
            for state, words in STATES.items()
        ]
    made += [
        Line(
            f"allocate {pages:,} pages, area full of clean cache, somebody holds 64",
            {},
            data.states("gcma", "held", pages),
            5e3,
            failed={"gcma": data.failed("gcma", "held", pages)},
        )
        for pages in SIZES
    ]
    every = {
        pages: [ns for state in STATES for ns in data.states("gcma", state, pages)]
        for pages in ALL_SIZES
    }
    spread = [max(ns) / percentile(ns, 0.5) for ns in every.values() if ns]
    made += [
        Line(
            f"allocate {len(ALL_SIZES)} sizes from 1 to {ALL_SIZES[-1]:,} pages, any state",
            {},
            [ns for times in every.values() for ns in times],
            5e3,
            failed={"gcma": sum(data.failed("gcma", s, n) for s in STATES for n in ALL_SIZES)},
        ),
        Line("worst to median of each of these sizes", {}, spread, 2, "ratio"),
        Line(
            f"allocate 1 to {LARGEST:,} pages, three readers thrashing",
            {"cma": data.readers("cma")},
            data.readers("gcma"),
            50e3,
            failed={c: data.readers_failed(c) for c in ("cma", "gcma")},
        ),
        Line(
            f"release {LARGEST:,} pages",
            {"cma": data.releases("cma")},
            data.releases("gcma"),
            0.15e6,
        ),
    ]
    return made


def _init_on_alloc_lines(data: Measured) -> list[Line]:
    """Where the kernel clears what it hands out."""
    return [
        Line(
            f"allocate {LARGEST:,} pages, area idle, init_on_alloc",
            {"cma": data.cleared("cma", "unprepared")},
            data.cleared("gcma", "unprepared"),
            bounds={"cma": 1},
            failed={c: data.failed(c, "unprepared", kind="cleared") for c in ("cma", "gcma")},
        ),
        Line(
            f"allocate {LARGEST:,} pages, area idle, init_on_alloc, prepared",
            {},
            data.cleared("gcma", "prepared"),
            10e3,
            failed={"gcma": data.failed("gcma", "prepared", kind="cleared")},
        ),
    ]


def _failure_lines(data: Measured) -> list[Line]:
    """How many of many allocations fail that are held at once."""
    failures = {c: data.failures(c) for c in ("cma", "gcma")}
    counted: dict[str, list[float]] = {c: [n] if of else [] for c, (n, of) in failures.items()}
    failed, of = data.failures("gcma", "mglru-random")
    return [
        Line(
            "failed allocations at random, half of the area at most",
            {"cma": counted["cma"]},
            counted["gcma"],
            0,
            "count",
            {c: of for c, (_, of) in failures.items()},
        ),
        Line(
            "the same with the multi-generational LRU and zswap",
            {},
            [failed] if of else [],
            0,
            "count",
            {"gcma": of},
        ),
    ]


def _use_lines(data: Measured) -> list[Line]:
    """What the memory is worth while no driver wants it."""
    both = ("reservation", "cma")
    made = [
        Line(
            f"read a page of {REREAD_MIB} MiB again, disk of {ns // 1000} µs",
            {c: data.reread(ns, c, "pread") for c in both},
            data.reread(ns, "gcma", "pread"),
            bounds={"cma": 1 / 0.9},
        )
        for ns in DISK_NS
    ]
    made += [
        Line(words, {c: data.order(name, c) for c in both}, data.order(name, "gcma"), bounds=bounds)
        for name, words, bounds in (
            ("round", f"read the pages of {REREAD_MIB} MiB in turn", {"cma": 1 / 0.9}),
            (
                "zipf",
                f"read pages of {LARGE_MIB} MiB, popular ones more often",
                {"cma": 1 / 0.95, "reservation": 1 / 1.2},
            ),
            ("scan", f"read the pages of {LARGE_MIB} MiB in turn", {"reservation": 1.03}),
        )
    ]
    made.append(
        Line(
            f"read pages of {LARGE_MIB} MiB, popular ones more often, multi-generational LRU",
            {c: data.order("zipf", c, "mglru") for c in both},
            data.order("zipf", "gcma", "mglru"),
            bounds={"cma": 1 / 0.95, "reservation": 1 / 1.2},
        )
    )
    made += [
        Line(
            f"start an application, {LAUNCH_WORDS[disk]}",
            {c: data.launches(disk, c) for c in both},
            data.launches(disk, "gcma"),
            bounds={"reservation": 0.5, "cma": 1.3},
        )
        for disk in LAUNCH_DISKS
    ]
    made += [
        Line(
            f"read {size:,} bytes, from the area instead of the page cache",
            {"cma": data.calls("cma", size, "cached_ns")},
            data.calls("gcma", size, "evicted_ns"),
            bounds={"cma": most},
        )
        for size, most in CALLS.items()
    ]
    return made


def _cost_lines(data: Measured) -> list[Line]:
    """What stores and loads cost, and GCMA those whom it does not help."""
    made = [
        Line(f"{name} a page, beyond the copy", {}, data.dmem(field), 500, "instructions")
        for name, field in (("store", "store_ns"), ("load", "load_ns"))
    ]
    costs = (
        ("reservation", "read_new", "read a page that was never there, gcma=none", 10),
        ("gcma", "read_new", "read a page that was never there, gcma=file+swap", 10),
        ("full", "evict", "evict a clean page, area wholly allocated", 50),
        *(("none", way, f"{what}, no area", 10) for way, what in COSTS.items()),
    )
    made += [
        Line(f"{what}, against CONFIG_GCMA=n", {}, data.cost(area, way), most, "instructions")
        for area, way, what, most in costs
    ]
    return made


def _times(a: float, b: float) -> str:
    if a / b < 1.95:
        return f"{(a / b - 1) * 100:.0f} %"
    return f"{a / b:.{1 if a / b < 9.95 else 0}f} times"


def ahead(results: dict[str, Any]) -> list[str]:
    """Where plain CMA is ahead, and by how much: all that was measured with both."""
    said: list[str] = []
    data, ours = Measured(results), real_time(results)
    compared = [
        *lines(results),
        *(
            Line(
                f"touch a mapped page of {REREAD_MIB} MiB again, disk of {ns // 1000} µs",
                {"cma": data.reread(ns, "cma", "mmap")},
                data.reread(ns, "gcma", "mmap"),
            )
            for ns in DISK_NS
        ),
        Line(
            f"touch the mapped pages of {REREAD_MIB} MiB in turn",
            {"cma": data.order("mapped", "cma")},
            data.order("mapped", "gcma"),
        ),
        *(
            Line(f"{words}, in real time", {"cma": values(ours, "cma")}, values(ours, "gcma"))
            for words, values in _works()
        ),
    ]
    for line in compared:
        cma = line.others.get("cma", [])
        if not cma or not line.gcma or line.whole is not None:
            continue
        theirs, middle = percentile(cma, 0.5), percentile(line.gcma, 0.5)
        if theirs < middle:
            more = _times(middle, theirs)
            said.append(
                f"{line.work}: {line.one(theirs)} with CMA, {line.one(middle)} with GCMA ({more} "
                f"{'as long' if 'times' in more else 'longer'})"
            )
    return said


def facts(results: dict[str, Any]) -> list[str]:
    """What a reader needs to trust the table: how full the area was, what the kernel counted."""
    data = Measured(results)
    said: list[str] = []
    for state in ("clean", "anon"):
        shares = [
            f"{report.NAMES[c]} {min(full):.0%}"
            for c in ("cma", "gcma")
            if (full := data.full(c, state))
        ]
        if shares:
            said.append(f"Area in use at least, “{STATES[state]}”: {', '.join(shares)}.")
    for kind in ("states", "readers", "random"):
        stats = data.rows(f"{kind}-gcma", "gcma_stats")
        area = stats[-1].get("areas", {}).get("reserved") if stats else None
        if area is None:
            continue
        sums = data.rows(f"{kind}-gcma", "random_summary")
        seen = [row["ns"] for row in data.rows(f"{kind}-gcma", "alloc")]
        worst = max(seen, default=sums[0]["worst_ns"] if sums else float("nan"))
        said.append(
            f"{kind}: the kernel counted {area['allocs']:,} allocations, {area['alloc_fails']} "
            f"failed, the longest took {duration(worst)}. Looked again because of a copy: "
            f"{area['copy_waits']}."
        )
    if given_up := sum(bool(row.get("gave_up")) for row in data.rows("readers-cma", "alloc")):
        said.append(
            f"readers, CMA: {given_up} allocations count as failed as they were given up after "
            f"{GIVE_UP_S} s."
        )
    if given_up := len(data.rows("random-cma", "gave_up")):
        rounds = given_up + len(data.rows("random-cma", "random_summary"))
        said.append(
            f"random, CMA: {given_up} of {rounds} rounds of {RANDOM_CMA_ALLOCS} were given up "
            f"after {RANDOM_GIVE_UP_S} s and are not in the table."
        )
    return said


def _from_area(row: dict[str, Any]) -> float:
    """The share of the reads that the area served."""
    area = row["gcma_delta"]
    hits = area["reserved/file/served"] + area["reserved/file/loaded"]
    return float(hits / row["reads"])


def _stored(row: dict[str, Any]) -> float:
    """Pages that were copied into the area, by whomever, for each read."""
    return float(row["gcma_delta"]["reserved/file/stored"] / row["reads"])


# What the area is to keep: run, words, what of its row, target, and if more is better.
SHARES: Final[Sequence[tuple[str, str, Callable[[dict[str, Any]], float], float, bool]]] = (
    (
        f"cgroups-gcma-{CMA_MIB}-stream", "reader beside a cgroup that streams: from the disk",
        lambda row: float(row["waits"] / row["reads"]), 0.25, False,
    ),
    ("reread-round-gcma", f"loop of {REREAD_MIB} MiB: from the area", _from_area, 0.2, True),
    (
        "reread-mapped-gcma", f"loop of {REREAD_MIB} MiB through a mapping: from the area",
        _from_area, 0.2, True,
    ),
    (
        "reread-scan-gcma",
        f"loop of {LARGE_MIB} MiB: from the area, which can hold {CMA_MIB / LARGE_MIB:.1%}",
        _from_area, 0.2, True,
    ),
    (
        f"cgroups-gcma-{CMA_MIB}-stream-zipf",
        "popular pages beside a cgroup that streams: stores a read", _stored, 0.25, False,
    ),
)  # fmt: skip


def shares(results: dict[str, Any]) -> Table | None:
    """What the area keeps, against its targets."""
    data = Measured(results)
    rows = []
    for run, what, pick, limit, more_is_better in SHARES:
        for row in data.rows(run, "reread"):
            value = pick(row)
            good = value >= limit if more_is_better else value <= limit
            sign = "≥" if more_is_better else "≤"
            rows.append([what, f"{value:.1%}", f"{sign} {limit:.0%}", "met" if good else "missed"])
    return Table("What is kept, against targets", ("", "", "target", ""), rows) if rows else None


def kept(results: dict[str, Any]) -> Table | None:
    """What is stored, and what comes back."""
    data = Measured(results)
    rows: list[list[str]] = []
    for name, (order, mib, _, _) in ORDERS.items():
        for row in data.rows(f"reread-{name}-gcma", "reread"):
            rows.append(
                [
                    f"{order}, {mib} MiB",
                    duration(row["ns_total"] / row["reads"]),
                    f"{_from_area(row):.1%}",
                    f"{_stored(row):.2f}",
                ]
            )
    head = ("reads", "time of a read", "from the area", "stores a read")
    return Table("What is kept", head, rows) if rows else None


def neighbours(results: dict[str, Any]) -> Table | None:
    """What a limit for memory cgroups in the area would be good for."""
    data = Measured(results)
    rows: list[list[str]] = []
    for one in NEIGHBOURS:
        if one.order != "random":
            continue
        if one.config == "gcma":
            area = f"{report.NAMES['gcma']}, {one.cma_mib} MiB"
        else:
            area = report.NAMES[one.config]
        for row in data.rows(one.name, "reread"):
            rows.append(
                [
                    area,
                    f"streams through {STREAM_MIB} MiB" if one.stream else "is not there",
                    duration(row["ns_total"] / row["reads"]),
                    f"{row['waits'] / row['reads']:.1%}",
                ]
            )
    what = f"A memory cgroup of {CGROUP_MIB} MiB that reads pages of {CGROUP_SET_MIB} MiB at random"
    head = ("area", "another cgroup", "time of a read", "from the disk")
    return Table(what, head, rows) if rows else None


def copy_waits(results: dict[str, Any], kind: str, beside: str) -> Table | None:
    """How often an allocation found a page still being copied, and looked again."""
    data = Measured(results)
    bins = {row["least"]: row["allocs"] for row in data.rows(kind, "copy_waits")}
    total = sum(bins.values())
    if not total:
        return None
    bounds = sorted(bins)
    names = ["none", *(f"{a:,} to {b - 1:,}" for a, b in itertools.pairwise(bounds[1:]))]
    names.append(f"{bounds[-1]:,} and more")
    (most,) = data.rows(kind, "copy_waits_most")
    # Older results do not have it.
    served = [f"; {row['reads']:,} copies in place meanwhile" for row in data.rows(kind, "served")]
    longest = duration(max(row["ns"] for row in data.rows(kind, "alloc")))
    rows = [
        [name, f"{bins[least]:,}", f"{bins[least] / total:.2%}"]
        for name, least in zip(names, bounds, strict=True)
    ]
    return Table(
        f"Copy waits of an allocation (copy_waits), {beside} (most: {most['most']:,}; "
        f"longest allocation {longest}{''.join(served)})",
        ("copy waits", "allocations", ""),
        rows,
    )


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    low, middle, high = (duration(percentile(values, p)) for p in (0.25, 0.5, 0.75))
    return f"{middle} ({low} to {high})"


REAL_TITLE: Final = (
    "The same in real time, caches included, in User Mode Linux: median and quartiles of "
    f"{REAL_ROUNDS} boots of each, in turn; beside them the medians in virtual time"
)
REAL_HOW: Final = (
    "Real times are those of this machine, which should do nothing else: when somebody takes the "
    "processor away, that is in the longer ones. User Mode Linux is a program on one CPU of it, in "
    "which a page fault or a system call takes tens of microseconds: no figure has one in it, but "
    "for what plain CMA has to unmap. A read finds the pages of the program that reads by walking "
    "page tables, with GCMA and with CMA."
)


Values = Callable[[Measured, str], list[float]]


def _works() -> list[tuple[str, Values]]:
    """What is measured in both times, and where its samples are, of a configuration."""
    works: list[tuple[str, Values]] = [
        (
            f"allocate {pages:,} pages, area {STATES[state]}",
            partial(Measured.states, state=state, pages=pages),
        )
        for pages in SIZES
        for state in ("idle", "clean")
    ]
    works.append((f"release {LARGEST:,} pages", Measured.releases))
    works += [
        (words, partial(Measured.moved, field=field))
        for words, field in (
            ("store a page, with the copy", "store_ns"),
            ("load a page, with the copy", "load_ns"),
            ("copy a page", "copy_ns"),
        )
    ]
    works.append(("read a page, in calls of 1 MiB", partial(Measured.in_place, size=REAL_CALL)))
    return works


def real(results: dict[str, Any]) -> Table | None:
    """Instructions are one thing; what caches and memory make of them is another."""
    virtual, ours = Measured(results), real_time(results)
    if not ours.runs:
        return None
    rows: list[list[str]] = []
    for words, values in _works():
        row = [words]
        for config in ("cma", "gcma"):
            counted = values(virtual, config)
            row += [duration(percentile(counted, 0.5)) if counted else "–"]
            row += [_spread(values(ours, config))]
        rows.append(row)
    head = ("", "CMA, virtual", "CMA, real", "GCMA, virtual", "GCMA, real")
    return Table(REAL_TITLE, head, rows)


# What two kernels may differ by before it is worth a row.
ALIKE: Final = 0.05


def _apart(line: Line, other: Line) -> bool:
    pairs = [(line.gcma, other.gcma), *((line.others[c], other.others[c]) for c in line.others)]
    middles = [[percentile(values, 0.5) for values in pair] for pair in pairs if all(pair)]
    return any(abs(a - b) > ALIKE * max(abs(a), abs(b)) for a, b in middles)


def beside(results: dict[str, Any]) -> Table | None:
    """The lines in which this kernel differs from Linux 6.12."""
    before = samples.load(HERE)
    if results["kernel"]["release"] == before["kernel"]["release"]:
        return None
    releases = [before["kernel"]["release"], results["kernel"]["release"]]
    rows = [
        [line.work, *(one.cell(c) for c in ("cma", "gcma") for one in (other, line))]
        for other, line in zip(lines(before), lines(results), strict=True)
        if _apart(line, other)
    ]
    head = ("", *(f"{name}, {release}" for name in ("CMA", "GCMA") for release in releases))
    what = f"Where the medians of two kernels differ by more than {ALIKE:.0%} (median / worst)"
    return Table(what, head, rows) if rows else None


def more(results: dict[str, Any]) -> list[Table]:
    """What was measured beside the targets."""
    made = (
        beside(results),
        real(results),
        kept(results),
        shares(results),
        neighbours(results),
        copy_waits(results, "copy-waits", "four programs that evict and read"),
        copy_waits(results, "pieces", "four readers into 1,024 pieces"),
    )
    return [one for one in made if one]


HEAD: Final = ("", "Reservation", "CMA", "GCMA", "target", "")


def table(results: dict[str, Any]) -> Table:
    """The lines that anything was measured for."""
    return Table(
        "GCMA against its targets (median / worst)",
        HEAD,
        [
            [
                line.work,
                *(line.cell(c) for c in ("reservation", "cma", "gcma")),
                line.target(),
                line.verdict(),
            ]
            for line in lines(results)
            if line.gcma or any(line.others.values())
        ],
    )


READERS: Final = Figure(
    "readers",
    "cma_alloc()",
    f"Allocations of 1 to {LARGEST:,} pages at random while three readers go through more files "
    "than there is memory.",
)


def _state_figure(state: str) -> Figure:
    return Figure(
        f"alloc-{state}",
        f"area {STATES[state]}",
        f"cma_alloc() from an area that is {STATES[state]}. Thick: median. Dashed: worst.",
    )


def _reread_figure(ns: int) -> Figure:
    return Figure(
        f"reread-{ns // 1000}us",
        "reading a page again",
        f"Mean of random reads of a file of {REREAD_MIB} MiB, all of which were in memory a while "
        f"ago; the disk answers after {ns // 1000} µs.",
    )


def _draw_figures(directory: Path, results: dict[str, Any]) -> list[Figure]:
    data = Measured(results)
    drawn: list[Figure] = []
    for state in STATES:
        series = {c: {n: data.states(c, state, n) for n in SIZES} for c in ("cma", "gcma")}
        if any(any(by.values()) for by in series.values()):
            drawn.append(_state_figure(state))
            report.draw_by_size(directory, drawn[-1], series)
    readers = {c: data.readers(c) for c in ("cma", "gcma")}
    if any(readers.values()):
        drawn.append(READERS)
        report.draw_cdf(directory, READERS, readers)
    for ns in DISK_NS:
        means = {
            c: values[0] / 1e3
            for c in ("reservation", "cma", "gcma")
            if (values := data.reread(ns, c, "pread"))
        }
        if means:
            drawn.append(_reread_figure(ns))
            report.draw_bars(directory, drawn[-1], means, "µs")
    return drawn


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    figures = _draw_figures(directory, results)
    about = results["kernel"]
    how = (
        f"Linux {about['release']} in QEMU {results['qemu']} with {results['memory_mib']} MiB of "
        f"RAM and an area of {results['cma_mib']} MiB; half as much of both "
        "where applications are started. Times are virtual, one nanosecond for each "
        "instruction of one CPU, and the same in every run of the same programs. A verdict looks "
        "at the worst sample; for instructions, and against reservation or CMA, at medians."
    )
    if real_time(results).runs:
        how += f" {REAL_HOW}"
    better = ahead(results)
    tables = (table(results), *more(results))
    report.page(
        directory / "index.html",
        "GCMA in depth",
        [
            *map(report.html_table, tables),
            "<h2>Where plain CMA is ahead</h2>\n",
            *map(report.paragraph, better or ["Nowhere in what was measured."]),
            *(report.html_figure(directory, figure) for figure in figures),
            "<h2>How it was measured</h2>\n",
            report.paragraph(how),
            *(report.paragraph(fact, small=True) for fact in facts(results)),
            report.paragraph("All samples and jobs: results.json next to this page.", small=True),
        ],
    )
    (directory / "table.md").write_text(
        "".join(map(report.markdown_table, tables))
        + "Where plain CMA is ahead:\n\n"
        + "".join(f"* {line}\n" for line in better)
        + f"\n{how}\n\n"
        + "".join(f"* {fact}\n" for fact in facts(results))
    )
    return directory / "index.html"


def show(directory: Path) -> None:
    """The table and what to know about it, on the terminal."""
    results = samples.load(directory)
    console = report.console(160)
    for one in (table(results), *more(results)):
        console.print(report.rich_table(one))
    console.print("Where plain CMA is ahead:", style="bold")
    for line in ahead(results) or ["nowhere in what was measured"]:
        console.print(f"  {line}")
    for fact in facts(results):
        console.print(f"  {fact}", style="dim")
