# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle: what it runs on, what it must have gone through, and what must be true then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nocopy_lab import jobs
from nocopy_lab.board import Machine
from nocopy_lab.checks.kinds import NO_IMAGE, SMALL, our_files
from nocopy_lab.checks.kunit import judge_kunit
from nocopy_lab.paths import KERNEL, LabError
from nocopy_lab.run import Job, Outcome

Judge = Callable[[Sequence[Outcome]], None]


def judge_both(kunit: Judge) -> Judge:
    """The first is KUnit's boot, the others are the oracle's."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        kunit(outcomes[:1])
        judge_oracle(outcomes[1:])

    return judge


# A definition at the beginning of a line; those of tests do not count.
_DEFINED: Final = re.compile(r"^[a-z][a-z_0-9 *]*?[ *](\w+)\(", re.MULTILINE)


def _our_functions() -> set[str]:
    texts = [(KERNEL / n).read_text() for n in our_files() if n.endswith(".c") and "_test" not in n]
    return {name for text in texts for name in _DEFINED.findall(text)}


def kcsan_reports(console: str, functions: set[str]) -> list[str]:
    """Reports of KCSAN in which one of the functions takes part."""
    reports: list[str] = []
    text = re.sub(r"^\[ *[\d.]+\]( \[ *[CT]\d+\])? ?", "", console, flags=re.MULTILINE)
    for part in re.split(r"^={20,}$", text, flags=re.MULTILINE):
        if "BUG: KCSAN:" in part:
            named = set(re.findall(r"^ (\w+)(?:\.\w+)*\+0x", part, re.MULTILINE))
            if named & functions:
                reports.append(part.strip())
    return reports


def judge_kcsan(outcomes: Sequence[Outcome]) -> None:
    judge_both(judge_kunit)(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("kcsan")
        if not row["looked"]:
            raise LabError(f"KCSAN was not at work; see {outcome.console}")
        if reports := kcsan_reports(outcome.said, _our_functions()):
            raise LabError(
                f"KCSAN: {len(reports)} reports; the first, in {outcome.console}:\n{reports[0]}"
            )


# What an oracle must have gone through before it ends, however long that takes on this computer:
# counters, and by how much they have to grow.
Goals = Mapping[str, int]
STORES: Final = dict.fromkeys(("cma_allocs", "gcma_store_file", "gcma_store_swap"), 1)
LOADS: Final = ("gcma_load_file", "gcma_read_file", "gcma_load_swap")


def hits(count: int, *, discard: bool = True) -> Goals:
    """Stores, as many loads of each kind, and a copy that was discarded for an allocation."""
    return STORES | dict.fromkeys(LOADS, count) | ({"gcma_discard": 1} if discard else {})


ONE_HIT: Final = hits(1)
FEW_HITS: Final = hits(50, discard=False)
SOME_HITS: Final = hits(200)
HITS: Final = hits(1000)

# The oracle goes on until this file is there; lib/oracle.sh has its name too.
ENOUGH: Final = "/tmp/enough"


# Files of an oracle that software encrypts: to write more of them takes longer than the check.
ENCRYPTED_MIB: Final = 96


def oracle_job(
    name: str,
    seconds: int,
    words: str = "",
    *,
    until: Goals = ONE_HIT,
    enough: bool = False,
    swap: str = "zram_swap 256",
    mount: str = "",
    prepare: str = "",
    after: str = "",
    programs: tuple[str, ...] = ("mke2fs",),
    disks: tuple[int, ...] = (),
    block: int = 4096,
    files: int = 320,
    anon: int = 128,
    hog: int = 400,
    largest: int = 4096,
    machine: Machine | None = None,
    allow: tuple[str, ...] = (),
) -> Job:
    """A run of lab/guest/jobs/oracle.sh; `swap`, `mount`, `prepare` and `after` are commands.

    It runs for so many seconds, until all that it must go through has happened, and if so wanted
    until something that `prepare` began has made the file ENOUGH. Blocks smaller than a page reach
    other code: truncation need not read the page.
    """
    if until:
        words += " --until " + ",".join(f"{name}={growth}" for name, growth in until.items())
    if enough:
        words += f" --until-exists {ENOUGH}"
    script = jobs.script(
        "oracle", swap=swap, mount=mount or f"need scratch /dev/vda -b {block}", prepare=prepare,
        after=after, files=files, anon=anon, hog=hog, largest=largest, seconds=seconds,
        words=words,
    )  # fmt: skip
    return Job(
        name,
        script,
        NO_IMAGE,
        machine or SMALL,
        programs=programs,
        allow=("allocation", *allow),
        scratch_mib=disks or (2 * files + 128, 512),
    )


def oracle_checked(name: str, loads: int) -> Job:
    """On a kernel that checks itself, while allocations fail.

    So slow a kernel rarely fills the area; KUnit has seen revocation by then.
    """
    return oracle_job(
        name,
        60,
        "--file-max-kib 1024",
        until=hits(loads, discard=False),
        prepare="fail_allocations",
        block=1024,
        files=160,
        anon=96,
        hog=240,
        largest=1024,
        machine=Machine("x86-fast", memory_mib=512, cma_mib=16),
    )


def judge_oracle(outcomes: Sequence[Outcome]) -> None:
    """Nothing wrong, and no allocation failed. It ended, so all that was wanted has happened."""
    for outcome in outcomes:
        outcome.require()
        (summary,) = outcome.rows("oracle")
        if summary["cma_failed"]:
            raise LabError(
                f"{outcome.job.name}: {summary['cma_failed']} of {summary['cma_allocs']} "
                f"contiguous allocations failed; see {outcome.console}"
            )
        (end,) = (row for row in outcome.rows("gcma_stats") if row["label"] == "end")
        for name, area in end["areas"].items():
            # What CMA itself says is available, where it does.
            have, idle = end["cma"][name].get("available_pages"), area["frames"] - area["owned"]
            if have not in (None, idle):
                raise LabError(f"{name}: {have} pages available, not {idle}; see {outcome.console}")


def judge_large(client: str) -> Judge:
    """And large folios of this client were stored and loaded whole."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        judge_oracle(outcomes)
        for outcome in outcomes:
            if not any(row["client"] == client for row in outcome.rows("large")):
                raise LabError(f"no large folio of {client} went whole; see {outcome.console}")

    return judge


