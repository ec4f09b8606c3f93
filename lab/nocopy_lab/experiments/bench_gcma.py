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
cost:    what GCMA costs those that it does not help, against a kernel without: no area; reads of a
         page that was never there; evictions while the area is wholly allocated
calls:   reading pages in calls of several sizes, from the area where plain CMA has them in the
         page cache
mglru:   popular pages again, and random allocations, with the multi-generational LRU and zswap
launch:  applications that are started in turn, with more files and memory than fit without the
         area, on what a phone has: files on f2fs, encrypted or not, zram, the multi-generational
         LRU
copy-waits: how often allocations wait for copies in flight, with real threads on four CPUs
pieces:  the same beside four readers whose every read goes into 1,024 pieces of memory
real:    states and calls once more in real time, caches included: in User Mode Linux, which is a
         program of this machine, again and again with GCMA and plain CMA in turn

Linux 6.12 and 7.3 have results of their own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nocopy_lab import initramfs, jobs, kernel, names
from nocopy_lab.board import CMA_MIB, MEMORY_MIB, Machine, null_disk
from nocopy_lab.experiments import keeper, measure, of_version, provenance
from nocopy_lab.paths import OUT, sha256
from nocopy_lab.run import MEASURING_S, Job

SEED: Final = 1
HERE: Final = OUT / "bench-gcma"


def directory(version: str) -> Path:
    return of_version(HERE, version)


