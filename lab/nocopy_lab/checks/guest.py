# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is booted, and what must be true of it then."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import jobs, kernel, traces
from nocopy_lab.arch import ARM64
from nocopy_lab.board import Disk, Machine, null_disk
from nocopy_lab.checks import brug, recorder, soak, storage
from nocopy_lab.checks.kinds import BOTH, OLDER, GuestCheck, all_well, command, our_files
from nocopy_lab.experiments import bench_gcma, demo
from nocopy_lab.paths import KERNEL, LabError
from nocopy_lab.run import Job, Outcome, Row, ktap

NO_IMAGE: Final = Path("/nonexistent")
# Programs and an area have to share what there is.
SMALL: Final = Machine("x86-fast", memory_mib=704, cma_mib=64)


def _job(
    name: str,
    machine: Machine,
    *,
    programs: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    scratch_mib: tuple[int, ...] = (),
) -> Job:
    """The job whose script has this name."""
    return Job(
        name, jobs.script(name), NO_IMAGE, machine, programs=programs, allow=allow,
        scratch_mib=scratch_mib,
    )  # fmt: skip


def kunit_job(name: str, board: str, *words: str) -> Job:
    machine = Machine(board, words=("kunit.enable=1", *words))
    return Job(name, "true\n", NO_IMAGE, machine)


# What did not hold, and the values there were.
_EXPECTED: Final = re.compile(r"# (\S+: (?:EXPECTATION|ASSERTION) FAILED at .*(?:\n.*){1,3})")


_SKIPPED: Final = re.compile(r"ok \d+ (\S+) # ?SKIP (.*)")
# What kernels of the lab may be without.
_LARGE: Final = "no large folios"
_TIERS: Final = "the multi-generational LRU counts by tiers"


# What a kernel need not be configured for stands between #if and #endif.
_CONDITIONAL: Final = re.compile(r"^#if.*?^#endif", re.MULTILINE | re.DOTALL)
_CASE: Final = re.compile(r"^\tKUNIT_CASE\w*\((\w+)", re.MULTILINE)
PLACE, DMEM, CLIENTS = "place", "dmem", "clients"


def cases(suite: str) -> list[str]:
    """Tests of a suite of ours that every kernel has."""
    text = (KERNEL / f"mm/gcma/{suite}_test.c").read_text()
    return _CASE.findall(_CONDITIONAL.sub("", text))


def _judge_kunit(
    outcomes: Sequence[Outcome],
    may_skip: Sequence[str] = (_TIERS,),
    suites: Sequence[str] = (PLACE, DMEM, CLIENTS),
) -> None:
    (outcome,) = outcomes
    outcome.require()
    passed, failed = ktap(outcome.text())
    if failed:
        why = "\n".join(_EXPECTED.findall(outcome.text()))
        raise LabError(f"KUnit: {', '.join(failed)} failed; see {outcome.console}\n{why}".rstrip())
    skipped = dict(_SKIPPED.findall(outcome.text()))
    missed = [name for name, why in skipped.items() if why not in may_skip]
    # A suite that is not in the kernel says nothing.
    there = {*passed, *skipped}
    missed += [name for suite in suites for name in cases(suite) if name not in there]
    if missed:
        raise LabError(f"KUnit: {', '.join(missed)} did not run; see {outcome.console}")


# `ARCH=um` and the lab's `rpi2` have no large folios, and the old lists.
judge_kunit_small: Final = partial(_judge_kunit, may_skip=(_LARGE,))


def _kselftest(image: str) -> dict[str, bytes]:
    """The kernel's own test program, built the way that kernel builds it, for any libc."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        tests = kernel.patched_tree(kernel.CONFIGS[image].series) / "tools/testing/selftests/gcma"
        command("kselftest", ["make", "-C", tests, f"OUTPUT={temp}", "LDFLAGS=-static"])
        return {"bin/gcma_test": (Path(temp) / "gcma_test").read_bytes()}


TRACED_PAGES: Final = 1024


def _judge_traced(outcomes: Sequence[Outcome]) -> None:
    (outcome,) = outcomes
    outcome.require()
    records = [
        record.split() for row in outcome.rows("trace") for record in str(row["r"]).split(";")
    ]
    pages: dict[tuple[str, str], int] = {}
    for kind, _, file, _, count in records:
        pages[kind, file] = pages.get((kind, file), 0) + int(count)
    read = {count: file for (kind, file), count in pages.items() if kind == "R"}
    other = read.get(256, "")
    found = {
        f"{3 * TRACED_PAGES} pages read again and again": 3 * TRACED_PAGES in read,
        "256 pages read in one call": bool(other),
        "10 pages written": pages.get(("W", other)) == 10,
        "a file deleted": ("D", other) in pages,
        "64 pages allocated": pages.get(("A", "0")) == 64,
        "and given back": pages.get(("F", "0")) == 64,
    }
    missing = [what for what, there in found.items() if not there]
    if missing:
        raise LabError(f"the trace does not have: {', '.join(missing)}; it has {pages}")


def kselftest(lines: Sequence[str]) -> tuple[int, list[str]]:
    """How many tests a kselftest program had planned, and those that did not pass or ran not."""
    plan = next((int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line)), 0)
    results = [line for line in lines if re.match(r"(not )?ok \d+ ", line)]
    bad = [line for line in results if line.startswith("not ") or "# SKIP" in line]
    if len(results) != plan:
        bad.append(f"{len(results)} results of {plan} tests")
    return plan, bad


def _judge_kselftest(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        plan, bad = kselftest([row["line"] for row in outcome.rows("ktap")])
        if bad:
            raise LabError(f"{outcome.job.name}: {bad[0]}; see {outcome.console}")
        outcome.require()
        if not plan:
            raise LabError(f"{outcome.job.name} planned no test; see {outcome.console}")


def _judge_debug(outcomes: Sequence[Outcome]) -> None:
    _judge_kunit(outcomes[:1])
    _judge_oracle(outcomes[1:])


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


def _judge_kcsan(outcomes: Sequence[Outcome]) -> None:
    _judge_kunit(outcomes[:1])
    _judge_oracle(outcomes[1:])
    for outcome in outcomes:
        (row,) = outcome.rows("kcsan")
        if not row["looked"]:
            raise LabError(f"KCSAN was not at work; see {outcome.console}")
        if reports := kcsan_reports(outcome.text(), _our_functions()):
            raise LabError(
                f"KCSAN: {len(reports)} reports; the first, in {outcome.console}:\n{reports[0]}"
            )


def _judge_identical(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    first, second = outcomes
    if not first.rows("alloc") or not first.rows("shot"):
        raise LabError(f"nothing was measured; see {first.console}")
    if first.results != second.results:
        pairs = zip(first.results, second.results, strict=False)
        at = next((f"{a} and {b}" for a, b in pairs if a != b), "in their number")
        raise LabError(f"two runs on {first.job.machine.board} differ: {at}")


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


def _counters(outcome: Outcome, label: str) -> Mapping[str, int]:
    """The vmstat counters that statdump printed."""
    for row in outcome.rows("gcma_stats"):
        if row.get("label") == label:
            counters: dict[str, int] = row["vmstat"]
            return counters
    raise LabError(f"{outcome.job.name}: no counters '{label}'; see {outcome.console}")


def _judge_oracle(outcomes: Sequence[Outcome]) -> None:
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


def _judge_large(client: str) -> Callable[[Sequence[Outcome]], None]:
    """And large folios of this client were stored and loaded whole."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        _judge_oracle(outcomes)
        for outcome in outcomes:
            (seen,) = (row for row in outcome.rows("large") if row["client"] == client)
            if not seen["stored"] or not seen["loaded"]:
                raise LabError(f"no large folio went whole: {seen}; see {outcome.console}")

    return judge


