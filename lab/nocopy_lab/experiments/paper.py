# SPDX-License-Identifier: MIT OR Apache-2.0
"""The evaluation of the GCMA paper, run again (S. Park, M. Kim, H. Y. Yeom, EWiLi 2015).

fig4:   mean latency of allocations of 64 to 32,768 pages, idle and under load
fig5:   1,024 pages at a time, idle and under load
fig6:   photo shots under load, and the allocations they need (fig. 1 is its worst case)
fig7:   what the load gets done, without and with a photo every ten seconds
table3: context switch, file and memory bandwidth of an idle system

And what the paper has not:

area:   what the load gets from areas of different sizes
use:    the same, while part of the area is allocated
hour:   an allocation every second for an hour
huge:   huge pages under fragmentation: from the area, and by compaction

A boot serves several of these. The load is Blogbench where $BLOGBENCH names it, else `blog`, which
does the same things: see lab/guest/blog.c. What is drawn and said is in paper_report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nocopy_lab import initramfs, jobs, kernel, trees
from nocopy_lab.arch import X86
from nocopy_lab.board import BOARDS, CMA_MIB, MEMORY_MIB, Disk, Machine, null_disk
from nocopy_lab.board import CONFIGS as MODES
from nocopy_lab.experiments import keeper, measure, of_version, provenance
from nocopy_lab.paths import OUT, LabError, sha256
from nocopy_lab.run import Job

SEED: Final = 1
HERE: Final = OUT / "paper"
# The paper's three, and what DaaC and eCache keep in such an area.
CONFIGS: Final = ("cma", "gcma", "file-only", "reservation")
OF_PAPER: Final = ("fig4", "fig5", "fig6", "fig7", "table3")
BEYOND: Final = ("area", "use", "hour", "huge")
PARTS: Final = (*OF_PAPER, *BEYOND)
# Boards, and the kernels that they boot.
KERNELS: Final = {"x86": "measured", "rpi2": "rpi2"}
LATER: Final = {"x86": "gcma-7.3"}  # of Linux 7.3

# An SD card: 20 MiB/s in all, 400 µs for each request, and room for all requests there are.
CARD_BYTES_PER_S: Final = 20 << 20
CARD_NS: Final = 400_000
CARD_QUEUE: Final = 256
CARD_MIB: Final = 2048
SWAP_MIB: Final = 100  # as the paper has; compressed memory where clients keep copies
ZRAM: Final = ("gcma", "file-only")
# What is left of the card beside blogs and swap, for the blogs' comings and goings.
SPARE_MIB: Final = 160
# null_blk keeps the card's content in memory, which must not be the board's.
CARD_MEMORY_MIB: Final = 1680
SMALL_CARD_MEMORY_MIB: Final = 256
# Of a file that fills the card so much must show as memory. Some of its blocks have been written
# before: it is 92.
FILLED_PERCENT: Final = 80

BLOGS: Final = 448  # 1.2 GiB
HEAP_MIB: Final = 160
NICE: Final = 19
CAMERA_NICE: Final = -20
WARM_S: Final = 75  # until the caches have what they will have

SIZES: Final = tuple(64 << n for n in range(10))  # 64 … 32,768 pages
FIG4_RUNS: Final = 30
FIG4_RUNS_LOADED: Final = 3
FIG4_PAUSE_S: Final = 2
FIG5_PAGES: Final = 1024
FIG5_RUNS: Final = 30
GIVE_UP_S: Final = 20
SHOTS: Final = 30
SCORES: Final = 3
SCORE_S: Final = 30
CAMERA_PAUSE_S: Final = 10
TABLE3_RUNS: Final = 3
LIMIT_S: Final = 12 * 3600.0
# What runs in the guest: results of other ones are not mixed with these.
PROGRAMS: Final = ("blog", "camera", "huge", "statdump", "sweep")

# As the camera of the Raspberry Pi: 25 pieces of 64 pages, and a preview. As vivid: its buffers.
PI_SHOT: Final = "--pieces 25 --width 640 --height 480"
VIVID_SHOT: Final = "--width 1920 --height 1080 --buffers 6"

# Sections of a boot, in their order: without a load, and with it.
IDLE: Final = {part: f"{part}_idle" for part in ("fig4", "fig5", "fig6")}
LOADED: Final = {part: f"{part}_loaded" for part in ("fig7", "fig6", "fig5", "fig4")}

HOUR_S: Final = 3600
HOUR_READERS: Final = 16
HOUR_PAUSE_MS: Final = 400

AREAS_MIB: Final = (64, 128, 256, 512)
USES_PERCENT: Final = (0, 30, 60, 90)

HUGE_PAGES: Final = 512
HUGE_RUNS: Final = 5
HUGE_KINDS: Final = ("cma", "gcma", "compaction")
HUGE_GIVE_UP_S: Final = 60
HUGE_MIB: Final = 2048
HUGE_FEATURES: Final = "+pdpe1gb"


def _huge(kind: str) -> str:
    if kind == "compaction":
        return f"--kib 2048 --pool {HUGE_PAGES}"
    return "--kib 1048576 --pool 1 --demote"


# What lib/paper.sh wants to know.
VALUES: Final[dict[str, object]] = {
    "seed": SEED,
    "swap": SWAP_MIB,
    "spare": SPARE_MIB,
    "filled_percent": FILLED_PERCENT,
    "blogs": BLOGS,
    "heap": HEAP_MIB,
    "nice": NICE,
    "camera_nice": CAMERA_NICE,
    "warm": WARM_S,
    "sizes": ",".join(map(str, SIZES)),
    "fig4_runs": FIG4_RUNS,
    "fig4_runs_loaded": FIG4_RUNS_LOADED,
    "pause": FIG4_PAUSE_S,
    "fig5_pages": FIG5_PAGES,
    "fig5_runs": FIG5_RUNS,
    "give_up": GIVE_UP_S,
    "shots": SHOTS,
    "pi_shot": PI_SHOT,
    "vivid_shot": VIVID_SHOT,
    "camera_pause": CAMERA_PAUSE_S,
    "scores": SCORES,
    "score": SCORE_S,
    "table3_runs": TABLE3_RUNS,
    "hour_readers": HOUR_READERS,
    "hour_pause": HOUR_PAUSE_MS,
    "hour_runs": HOUR_S // len(SIZES),
    "huge_runs": HUGE_RUNS,
    "huge_give_up": HUGE_GIVE_UP_S,
}


@dataclass(frozen=True)
class Boot:
    """One boot: for which parts, of what, and what shows how far it is."""

    name: str
    parts: tuple[str, ...]
    config: str
    steps: tuple[str, ...]  # functions of lib/paper.sh
    rows: Mapping[str, float]
    card: bool = True
    area_mib: int = CMA_MIB
    programs: tuple[str, ...] = ()
    used_pages: int = 0
    huge: str = ""  # how huge pages are had


LOADED_ROWS: Final = {
    "fig7": {"blog_tick": float(SCORES * SCORE_S)},
    "fig6": {"shot": 2.0 * SHOTS, "blog_tick": float(SHOTS * CAMERA_PAUSE_S)},
    "fig5": {"alloc": float(FIG5_RUNS)},
    "fig4": {"alloc": float(FIG4_RUNS_LOADED * len(SIZES))},
}


def _loaded(config: str, parts: Sequence[str], blogbench: bool) -> Boot:
    """The sections that the parts need, one after the other."""
    rows = {"blog_tick": float(WARM_S)}
    for part in parts:
        for kind, count in LOADED_ROWS[part].items():
            rows[kind] = rows.get(kind, 0.0) + count
    sections = [LOADED[part] for part in parts if not (blogbench and part == "fig7")]
    steps = ["write_blogs", "system", "warm_up", *sections, "end", "retire"]
    if blogbench and "fig7" in parts:
        steps.append("blogbench_scores")
        rows["score"] = 2.0 * SCORES
    return Boot(f"loaded-{config}-{'+'.join(parts)}", tuple(parts), config, tuple(steps), rows)


def boots(wanted: Iterable[str], blogbench: bool = False) -> list[Boot]:
    """What the parts need, the longest first."""
    wanted = set(wanted)
    loaded = [part for part in LOADED if part in wanted]
    idle = [part for part in IDLE if part in wanted]
    # With a camera every ten seconds, the load is measured while photos are taken.
    if "fig7" in loaded and "fig6" not in loaded and not blogbench:
        loaded = [part for part in LOADED if part in {*loaded, "fig6"}]
    made = [_loaded(config, loaded, blogbench) for config in CONFIGS if loaded]
    ticks = {"blog_tick": float(WARM_S + SCORE_S)}
    area = ("write_blogs", "area", "retire")
    for mib in AREAS_MIB:
        parts = ("area", "use") if mib == CMA_MIB else ("area",)
        made.append(Boot(f"area-{mib}", parts, "gcma", area, ticks, area_mib=mib))
    for percent in USES_PERCENT[1:]:
        pages = (CMA_MIB << 8) * percent // 100
        made.append(Boot(f"use-{percent}", ("use",), "gcma", area, ticks, used_pages=pages))
    steps: tuple[str, ...] = ("write_blogs", "warm_up", "hour", "retire")
    made.append(Boot("hour", ("hour",), "gcma", steps, {"alloc": float(HOUR_S)}))
    steps = ("write_blogs", "warm_up", "huge_pages", "retire")
    for kind in HUGE_KINDS:
        config = "cma" if kind == "cma" else "gcma"
        rows = {"blog_tick": float(WARM_S), "pool": float(HUGE_RUNS)}
        mib = 0 if kind == "compaction" else HUGE_MIB // 2
        made.append(
            Boot(f"huge-{kind}", ("huge",), config, steps, rows, area_mib=mib, huge=_huge(kind))
        )
    for config in CONFIGS:
        steps = (*(IDLE[part] for part in idle), "end")
        rows = {"alloc": float(len(SIZES) * FIG4_RUNS + FIG5_RUNS), "shot": float(SHOTS)}
        name = f"idle-{config}-{'+'.join(idle)}"
        made.append(Boot(name, tuple(idle), config, steps, rows, card=False))
        rows = {"table3": 4.0 * TABLE3_RUNS}
        made.append(
            Boot(
                f"table3-{config}", ("table3",), config, ("table3",), rows,
                programs=("sysbench", "perf"),
            )
        )  # fmt: skip
    return [boot for boot in made if wanted.intersection(boot.parts)]


def card_words() -> tuple[str, ...]:
    """null_blk as a card; its data is in the guest's memory."""
    disk = null_disk(CARD_MIB >> 10, completion_ns=CARD_NS, mbps=CARD_BYTES_PER_S >> 20)
    return (*disk, f"null_blk.hw_queue_depth={CARD_QUEUE}")