KINDS: Final = (
    *("states", "cleared", "readers", "random", "reread", "cgroups", "cost", "calls", "mglru"),
    *("launch", "copy-waits", "pieces", "real"),
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
    # Through a mapping pages move between the area and the page cache, so more stay in all.
    "mapped": ("cyclic --mmap", REREAD_MIB, 2 * (REREAD_MIB << 8), REREAD_MIB << 8),
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
    """Configuration, size of the area, if a second cgroup streams, and how the first one reads."""

    config: str
    cma_mib: int
    stream: bool
    order: str = "random"

    @property
    def name(self) -> str:
        stream = "stream" if self.stream else "alone"
        order = "" if self.order == "random" else f"-{self.order}"
        return f"cgroups-{self.config}-{self.cma_mib}-{stream}{order}"

    def machine(self) -> Machine:
        machine = _machine(self.config, CGROUP_SET_MIB + STREAM_MIB, DISK_NS[0])
        memory = MEMORY_MIB - CMA_MIB + self.cma_mib
        return replace(machine, memory_mib=memory, cma_mib=self.cma_mib)

    def job(self) -> str:
        return jobs.script(
            "bench-cgroups", seed=SEED, limit=CGROUP_MIB, mib=CGROUP_SET_MIB,
            stream_mib=STREAM_MIB, stream="true" if self.stream else "false", order=self.order,
            warm=WARM_READS, reads=LARGE_READS,
        )  # fmt: skip


NEIGHBOURS: Final = (
    Neighbours("reservation", CMA_MIB, stream=False),
    Neighbours("reservation", CMA_MIB, stream=True),
    Neighbours("gcma", CMA_MIB, stream=False),
    # What a limit of half of the area for each would leave.
    Neighbours("gcma", CMA_MIB // 2, stream=False),
    Neighbours("gcma", CMA_MIB, stream=True),
    Neighbours("gcma", CMA_MIB, stream=True, order="zipf"),
)

# What is compared with a kernel without GCMA: configuration, size of the area, how many of its
# pages are allocated.
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


def real_jobs(kernel_file: Path) -> list[Job]:
    """Boots of User Mode Linux, which have to run one at a time."""
    made: list[Job] = []
    for number in range(REAL_ROUNDS):
        for config in ("gcma", "cma"):
            disk = _machine(config, FILES_MIB)
            machine = replace(disk, board="uml", words=(*disk.words, "zram.num_devices=2"))
            made.append(
                Job(
                    f"bench-real-{config}-{number}", _real(config), kernel_file, machine,
                    programs=("mke2fs",), allow=("allocation",), limit_s=MEASURING_S,
                )
            )  # fmt: skip
    return made


# Applications, and MiB of each. On half of the board they fit with the area, and not without.
LAUNCH_APPS: Final = 18
LAUNCH_FILES: Final = {"code": 8, "data": 12}
LAUNCH_ANON_MIB: Final = 8
LAUNCH_ALIVE: Final = 6
LAUNCH_WARM: Final = 1  # rounds
LAUNCH_ROUNDS: Final = 2


# Whether files are encrypted, and how long the disk takes for a request. Here the emulated
# processor encrypts. A phone's hardware is as fast as its disk: it is between the first two.
LAUNCH_DISKS: Final = {
    "encrypted": ("true", DISK_NS[0]),
    "plain": ("false", DISK_NS[0]),
    "slow": ("false", DISK_NS[1]),
}


def _launch(encrypt: str) -> str:
    sizes = f"--apps {LAUNCH_APPS} --alive {LAUNCH_ALIVE} --anon-mib {LAUNCH_ANON_MIB}"
    files = [f"--{what}-mib {mib}" for what, mib in LAUNCH_FILES.items()]
    return jobs.script(
        "launch", sizes=" ".join([sizes, *files]), warm=LAUNCH_WARM, rounds=LAUNCH_ROUNDS,
        encrypt=encrypt,
    )  # fmt: skip


def _launch_machine(config: str, disk_ns: int) -> Machine:
    # f2fs writes more than the files are.
    machine = _machine(config, LAUNCH_APPS * sum(LAUNCH_FILES.values()) + 32, disk_ns)
    return replace(machine, memory_mib=MEMORY_MIB // 2, cma_mib=CMA_MIB // 2)


# Every CPU copies pages in and out, also that of the program that allocates.
COPY_WAIT_SIZES: Final = (1, 64, 1024, LARGEST)
COPY_WAIT_ALLOCS: Final = 1000
COPY_WAIT_BINS: Final = (0, 1, 10, 100, 1000)  # each up to the next
PIECES_MIB: Final = CMA_MIB // 2


# So that the readers have pages in the area again before the next allocation.
PIECES_PAUSE_MS: Final = 10


def _copy_waits(load: str, mib: int, sizes: Sequence[int], pause_ms: int = 0) -> str:
    return jobs.script(
        "bench-copy-waits", seed=SEED, load=load, mib=mib, sizes=_words(sizes),
        reps=COPY_WAIT_ALLOCS, pause_ms=pause_ms, bins=" ".join(map(str, COPY_WAIT_BINS)),
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
    words = null_disk(2, completion_ns=completion_ns)
    return Machine("x86", config, extra_mib=disk_mib + 48, words=words, seed=SEED)


def boots(gcma: Path, stock: Path, threads: Path) -> list[Job]:
    """All other boots, the longest first; two are on several threads."""
    made: list[Job] = []

    def add(name: str, script: str, image: Path, machine: Machine, mkfs: str = "mke2fs") -> None:
        made.append(
            Job(
                f"bench-{name}", script, image, machine, programs=(mkfs,),
                allow=("allocation",), limit_s=MEASURING_S,
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
            add(f"reread-{name}-{config}", script, gcma, _machine(config, mib, DISK_NS[0]))
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
    add(
        "copy-waits", _copy_waits("pages_in_and_out", RANDOM_MIB, COPY_WAIT_SIZES), threads, machine
    )
    add("pieces", _copy_waits("pieces", PIECES_MIB, (LARGEST,), PIECES_PAUSE_MS), threads, machine)
    for config in ("gcma", "cma"):
        machine = Machine("x86", config, words=("zram.num_devices=2", "norandmaps"), seed=SEED)
        add(f"calls-{config}", jobs.script("bench-calls", words=ALSO[config]), gcma, machine)
    mib = ORDERS["zipf"][1]
    script = f"mglru\n{_in_order('zipf')}"
    for config in ("gcma", "reservation", "cma"):
        add(f"mglru-zipf-{config}", script, gcma, _machine(config, mib, DISK_NS[0]))
    script = f"mglru\nzswap\n{_random('gcma')}"
    add("mglru-random-gcma", script, gcma, _machine("gcma", RANDOM_MIB))
    for disk, (encrypt, ns) in LAUNCH_DISKS.items():
        for config in ("reservation", "cma", "gcma"):
            machine = _launch_machine(config, ns)
            add(f"launch-{disk}-{config}", _launch(encrypt), gcma, machine, "mkfs.f2fs")
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
    if "-launch-" in job.name:
        return {"launch": LAUNCH_APPS * (LAUNCH_WARM + LAUNCH_ROUNDS)}
    if "-calls-" in job.name:
        return {"calls": len(CALLS)}
    if "pieces" in job.name:
        return {"alloc": COPY_WAIT_ALLOCS}
    if "-cost-" in job.name:
        return {"cost": len(COSTS)}
    if "copy-waits" in job.name:
        return {"alloc": len(COPY_WAIT_SIZES) * COPY_WAIT_ALLOCS}
    return {"reread": 2 if "us-" in job.name else 1}


# What runs in the guests.
PROGRAMS: Final = ("cost", "fscrypt", "launch", "load", "reread", "statdump", "sweep")

# The kernels of a version: with GCMA, without, for QEMU's threads, and User Mode Linux.
KERNELS: Final = {
    "6.12": ("measured", "stock", "gcma", "uml"),
    "7.3": ("measured-7.3", "stock-7.3", "gcma-7.3", "uml-7.3"),
}


def run(version: str, only: str = "") -> None:
    """Boot what `only` names and store it beside what the same kernels gave before."""
    none = Path()
    every = [job.name for job in (*boots(none, none, none), *real_jobs(none))]
    wanted = names.chosen(only, every, "run", f"there are: {', '.join(KINDS)}")
    gcma, stock, threads, user_mode = map(kernel.image, KERNELS[version])
    together = boots(gcma.bootable, stock.bootable, threads.bootable)
    programs = initramfs.guest_programs()
    about = provenance(gcma, SEED) | {
        "stock": stock.about(),
        "threads": threads.about(),
        "uml": user_mode.about(),
        "programs": sha256(*(programs[name] for name in PROGRAMS)),
        "experiment": "bench-gcma",
        "memory_mib": MEMORY_MIB,
        "cma_mib": CMA_MIB,
    }
    keep = keeper(directory(version), about, anew=not only)
    measure([job for job in together if job.name in wanted], _expected, each=keep)
    alone = [job for job in real_jobs(user_mode.bootable) if job.name in wanted]
    measure(alone, _expected, at_once=1, each=keep)