def _judge_mglru(on: bool) -> Callable[[Sequence[Outcome]], None]:
    """As any other, and the multi-generational LRU was on, or off."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        _judge_oracle(outcomes)
        for outcome in outcomes:
            (row,) = outcome.rows("mglru")
            if int(row["enabled"], 16) & 1 != on:
                raise LabError(f"{outcome.job.name}: {row}; see {outcome.console}")

    return judge


def _judge_nodes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := outcome.rows("broken"):
            raise LabError(f"{broken[0]['why']}; see {outcome.console}")
        rows = outcome.rows("nodes")
        if not rows or rows[0]["oom_kill"]:
            raise LabError(f"the cgroup ran out of memory: {rows[:1]}; see {outcome.console}")
        outcome.require()
        if rows[0]["stored"] < 60_000 or rows[0]["slab_kib_after"] > 4096:
            raise LabError(f"not squeezed, or nothing yielded: {rows[0]}; see {outcome.console}")


def _judge_gone(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("gone")
        if len(rows) != 2 or any(row["wrong"] for row in rows):
            raise LabError(f"what was taken out is seen again: {rows}; see {outcome.console}")


def _judge_late(outcomes: Sequence[Outcome]) -> None:
    """Pages were kept while a write went on, and nobody read them when it had ended."""
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("late")
        if len(rows) != 4 or any(row["old"] or not row["good"] or not row["kept"] for row in rows):
            raise LabError(f"direct writes that end late: {rows}; see {outcome.console}")


def _judge_zeroed(outcomes: Sequence[Outcome]) -> None:
    """Much came from the area, and zswap wrote back what was still to be."""
    all_well(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("zeroed")
        if row["wrong"] or min(row["loads"], row["written_back"]) < row["pages"] // 16:
            raise LabError(f"memory that became zeros: {row}; see {outcome.console}")


def _judge_calls(outcomes: Sequence[Outcome]) -> None:
    """Reads in calls of several sizes, in instructions, from the area and from the page cache."""
    all_well(outcomes)
    most = bench_gcma.CALLS
    for outcome in outcomes:
        rows = outcome.rows("calls")
        times = {int(row["size"]): row["evicted_ns"] / row["cached_ns"] for row in rows}
        if times.keys() != most.keys() or any(times[size] > most[size] for size in most):
            raise LabError(f"times what the page cache takes: {times}; see {outcome.console}")


def _judge_lru_costs(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("lru")
        if min(row["loads"], row["recent"]) < 3000:
            raise LabError(f"pages hardly came back: {row}; see {outcome.console}")
        if row["weighed"]:
            raise LabError(f"copies are weighed like I/O: {row}; see {outcome.console}")


def _judge_destinations(outcomes: Sequence[Outcome]) -> None:
    """All were served from the area, but only plain memory is written to while the owner waits."""
    all_well(outcomes)
    for outcome in outcomes:
        rows = {str(row["to"]): row for row in outcome.rows("destination")}
        direct = {to: row["all"] - row["buffered"] for to, row in rows.items()}
        if (
            len(rows) != 4
            or min(row["all"] for row in rows.values()) < 490
            or direct.pop("one") < 490
            or any(direct.values())
        ):
            raise LabError(f"{outcome.job.name}: {list(rows.values())}; see {outcome.console}")


def _judge_kept(outcomes: Sequence[Outcome], pages: int, of: int) -> None:
    """Nothing is wrong, and of each of the sets of files nearly all pages were kept and found."""
    for outcome in outcomes:
        broken = [str(row["why"]) for row in outcome.rows("broken")]
        if broken:
            raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
        outcome.require()
        rows = outcome.rows("kept")
        lost = [
            f"{row['of']}: {row['stored']} stored, {row['read']} found"
            for row in rows
            if min(row["stored"], row["read"]) < 0.98 * pages
        ]
        if lost or len(rows) != of:
            why = "; ".join(lost) or f"{len(rows)} reports"
            raise LabError(f"of {pages} pages: {why}; see {outcome.console}")


# Eight bytes each: what is left of four files of 3 MiB after one was deleted.
MARKS: Final = 3 * (3 << 20) // 8


def _judge_encrypted(outcomes: Sequence[Outcome]) -> None:
    """Encrypted files were kept, and none of their content was in the area without the key."""
    _judge_kept(outcomes, pages=3072, of=2)
    for outcome in outcomes:
        states = outcome.rows("when")
        found = [row["words"] for row in outcome.rows("found")]
        busy = [row["busy"] for row in outcome.rows("removed")]
        if len(states) != 14 or len(found) != 14 or busy != [False, False, False, True, False] * 2:
            raise LabError(f"{len(found)} looks, busy {busy}; see {outcome.console}")
        for state, words in zip(states, found, strict=True):
            what = f"{state['fs']}, {state['what']}: {words} marks in the area"
            if state["what"] == "kept" and words < 0.9 * MARKS:
                raise LabError(f"{what}, of {MARKS}; see {outcome.console}")
            if state["what"] != "kept" and words:
                raise LabError(f"{what}; see {outcome.console}")


def _judge_high(outcomes: Sequence[Outcome]) -> None:
    """As everywhere, and the frames were pages that the kernel has to map."""
    for outcome in outcomes:
        high = re.search(r"HighMem +\[mem 0x([0-9a-f]+)-", outcome.text())
        area = re.search(r"cma: Reserved \d+ MiB at 0x([0-9a-f]+)", outcome.text())
        if not high or not area or int(area[1], 16) < int(high[1], 16):
            raise LabError(f"{outcome.job.name}: no area in high memory; see {outcome.console}")
    _judge_oracle(outcomes)


# Where KUnit's own area does not lie in high memory.
LOW: Final = "cma=64M@0-512M"


def _oracle_rpi2() -> Job:
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


def _judge_consumers(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        bad = [row for kind in ("shot", "heap") for row in outcome.rows(kind) if not row["ok"]]
        bad += [row for row in outcome.rows("random_summary") if row["failed"] or row["wrong"]]
        if bad or not outcome.rows("shot") or not outcome.rows("heap"):
            raise LabError(f"{outcome.job.name}: {bad[:1] or 'no shot'}; see {outcome.console}")


def _judge_control(outcomes: Sequence[Outcome]) -> None:
    _judge_oracle(outcomes)
    for outcome in outcomes:
        if wrong := outcome.rows("wrong"):
            raise LabError(f"{outcome.job.name}: {wrong[0]}; see {outcome.console}")


BOUND_MACHINE: Final = Machine(
    "x86",
    memory_mib=384,
    cma_mib=128,
    extra_mib=224,
    words=null_disk(1),
)
# Instructions that an allocation from an area of 128 MiB may take, seen from outside: some for each
# word of the bitmaps of its range, and one interrupt.
BOUND_NS: Final = 16384


def _judge_bound(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        took += [row["worst_ns"] for row in outcome.rows("random_summary")]
        if max(took) > BOUND_NS:
            raise LabError(
                f"of {area['allocs']} allocations the longest took {max(took)} ns, more than "
                f"{BOUND_NS}; see {outcome.console}"
            )
        # One CPU cannot find itself copying.
        if area["copy_waits"] or area["alloc_fails"] or area["file/discarded"] < 10_000:
            raise LabError(f"{outcome.job.name}: {area}; see {outcome.console}")


# The area is the third gigabyte: QEMU puts the initramfs below the end of the second. Some of the
# others is left out, so that memory is short.
HUGE_MACHINE: Final = Machine(
    "x86-fast",
    memory_mib=3200,
    cma_mib=0,
    features="+pdpe1gb",
    words=("hugetlb_cma=1G", "gcma=file+swap", "memmap=640M$320M", "memmap=704M$1088M"),
)


def _judge_huge(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        # gigantic pages, and 512 smaller ones made of each
        if [row["pages"] for row in outcome.rows("huge") if row["ok"]] != [1, 512, 1, 512]:
            raise LabError(f"{outcome.job.name}: not all huge pages; see {outcome.console}")
        if not _counters(outcome, "end")["gcma_discard"]:
            raise LabError(f"{outcome.job.name}: nothing was discarded; see {outcome.console}")


def _pinned_jobs() -> list[Job]:
    words = HUGE_MACHINE.words
    plain = tuple("gcma=cma" if word.startswith("gcma=") else word for word in words)
    return [
        Job(f"pinned-{config}", jobs.script("pinned"), NO_IMAGE, replace(HUGE_MACHINE, words=given))
        for config, given in (("gcma", words), ("cma", plain))
    ]


def _judge_pinned(outcomes: Sequence[Outcome]) -> None:
    """A guaranteed area allows it, and nothing moves. Plain CMA does not, or it would move."""
    all_well(outcomes)
    for outcome, allowed in zip(outcomes, (True, False), strict=True):
        rows = outcome.rows("pin")
        if [row["how"] for row in rows] != ["udmabuf", "io_uring"]:
            raise LabError(f"{outcome.job.name}: not both ways; see {outcome.console}")
        for row in rows:
            if row["wrong"] or (not row["error"] and not row["moved"]) != allowed:
                raise LabError(f"{outcome.job.name}: {row}; see {outcome.console}")


# Plain CMA has pages that may not be pinned, and so has an area in ZONE_MOVABLE.
HOLD_BOOTS: Final = {
    "gcma": Machine("x86-fast", cma_mib=64),
    "cma": Machine("x86-fast", "cma", cma_mib=64),
    "movable": Machine(
        "x86-fast", cma_mib=0, words=("movablecore=512M", "cma=64M@768M", "gcma=file+swap")
    ),
}
HOLD_WAYS: Final = ("direct", "vmsplice", "io_uring")


def _judge_hold(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    guaranteed, *others = outcomes
    for outcome, error in ((guaranteed, ""), *((other, "Bad address") for other in others)):
        found = {row["how"]: row["error"] for row in outcome.rows("hold")}
        if found != dict.fromkeys(HOLD_WAYS, error):
            raise LabError(f"{outcome.job.name}: {found}; see {outcome.console}")
    (mapped,) = guaranteed.rows("mapped")
    wanted = {
        "dropped": True, "dropped_wrong": 0, "paged_out": True, "paged_out_wrong": 0,
        "part": True, "private": False, "beyond": False, "grown": False, "moved_wrong": 0,
        "shared": True,
    }  # fmt: skip
    if bad := [name for name, value in wanted.items() if mapped[name] != value]:
        raise LabError(f"a mapping of the heap: {', '.join(bad)}; see {guaranteed.console}")
    rows = guaranteed.rows("outlived")
    if [row["how"] for row in rows] != ["io_uring", "pipe"]:
        raise LabError(f"not all outlived their buffer; see {guaranteed.console}")
    for row in rows:
        # Nobody gets them while they are held, and somebody does afterwards.
        kept = row["quarantined"] == row["owned"] == row["held"] and not row["wrong"]
        freed = row["left"] == row["owned_after"] == 0
        if not (kept and freed and 0 < row["buffers"] < row["buffers_after"]):
            raise LabError(f"{guaranteed.job.name}: {row}; see {guaranteed.console}")


# A display behind GPIO lines of the board, with nobody at their other end. Its driver is one of
# those whose buffers are contiguous (drm_gem_dma).
DISPLAY: Final = """/ {
	spi {
		compatible = "spi-gpio";
		#address-cells = <1>;
		#size-cells = <0>;
		sck-gpios = <&{/pl061@9030000} 0 0>;
		mosi-gpios = <&{/pl061@9030000} 1 0>;
		cs-gpios = <&{/pl061@9030000} 2 0>;
		num-chipselects = <1>;
		display@0 {
			compatible = "jianda,jd-t18003-t01", "sitronix,st7735r";
			reg = <0>;
			spi-max-frequency = <1000000>;
			dc-gpios = <&{/pl061@9030000} 4 0>;
			reset-gpios = <&{/pl061@9030000} 5 0>;
		};
	};
};"""


def _judge_dumb(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("drm")
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        if not rows or area["allocs"] < sum(row["buffers"] for row in rows):
            raise LabError(
                f"{outcome.job.name}: dumb buffers did not come from the area; "
                f"see {outcome.console}"
            )


def _judge_trace(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        lines = [row["lines"] for row in outcome.rows("trace")]
        if len(lines) != 5 or not all(lines):
            raise LabError(f"a trace event never fired: {lines}; see {outcome.console}")


# Kernel parameters, and what the kernel must say about them.
PARAMETERS: Final[tuple[tuple[str, str], ...]] = (
    ("cma=64M gcma=file+swap", "area reserved: 64 MiB, clients: file+swap"),
    ("cma=64M gcma=swap,reserved:file", "area reserved: 64 MiB, clients: file\n"),
    ("cma=64M gcma=file,none", "given both 'file' and 'none', using the latter"),
    ("cma=64M gcma=file gcma=swap", "given more than once, using 'swap'"),
    ("cma=64M gcma=bogus", "'bogus' is none of"),
    ("cma=64M gcma=file+none", "'file+none' is none of"),
    ("cma=64M gcma=camera:file", "no area 'camera'"),
    ("cma=64M gcma=", "gcma= wants"),
    ("gcma=file", "there is no CMA area"),
    ("cma=4G gcma=file", "Failed to reserve 4096 MiB"),
    ("cma=64M@0x10001000 gcma=file", "must be aligned"),
)


def _says(outcome: Outcome, answer: str) -> bool:
    """True if the kernel says this; at the end of a line if the answer has one."""
    return answer in outcome.text().replace("\r\n", "\n")


def _judge_parameters(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (words, answer) in zip(outcomes, PARAMETERS, strict=True):
        if not _says(outcome, answer):
            raise LabError(f"booted with {words}, the kernel does not say: {answer}")


# A reserved-memory node with the name that most boards give it, what it says beyond that, kernel
# parameters, and the answer.
RESERVED_MEMORY: Final = """/ {{
	reserved-memory {{
		#address-cells = <2>;
		#size-cells = <2>;
		ranges;
		linux,cma {{
			compatible = "shared-dma-pool";
			reusable;
			linux,cma-default;
			size = <0x0 {size:#x}>;
			{properties}
		}};
	}};
}};"""
DEVICE_TREES: Final[tuple[tuple[str, str, str], ...]] = (
    ('linux,gcma-clients = "file+swap";', "", "area linux,cma: 64 MiB, clients: file+swap"),
    ('linux,gcma-clients = "none";', "", "area linux,cma: 64 MiB, clients: none"),
    (
        'linux,gcma-clients = "swap";',
        "gcma=none,linux,cma:file",
        "area linux,cma: 64 MiB, clients: file\n",
    ),
    ('linux,gcma-clients = "tape";', "gcma=swap", "linux,gcma-clients has 'tape', none of"),
)


def _tree_machine(properties: str, *words: str, memory_mib: int = 1024) -> Machine:
    """The board with an area of 64 MiB that its device tree describes."""
    text = RESERVED_MEMORY.format(size=64 << 20, properties=properties)
    return Machine("arm64", cma_mib=0, memory_mib=memory_mib, words=words, device_tree=text)


def _judge_device_trees(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (properties, words, answer) in zip(outcomes, DEVICE_TREES, strict=True):
        if not _says(outcome, answer):
            said = f"{properties} {words}".strip()
            raise LabError(f"with {said} the kernel does not say: {answer}; see {outcome.console}")


def _old_bytes_job(name: str, word: str) -> Job:
    return Job(
        name,
        jobs.script("old-bytes"),
        NO_IMAGE,
        Machine("x86-fast", memory_mib=320, cma_mib=64, words=(word,)),
        programs=("mke2fs",),
        allow=("allocation",),
        scratch_mib=(250,),
    )


def _succeeded(outcome: Outcome, allocations: Sequence[Row]) -> None:
    """One that fails is quick, and returns nothing old."""
    if failed := [row for row in allocations if not row["ok"]]:
        raise LabError(f"{outcome.job.name}: an allocation failed: {failed[0]}")
    if not allocations:
        raise LabError(f"{outcome.job.name}: nothing was allocated; see {outcome.console}")


def _judge_old_bytes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        rows = outcome.rows("alloc")
        if dirty := [row for row in rows if row["not_zeroed"]]:
            raise LabError(f"{outcome.job.name}: old content: {dirty[0]}; see {outcome.console}")
        outcome.require()
        _succeeded(outcome, rows)
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        held = area["file/cached"] + area["swap/cached"]
        if min(held, area["file/stored"], area["swap/stored"]) < 500:
            raise LabError(f"{outcome.job.name}: no marks in the area; see {outcome.console}")


# Instructions of an allocation of 128 MiB that was prepared.
PREPARED_NS: Final = 10_000


def _judge_cleared(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        _succeeded(outcome, outcome.rows("alloc"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        slow = [took[n] > 100 * PREPARED_NS for n in range(len(took))]
        if slow != [True, True, False, True, False] or max(took[2], took[4]) > PREPARED_NS:
            raise LabError(f"{outcome.job.name}: allocations took {took} ns")


# Time in which 8192 copies in an area of 65536 pages are passed over.
PASSED_US: Final = 100


def _judge_wiped(outcomes: Sequence[Outcome]) -> None:
    """The first allocation has copies to clear, the second finds that done, in no time."""
    all_well(outcomes)
    for outcome in outcomes:
        passes = [row["us"] for row in outcome.rows("tidied")]
        if not passes or max(passes) > PASSED_US:
            raise LabError(f"{outcome.job.name}: to pass over copies took {passes} µs")
        _succeeded(outcome, outcome.rows("alloc"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        if [ns > 100 * PREPARED_NS for ns in took] != [True, False]:
            raise LabError(f"{outcome.job.name}: allocations took {took} ns")


def _judge_broken_rows(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := [str(row["why"]) for row in outcome.rows("broken")]:
            raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
        outcome.require()


# Pages by which an image may grow with what else there is: the first has nothing of the file.
GROWN: Final = 2048


def _judge_hibernate(outcomes: Sequence[Outcome]) -> None:
    """An image is hardly larger for what is in the area, of 16384 pages: those were zeros."""
    _judge_broken_rows(outcomes)
    for outcome in outcomes:
        text = outcome.text()
        images = [int(pages) for pages in re.findall(r"saving image data \((\d+) pages\)", text)]
        if len(images) != 2 or images[1] - images[0] > GROWN:
            raise LabError(f"hibernation saved the area: {images} pages; see {outcome.console}")
        # Linux 6.12 counts them.
        zeros = [int(pages) for pages in re.findall(r"pages copied, (\d+) zero pages\)", text)]
        if zeros and min(zeros) < 16384:
            raise LabError(f"only {zeros} pages of zeros; see {outcome.console}")


def _judge_tags(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        for row in outcome.rows("mte"):
            names = ("wrong_words", "wrong_tags", "leaked_tags", "tagged_frames")
            if wrong := [f"{row[name]} {name}" for name in names if row[name]]:
                raise LabError(f"{', '.join(wrong)}; see {outcome.console}")
            # The program needs 24,576 pages, the area has 8,192.
            if min(row["stored"], row["loaded"]) < 4000:
                raise LabError(f"hardly anything was in the area: {row}; see {outcome.console}")
        outcome.require()


def _zswap_jobs(reclaim: str) -> list[Job]:
    return [
        oracle_job(
            f"oracle-{reclaim}-zswap",
            30,
            until={**FEW_HITS, "zswpout": 1},
            swap="disk_swap /dev/vdb",
            prepare=f"{reclaim}; zswap",
            after="mglru_seen",
            # Linux 6.12 may give up beside pages that it could reclaim (docs/gcma.md). The hog,
            # which is killed then, begins anew.
            allow=("oom",),
        )
    ]


def _repeated(number: int) -> Job:
    machine = Machine(memory_mib=576, extra_mib=192, words=("vivid.allocators=1", *demo.DISK_WORDS))
    return Job(
        f"identical-{number}", jobs.script("repeated"), NO_IMAGE, machine, programs=("mke2fs",),
        allow=("allocation",),
    )  # fmt: skip


GUEST_CHECKS: Final[list[GuestCheck]] = [
    GuestCheck(
        "guest: brug where the machine refuses memory, mappings and huge pages",
        "gcma",
        [
            Job(
                "brug-refused",
                brug.guest_script(),
                NO_IMAGE,
                Machine("x86-fast", memory_mib=2048, cma_mib=0),
            )
        ],
        brug.judge_guest,
        brug.guest_files,
    ),
    GuestCheck(
        "guest: KUnit in User Mode Linux",
        "uml",
        [kunit_job("kunit-uml", "uml")],
        judge_kunit_small,
        quick=True,
    ),
    GuestCheck(
        "guest: KUnit in User Mode Linux 7.3, with the old lists",
        "uml-7.3",
        [kunit_job("kunit-uml-7.3", "uml")],
        judge_kunit_small,
    ),
    GuestCheck(
        "guest: KUnit",
        "gcma",
        [kunit_job("kunit", "x86-fast")],
        _judge_kunit,
        on=BOTH,
    ),
    GuestCheck(
        "guest: KUnit with half of the series",
        "half",
        [kunit_job("kunit-half", "x86-fast")],
        partial(_judge_kunit, suites=(PLACE, DMEM)),
    ),
    GuestCheck(
        "guest: kselftest",
        "gcma",
        [
            _job(
                "kselftest",
                Machine("x86-fast", cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(300,),
            )
        ],
        _judge_kselftest,
        _kselftest,
        on=BOTH,
    ),
    GuestCheck(
        "guest: the driver refuses what it must",
        "gcma",
        [Job("edge", "sweep --edge\n", NO_IMAGE, Machine("x86-fast"))],
    ),
    GuestCheck(
        "guest: random allocations keep their contents",
        "gcma",
        [Job("random", "sweep --random\n", NO_IMAGE, Machine("x86-fast"))],
    ),
    GuestCheck(
        "guest: two runs on x86 are identical",
        "gcma",
        [_repeated(number) for number in (1, 2)],
        _judge_identical,
        on=OLDER,
    ),
    GuestCheck(
        "guest: every trace event fires",
        "gcma",
        [
            Job(
                "trace",
                jobs.script("trace", words=""),
                NO_IMAGE,
                Machine("x86-fast"),
                programs=("mke2fs",),
                scratch_mib=(300,),
            )
        ],
        _judge_trace,
    ),
    GuestCheck(
        "guest: kernel parameters, right and wrong",
        "gcma",
        [
            Job(
                f"words-{number}",
                "true\n",
                NO_IMAGE,
                Machine("x86-fast", cma_mib=0, words=tuple(words.split())),
            )
            for number, (words, _) in enumerate(PARAMETERS)
        ],
        _judge_parameters,
        on=BOTH,
    ),
    GuestCheck(
        "guest: camera, dma-buf heap and random allocations under load",
        "gcma",
        [
            _job(
                "consumers",
                Machine("x86-fast", words=("vivid.allocators=1",)),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        _judge_consumers,
        on=BOTH,
    ),
    GuestCheck(
        "guest: recorder, every way from three cameras and every end, byte by byte",
        "gcma",
        recorder.boots(NO_IMAGE),
        recorder.judge,
        recorder.files,
        prepare=recorder.build,
        on=BOTH,
    ),
    GuestCheck(
        "guest: no old byte in what an allocation returns",
        "gcma",
        [
            _old_bytes_job("old-bytes-free", "init_on_free=1"),
            _old_bytes_job("old-bytes-alloc", "init_on_alloc=1"),
        ],
        _judge_old_bytes,
        on=BOTH,
    ),
    GuestCheck(
        "guest: a prepared allocation of 128 MiB under init_on_alloc",
        "gcma",
        [_job("cleared", Machine(words=("init_on_alloc=1",)))],
        _judge_cleared,
    ),
    GuestCheck(
        "guest: what a client leaves behind is cleared under init_on_free",
        "gcma",
        [
            _job(
                "wiped",
                Machine(extra_mib=64, words=("init_on_free=1", *null_disk(1))),
                programs=("mke2fs",),
            )
        ],
        _judge_wiped,
    ),
    GuestCheck(
        "guest: no old byte under page_poison",
        "gcma",
        [_old_bytes_job("old-bytes-poison", "page_poison=1")],
        _judge_old_bytes,
    ),
    GuestCheck(
        "guest: broken memory is not filled, read or handed out",
        "gcma",
        [_job("poison", SMALL, programs=("mke2fs",), scratch_mib=(400,))],
        _judge_broken_rows,
        on=BOTH,
    ),
    GuestCheck(
        "guest: memory with an area is not taken offline",
        "gcma",
        [
            _job(
                "offline",
                # In a block of memory without holes.
                Machine(
                    "x86-fast",
                    cma_mib=0,
                    words=("movablecore=512M", "cma=64M@768M", "gcma=file+swap"),
                ),
            ),
            _job("offline-huge", HUGE_MACHINE),
        ],
        _judge_broken_rows,
    ),
    GuestCheck(
        "guest: hibernation leaves out what the area holds",
        "gcma",
        [_job("hibernate", SMALL, programs=("mke2fs",), scratch_mib=(300, 700))],
        _judge_hibernate,
        on=BOTH,
    ),
    GuestCheck(
        "guest: memory tags stay with their owner on arm64",
        "arm64",
        [_job("tags", Machine("arm64", memory_mib=512, cma_mib=32))],
        _judge_tags,
    ),
    GuestCheck(
        "guest: the longest allocation under load",
        "gcma",
        [_job("bound", BOUND_MACHINE, programs=("mke2fs",), allow=("allocation",))],
        _judge_bound,
        on=BOTH,
    ),
    GuestCheck(
        "guest: hugetlb_cma, gigantic pages and those of 2 MiB under load",
        "gcma",
        [
            _job(
                "huge",
                HUGE_MACHINE,
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(900,),
            )
        ],
        _judge_huge,
    ),
    GuestCheck(
        "guest: pages of an area are pinned for long and stay",
        "gcma",
        _pinned_jobs(),
        _judge_pinned,
        on=BOTH,
    ),
    GuestCheck(
        "guest: buffers of the heap are held where an area is guaranteed, beyond their end",
        "gcma",
        [
            Job(
                f"hold-{name}",
                jobs.script("hold"),
                NO_IMAGE,
                machine,
                programs=("mke2fs",),
                scratch_mib=(64,),
            )
            for name, machine in HOLD_BOOTS.items()
        ],
        _judge_hold,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, swap on zram",
        "gcma",
        [oracle_job("oracle", 30, until=HITS)],
        _judge_oracle,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, swap on a disk, blocks of 1 KiB",
        "gcma",
        [oracle_job("oracle-disk", 30, until=HITS, swap="disk_swap /dev/vdb", block=1024)],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle while an area's clients change",
        "gcma",
        [oracle_job("control", 30, enough=True, prepare="change_clients", after="keep_clients")],
        _judge_control,
    ),
    GuestCheck(
        "guest: oracle on XFS, large folios",
        "gcma",
        [
            oracle_job(
                "oracle-xfs",
                20,
                "--file-max-kib 2048",
                until=SOME_HITS,
                enough=True,
                mount="on_xfs",
                prepare="trace_large_folios; await_large_folios file",
                programs=("mkfs.xfs",),
            )
        ],
        _judge_large("file"),
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle on btrfs",
        "gcma",
        [
            oracle_job(
                "oracle-btrfs",
                20,
                # Its checksums do not go with pages that a device changes under writeback.
                "--drop-caches --skip pinned_write",
                until=SOME_HITS,
                mount="on_btrfs",
                programs=("mkfs.btrfs",),
                files=240,
            )
        ],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle on f2fs",
        "gcma",
        [
            oracle_job(
                "oracle-f2fs",
                20,
                "--lax-direct",
                until=SOME_HITS,
                mount="on_f2fs",
                programs=("mkfs.f2fs",),
            )
        ],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: files of f2fs, ext4 and btrfs that are given other blocks",
        "gcma",
        [
            _job(
                "blocks",
                SMALL,
                programs=("mkfs.f2fs", "mke2fs", "chattr", "mkfs.btrfs"),
                scratch_mib=(320, 64),
            )
        ],
        partial(_judge_kept, pages=512, of=1),
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle on encrypted files, on ext4 and f2fs",
        "gcma",
        [
            oracle_job(
                "oracle-encrypted-ext4",
                20,
                until=FEW_HITS,
                mount="need scratch /dev/vda -O encrypt; encrypted",
                files=ENCRYPTED_MIB,
            ),
            oracle_job(
                "oracle-encrypted-f2fs",
                20,
                "--lax-direct",
                until=FEW_HITS,
                mount="on_f2fs -O encrypt; encrypted",
                files=ENCRYPTED_MIB,
                programs=("mkfs.f2fs",),
            ),
        ],
        _judge_oracle,
        on=BOTH,
    ),
    GuestCheck(
        "guest: encrypted files are kept, and nothing of them without their key",
        "gcma",
        [_job("encrypted", SMALL, programs=("mke2fs", "mkfs.f2fs"), scratch_mib=(320,))],
        _judge_encrypted,
        on=BOTH,
    ),
    GuestCheck(
        # With large folios of ext4, which 6.12 does not have.
        "guest: oracle on overlayfs on a loop device, large folios of ext4",
        "gcma",
        [
            oracle_job(
                "oracle-stacked",
                20,
                "--file-max-kib 2048",
                until=SOME_HITS,
                enough=True,
                mount="on_overlay",
                prepare="trace_large_folios; await_large_folios file",
            )
        ],
        _judge_large("file"),
    ),
    GuestCheck(
        "guest: oracle, swap in a file, swap that comes and goes, large folios in it",
        "gcma",
        [
            oracle_job(
                "oracle-swap",
                20,
                until=SOME_HITS,
                enough=True,
                swap="true",
                prepare="swap_file_and_zram; trace_large_folios; change_swap; "
                "await_large_folios swap swap_changed",
                after="keep_swap",
                anon=192,
            )
        ],
        _judge_large("swap"),
        on=BOTH,
    ),
    GuestCheck(
        "guest: file systems mounted again, devices written underneath",
        "gcma",
        [
            _job(
                "remount",
                SMALL,
                programs=("mke2fs", "mkfs.xfs", "mkfs.btrfs", "btrfs", "mkfs.f2fs", "mkfs.erofs"),
                scratch_mib=(320, 320, 64),
            )
        ],
        partial(_judge_kept, pages=3920, of=5),
    ),
    GuestCheck(
        "guest: copies outlast the pages of their cgroup",
        "gcma",
        [_job("squeezed", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        partial(_judge_kept, pages=3000, of=1),
    ),
    GuestCheck(
        "guest: nodes of shadow entries leave a cgroup its memory",
        "gcma",
        [
            _job(
                "nodes",
                Machine("x86-fast", memory_mib=1024, cma_mib=512),
                programs=("mke2fs",),
                # What may not wait may fail where memory is that short.
                allow=("allocation", "oom"),
                scratch_mib=(512,),
            )
        ],
        _judge_nodes,
        on=BOTH,
    ),
    GuestCheck(
        "guest: only plain memory is written to while the owner of a frame waits",
        "gcma",
        [_job("destinations", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        _judge_destinations,
    ),
    GuestCheck(
        "guest: a trace has every read, write and allocation",
        "gcma",
        [
            Job(
                "traced",
                jobs.script("traced", pages=TRACED_PAGES),
                NO_IMAGE,
                Machine("x86", cma_mib=64, extra_mib=64, words=traces.DISK_WORDS),
                programs=("mke2fs",),
            )
        ],
        _judge_traced,
        on=OLDER,
    ),
    GuestCheck(
        "guest: what was cut off or punched out of a file is not seen again",
        "gcma",
        [_job("gone", SMALL, programs=("mke2fs", "mkfs.btrfs"), scratch_mib=(128,))],
        _judge_gone,
        on=BOTH,
    ),
    GuestCheck(
        "guest: what a direct write ends over is not seen again",
        "gcma",
        [
            _job(
                "late",
                Machine(
                    "x86-fast",
                    memory_mib=704,
                    cma_mib=64,
                    disks=(Disk(size_mib=64, writes_per_s=1), Disk(size_mib=320, writes_per_s=1)),
                ),
                programs=("mke2fs", "mkfs.xfs"),
            )
        ],
        _judge_late,
        on=BOTH,
    ),
    GuestCheck(
        "guest: zswap writes back nothing that has been overwritten",
        "gcma",
        [_job("zeroed", SMALL, scratch_mib=(512,))],
        _judge_zeroed,
    ),
    GuestCheck(
        "guest: a read costs in the area what it costs in the page cache",
        "gcma",
        [
            Job(
                "calls",
                jobs.script("bench-calls", words=bench_gcma.ALSO["gcma"]),
                NO_IMAGE,
                Machine("x86", words=("zram.num_devices=2", "norandmaps")),
                programs=("mke2fs",),
            )
        ],
        _judge_calls,
        on=BOTH,
    ),
    GuestCheck(
        "guest: a copy is not weighed by the multi-generational LRU",
        "gcma",
        [_job("lru-costs", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        _judge_lru_costs,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, multi-generational LRU and zswap",
        "gcma",
        _zswap_jobs("mglru"),
        _judge_mglru(True),
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, without the multi-generational LRU, and zswap",
        "gcma",
        _zswap_jobs("no_mglru"),
        _judge_mglru(False),
    ),
    GuestCheck(
        "guest: oracle, plain CMA on the same kernel",
        "gcma",
        [
            oracle_job(
                "oracle-cma",
                20,
                until={},
                machine=Machine("x86-fast", "cma", memory_mib=704, cma_mib=64),
            )
        ],
    ),
    GuestCheck(
        "guest: KUnit and oracle under KASAN, lockdep and failing allocations",
        "debug",
        [
            kunit_job("kunit-debug", "x86-fast"),
            oracle_job(
                "oracle-debug",
                60,
                "--file-max-kib 1024",
                # So slow a kernel rarely fills the area; KUnit has seen revocation by then.
                until=hits(1000, discard=False),
                prepare="fail_allocations",
                block=1024,
                files=160,
                anon=96,
                hog=240,
                largest=1024,
                machine=Machine("x86-fast", memory_mib=512, cma_mib=16),
            ),
        ],
        _judge_debug,
    ),
    GuestCheck(
        "guest: device tree properties on arm64, right and wrong",
        "arm64",
        [
            Job(
                f"device-tree-{number}",
                "true\n",
                NO_IMAGE,
                _tree_machine(properties, *words.split()),
            )
            for number, (properties, words, _) in enumerate(DEVICE_TREES)
        ],
        _judge_device_trees,
    ),
    GuestCheck(
        "guest: KUnit on arm64",
        "arm64",
        [kunit_job("kunit-arm64", "arm64")],
        _judge_kunit,
    ),
    GuestCheck(
        "guest: brug on arm64, and where the machine refuses",
        "arm64",
        [
            Job(
                "brug-arm64",
                brug.guest_script(ARM64),
                NO_IMAGE,
                Machine("arm64", memory_mib=2048, cma_mib=0),
                programs=("mke2fs",),
            )
        ],
        brug.judge_guest,
        brug.arm64_files,
    ),
    GuestCheck(
        "guest: DRM dumb buffers under load on arm64",
        "arm64",
        [
            _job(
                "dumb",
                Machine("arm64", memory_mib=704, cma_mib=64, device_tree=DISPLAY),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        _judge_dumb,
    ),
    GuestCheck(
        "guest: oracle on arm64, area from the device tree",
        "arm64",
        [
            oracle_job(
                "oracle-arm64",
                30,
                until=HITS,
                machine=_tree_machine('linux,gcma-clients = "file+swap";', memory_mib=704),
            )
        ],
        _judge_oracle,
    ),
    GuestCheck(
        "kcsan: KUnit and oracle under KCSAN",
        "kcsan",
        [
            replace(job, allow=(*job.allow, "race"))
            for job in (
                replace(
                    kunit_job("kunit-kcsan", "x86-fast"), script=". /lib/oracle.sh\nkcsan_looked\n"
                ),
                oracle_job(
                    "oracle-kcsan",
                    60,
                    "--file-max-kib 1024 --alloc-workers 4 --alloc-pieces 4 --alloc-pins",
                    until=hits(100, discard=False),
                    after="kcsan_looked",
                    block=1024,
                    files=160,
                    anon=96,
                    hog=240,
                    largest=128,
                    machine=Machine("x86-fast", memory_mib=560, cma_mib=64),
                ),
            )
        ],
        _judge_kcsan,
        asked=True,
    ),
    GuestCheck("guest: soak, a short round of a new seed", "gcma", run=soak.check),
    GuestCheck(
        "guest: KUnit on the Raspberry Pi 2 (rpi2), area in low memory",
        "rpi2",
        [kunit_job("kunit-rpi2", "rpi2", LOW)],
        judge_kunit_small,
    ),
    GuestCheck(
        "guest: oracle on the Raspberry Pi 2 (rpi2), area in high memory",
        "rpi2",
        [_oracle_rpi2()],
        _judge_high,
    ),
    *(
        GuestCheck(f"guest: recorder, {name}", "gcma", run=run, prepare=recorder.build)
        for name, run in recorder.CHECKS.items()
    ),
    *(
        GuestCheck(f"pdio: {name}", "storage", run=run, prepare=storage.build)
        for name, run in storage.CHECKS.items()
    ),
]


def _on_7_3(check: GuestCheck) -> GuestCheck:
    return replace(check, image=f"{check.image}-7.3")


def _on_6_12(check: GuestCheck) -> GuestCheck:
    jobs_there = [replace(job, name=f"{job.name}-6.12") for job in check.jobs]
    return replace(check, name=f"{check.name}, Linux 6.12", jobs=jobs_there)


# All on the kernel that they are for, then once more what is for both.
GUEST_CHECKS[:] = [
    *(
        _on_7_3(made) if made.image == "gcma" and made.on != OLDER else made
        for made in GUEST_CHECKS
    ),
    *(_on_6_12(made) for made in GUEST_CHECKS if made.on == BOTH),
]