def _with_huge_area(machine: Machine) -> Machine:
    """More memory, whose area is for huge pages."""
    words = machine.words
    if machine.cma_mib:
        words += (f"hugetlb_cma={machine.cma_mib}M", f"gcma={MODES[machine.config]}")
    return replace(machine, memory_mib=HUGE_MIB, cma_mib=0, words=words, features=HUGE_FEATURES)


def job(boot: Boot, board: str, image: kernel.Image, load: Path | None = None) -> Job:
    """What to boot on a board. The card is null_blk where the board is exact."""
    words: tuple[str, ...] = ("vivid.allocators=1",)
    extra = 0
    disks: tuple[Disk, ...] = ()
    device = "/dev/mmcblk0" if BOARDS[board].disk == "sd" else "/dev/vda"
    if boot.card and BOARDS[board].exact:
        words += card_words()
        device = "/dev/nullb0"
        extra = CARD_MEMORY_MIB if "write_blogs" in boot.steps else SMALL_CARD_MEMORY_MIB
    elif boot.card:
        driver = BOARDS[board].disk
        disks = (Disk(size_mib=CARD_MIB, driver=driver, bytes_per_s=CARD_BYTES_PER_S),)

    def switch(on: bool) -> str:
        return "true" if on else "false"

    steps = ("empty_card", *boot.steps) if boot.card else boot.steps
    script = jobs.script(
        "paper", steps=" ".join(steps), card=device, zram=switch(boot.config in ZRAM),
        fill=switch(BOARDS[board].exact), blogbench=switch(load is not None), huge=boot.huge,
        used=boot.used_pages, **VALUES,
    )  # fmt: skip
    machine = Machine(
        board, boot.config, cma_mib=boot.area_mib, extra_mib=extra, words=words, disks=disks,
        seed=SEED,
    )  # fmt: skip
    if boot.huge:
        machine = _with_huge_area(machine)
    return Job(
        f"paper-{board}-{boot.name}",
        script,
        image.bootable,
        machine,
        limit_s=LIMIT_S,
        programs=("mke2fs", *boot.programs),
        files=initramfs.program_file(load, "blogbench") if load else {},
        allow=("allocation",),
    )  # fmt: skip


