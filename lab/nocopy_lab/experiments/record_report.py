# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the comparison of recorders measured, judged and drawn, from its results.json alone."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nocopy_lab import report, samples
from nocopy_lab.experiments.record import (
    ARM64_BOARD,
    BLOG_RATE,
    BLOG_S,
    BUFFERS,
    CONTIGUOUS,
    EXACT_BOARD,
    EXACT_DISK_NS,
    EXACT_REQUESTS,
    FRAME_BYTES,
    HEIGHT,
    HOG_RATE,
    HOUR_RATE,
    LATE_FRAMES,
    LONG_RATE,
    MINUTES_RATE,
    PHOTO_PAGES,
    PHOTO_RATE,
    PROFILE_US,
    QUIET_RATE,
    SLOW_BOARD,
    SWITCH_RATE,
    WAYS,
    WIDTH,
)
from nocopy_lab.report import Figure, Goal, Style, Summary, Table, percentile
from nocopy_lab.units import duration

MICROS: Final = 1e6
# Frames of the end may be on their way when the recorder is told to end.
TAIL_US: Final = 1_000_000
# By `rep movsb`, on this board, where each instruction takes as long.
COPIED_A_US: Final = 500
# Lines of the load, one a second, that may have come before the recording had settled.
TICKS_BEFORE: Final = 3


@dataclass(frozen=True)
class Case:
    """A program in a boot, and what it is called."""

    config: str
    name: str
    label: str
    style: Style


ZERO: Final = Case("gcma", "dmabuf", "nocopy-record, no copy: huge pages", Style("#0072B2"))
HEAP: Final = Case("gcma", "heap", "nocopy-record, no copy: heap", Style("#009E73", "-.", "v"))
NO_COPY: Final = {"huge pages": ZERO, "heap": HEAP}
ONE: Final = Case("gcma", "copy", "nocopy-record, one copy", Style("#56B4E9", "--", "s"))
# Ours on a board whose area lies idle: what photos are compared with.
ALONE: Final = {
    way.name: Case("reservation", way.name, f"{way.label}, reservation", way.style)
    for way in (ZERO, ONE)
}
DEFAULT: Final = Case(
    "cma", "v4l2-ctl-default", "v4l2-ctl as it comes (3 buffers)", Style("#E69F00", ":", "^")
)
STOCK: Final = Case("cma", "v4l2-ctl", f"v4l2-ctl, {BUFFERS} buffers", Style("#D55E00"))
FFMPEG: Final = Case("cma", "ffmpeg", "ffmpeg", Style("#CC79A7", "--", "s"))
RESERVED: Final = Case(
    "reservation",
    "v4l2-ctl",
    f"v4l2-ctl, {BUFFERS} buffers, reservation",
    Style("#999999", "-.", "D"),
)
WHOLE: Final = (DEFAULT, STOCK, FFMPEG, RESERVED, ONE, ZERO, HEAP)
LITTLE: Final = (
    Case("gcma", "v4l2-ctl", "v4l2-ctl, area of gcma", Style("#000000")),
    Case("cma", "v4l2-ctl-scattered", "v4l2-ctl, scattered buffers", Style("#000000")),
    Case("gcma", "mmap", "nocopy-record, scattered buffers, no copy", Style("#000000")),
)
# What is compared on the other boards.
ON_ARM64: Final = (STOCK, FFMPEG, ONE, ZERO, HEAP)
BUFFERED: Final = Case(
    "gcma", "buffered", "nocopy-record, through the page cache", Style("#000000")
)
ON_EXACT: Final = (DEFAULT, STOCK, BUFFERED, ONE, ZERO, HEAP)


@dataclass(frozen=True)
class Frame:
    """Of the camera's number: when its buffer was full, and how many buffers the camera had left;
    when the program took it and gave it back, and when the disk had it (0: never)."""

    number: int
    full: int
    left: int
    taken: int
    back: int
    flash: int


