# SPDX-License-Identifier: MIT OR Apache-2.0
"""GCMA against its targets: what an allocation costs, and what the memory is worth meanwhile.

states:  allocations of three sizes from an area that is idle, full of clean file pages, and full
         of programs' memory; what storing and loading a page costs
cleared: allocations where the kernel clears what it gives out (init_on_alloc), announced or not
readers: allocations of random sizes while three readers go through more files than memory holds
random:  many allocations held at once, checked, while files and programs use the rest
reread:  reading a page again that was in memory a while ago, from a fast and a slow disk; all
         pages alike, popular ones more often, and one after the other
cgroups: what is left of a memory cgroup's pages in the area when another one streams through it
cost:    what GCMA costs whom it does not help, against a kernel without: who has no area, reads a
         page that was never there, or evicts one while the area is wholly allocated
calls:   reading pages in calls of several sizes, from the area where plain CMA has them in the
         page cache
mglru:   popular pages again, and random allocations, with the multi-generational LRU and zswap
spins:   how long allocations wait for copies in flight, with real threads on four CPUs
pieces:  the same beside four readers whose every read goes into 1,024 pieces of memory
real:    states and calls once more in real time, caches included: in User Mode Linux, which is a
         program of this machine, again and again with GCMA and plain CMA in turn
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from nocopy_lab import jobs, kernel, progress, report
from nocopy_lab.board import CMA_MIB, MEMORY_MIB, Machine
from nocopy_lab.experiments import keeper, measure, provenance
from nocopy_lab.paths import OUT, LabError
from nocopy_lab.report import Figure, Table, duration, percentile
from nocopy_lab.run import Job

SEED: Final = 1
HERE: Final = OUT / "bench-gcma"
KINDS: Final = (
    *("states", "cleared", "readers", "random", "reread", "cgroups", "cost", "calls", "mglru"),
    *("spins", "pieces", "real"),
)

LARGEST: Final = 32768  # pages: half of the area
SIZES: Final = (64, 1024, LARGEST)
# And whatever else the area has, which plain CMA would take minutes for.
ALL_SIZES: Final = (1, 8, 64, 256, 1024, 4096, 16384, LARGEST, 2 * LARGEST)
STATES: Final = {
    "idle": "idle",
    "clean": "full of clean cache",
    "anon": "full of anonymous memory",
}
REPETITIONS: Final = {"idle": 20, "clean": 5, "anon": 3}
HELD_REPETITIONS: Final = 3
FILES_MIB: Final = 1040  # more than there is memory
# With 900 plain CMA may never come to an end: reclaim finds pages of the area only, and what the
# kernel needs for itself cannot be there.
ANON_MIB: Final = 860
DMEM_PAGES: Final = 10_000
DMEM_REPETITIONS: Final = 5

# Allocations while readers thrash. Plain CMA can be busy with one for a minute, with the readers
# running all the while: it gets fewer, each is given up after a while, and all end some time.
READER_ALLOCS: Final = {"gcma": 1000, "cma": 40}
SIZES_A_LINE: Final = 50
GIVE_UP_S: Final = 3
CMA_END_S: Final = 25

RANDOM_MIB: Final = 500  # files, and as much for programs
RANDOM_ALLOCS: Final = 10_000
RANDOM_CMA_ROUNDS: Final = 10
RANDOM_CMA_ALLOCS: Final = 20  # a round
RANDOM_GIVE_UP_S: Final = 6

REREAD_MIB: Final = 864  # more than memory without the area, less than all of it
REREADS: Final = 40_000
WARM_READS: Final = 300_000
DISK_NS: Final = (50_000, 400_000)

# More than memory and the area together hold.
LARGE_MIB: Final = 1536
LARGE_READS: Final = 400_000  # once round, and a bit
# What is popular has to show first, and few of the reads miss.
POPULAR_WARM: Final = 8_000_000
POPULAR_READS: Final = 1_200_000

CLEARED_REPETITIONS: Final = 3


def _words(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _states(config: str) -> str:
    ours = config == "gcma"
    return jobs.script(
        "bench-states", seed=SEED, sizes=_words(SIZES),
        all_sizes=_words(ALL_SIZES if ours else SIZES), idle=REPETITIONS["idle"],
        clean=REPETITIONS["clean"], anon=REPETITIONS["anon"], files=FILES_MIB, anon_mib=ANON_MIB,
        dmem=DMEM_PAGES if ours else "", dmem_reps=DMEM_REPETITIONS,
        held=HELD_REPETITIONS if ours else "",
    )  # fmt: skip


def _cleared(config: str) -> str:
    return jobs.script(
        "bench-cleared", seed=SEED, largest=LARGEST, reps=CLEARED_REPETITIONS,
        prepared=CLEARED_REPETITIONS if config == "gcma" else "",
    )  # fmt: skip


def _readers(config: str) -> str:
    choice = random.Random(SEED)
    sizes = [choice.randint(1, LARGEST) for _ in range(READER_ALLOCS[config])]
    step = 1 if config == "cma" else SIZES_A_LINE
    parts = [_words(sizes[at : at + step]) for at in range(0, len(sizes), step)]
    return jobs.script(
        "bench-readers", seed=SEED, files=FILES_MIB, sizes=" ".join(parts), end=CMA_END_S,
        give_up=GIVE_UP_S if config == "cma" else "",
    )  # fmt: skip


def _random(config: str) -> str:
    cma = config == "cma"
    return jobs.script(
        "bench-random", seed=SEED, mib=RANDOM_MIB, rounds=RANDOM_CMA_ROUNDS, end=CMA_END_S,
        count=RANDOM_CMA_ALLOCS if cma else RANDOM_ALLOCS,
        give_up=RANDOM_GIVE_UP_S if cma else "",
    )  # fmt: skip


# name: order, size of the file, reads before and of the measurement
ORDERS: Final = {
    "zipf": ("zipf", LARGE_MIB, POPULAR_WARM, POPULAR_READS),
    "round": ("cyclic", REREAD_MIB, 2 * (REREAD_MIB << 8), REREAD_MIB << 8),
    "scan": ("cyclic", LARGE_MIB, LARGE_READS, LARGE_READS),
}


def _in_order(name: str) -> str:
    order, mib, warm, reads = ORDERS[name]
    return jobs.script("bench-order", seed=SEED, order=order, mib=mib, warm=warm, reads=reads)


# One memory cgroup reads a set of pages, most of which its limit and half of the area would hold;
# another one reads a file from end to end.
CGROUP_MIB: Final = 160
CGROUP_SET_MIB: Final = 352
STREAM_MIB: Final = 1024


@dataclass(frozen=True)
class Neighbours:
    """Who is there: configuration, size of the area, whether one streams."""

    config: str
    cma_mib: int
    stream: bool

    @property
    def name(self) -> str:
        stream = "stream" if self.stream else "alone"
        return f"cgroups-{self.config}-{self.cma_mib}-{stream}"

    def machine(self) -> Machine:
        machine = _machine(self.config, CGROUP_SET_MIB + STREAM_MIB, DISK_NS[0])
        memory = MEMORY_MIB - CMA_MIB + self.cma_mib
        return replace(machine, memory_mib=memory, cma_mib=self.cma_mib)

    def job(self) -> str:
        return jobs.script(
            "bench-cgroups", seed=SEED, limit=CGROUP_MIB, mib=CGROUP_SET_MIB,
            stream_mib=STREAM_MIB, stream="true" if self.stream else "false", warm=WARM_READS,
            reads=LARGE_READS,
        )  # fmt: skip


NEIGHBOURS: Final = (
    Neighbours("reservation", CMA_MIB, stream=False),
    Neighbours("reservation", CMA_MIB, stream=True),
    Neighbours("gcma", CMA_MIB, stream=False),
    # What a limit of half of the area for each would leave.
    Neighbours("gcma", CMA_MIB // 2, stream=False),
    Neighbours("gcma", CMA_MIB, stream=True),
)

# What is compared with a kernel without GCMA: configuration, size of the area, how many of its
# pages are somebody's.
COST_AREAS: Final = {
    "none": ("reservation", 0, ""),
    "reservation": ("reservation", CMA_MIB, ""),
    "gcma": ("gcma", CMA_MIB, ""),
    "full": ("gcma", CMA_MIB, str(2 * LARGEST)),
}


# CMA brings evicted pages back into the page cache: there is nothing else to read them from.
ALSO: Final = {"gcma": "", "cma": "--cached"}
# Bytes of a call, and how many times what the page cache takes it may take.
CALLS: Final = {8: 1.5, 512: 1.5, 4096: 1.5, 65536: 1.05, 1 << 20: 1.05}


# In real time: the same work in the same order. What counts is timed inside the kernel, or is a
# long call beside a short one.
REAL_ROUNDS: Final = 5
REAL_CALLS: Final = 5
REAL_CALL: Final = 1 << 20  # bytes: the system call itself is a small part of it


def _real(config: str) -> str:
    return jobs.script(
        "bench-real", seed=SEED, sizes=_words(SIZES), idle=REPETITIONS["idle"],
        clean=REPETITIONS["clean"], files=FILES_MIB, calls=REAL_CALLS, words=ALSO[config],
        whole=2 * LARGEST, dmem=DMEM_PAGES if config == "gcma" else "",
        dmem_reps=DMEM_REPETITIONS,
    )  # fmt: skip


def real_jobs(kernel_file: Path, only: str = "") -> list[Job]:
    """Boots of User Mode Linux, which have to run one at a time."""
    made: list[Job] = []
    for number in range(REAL_ROUNDS):
        for config in ("gcma", "cma"):
            disk = _machine(config, FILES_MIB)
            machine = replace(disk, board="uml", words=(*disk.words, "zram.num_devices=2"))
            name = f"bench-real-{config}-{number}"
            if only in name:
                made.append(
                    Job(name, _real(config), kernel_file, machine, programs=("mke2fs",),
                        allow=("allocation",))
                )  # fmt: skip
    return made


# Every CPU copies pages in and out, also that of the program that allocates.
SPIN_SIZES: Final = (1, 64, 1024, LARGEST)
SPIN_ALLOCS: Final = 1000
SPIN_BINS: Final = (0, 1, 10, 100, 1000)  # each up to the next
PIECES_MIB: Final = CMA_MIB // 2


def _spins(load: str, mib: int, sizes: Sequence[int]) -> str:
    return jobs.script(
        "bench-spins", seed=SEED, load=load, mib=mib, sizes=_words(sizes), reps=SPIN_ALLOCS,
        bins=" ".join(map(str, SPIN_BINS)),
    )  # fmt: skip


# What the program calls the ways, and what they are.
COSTS: Final = {
    "read_cached": "read a page that is cached",
    "fault_cached": "map a page that is cached",
    "evict": "evict a clean page",
    "read_evicted": "read a page that is not",
    "fault_evicted": "map a page that is not",
    "read_new": "read a page that was never there",
    "swap_out": "swap a page out",
    "swap_in": "swap a page in",
}


def _machine(config: str, disk_mib: int, completion_ns: int = 0) -> Machine:
    """The board with a disk that lives in extra RAM and answers at once, or after that long."""
    words = ["null_blk.nr_devices=1", "null_blk.memory_backed=1", "null_blk.gb=2"]
    words += ["null_blk.bs=4096", f"null_blk.irqmode={2 if completion_ns else 0}"]
    if completion_ns:
        words.append(f"null_blk.completion_nsec={completion_ns}")
    return Machine("x86", config, extra_mib=disk_mib + 48, words=tuple(words), seed=SEED)


def boots(
    gcma: kernel.Image, stock: kernel.Image, threads: kernel.Image, only: str = ""
) -> list[Job]:
    """All boots whose name contains `only`, the longest first; one is on several threads."""
    made: list[Job] = []

    def add(name: str, script: str, image: kernel.Image, machine: Machine) -> None:
        if only not in f"bench-{name}":
            return
        made.append(
            Job(
                f"bench-{name}", script, image.bootable, machine, programs=("mke2fs",),
                allow=("allocation",),
            )
        )  # fmt: skip

    add("states-cma", _states("cma"), gcma, _machine("cma", FILES_MIB))
    add("random-gcma", _random("gcma"), gcma, _machine("gcma", RANDOM_MIB))
    for config in ("gcma", "cma"):
        machine = Machine("x86", config, words=("init_on_alloc=1",), seed=SEED)
        add(f"cleared-{config}", _cleared(config), gcma, machine)
    add("readers-cma", _readers("cma"), gcma, _machine("cma", FILES_MIB))
    add("states-gcma", _states("gcma"), gcma, _machine("gcma", FILES_MIB))
    add("readers-gcma", _readers("gcma"), gcma, _machine("gcma", FILES_MIB))
    add("random-cma", _random("cma"), gcma, _machine("cma", RANDOM_MIB))
    reread = jobs.script("bench-reread", seed=SEED, mib=REREAD_MIB, warm=WARM_READS, reads=REREADS)
    for ns in DISK_NS:
        for config in ("gcma", "reservation", "cma"):
            machine = _machine(config, REREAD_MIB, ns)
            add(f"reread-{ns // 1000}us-{config}", reread, gcma, machine)
    for name, (_, mib, _, _) in ORDERS.items():
        script = _in_order(name)
        for config in ("gcma", "reservation", "cma"):
            machine = replace(_machine(config, mib, DISK_NS[0]))
            add(f"reread-{name}-{config}", script, gcma, machine)
    for one in NEIGHBOURS:
        add(one.name, one.job(), gcma, one.machine())
    for area, (config, mib, taken) in {"stock": COST_AREAS["none"], **COST_AREAS}.items():
        machine = Machine(
            "x86", config, memory_mib=MEMORY_MIB - CMA_MIB + mib, cma_mib=mib,
            words=("zram.num_devices=2", "norandmaps"), seed=SEED,
        )  # fmt: skip
        image = stock if area == "stock" else gcma
        add(f"cost-{area}", jobs.script("bench-cost", taken=taken), image, machine)
    machine = replace(_machine("gcma", RANDOM_MIB), board="x86-fast")
    add("spins", _spins("pages_in_and_out", RANDOM_MIB, SPIN_SIZES), threads, machine)
    add("pieces", _spins("pieces", PIECES_MIB, (LARGEST,)), threads, machine)
    for config in ("gcma", "cma"):
        machine = Machine("x86", config, words=("zram.num_devices=2", "norandmaps"), seed=SEED)
        add(f"calls-{config}", jobs.script("bench-calls", words=ALSO[config]), gcma, machine)
    mib = ORDERS["zipf"][1]
    script = f"mglru\n{_in_order('zipf')}"
    for config in ("gcma", "reservation", "cma"):
        add(f"mglru-zipf-{config}", script, gcma, _machine(config, mib, DISK_NS[0]))
    script = f"mglru\nzswap\n{_random('gcma')}"
    add("mglru-random-gcma", script, gcma, _machine("gcma", RANDOM_MIB))
    return made


def _expected(job: Job) -> dict[str, float]:
    config = job.machine.config
    if "-real-" in job.name:
        allocs = len(SIZES) * (REPETITIONS["idle"] + REPETITIONS["clean"])
        return {"calls": len(CALLS) * REAL_CALLS, "alloc": allocs}
    if "mglru-zipf" in job.name:
        return {"reread": 1}
    if "states" in job.name:
        sizes = ALL_SIZES if config == "gcma" else SIZES
        held = len(SIZES) * HELD_REPETITIONS if config == "gcma" else 0
        return {"alloc": len(sizes) * sum(REPETITIONS.values()) + held}
    if "cleared" in job.name:
        return {"alloc": CLEARED_REPETITIONS * (2 if config == "gcma" else 1)}
    if "readers" in job.name:
        return {"alloc": READER_ALLOCS[config]}
    if "random" in job.name:
        return {"load_tick": 20, "random_summary": RANDOM_CMA_ROUNDS if config == "cma" else 1}
    if "-calls-" in job.name:
        return {"calls": len(CALLS)}
    if "pieces" in job.name:
        return {"alloc": SPIN_ALLOCS}
    if "-cost-" in job.name:
        return {"cost": len(COSTS)}
    if "spins" in job.name:
        return {"alloc": len(SPIN_SIZES) * SPIN_ALLOCS}
    return {"reread": 2 if "us-" in job.name else 1}


def run(only: str = "") -> None:
    """Boot what `only` names and store it beside what the same kernels gave before."""
    gcma = kernel.image("measured")
    stock = kernel.image("stock")
    wanted = boots(gcma, stock, kernel.image("gcma"), only)
    user_mode = kernel.image("uml")
    alone = real_jobs(user_mode.bootable, only)
    if not wanted and not alone:
        raise LabError(f"no run has '{only}' in its name; there are: {', '.join(KINDS)}")
    about = provenance(gcma, SEED) | {
        "stock": stock.about(),
        "uml": user_mode.about(),
        "experiment": "bench-gcma",
        "memory_mib": MEMORY_MIB,
        "cma_mib": CMA_MIB,
    }
    keep = keeper(HERE, about, anew=not only)
    measure(wanted, _expected, each=keep)
    measure(alone, _expected, at_once=1, each=keep)


# ------------------------------------------------------------------ from here on: JSON only

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

    def failed(self, config: str, state: str, pages: int) -> int:
        return sum(not row["ok"] for row in self.allocs(config, state, pages))

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

    def cost(self, area: str, way: str) -> list[float]:
        """What a page costs more on that way than without GCMA, by batch: they do the same."""
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
            return "met" if good else "missed"
        if self.kind == "ratio":
            return "met" if max(self.gcma) <= self.limit else "missed"
        good = self.measured <= self.limit and not self.failed.get("gcma")
        return "met" if good else "missed"


def lines(results: dict[str, Any]) -> list[Line]:
    """The table, in its order."""
    data = Measured(results)
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
    ]
    made += [
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
        Line(
            f"allocate {LARGEST:,} pages, area idle, init_on_alloc",
            {"cma": data.cleared("cma", "unprepared")},
            data.cleared("gcma", "unprepared"),
            bounds={"cma": 1},
        ),
        Line(
            f"allocate {LARGEST:,} pages, area idle, init_on_alloc, prepared",
            {},
            data.cleared("gcma", "prepared"),
            10e3,
        ),
    ]
    failures = {c: data.failures(c) for c in ("cma", "gcma")}
    counted: dict[str, list[float]] = {c: [n] if of else [] for c, (n, of) in failures.items()}
    made.append(
        Line(
            "failed allocations at random, half of the area at most",
            {"cma": counted["cma"]},
            counted["gcma"],
            0,
            "count",
            {c: of for c, (_, of) in failures.items()},
        )
    )
    failed, of = data.failures("gcma", "mglru-random")
    made.append(
        Line(
            "the same with the multi-generational LRU and zswap",
            {},
            [failed] if of else [],
            0,
            "count",
            {"gcma": of},
        )
    )
    both = ("reservation", "cma")
    made += [
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
            f"read {size:,} bytes, from the area instead of the page cache",
            {"cma": data.calls("cma", size, "cached_ns")},
            data.calls("gcma", size, "evicted_ns"),
            bounds={"cma": most},
        )
        for size, most in CALLS.items()
    ]
    made += [
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
    return f"{a / b:.2g} times" if a / b >= 1.95 else f"{(a / b - 1) * 100:.0f} %"


def ahead(results: dict[str, Any]) -> list[str]:
    """Where plain CMA does better, by how much; every line of the table, and reads in place."""
    said: list[str] = []
    data = Measured(results)
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
    ]
    for line in compared:
        cma = line.others.get("cma", [])
        if not cma or not line.gcma or line.whole is not None:
            continue
        theirs, ours = percentile(cma, 0.5), percentile(line.gcma, 0.5)
        if theirs < ours:
            more = _times(ours, theirs)
            said.append(
                f"{line.work}: {line.one(theirs)} with CMA, {line.one(ours)} with GCMA ({more} "
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


def kept(results: dict[str, Any]) -> Table | None:
    """What is stored, and what comes back."""
    data = Measured(results)
    rows: list[list[str]] = []
    for name, (order, mib, _, _) in ORDERS.items():
        for row in data.rows(f"reread-{name}-gcma", "reread"):
            area = row["gcma_delta"]
            hits = area["reserved/file/served"] + area["reserved/file/loaded"]
            rows.append(
                [
                    f"{order}, {mib} MiB",
                    duration(row["ns_total"] / row["reads"]),
                    f"{hits / row['reads']:.1%}",
                    f"{area['reserved/file/stored'] / row['reads']:.2f}",
                ]
            )
    head = ("reads", "time of a read", "from the area", "stores a read")
    return Table("What is kept", head, rows) if rows else None


def neighbours(results: dict[str, Any]) -> Table | None:
    """What a limit for memory cgroups in the area would be good for."""
    data = Measured(results)
    rows: list[list[str]] = []
    for one in NEIGHBOURS:
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


def spins(results: dict[str, Any], kind: str, beside: str) -> Table | None:
    """How often allocations found a copy in flight still going on, each time around the loop."""
    data = Measured(results)
    bins = {row["least"]: row["allocs"] for row in data.rows(kind, "spins")}
    if not bins:
        return None
    bounds = sorted(bins)
    names = ["none", *(f"{a:,} to {b - 1:,}" for a, b in itertools.pairwise(bounds[1:]))]
    names.append(f"{bounds[-1]:,} and more")
    (most,) = data.rows(kind, "spins_most")
    total = sum(bins.values())
    rows = [
        [name, f"{bins[least]:,}", f"{bins[least] / total:.2%}"]
        for name, least in zip(names, bounds, strict=True)
    ]
    return Table(
        f"Turns that an allocation waited for copies in flight, {beside} (most: {most['most']:,}; "
        f"longest allocation {duration(max(row['ns'] for row in data.rows(kind, 'alloc')))})",
        ("turns", "allocations", ""),
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


def real(results: dict[str, Any]) -> Table | None:
    """Instructions are one thing; what caches and memory make of them is another."""
    virtual, ours = Measured(results), real_time(results)
    if not ours.runs:
        return None
    works: list[tuple[str, Callable[[Measured, str], list[float]]]] = [
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
    rows: list[list[str]] = []
    for words, values in works:
        row = [words]
        for config in ("cma", "gcma"):
            counted = values(virtual, config)
            row += [duration(percentile(counted, 0.5)) if counted else "–"]
            row += [_spread(values(ours, config))]
        rows.append(row)
    head = ("", "CMA, virtual", "CMA, real", "GCMA, virtual", "GCMA, real")
    return Table(REAL_TITLE, head, rows)


def more(results: dict[str, Any]) -> list[Table]:
    """What was measured beside the targets."""
    made = (
        real(results),
        kept(results),
        neighbours(results),
        spins(results, "spins", "four programs that evict and read"),
        spins(results, "pieces", "four readers into 1,024 pieces"),
    )
    return [one for one in made if one]


HEAD: Final = ("", "Reservation", "CMA", "GCMA", "target", "")


def table(results: dict[str, Any]) -> Table:
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


def draw(directory: Path = HERE) -> Path:
    results = report.load_results(directory)
    figures = _draw_figures(directory, results)
    about = results["kernel"]
    how = (
        f"Linux {about['release']} in QEMU {results['qemu']} with {results['memory_mib']} MiB of "
        f"RAM and an area of {results['cma_mib']} MiB. Times are virtual, one nanosecond for each "
        "instruction of one CPU, and the same in every run of the same programs. A verdict looks "
        "at the worst sample, for instructions at the median of the rounds."
    )
    if real_time(results).runs:
        how += f" {REAL_HOW}"
    better = ahead(results)
    report.page(
        directory / "index.html",
        "GCMA in depth",
        [
            report.html_table(table(results)),
            *(report.html_table(one) for one in more(results)),
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
        report.markdown_table(table(results))
        + "".join(report.markdown_table(one) for one in more(results))
        + "Where plain CMA is ahead:\n\n"
        + "".join(f"* {line}\n" for line in better)
        + f"\n{how}\n\n"
        + "".join(f"* {fact}\n" for fact in facts(results))
    )
    return directory / "index.html"


def show(directory: Path = HERE) -> None:
    """The table and what to know about it, on the terminal."""
    results = report.load_results(directory)
    # A log has no width: do not break lines for it.
    terminal = progress.console.is_terminal
    console = progress.console if terminal else Console(width=160, highlight=False, soft_wrap=True)
    for one in (table(results), *more(results)):
        console.print(report.rich_table(one))
    console.print("Where plain CMA is ahead:", style="bold")
    for line in ahead(results) or ["nowhere in what was measured"]:
        console.print(f"  {line}")
    for fact in facts(results):
        console.print(f"  {fact}", style="dim")