def judge_mglru(on: bool) -> Judge:
    """As any other, and the multi-generational LRU was on, or off."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        judge_oracle(outcomes)
        for outcome in outcomes:
            (row,) = outcome.rows("mglru")
            if int(row["enabled"], 16) & 1 != on:
                raise LabError(f"{outcome.job.name}: {row}; see {outcome.console}")

    return judge


def judge_high(outcomes: Sequence[Outcome]) -> None:
    """As everywhere, and the frames were pages that the kernel has to map."""
    for outcome in outcomes:
        high = re.search(r"HighMem +\[mem 0x([0-9a-f]+)-", outcome.said)
        area = re.search(r"cma: Reserved \d+ MiB at 0x([0-9a-f]+)", outcome.said)
        if not high or not area or int(area[1], 16) < int(high[1], 16):
            raise LabError(f"{outcome.job.name}: no area in high memory; see {outcome.console}")
    judge_oracle(outcomes)


# Where KUnit's own area does not lie in high memory.
LOW: Final = "cma=64M@0-512M"


def oracle_rpi2() -> Job:
    return oracle_job(
        "oracle-rpi2",
        120,
        until=hits(50),
        # The emulated controller of the SD card loses interrupts, and with them parts of sectors,
        # when the host is busy: what the oracle looks at is a disk in memory.
        mount="on_zram zram1 128M",
        disks=(1,),
        files=48,
        anon=128,
        hog=280,
        largest=1024,
        # What QEMU loads lies below 144 MiB, which has to be low memory; the area is in the high
        # rest.
        machine=Machine(
            "rpi2",
            cma_mib=16,
            words=("mem=320M", "vmalloc=848M", "zram.num_devices=2"),
        ),
    )  # fmt: skip


def judge_control(outcomes: Sequence[Outcome]) -> None:
    judge_oracle(outcomes)
    for outcome in outcomes:
        if wrong := outcome.rows("wrong"):
            raise LabError(f"{outcome.job.name}: {wrong[0]}; see {outcome.console}")


def zswap_jobs(reclaim: str) -> list[Job]:
    return [
        oracle_job(
            f"oracle-{reclaim}-zswap",
            30,
            until={**FEW_HITS, "zswpout": 1},
            swap="disk_swap /dev/vdb",
            prepare=f"{reclaim}; zswap",
            after="mglru_seen",
            # Linux 6.12 may give up beside pages that it could reclaim (docs/upstream-bugs.md).
            # The hog, which is killed then, begins anew.
            allow=("oom",),
        )
    ]