class Recording:
    """One recording, without its first two seconds and its last."""

    def __init__(
        self,
        row: Mapping[str, Any],
        ticks: Sequence[Mapping[str, Any]] = (),
        allocs: Sequence[Mapping[str, Any]] = (),
        disk_us: float = 0.0,
    ) -> None:
        self.row = row
        self.disk_us = disk_us  # that the processor does of the disk's work for a frame
        self.allocs = allocs  # that somebody else did meanwhile
        # of the load; the first are of what was before
        self.ticks = ticks[TICKS_BEFORE:-1]
        kind, name, rate = str(row["case"]).split(":")
        self.kind, self.name, self.rate = kind, name, int(rate)
        self.begin, self.end = int(row["settled"]), int(row["end"])
        # A number stands for so many that were in time, one after the other, in the window.
        every = [one if isinstance(one, int) else Frame(*one) for one in row["frames"]]
        until = self.end - TAIL_US
        self.in_time = sum(one for one in every if isinstance(one, int))
        listed = [one for one in every if isinstance(one, Frame)]
        self.frames = [one for one in listed if self.begin <= one.full < until]
        # those that what `cpu` and `profile` say is of
        self.filled = self.in_time + sum(self.begin <= one.full < self.end for one in listed)
        self.written = sum(self.begin <= one.flash < self.end for one in listed)
        self.lost, self.dropped = self._missing(every, until)
        self.photos = [1e3 * took for took in row.get("photos", ())]  # ns

    def _missing(self, every: Sequence[Frame | int], until: int) -> tuple[int, int]:
        """Frames for which the camera had no buffer, and frames that its own thread skipped."""
        lost = dropped = 0
        for one, after in itertools.pairwise(every):
            if isinstance(one, int) or isinstance(after, int):
                continue
            gap = after.number - one.number - 1
            if gap <= 0 or not self.begin <= one.full < until:
                continue
            if one.left:
                dropped += gap
            else:
                lost += gap
        # A recorder that takes nothing any more loses what comes.
        last = every[-1] if every else None
        assert not isinstance(last, int)
        if last is None or last.full < until - BUFFERS * self.interval:
            since = max(last.full if last else self.begin, self.begin)
            lost += math.floor((until - since) / self.interval)
        return lost, dropped

    @property
    def interval(self) -> float:
        return MICROS / self.rate

    @property
    def late(self) -> int:
        limit = LATE_FRAMES * self.interval
        return sum(one.back == 0 or one.back - one.full > limit for one in self.frames)

    @property
    def busy_us(self) -> float:
        """What of the processor was not idle, and not the disk's."""
        cpu = self.row["cpu"]
        idle = float(cpu["idle"] + cpu["iowait"]) / self.row["ticks_per_s"] * MICROS
        if "idle_ns" in self.row:
            idle = self.row["idle_ns"] / 1e3
        return float(self.end - self.begin - idle) - self.disk_us * self.written


@dataclass(frozen=True)
class Profile:
    """Samples of the processor while a program records and nobody else runs."""

    frames: int
    all: int
    own: int  # in threads of the program
    user: int  # of these, in its own instructions
    copying: int  # of these, in a routine of the kernel that copies
    period_us: int

    @classmethod
    def of(cls, recording: Recording) -> Profile:
        return cls(recording.filled, **recording.row["profile"])

    @property
    def copies(self) -> float:
        """Bytes that these routines copied, for each byte of a frame."""
        return self.copying * self.period_us * COPIED_A_US / (self.frames * FRAME_BYTES)

    @property
    def copies_and_own(self) -> float:
        """The same, with each of the program's own instructions as if it copied."""
        samples = self.copying + self.user
        return samples * self.period_us * COPIED_A_US / (self.frames * FRAME_BYTES)


def _requests(tick: Mapping[str, Any]) -> float:
    return float(tick["read_ops"] + tick["write_ops"])


@dataclass(frozen=True)
class Sum:
    """Recordings of one case."""

    rounds: int
    frames: int
    lost: int
    dropped: int
    late: int
    seconds: float
    flash: Sequence[float]  # ns from a full buffer to the disk
    never: int  # frames that were not on the disk in the end
    requests: float  # that the load answered in a second

    @classmethod
    def of(cls, recordings: Sequence[Recording]) -> Sum:
        frames = [one for recording in recordings for one in recording.frames]
        ticks = [one.ticks for one in recordings if len(one.ticks) > 1]
        done = sum(_requests(some[-1]) - _requests(some[0]) for some in ticks)
        took = sum(some[-1]["seconds"] - some[0]["seconds"] for some in ticks)
        return cls(
            len(recordings),
            len(frames) + sum(one.in_time for one in recordings),
            sum(one.lost for one in recordings),
            sum(one.dropped for one in recordings),
            sum(one.late for one in recordings),
            sum(one.end - one.begin - TAIL_US for one in recordings) / MICROS,
            [1e3 * (one.flash - one.full) for one in frames if one.flash],
            sum(not one.flash for one in frames),
            done / took if took else math.nan,
        )

    @property
    def lost_share(self) -> float:
        return self.lost / max(self.frames + self.lost, 1)

    @property
    def bad(self) -> int:
        return self.lost + self.late

    @property
    def bad_share(self) -> float:
        return self.bad / max(self.frames + self.lost, 1)