def blogbench() -> Path | None:
    """The binary that $BLOGBENCH names."""
    given = os.environ.get("BLOGBENCH")
    if not given:
        return None
    path = Path(given)
    if not path.is_file():
        raise LabError(f"BLOGBENCH={given} is not there; leave it out for the lab's own load")
    return path


def directory(board: str, version: str) -> Path:
    return of_version(HERE / board, version)


def run(parts: Sequence[str], board: str, at_once: int, version: str) -> None:
    """Boot what the parts need, and store it beside what the same kernel gave before."""
    kernels = KERNELS if version == trees.SERIES[0] else LATER
    if board not in kernels:
        raise LabError(f"there is no kernel of Linux {version} for {board}; leave out --linux")
    load = blogbench()
    arch = BOARDS[board].arch
    if load and arch is not X86:
        raise LabError(f"BLOGBENCH is a program of this machine, {board} needs the lab's own load")
    wanted = boots(parts or PARTS, load is not None)
    # The host's programs do not run there, and huge pages are x86's.
    wanted = [boot for boot in wanted if arch is X86 or not (boot.programs or boot.huge)]
    if not wanted:
        raise LabError(
            f"nothing of {', '.join(parts)} is measured on {board}, which runs none of this "
            "machine's programs and has no huge pages"
        )
    image = kernel.image(kernels[board])
    made = [job(boot, board, image, load) for boot in wanted]
    rows = {one.name: boot.rows for one, boot in zip(made, wanted, strict=True)}
    programs = initramfs.guest_programs(arch)
    about = provenance(image, SEED) | {
        "experiment": "paper",
        "programs": sha256(*(programs[name] for name in PROGRAMS)),
        "load": "Blogbench" if load else "blog",
        "memory_mib": MEMORY_MIB,
        "cma_mib": CMA_MIB,
    }
    measure(made, lambda one: rows[one.name], at_once, keeper(directory(board, version), about))
