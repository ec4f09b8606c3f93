# SPDX-License-Identifier: MIT OR Apache-2.0
"""`lab soak`: everything at once, at random, for as long as you like.

A soak is rounds of one boot each. What a round does follows from its seed alone: the kernel and the
board, how memory is divided, the swap device, the sizes of everything that runs. At the same time

* the oracle checks files, programs' memory and contiguous memory; as many processes as there are
  CPUs allocate the latter, and some of it is pinned when it is released;
* programs take buffers, and on x86-64 photos, from the same area;
* CPUs are unplugged and plugged again;
* a hog wants about as much memory as is free, swap included, or more, for which it is killed;
* on the debug kernel, allocations fail.

No contiguous allocation may fail: the sizes leave room for each, see _fits(). Afterwards the area
has to be as it was before. A round that fails prints how to repeat it, all but its races, which
follow the host.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import jobs, kernel
from nocopy_lab.board import Machine
from nocopy_lab.checks.storage import fresh_seed
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome, Row, boot_all

# Kernels and boards, which take turns.
KINDS: Final = (("gcma-7.3", "x86-fast"), ("arm64", "arm64"), ("debug", "x86-fast"))
ROUND_S: Final = 60  # of guest time, at least
PAGES_PER_MIB: Final = 256

# Pieces of contiguous memory that are held at a time: by one worker, and by the other programs.
LARGEST: Final = 256  # pages; no buffer of the heap or the camera is larger
PIECES: Final = 4
# A pinned page is a piece too, and so is one that was unpinned a moment ago.
PIECES_PINNED: Final = 2
HEAP_BUFFERS: Final = 2
CAMERA_BUFFERS: Final = 2
# Counters that have to grow before a round ends, however long that takes on this machine.
GOALS: Final = (
    "cma_allocs", "cma_pins", "gcma_store_file", "gcma_store_swap", "gcma_load_file",
    "gcma_load_swap", "gcma_discard",
)  # fmt: skip
# One more counter, where the hog wants more than is free.
GREEDY_GOAL: Final = "oom_kill"
ALIGNED: Final = 256  # maximum pages that alignment costs
# A greedy hog wants at most this many per cent of what is free, and at least half as many.
TOO_MUCH: Final = 240
# The swap of a greedy hog. Filling more takes long on an emulated machine.
LITTLE_SWAP: Final = "zram_swap 64"


def _fits(area_pages: int, workers: int) -> bool:
    """True if an allocation of LARGEST pages must succeed, wherever the other pieces lie.

    The pieces divide the rest of the area into at most one range more than there are pieces.
    """
    pieces = workers * (PIECES + PIECES_PINNED) + HEAP_BUFFERS + CAMERA_BUFFERS
    return (area_pages - pieces * LARGEST) // (pieces + 1) >= LARGEST + ALIGNED


# What may differ in reclaim, each in half of the rounds: the kernels of KINDS begin with the
# multi-generational LRU on, and without zswap.
RECLAIM: Final = ("echo n >/sys/kernel/mm/lru_gen/enabled", "zswap")


def kind(seed: int) -> tuple[str, str]:
    return KINDS[seed % len(KINDS)]


def greedy(seed: int) -> bool:
    """True if the hog of a round wants more than is free."""
    return random.Random(f"hog {seed}").random() < 0.5


def job(seed: int, bootable: Path, seconds: int = ROUND_S) -> Job:
    """The job that is the round of a seed."""
    image, board = kind(seed)
    draw = random.Random(seed)
    # Small, so that the area is full of copies and allocations meet them.
    area_mib = draw.choice((96, 112, 128))
    # The debug kernel is slow, and needs shadow memory as well.
    slow = image == "debug"
    memory_mib = area_mib + draw.choice((384, 448, 512)) + (128 if slow else 0)
    machine = Machine(board, memory_mib=memory_mib, cma_mib=area_mib, seed=seed)
    workers = machine.cpus
    if not _fits(area_mib * PAGES_PER_MIB, workers):
        raise LabError(f"{area_mib} MiB are too small for {workers} CPUs")
    files = draw.randint(96, 160) if slow else draw.randint(400, 560)
    swap = draw.choice(("zram_swap 192", "zram_swap 384", "disk_swap /dev/vdb"))
    words = [word for word in ("--thp", "--drop-caches") if draw.random() < 0.3]
    goals = (*GOALS, GREEDY_GOAL) if greedy(seed) else GOALS
    reclaim = [line for line in RECLAIM if draw.random() < 0.5]
    script = jobs.script(
        "soak",
        seed=seed,
        seconds=seconds,
        cpus=machine.cpus,
        workers=workers,
        pieces=PIECES,
        largest=LARGEST,
        live=PIECES * LARGEST,
        heap=HEAP_BUFFERS,
        camera=CAMERA_BUFFERS,
        swap=LITTLE_SWAP if greedy(seed) else swap,
        block=draw.choice((1024, 2048, 4096)),
        files=files,
        anon=draw.randint(64, 192),
        races=draw.randint(1, 3),
        hog=TOO_MUCH if greedy(seed) else draw.randint(70, 105),
        words=" ".join(words),
        goals=",".join(f"{goal}=1" for goal in goals),
        reclaim="; ".join(reclaim),
        before="fail_allocations" if slow else "",
        after="fail_no_more" if slow else "",
    )
    return Job(
        f"soak-{seed}",
        script,
        bootable,
        machine,
        programs=("mke2fs",),
        allow=("allocation", "oom"),
        scratch_mib=(2 * files + 128, 384),
    )


def _last(outcome: Outcome, kind: str, label: str = "") -> Row:
    rows = [row for row in outcome.rows(kind) if not label or row.get("label") == label]
    if not rows:
        raise LabError(f"{outcome.job.name}: no {label or kind}; see {outcome.console}")
    return rows[-1]


def judge(outcome: Outcome) -> None:
    """Raise if something went wrong.

    The counters in GOALS are not checked here: the round ends only when they have grown.
    """
    outcome.require()
    name, oracle = outcome.job.name, _last(outcome, "oracle")

    def must(holds: bool, what: str) -> None:
        if not holds:
            raise LabError(f"{name}: {what}; see {outcome.console}")

    must(oracle["cma_failed"] == 0, f"{oracle['cma_failed']} contiguous allocations failed")
    must(_last(outcome, "plug")["unplugged"] > 0, "no CPU was unplugged")
    for row in (*outcome.rows("heap"), *outcome.rows("shot")):
        must(row["ok"], f"a buffer could not be had: {row}")
    first, area = (_last(outcome, "gcma_stats", at)["areas"]["reserved"] for at in ("start", "end"))
    must(area["owned"] == first["owned"], f"owned is {area['owned']}, not {first['owned']}")
    for count in ("quarantined", "bad_releases", "alloc_fails"):
        must(area[count] == 0, f"{count} is {area[count]} at the end")


def summary(outcome: Outcome) -> str:
    """A line about a good round."""
    oracle = _last(outcome, "oracle")
    area = _last(outcome, "gcma_stats", "end")["areas"]["reserved"]
    killed = oracle["vmstat_delta"].get("oom_kill", 0)
    return (
        f"{' on '.join(kind(outcome.job.machine.seed))}, {outcome.host_s:.0f} s: "
        f"{oracle['ops']:,} operations, {oracle['bytes_verified'] >> 20:,} MiB looked at, "
        f"{area['allocs']:,} allocations, {area['copy_waits']:,} copy waits, "
        f"{oracle['cma_pins']:,} pins, {_last(outcome, 'plug')['unplugged']} CPUs unplugged, "
        f"{killed} times out of memory"
    )


def repeat(seed: int) -> str:
    return f"to repeat it: lab/lab soak --rounds 1 --seed {seed}"


def one(seed: int, bootable: Path, seconds: int = ROUND_S) -> Outcome:
    """Run a round; if it is not good, raise an error that says how to repeat it."""
    (outcome,) = boot_all([job(seed, bootable, seconds)])
    try:
        judge(outcome)
    except LabError as error:
        raise LabError(f"{error}\n{repeat(seed)}") from error
    return outcome


def check(bootable: Path) -> None:
    """Run a short round with a new seed: on the first kind, with a greedy hog."""
    seed = fresh_seed()
    while seed % len(KINDS) or not greedy(seed):
        seed += 1
    one(seed, bootable, seconds=30)


def run(minutes: float, rounds: int, first: int | None) -> None:
    """Run rounds with consecutive seeds: `rounds` of them, or else one and until `minutes` are
    over."""
    seed = fresh_seed() if first is None else first
    images = {name: kernel.image(name).bootable for name in _images(rounds, seed)}
    end = time.monotonic() + 60 * minutes  # what is built first takes longer than many a soak
    outcomes: list[Outcome] = []
    while len(outcomes) < rounds if rounds else not outcomes or time.monotonic() < end:
        print(f"round {len(outcomes) + 1}, seed {seed}", flush=True)
        outcomes.append(one(seed, images[kind(seed)[0]]))
        print(f"  {summary(outcomes[-1])}", flush=True)
        seed += 1
    print(f"{len(outcomes)} rounds, no failure: {totals(outcomes)}")


def totals(outcomes: Sequence[Outcome]) -> str:
    """What good rounds have in all: no allocation of theirs failed."""
    allocs = sum(
        int(_last(one, "gcma_stats", "end")["areas"]["reserved"]["allocs"]) for one in outcomes
    )
    unplugged = sum(int(_last(one, "plug")["unplugged"]) for one in outcomes)
    settings = [
        line
        for one in outcomes
        for line in one.job.script.splitlines()
        if line.startswith("reclaim=")
    ]
    old_lists, zswap = (sum(wanted in line for line in settings) for wanted in RECLAIM)
    return (
        f"{allocs:,} allocations, none failed; {len(outcomes) - old_lists} rounds with the "
        f"multi-generational LRU, {zswap} with zswap, {unplugged} CPUs unplugged"
    )


def _images(rounds: int, seed: int) -> Sequence[str]:
    count = min(rounds or len(KINDS), len(KINDS))
    return [kind(seed + n)[0] for n in range(count)]