class Measured:
    """Stored recordings of a board, and what can be asked of them; what is missing is an empty
    list."""

    def __init__(self, results: Mapping[str, Any], board: str = SLOW_BOARD) -> None:
        self.results = results
        self.all: dict[tuple[str, str, str], list[Recording]] = {}
        self.about: Mapping[str, Any] = {}  # if it is another kernel than the results'
        self.disk_us = 0.0
        for run in results["runs"]:
            if run.get("board", SLOW_BOARD) != board:
                continue
            self.about = next((row for row in run["rows"] if row.get("type") == "about"), {})
            self.disk_us = _disk_us(run["rows"])
            ticks: list[Mapping[str, Any]] = []
            allocs: list[Mapping[str, Any]] = []
            for row in run["rows"]:
                if row.get("type") == "load_tick":
                    ticks.append(row)
                elif row.get("type") == "alloc":
                    allocs.append(row)
                elif row.get("type") == "recording":
                    one = Recording(row, ticks, allocs, self.disk_us)
                    self.all.setdefault((run["config"], one.kind, one.name), []).append(one)
                    ticks, allocs = [], []

    def of(self, case: Case, kind: str, rate: int = 0) -> list[Recording]:
        found = self.all.get((case.config, kind, case.name), [])
        return [one for one in found if rate in (0, one.rate)]

    def sum(self, case: Case, kind: str, rate: int = 0) -> Sum | None:
        found = self.of(case, kind, rate)
        return Sum.of(found) if found else None

    def a_frame_ms(self, case: Case) -> float:
        """Processor time of a frame, without the camera's."""
        camera = "camera" if WAYS[case.name].camera == CONTIGUOUS else "camera-scattered"
        alone = self.all.get((case.config, "quiet", camera), [])
        return _busy_ms(self.of(case, "quiet")) - _busy_ms(alone)

    def camera_ms(self, config: str) -> float:
        return _busy_ms(self.all.get((config, "quiet", "camera"), []))

    def cached(self, case: Case) -> float:
        """Bytes copied into the page cache for each byte of the file."""
        found = self.of(case, "cached")
        return found[0].row["cached"] / found[0].row["bytes"] if found else math.nan

    def profile(self, case: Case) -> Profile | None:
        return next((Profile.of(one) for one in self.of(case, "profile")), None)

    def allocations(
        self, case: Case, pages: int = 0, kind: str = "switch"
    ) -> list[Mapping[str, Any]]:
        """What somebody else took of the area while this program recorded."""
        found = [row for one in self.of(case, kind) for row in one.allocs]
        return [row for row in found if pages in (0, row["pages"])]

    def photos(self, case: Case) -> list[float]:
        """How long each photo took that was asked for beside the load, in nanoseconds."""
        return [took for one in self.of(case, "photo") for took in one.photos]

    def own_copies(self, case: Case) -> float:
        """What our program says of itself; the others say nothing."""
        said = [one.row.get("said") for one in self.of(case, "cached")]
        return float(said[0]["copies_per_byte"]) if said and said[0] else math.nan


def _busy_ms(recordings: Sequence[Recording]) -> float:
    """Processor time of each frame. What the camera skips, when the host is busy, costs nothing."""
    spent = [one.busy_us / one.filled for one in recordings if one.filled]
    return statistics.fmean(spent) / 1e3 if spent else math.nan


def _disk_us(rows: Sequence[Mapping[str, Any]]) -> float:
    """What a disk that is memory copies of a frame: how much longer requests to it take, when all
    of its memory is there, than those to a disk that throws all away."""
    took = {row["name"]: row["ns"] for row in rows if row.get("type") == "timed"}
    if not took:
        return 0.0
    return float(took["disk:2"] - took["nothing:2"]) / EXACT_REQUESTS / 1e3


# ------------------------------------------------------------------------------ tables


def _percent(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:.2g} %"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


LOST_HEAD: Final = (
    "", "frames", "lost", "", "late", "to the disk: median", "worst", "the load answers",
)  # fmt: skip


def _summands(counts: Sequence[int]) -> str:
    """A sum, and what it is of, if that is more than one count."""
    total = sum(counts)
    each = " + ".join(f"{count:,}" for count in counts)
    return f"{total:,} ({each})" if total and len(counts) > 1 else f"{total:,}"


def _range(values: Sequence[float]) -> str:
    """The least and the greatest; once, if they read the same."""
    return " to ".join(dict.fromkeys(_number(f(values), ",.0f") for f in (min, max)))


