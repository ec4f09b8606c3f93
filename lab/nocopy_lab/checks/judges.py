# SPDX-License-Identifier: MIT OR Apache-2.0
"""What must be true of the boots of a check. `oracle` and `kunit` have their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nocopy_lab.checks.kinds import all_well
from nocopy_lab.experiments import bench_gcma
from nocopy_lab.paths import LabError
from nocopy_lab.run import Outcome, Row

TRACED_PAGES: Final = 1024


def traced(outcomes: Sequence[Outcome]) -> None:
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


def identical(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    first, second = outcomes
    if not first.rows("alloc") or not first.rows("shot"):
        raise LabError(f"nothing was measured; see {first.console}")
    if first.results != second.results:
        pairs = zip(first.results, second.results, strict=False)
        at = next((f"{a} and {b}" for a, b in pairs if a != b), "in their number")
        raise LabError(f"two runs on {first.job.machine.board} differ: {at}")


def _counters(outcome: Outcome, label: str) -> Mapping[str, int]:
    """The vmstat counters that statdump printed."""
    for row in outcome.rows("gcma_stats"):
        if row.get("label") == label:
            counters: dict[str, int] = row["vmstat"]
            return counters
    raise LabError(f"{outcome.job.name}: no counters '{label}'; see {outcome.console}")


def nodes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := outcome.rows("broken"):
            raise LabError(f"{broken[0]['why']}; see {outcome.console}")
        rows = outcome.rows("nodes")
        if not rows or rows[0]["oom_kill"]:
            raise LabError(f"the cgroup ran out of memory: {rows[:1]}; see {outcome.console}")
        outcome.require()
        if rows[0]["stored"] < 60_000 or rows[0]["slab_kib_after"] > 4096:
            raise LabError(f"not squeezed, or nothing yielded: {rows[0]}; see {outcome.console}")


def gone(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("gone")
        if len(rows) != 2 or any(row["wrong"] for row in rows):
            raise LabError(f"what was taken out is seen again: {rows}; see {outcome.console}")


def late(outcomes: Sequence[Outcome]) -> None:
    """Pages were kept while a write went on, and nobody read them when it had ended."""
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("late")
        if len(rows) != 4 or any(row["old"] or not row["good"] or not row["kept"] for row in rows):
            raise LabError(f"direct writes that end late: {rows}; see {outcome.console}")


def zeroed(outcomes: Sequence[Outcome]) -> None:
    """Much came from the area, and zswap wrote back what was still to be."""
    all_well(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("zeroed")
        if row["wrong"] or min(row["loads"], row["written_back"]) < row["pages"] // 16:
            raise LabError(f"memory that became zeros: {row}; see {outcome.console}")


def calls(outcomes: Sequence[Outcome]) -> None:
    """Reads in calls of several sizes, in instructions, from the area and from the page cache."""
    all_well(outcomes)
    most = bench_gcma.CALLS
    for outcome in outcomes:
        rows = outcome.rows("calls")
        times = {int(row["size"]): row["evicted_ns"] / row["cached_ns"] for row in rows}
        if times.keys() != most.keys() or any(times[size] > most[size] for size in most):
            raise LabError(f"times what the page cache takes: {times}; see {outcome.console}")


def lru_costs(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("lru")
        if min(row["loads"], row["recent"]) < 3000:
            raise LabError(f"pages hardly came back: {row}; see {outcome.console}")
        if row["weighed"]:
            raise LabError(f"copies are weighed like I/O: {row}; see {outcome.console}")


def destinations(outcomes: Sequence[Outcome]) -> None:
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


def kept(outcomes: Sequence[Outcome], pages: int, of: int) -> None:
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


def encrypted(outcomes: Sequence[Outcome]) -> None:
    """Encrypted files were kept, and none of their content was in the area without the key."""
    kept(outcomes, pages=3072, of=2)
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


def consumers(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        bad = [row for kind in ("shot", "heap") for row in outcome.rows(kind) if not row["ok"]]
        bad += [row for row in outcome.rows("random_summary") if row["failed"] or row["wrong"]]
        if bad or not outcome.rows("shot") or not outcome.rows("heap"):
            raise LabError(f"{outcome.job.name}: {bad[:1] or 'no shot'}; see {outcome.console}")


# Instructions that an allocation from an area of 128 MiB may take, seen from outside: some for each
# word of the bitmaps of its range, and one interrupt.
BOUND_NS: Final = 16384


def bound(outcomes: Sequence[Outcome]) -> None:
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


def huge(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        # gigantic pages, and 512 smaller ones made of each
        if [row["pages"] for row in outcome.rows("huge") if row["ok"]] != [1, 512, 1, 512]:
            raise LabError(f"{outcome.job.name}: not all huge pages; see {outcome.console}")
        if not _counters(outcome, "end")["gcma_discard"]:
            raise LabError(f"{outcome.job.name}: nothing was discarded; see {outcome.console}")


def pinned(outcomes: Sequence[Outcome]) -> None:
    """A guaranteed area allows it, and nothing moves. Plain CMA does not, or it would move."""
    all_well(outcomes)
    for outcome, allowed in zip(outcomes, (True, False), strict=True):
        rows = outcome.rows("pin")
        if [row["how"] for row in rows] != ["udmabuf", "io_uring"]:
            raise LabError(f"{outcome.job.name}: not both ways; see {outcome.console}")
        for row in rows:
            if row["wrong"] or (not row["error"] and not row["moved"]) != allowed:
                raise LabError(f"{outcome.job.name}: {row}; see {outcome.console}")


HOLD_WAYS: Final = ("direct", "vmsplice", "io_uring")


def hold(outcomes: Sequence[Outcome]) -> None:
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


def dumb(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("drm")
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        if not rows or area["allocs"] < sum(row["buffers"] for row in rows):
            raise LabError(
                f"{outcome.job.name}: dumb buffers did not come from the area; "
                f"see {outcome.console}"
            )


def trace(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        lines = [row["lines"] for row in outcome.rows("trace")]
        if len(lines) != 5 or not all(lines):
            raise LabError(f"a trace event never fired: {lines}; see {outcome.console}")


# Kernel parameters, and what the kernel must say about them: a boot each.
PARAMETERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("cma=64M gcma=file+swap", ("area reserved: 64 MiB, clients: file+swap",)),
    ("cma=64M gcma=swap,reserved:file", ("area reserved: 64 MiB, clients: file\n",)),
    ("cma=64M gcma=file gcma=swap", ("given more than once, using 'swap'",)),
    # What is wrong is passed over, and what comes next is read.
    (
        "cma=64M gcma=bogus,file+none,camera:file,file,none gcma=",
        (
            "'bogus' is none of",
            "'file+none' is none of",
            "no area 'camera'",
            "given both 'file' and 'none', using the latter",
            "gcma= wants",
            "area reserved: 64 MiB, clients: none",
        ),
    ),
    ("gcma=file", ("there is no CMA area",)),
    ("cma=4G gcma=file", ("Failed to reserve 4096 MiB",)),
    ("cma=64M@0x10001000 gcma=file", ("must be aligned",)),
)


def _says(outcome: Outcome, answer: str) -> bool:
    """True if the kernel says this; at the end of a line if the answer has one."""
    return answer in outcome.said


def parameters(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (words, answers) in zip(outcomes, PARAMETERS, strict=True):
        for answer in answers:
            if not _says(outcome, answer):
                raise LabError(f"booted with {words}, the kernel does not say: {answer}")


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


def device_trees(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (properties, words, answer) in zip(outcomes, DEVICE_TREES, strict=True):
        if not _says(outcome, answer):
            said = f"{properties} {words}".strip()
            raise LabError(f"with {said} the kernel does not say: {answer}; see {outcome.console}")


def _succeeded(outcome: Outcome, allocations: Sequence[Row]) -> None:
    """One that fails is quick, and returns nothing old."""
    if failed := [row for row in allocations if not row["ok"]]:
        raise LabError(f"{outcome.job.name}: an allocation failed: {failed[0]}")
    if not allocations:
        raise LabError(f"{outcome.job.name}: nothing was allocated; see {outcome.console}")


def old_bytes(outcomes: Sequence[Outcome]) -> None:
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


def cleared(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        _succeeded(outcome, outcome.rows("alloc"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        slow = [took[n] > 100 * PREPARED_NS for n in range(len(took))]
        if slow != [True, True, False, True, False] or max(took[2], took[4]) > PREPARED_NS:
            raise LabError(f"{outcome.job.name}: allocations took {took} ns")


# Time in which 8192 copies in an area of 65536 pages are passed over.
PASSED_US: Final = 100


def wiped(outcomes: Sequence[Outcome]) -> None:
    """The first allocation has copies to clear, the second finds all clear, in no time."""
    all_well(outcomes)
    for outcome in outcomes:
        copies = outcome.job.machine.config == "gcma"
        passes = [row["us"] for row in outcome.rows("tidied")]
        if copies and (not passes or max(passes) > PASSED_US):
            raise LabError(f"{outcome.job.name}: to pass over copies took {passes} µs")
        _succeeded(outcome, outcome.rows("alloc"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        if [ns > 100 * PREPARED_NS for ns in took] != [copies, False]:
            raise LabError(f"{outcome.job.name}: allocations took {took} ns")


def broken_rows(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := [str(row["why"]) for row in outcome.rows("broken")]:
            raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
        outcome.require()


def cases(outcome: Outcome, expected: int) -> None:
    """So many cases of tests ran, none was skipped, all ended well."""
    rows = outcome.rows("case")
    bad = [f"{case['name']} ({case['exit']})" for case in rows if case["exit"]]
    if bad:
        raise LabError(f"{'; '.join(bad)}; see {outcome.console}")
    outcome.require()
    idle = [case["name"] for case in rows if case["skipped"]]
    if idle:
        raise LabError(f"skipped although the guest permits it: {'; '.join(idle)}")
    if len(rows) != expected:
        raise LabError(f"{len(rows)} of {expected} cases ran; see {outcome.console}")


# Pages by which an image may grow with what else there is: the first has nothing of the file.
GROWN: Final = 2048


def hibernate(outcomes: Sequence[Outcome]) -> None:
    """An image is hardly larger for what is in the area, of 16384 pages: those were zeros."""
    broken_rows(outcomes)
    for outcome in outcomes:
        text = outcome.said
        images = [int(pages) for pages in re.findall(r"saving image data \((\d+) pages\)", text)]
        if len(images) != 2 or images[1] - images[0] > GROWN:
            raise LabError(f"hibernation saved the area: {images} pages; see {outcome.console}")
        # Linux 6.12 counts them.
        zeros = [int(pages) for pages in re.findall(r"pages copied, (\d+) zero pages\)", text)]
        if zeros and min(zeros) < 16384:
            raise LabError(f"only {zeros} pages of zeros; see {outcome.console}")


def tags(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        for row in outcome.rows("mte"):
            names = ("wrong_words", "wrong_tags", "leaked_tags", "tagged_frames")
            if wrong := [f"{row[name]} {name}" for name in names if row[name]]:
                raise LabError(f"{', '.join(wrong)}; see {outcome.console}")
            # The program needs 24,576 pages, the area has 8,192.
            if min(row["stored"], row["loaded"]) < 4000:
                raise LabError(f"hardly anything was in the area: {row}; see {outcome.console}")
        outcome.require()