def _lost_row(label: str, recordings: Sequence[Recording]) -> list[str]:
    one, each = Sum.of(recordings), [Sum.of([some]) for some in recordings]
    return [
        label,
        f"{one.frames + one.lost:,}",
        _summands([some.lost for some in each]),
        _percent(one.lost_share),
        _summands([some.late for some in each]),
        duration(percentile(one.flash, 0.5)),
        duration(max(one.flash, default=math.nan)) + (f", {one.never} never" if one.never else ""),
        _range([some.requests for some in each]) + "/s",
    ]


def _lost(data: Measured, title: str, kind: str, rate: int, cases: Sequence[Case]) -> Table:
    rows = [_lost_row(c.label, some) for c in cases if (some := data.of(c, kind, rate))]
    return Table(title, LOST_HEAD, rows)


def _switches(data: Measured, title: str, kind: str) -> Table:
    rows = []
    for case in WHOLE:
        found = data.of(case, kind)
        if not found:
            continue
        one, allocs = Sum.of(found), data.allocations(case, kind=kind)
        took = Summary.of(
            [row["ns"] for row in allocs if row["ok"]], sum(not row["ok"] for row in allocs)
        )
        lost = [f"{one.frames + one.lost:,}", f"{one.lost:,}", f"{one.late:,}"]
        rows.append([case.label, *lost, *took.cells()])
    heads = ("", "frames", "lost", "late", "allocation, median", "p99", "worst", "failed")
    return Table(title, heads, rows)


def _minutes(data: Measured) -> Table:
    rows = []
    for case in WHOLE:
        if one := data.sum(case, "minutes"):
            every = one.frames + one.lost
            counts = [f"{every:,}", f"{one.lost:,}", f"{one.late:,}", _percent(one.bad_share)]
            rows.append([case.label, *counts, _number(one.requests, ",.0f") + "/s"])
    heads = ("", "frames", "lost", "late", "lost or late", "the load answers")
    return Table(f"{MINUTES_RATE} frames/s beside the load, for ten minutes", heads, rows)


def _own_photos(data: Measured) -> Table:
    rows = []
    for case in (*ALONE.values(), ONE, ZERO, HEAP):
        if took := data.photos(case):
            one = Sum.of(data.of(case, "photo"))
            lost = [f"{one.frames + one.lost:,}", f"{one.lost:,}", f"{one.late:,}"]
            some = Summary.of(took)
            rows.append([case.label, str(some.count), *some.cells()[:3], *lost])
    heads = ("", "photos", "median", "p99", "worst", "frames", "lost", "late")
    title = (
        f"Photos of nocopy-record's own frames, {PHOTO_RATE} frames/s beside the load: from the "
        "signal until the file is there"
    )
    return Table(title, heads, rows)


def _rates(data: Measured) -> Table:
    rates = sorted(
        {one.rate for (_, kind, _), all_ in data.all.items() if kind == "rate" for one in all_}
    )
    rows = []
    for case in (*WHOLE, *LITTLE):
        sums = [data.sum(case, "rate", rate) for rate in rates]
        if any(sums):
            rows.append([case.label, *(_percent(one.lost_share) if one else "–" for one in sums)])
    heads = (f"{rate}/s" for rate in rates)
    return Table("Frames lost, by frames a second, beside the load", ("", *heads), rows)


def _cost(data: Measured) -> Table:
    rows = []
    base = data.a_frame_ms(STOCK)
    for case in (*WHOLE, *LITTLE):
        spent = data.a_frame_ms(case)
        if math.isnan(spent):
            continue
        rows.append(
            [
                case.label,
                f"{spent:.2f} ms",
                f"{spent / base:.2f} ×",
                f"{data.cached(case):.3f}",
                _number(data.own_copies(case), ".3f"),
            ]
        )
    heads = (
        "", "processor time a frame", "of v4l2-ctl's", "bytes copied into the page cache, a byte",
        "copies a byte, by its own count",
    )  # fmt: skip
    return Table(f"What a frame costs, nobody else running, {QUIET_RATE} frames/s", heads, rows)


def _profiles(data: Measured) -> Table:
    rows = []
    for case in (*WHOLE, *LITTLE):
        one = data.profile(case)
        if one is None:
            continue
        counts = [one.frames, one.all, one.own, one.user, one.copying]
        rows.append([case.label, *(f"{count:,}" for count in counts), f"{one.copies_and_own:.3f}"])
    heads = (
        "", "frames", "samples", "in its threads", "in its own instructions",
        "in copy routines of the kernel", "bytes copied a byte, if both copy",
    )  # fmt: skip
    return Table(f"Where the processor is, nobody else running, {QUIET_RATE} frames/s", heads, rows)


def _photos(data: Measured) -> Table:
    sizes = sorted({row["pages"] for case in WHOLE for row in data.allocations(case)})
    rows = []
    for case in WHOLE:
        worst = [_worst(data, case, pages) for pages in sizes]
        if not all(map(math.isnan, worst)):
            rows.append([case.label, *map(duration, worst)])
    heads = (f"{pages:,} pages" for pages in sizes)
    return Table("The same allocations, the worst of each size", ("", *heads), rows)


def _worst(data: Measured, case: Case, pages: int) -> float:
    return max((row["ns"] for row in data.allocations(case, pages) if row["ok"]), default=math.nan)


def targets(data: Measured) -> Iterator[Goal]:
    """What was wanted of recording without a copy, in both ways that a camera with contiguous
    buffers has; and of the comparison, that it is of a load that others suffer from."""
    if stock := data.sum(STOCK, "long"):
        yield Goal(
            f"frames that v4l2-ctl loses or is late with, {LONG_RATE} frames/s, beside the load",
            "more than 1 %", _percent(stock.bad_share), stock.bad_share > 0.01,
        )  # fmt: skip
    for name, case in NO_COPY.items():
        for goal in _targets(data, case) if _is_known(data, case) else ():
            yield replace(goal, what=f"{name}: {goal.what}")


def _targets_elsewhere(data: Mapping[str, Measured]) -> Iterator[Goal]:
    """The same of processor time and frames, on the other boards."""
    for label, board, kind in (("arm64", ARM64_BOARD, "long"), ("exactly", EXACT_BOARD, "quiet")):
        for name, case in NO_COPY.items():
            here = data[board]
            ratio = here.a_frame_ms(case) / here.a_frame_ms(STOCK)
            if not math.isnan(ratio):
                yield Goal(
                    f"{label}, {name}: processor time a frame", "≤ 0.25 × v4l2-ctl's",
                    f"{ratio:.3f} ×", ratio <= 0.25,
                )  # fmt: skip
            if ours := here.sum(case, kind):
                beside = f"{LONG_RATE} frames/s, beside the load"
                alone = f"{QUIET_RATE} frames/s, nobody else running"
                yield Goal(
                    f"{label}, {name}: frames lost or late, {beside if kind == 'long' else alone}",
                    "none", f"{ours.bad} of {ours.frames + ours.lost:,}", ours.bad == 0,
                )  # fmt: skip


def _is_known(data: Measured, case: Case) -> bool:
    return any(data.of(case, kind) for kind in ("quiet", "long", "switch"))


def _targets(data: Measured, case: Case) -> Iterator[Goal]:
    if ours := data.sum(case, "long"):
        yield Goal(
            f"frames lost or late, {LONG_RATE} frames/s, beside the load", "none",
            f"{ours.bad} of {ours.frames + ours.lost:,}", ours.bad == 0,
        )  # fmt: skip
    if not math.isnan(share := data.own_copies(case)):
        cached = data.cached(case)
        yield Goal(
            "bytes copied by the processor, a byte recorded, by its own count", "0",
            f"{share:.3f}; into the page cache {cached:.1g} (the index)", share == 0,
        )  # fmt: skip
    if profile := data.profile(case):
        yield Goal(
            "the same, by samples of the kernel's copy routines", "0.00",
            f"{profile.copies:.4f}: {profile.copying} of {profile.own:,} samples, of "
            f"{profile.frames} frames", profile.own > 0 and round(profile.copies, 2) == 0,
        )  # fmt: skip
    ratio = data.a_frame_ms(case) / data.a_frame_ms(STOCK)
    if not math.isnan(ratio):
        yield Goal("processor time a frame", "≤ 0.25 × v4l2-ctl's", f"{ratio:.3f} ×", ratio <= 0.25)
    hogs = data.sum(case, "hogs")
    if hogs:
        yield Goal(
            f"frames lost or late, {HOG_RATE} frames/s, beside the load and two programs that take "
            "the processor", "none", f"{hogs.bad} of {hogs.frames + hogs.lost:,}", hogs.bad == 0,
        )  # fmt: skip
    minutes = data.sum(case, "minutes")
    if minutes:
        yield Goal(
            f"frames lost or late in ten minutes, {MINUTES_RATE} frames/s, beside the load",
            "none", f"{minutes.bad} of {minutes.frames + minutes.lost:,}", minutes.bad == 0,
        )  # fmt: skip
    yield from _targets_of_area(data, case)
    yield from _targets_of_hour(data, case)


def _targets_of_hour(data: Measured, case: Case) -> Iterator[Goal]:
    photos, alone = data.photos(case), data.photos(ALONE.get(case.name, ALONE[ZERO.name]))
    if photos and alone:
        ratio = max(photos) / max(alone)
        yield Goal(
            "a photo of its own frames while it records, worst",
            "≤ 1.1 × reservation's",
            f"{ratio:.2f} × ({duration(max(photos))} and {duration(max(alone))})", ratio <= 1.1,
        )  # fmt: skip
    if hour := data.sum(case, "hour"):
        allocs = data.allocations(case, kind="hour")
        failed = sum(not row["ok"] for row in allocs)
        yield Goal(
            "an hour with an area that others take pieces of: allocations that failed, frames lost",
            "0, 0", f"{failed} of {len(allocs):,}, {hour.lost} of {hour.frames + hour.lost:,} "
            f"({hour.late} late)", bool(allocs) and hour.lost == 0 and failed == 0,
        )  # fmt: skip


def _targets_of_area(data: Measured, case: Case) -> Iterator[Goal]:
    """While somebody else takes pieces of the area."""
    ours, reserved = (_worst(data, one, PHOTO_PAGES) for one in (case, RESERVED))
    known = not math.isnan(ratio := ours / reserved)
    yield Goal(
        f"memory for a photo ({PHOTO_PAGES:,} pages) while it records, worst",
        "≤ 1.1 × reservation's",
        f"{ratio:.2f} × ({duration(ours)} and {duration(reserved)})" if known else "–",
        ratio <= 1.1 if known else None,
    )
    switched = data.sum(case, "switch")
    if switched:
        allocs = data.allocations(case)
        failed = sum(not row["ok"] for row in allocs)
        yield Goal(
            f"{switched.seconds:.0f} s with an area that others take pieces of, beside the load: "
            "frames lost or late, allocations that failed", "0, 0",
            f"{switched.bad}, {failed} of {len(allocs)}",
            bool(allocs) and switched.bad == 0 and failed == 0,
        )  # fmt: skip


SWITCHES: Final = (
    f"{SWITCH_RATE} frames/s beside the load, while somebody takes 1 to 32 MiB of the area again "
    "and again",
    "switch",
)
HOUR: Final = (
    f"{HOUR_RATE} frames/s for an hour, while two others take 1 to 32 MiB of the area every few "
    "seconds, and a server of blogs has few readers",
    "hour",
)


def _on_arm64(data: Measured) -> Table:
    rows = []
    for case in ON_ARM64:
        spent, found = data.a_frame_ms(case), data.of(case, "long")
        if not math.isnan(spent) and found:
            ratio = spent / data.a_frame_ms(STOCK)
            lost = _lost_row(case.label, found)
            rows.append([case.label, f"{spent:.2f} ms", f"{ratio:.2f} ×", *lost[1:]])
    heads = ("", "processor time a frame", "of v4l2-ctl's", *LOST_HEAD[1:])
    title = (
        f"The same on arm64: processor time at {QUIET_RATE} frames/s, nobody else running; the "
        f"rest at {LONG_RATE} frames/s beside the load"
    )
    return Table(title, heads, rows)


def _exactly(data: Measured) -> Table:
    rows = []
    for case in ON_EXACT:
        spent, found = data.a_frame_ms(case), data.of(case, "quiet")
        if not math.isnan(spent):
            disk = sum(one.written for one in found) / sum(one.filled for one in found)
            rows.append(
                [
                    case.label,
                    f"{1e3 * spent:,.1f} µs",
                    f"{spent / data.a_frame_ms(STOCK):.3f} ×",
                    f"{1e3 * spent + disk * data.disk_us:,.1f} µs",
                ]
            )
    heads = ("", "processor time a frame", "of v4l2-ctl's", "with what the disk copies")
    title = f"Exactly, on the board x86, nobody else running, {QUIET_RATE} frames/s"
    return Table(title, heads, rows)


def tables(data: Measured) -> list[Table]:
    elsewhere = {board: Measured(data.results, board) for board in (ARM64_BOARD, EXACT_BOARD)}
    goals = [*targets(data), *_targets_elsewhere(elsewhere)]
    long = data.sum(ZERO, "long")
    seconds = f", {long.rounds} × {long.seconds / long.rounds:.0f} s" if long else ""
    head = ("", "target", "measured", "")
    hogs = f"The same at {HOG_RATE} frames/s, beside two programs more that take the processor"
    made = [
        _lost(data, f"{LONG_RATE} frames/s beside the load{seconds}", "long", 0, WHOLE),
        _lost(data, hogs, "hogs", 0, WHOLE),
        _minutes(data),
        _lost(data, f"{BLOG_RATE} frames/s beside a server of blogs", "blog", 0, WHOLE),
        _switches(data, *SWITCHES),
        _photos(data),
        _switches(data, *HOUR),
        _own_photos(data),
        _rates(data),
        _cost(data),
        _profiles(data),
        _lost(
            data, f"Other cameras and areas: {LONG_RATE} frames/s beside the load", "rate",
            LONG_RATE, LITTLE,
        ),
        _on_arm64(elsewhere[ARM64_BOARD]),
        _exactly(elsewhere[EXACT_BOARD]),
        Table("nocopy-record against its targets", head, [one.row() for one in goals]),
    ]  # fmt: skip
    return [table for table in made if table.rows]


# ----------------------------------------------------------------------------- figures

RATE: Final = Figure(
    "rates",
    "frames lost or late, and what else gets done",
    f"A virtual camera with contiguous buffers, {WIDTH}×{HEIGHT} YUYV, on a board of 500 million "
    "instructions a second beside a load that wants more memory than there is. Left: frames for "
    "which the camera had no buffer, and those whose buffer came back more than two frame times "
    "after it was full. Right: requests that the load answers meanwhile.",
)
FLASH: Final = Figure(
    "flash",
    "from the camera to the disk",
    f"Time from a full buffer to when the disk has the frame, {LONG_RATE} frames/s beside the "
    "load. Further left is better. What waits in the page cache is lost when the power goes.",
)


TAKEN: Final = Figure(
    "hour",
    "time of an allocation beside a recording of an hour",
    f"What an allocation of 1 to 32 MiB takes while a camera is recorded, {HOUR_RATE} frames/s for "
    "an hour. Further left is better. Those that failed are left out.",
)


def _draw_figures(directory: Path, data: Measured) -> list[Figure]:
    drawn = []
    bad: dict[str, dict[int, float]] = {}
    requests: dict[str, dict[int, float]] = {}
    for case in WHOLE:
        for rate in sorted({one.rate for one in data.of(case, "rate")}):
            one = Sum.of(data.of(case, "rate", rate))
            bad.setdefault(case.label, {})[rate] = 100 * one.bad_share
            requests.setdefault(case.label, {})[rate] = one.requests
    styles = {case.label: case.style for case in WHOLE}
    if bad:
        panels = {"frames lost or late [%]": bad, "requests of the load [1/s]": requests}
        report.draw_side_by_side(directory, RATE, panels, styles, "frames a second")
        drawn.append(RATE)
    flash = {case.label: some.flash for case in WHOLE if (some := data.sum(case, "long"))}
    if any(flash.values()):
        report.draw_cdf(directory, FLASH, flash, styles)
        drawn.append(FLASH)
    taken = {
        case.label: [row["ns"] for row in data.allocations(case, kind="hour") if row["ok"]]
        for case in WHOLE
    }
    if any(taken.values()):
        report.draw_cdf(directory, TAKEN, taken, styles)
        drawn.append(TAKEN)
    return drawn


def how(data: Measured) -> list[str]:
    """What to know about the figures."""
    results = data.results
    camera = data.camera_ms("gcma")
    dropped = {case.label: one for case in WHOLE if (one := data.sum(case, "long")) is not None}
    own = ", ".join(f"{one.dropped} beside {label}" for label, one in dropped.items())
    blog = {case.label: one for case in WHOLE if (one := data.sum(case, "blog")) is not None}
    beside = ", ".join(f"{one.dropped} beside {label}" for label, one in blog.items())
    said = [
        f"Linux {results['kernel']['release']} in QEMU {results['qemu']}, one CPU of 500 million "
        "instructions a second (x86-slow, -icount shift=1), 1 GiB, an area of 256 MiB, an NVMe "
        "disk with ext4. What the processor does costs the same in every run; what it waits for "
        f"is the host's time. From Debian: {', '.join(results['packages'])}.",
        "Boots of one kernel with plain CMA, reservation and gcma, which differ in one word. "
        f"For 'huge pages', nocopy-record's boot has {BUFFERS} of 2 MiB, set aside at boot; an "
        "area of 1 GiB, from which it could have them, is as large as this board. For 'heap' "
        "there are none: its buffers are a part of the area, which others have when nobody "
        "records.",
        "The load is that of make demo, on the same disk: three workers at nice 10 touch more "
        "anonymous memory than fits, and read and rewrite files; swap is zram. Recorders run at "
        "nice 0.",
        f"nocopy-record has {BUFFERS} buffers of {FRAME_BYTES:,} bytes by default, v4l2-ctl 3, and "
        f"{BUFFERS} where that is said. ffmpeg asks for 256 and gets 64, which take 118 MB of the "
        "area and last for a second.",
        "Times are from the kernel's tracepoints, for all programs alike, without the first two "
        "seconds and the last of each recording. A frame is lost if the camera had no buffer for "
        "it, and late if its buffer came back more than two frame times after it was full.",
        "The virtual camera is a kernel thread that paints with the processor, "
        f"{camera:.1f} ms a frame. That is subtracted from the processor time a frame, and "
        "otherwise part of every run; a real camera needs none of it. The thread runs at nice -20. "
        "When it comes too late, it skips a frame although it has buffers; such frames count for "
        f"nobody: {own}.",
        "Copies into the page cache are counted by the kernel (ext4's tracepoint of each piece). "
        "What v4l2-ctl and ffmpeg copy inside themselves is not counted.",
        "Two kinds of photo: of one that another program takes, as v4l2-ctl takes none, the "
        "allocation is measured, beside each recorder alike. One of nocopy-record's own frames is "
        "timed by the program that asks for it with a signal, and looks every millisecond whether "
        "the file is there: it waits for the next frame, up to 33 ms, and is written through the "
        "page cache.",
        "Of recordings that last for minutes only the last GiB of the file stays on the disk, "
        "which is 4 GiB of the host's memory: a GiB is as much as the board has, so nothing that "
        "is cached is dropped. Their times on the disk are not measured.",
        "The server of blogs is that of make paper: 100 readers on 1.2 GiB of small files, nice "
        "19, and 160 MiB of its own. During the hour 16 readers pause for 50 ms after each answer. "
        "An allocation that failed is not in the times of the tables.",
    ]
    if blog:
        said.append(
            "Beside the server of blogs the camera's thread comes too late for more than half of "
            f"its frames: {beside}. ffmpeg has not begun to record there when {BLOG_S} s are over, "
            "and is left out."
        )
    said += _how_elsewhere(results)
    if any(map(data.profile, (*WHOLE, *LITTLE))):
        said.append(
            f"Samples are taken every {PROFILE_US} µs while the processor is not idle, in "
            "recordings of their own; most of those outside of the program's threads are of the "
            "camera. Copies are estimated from them: each instruction in a copy routine copies a "
            "byte, as `rep movsb` does here. The last column counts each of the program's own "
            "instructions as if it did, too."
        )
    return said


def _how_elsewhere(results: Mapping[str, Any]) -> Iterator[str]:
    """The same of the other boards."""
    arm64, exact = (Measured(results, board) for board in (ARM64_BOARD, EXACT_BOARD))
    if arm64.all:
        yield (
            f"arm64: Linux {arm64.about['kernel']['release']} on {ARM64_BOARD}, one Cortex-A53 of "
            "500 million instructions a second (-icount shift=1), with the same memory, area and "
            f"disk; from Debian: {', '.join(arm64.about['packages'])}. A copied byte is an eighth "
            "of an instruction or less there, and a whole one on x86-slow: who copies pays less. "
            "Its camera's memory is not coherent. Idle time is what a program of the lowest "
            "priority has of the processor, to the nanosecond: the kernel counts more of it than "
            "there was."
        )
    if exact.all:
        yield (
            f"Exactly: the board {EXACT_BOARD}, where an instruction takes a nanosecond and two "
            "boots tell the same. `rep movsq` copies eight bytes in one. Its disk is null_blk in "
            f"the guest's memory, which answers {duration(EXACT_DISK_NS)} after a request, and "
            f"copies with the processor, {exact.disk_us:,.1f} µs a frame: by so much longer takes "
            "a request of that length than one to a null_blk that throws all away. It is left out "
            "for each frame that the disk got, as a disk with DMA has none of it. Idle time is "
            "the kernel's, in nanoseconds."
        )


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    data = Measured(results)
    figures = _draw_figures(directory, data)
    made, said = tables(data), how(data)
    commands = "\n".join(f"{name}: {way.words(LONG_RATE)}" for name, way in WAYS.items())
    report.page(
        directory / "index.html",
        "Recording a camera on a slow board",
        [
            *(report.html_figure(directory, figure) for figure in figures),
            *(report.html_table(table) for table in made),
            "<h2>How it was measured</h2>\n",
            *(report.paragraph(text) for text in said),
            report.preformatted(commands),
            report.paragraph("All samples and jobs: results.json next to this page.", small=True),
        ],
    )
    (directory / "table.md").write_text(
        "".join(report.markdown_table(table) for table in made)
        + "".join(f"* {text}\n" for text in said)
    )
    return directory / "index.html"


def show(directory: Path) -> None:
    """The tables, on the terminal."""
    report.show(200, tables(Measured(samples.load(directory))))
