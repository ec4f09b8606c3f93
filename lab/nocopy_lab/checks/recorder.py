# SPDX-License-Identifier: MIT OR Apache-2.0
"""nocopy-record with cameras: the kernel's virtual ones, whose every byte is known.

One gives scattered memory (vb2-vmalloc, as USB cameras do), one contiguous memory (vb2-dma-contig),
and one has the interface for frames in several pieces. Each recording is looked at by
lab/guest/pattern.c, byte by byte. How many frames a camera drops, and how late they are, depends on
the host: nothing here does. What is judged is that the index tells what happened.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nocopy_lab import crates, initramfs, jobs
from nocopy_lab.board import Disk, Machine
from nocopy_lab.checks.storage import create_disk, fresh_seed
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome, Row, boot

SCATTERED, CONTIGUOUS, PLANES = "/dev/video0", "/dev/video1", "/dev/video2"
SMALL, MIDDLE, HD, FULL_HD = "320x180", "640x480", "1280x720", "1920x1080"

# The huge page of the area is the third gigabyte, where nothing of QEMU's is.
MACHINE: Final = Machine(
    "x86-fast",
    memory_mib=3200,
    cma_mib=0,
    features="+pdpe1gb",
    words=(
        "hugetlb_cma=1G", "gcma=file+swap",
        "vivid.n_devs=3", "vivid.allocators=0,1,0", "vivid.node_types=1,1,1",
        "vivid.multiplanar=1,1,2",
    ),
)  # fmt: skip

# An area with a heap, and no huge pages.
HEAP: Final = Machine(
    "x86-fast",
    cma_mib=64,
    words=("vivid.n_devs=2", "vivid.allocators=0,1", "vivid.node_types=1,1"),
)

# More frames than there are buffers, so that each has been used before.
RECORDED: Final = 12
VALUES: Final[dict[str, object]] = {
    "scattered": SCATTERED,
    "contiguous": CONTIGUOUS,
    "planes": PLANES,
    "small": SMALL,
    "middle": MIDDLE,
    "hd": HD,
    "full_hd": FULL_HD,
    "recorded": RECORDED,
}


def build() -> None:
    """What the guest needs of ours."""
    crates.record()


def files(_image: str = "") -> dict[str, bytes]:
    """The program, for the guest."""
    return initramfs.placed("bin/nocopy-record", crates.record())


def boots(image: Path) -> list[Job]:
    """All cameras beside each other, and one whose frames have a header."""
    script = jobs.script("recorder", **VALUES)
    header = jobs.script(
        "recorder-header", camera=SCATTERED, size=MIDDLE, frame_bytes=640 * 480 * 2
    )
    alone = replace(MACHINE, words=("vivid.n_devs=1", "vivid.node_types=1", "vivid.multiplanar=2"))
    heap, plain = (jobs.script(f"recorder-{name}", **VALUES) for name in ("heap", "plain"))
    return [
        Job(
            "recorder", script, image, MACHINE,
            programs=("mke2fs", "dmsetup"), scratch_mib=(400, 16),
        ),
        Job("recorder-header", header, image, alone, programs=("mke2fs",), scratch_mib=(64,)),
        Job("recorder-heap", heap, image, HEAP, programs=("mke2fs",), scratch_mib=(400,)),
        Job(
            "recorder-plain", plain, image, replace(HEAP, config="cma"),
            programs=("mke2fs",), scratch_mib=(100,),
        ),
    ]  # fmt: skip


class _Case:
    """What came of one: what the program said, and what its file has."""

    def __init__(self, outcome: Outcome, name: str) -> None:
        self.outcome, self.name = outcome, name
        self.run = self._row("run")
        self.said: Mapping[str, Any] = self.run["said"] or {}

    def _row(self, kind: str) -> Row:
        rows = [row for row in self.outcome.rows(kind) if row["case"] == self.name]
        if len(rows) != 1:
            raise self.wrong(f"{len(rows)} lines '{kind}'")
        return rows[0]

    def wrong(self, why: str) -> LabError:
        return LabError(f"{self.outcome.job.name}: {self.name}: {why}; see {self.outcome.console}")

    def expect(self, what: str, true: bool) -> None:
        if not true:
            raise self.wrong(f"not so: {what} ({self.run})")

    def ended(self, status: int, words: str = "") -> None:
        """With this status, and if that is a failure with one line that has these words."""
        self.expect(f"status {status}", self.run["status"] == status)
        self.expect("one line says why", self.run["lines"] == (1 if words else 0))
        self.expect(f"'{words}' is said", words in self.run["error"])

    def took(self, way: str, why: Mapping[str, str]) -> None:
        """This way; of each way before it, words of why not; of itself, how."""
        self.ended(0)
        self.expect(f"the way {way}", self.said["way"] == way)
        tried = {one["way"]: one for one in self.said["tried"]}
        self.expect(f"{', '.join(why)} were tried", list(tried) == list(why))
        for name, words in why.items():
            self.expect(f"{name}: {words}", words in tried[name]["why"])
            self.expect(f"{name} is taken", tried[name]["possible"] == (name == way))

    def recording(self, *, killed: bool = False) -> Row:
        """The file and its index are as they should be, whatever ended it."""
        row, failed = self._row("pattern"), self.run["status"] == 1
        if row["wrong"]:
            raise self.wrong(row["wrong"])
        self.expect("frames were recorded", row["frames"] > 0)
        if not killed:
            self.expect("nothing but frames is in the file", row["size"] == row["indexed"])
            self.expect("its frames", self.said["frames"] == row["frames"])
            # After the last of them there may have been more that did not reach the disk.
            for key in ("lost", "damaged"):
                same = self.said[key] == row[key]
                self.expect(f"those {key}", same or (self.said[key] > row[key] and failed))
        return row

    def whole(self, way: str, frames: int) -> None:
        """So many frames, in this way, with as many copies as it takes."""
        self.ended(0)
        row = self.recording()
        self.expect(f"the way {way}", self.said["way"] == way)
        self.expect(f"{frames} frames", row["frames"] == frames)
        copies = self.said["copies_per_byte"]
        # What does not fill a block of the ring has one more, in the page cache.
        least = 1 if way in ("copy", "buffered") else 0
        self.expect("as many copies as it takes", least <= copies < 2 * least or copies == least)


NO_DISK: Final = "the disk cannot take it from there"
NO_DRIVER: Final = "the camera does not do it"
NO_HEAP: Final = "there is no heap"


def judge(outcomes: Sequence[Outcome]) -> None:
    outcome, header, heap, plain = outcomes
    for one in outcomes:
        one.require()
    learnt = [row for row in outcome.rows("pattern") if row["case"] == "learn"]
    if not learnt or any(row["wrong"] for row in learnt):
        raise LabError(f"{outcome.job.name}: no pattern: {learnt}; see {outcome.console}")
    _judge_ways(outcome)
    _judge_endings(outcome)
    _Case(header, "header").ended(0)
    _Case(header, "header-refused").ended(1, "is no multiple")
    _judge_heap(heap)
    _judge_plain(plain)


def _judge_ways(outcome: Outcome) -> None:
    """Each way that a camera has is taken and gives its frames; the others are refused."""
    _Case(outcome, "scattered").took("mmap", {"mmap": "8 buffers"})
    refused = {"mmap": NO_DISK, "userptr": NO_DRIVER}
    refused_all = {**refused, "dmabuf": "none is free", "heap": NO_HEAP}
    _Case(outcome, "contiguous-no-pages").took("copy", {**refused_all, "copy": "8 buffers"})
    for way, words in refused_all.items():
        _Case(outcome, f"refused-{way}").ended(1, words)
    for way in ("mmap", "userptr", "dmabuf", "copy", "buffered"):
        _Case(outcome, f"scattered-{way}").whole(way, RECORDED)
    for way in ("copy", "buffered"):
        _Case(outcome, f"contiguous-{way}").whole(way, RECORDED)
    for pages, size in (("1g", "pages of 1 GiB"), ("2m", "pages of 2 MiB")):
        _Case(outcome, f"contiguous-{pages}").took("dmabuf", {**refused, "dmabuf": size})
    _Case(outcome, "contiguous-dmabuf-1g").whole("dmabuf", 8)
    _Case(outcome, "contiguous-dmabuf-2m").whole("dmabuf", RECORDED)
    _Case(outcome, "scattered-dmabuf-2m").whole("dmabuf", RECORDED)
    _Case(outcome, "synced").whole("dmabuf", 5)
    for way in ("mmap", "userptr", "dmabuf", "copy"):
        _Case(outcome, f"planes-{way}").whole(way, RECORDED)
    _Case(outcome, "planes-two").ended(1, "into 2 pieces of memory")
    for way in ("dmabuf", "copy"):
        _judge_segments(outcome, way)


def _judge_segments(outcome: Outcome, way: str) -> None:
    """Five frames in three files, as many in each as it takes, and none between them is missing."""
    case = _Case(outcome, f"segments-{way}")
    case.ended(0)
    case.expect(f"the way {way}", case.said["way"] == way)
    rows = [row for row in outcome.rows("pattern") if row["case"].startswith(f"{case.name}-")]
    for row in rows:
        if row["wrong"]:
            raise case.wrong(f"{row['case']}: {row['wrong']}")
        case.expect("nothing but frames is in a file", row["size"] == row["indexed"])
    case.expect("2, 2 and 1 frames", [row["frames"] for row in rows] == [2, 2, 1])
    known = sum(row["frames"] + row["lost"] + row["damaged"] for row in rows)
    case.expect("each number", known == rows[-1]["last"] - rows[0]["first"] + 1)
    case.expect("no copy but in the ring", (case.said["copies_per_byte"] == 0) == (way == "dmabuf"))


def _judge_heap(outcome: Outcome) -> None:
    """Frames without a copy from the area's heap; all of it is back afterwards."""
    found = {"mmap": NO_DISK, "userptr": NO_DRIVER, "dmabuf": "none is free"}
    _Case(outcome, "heap").took("heap", {**found, "heap": "8 buffers in heap "})
    _Case(outcome, "heap-taken").whole("heap", RECORDED)
    _Case(outcome, "heap-scattered").whole("heap", RECORDED)
    _Case(outcome, "heap-synced").whole("heap", 5)
    _Case(outcome, "heap-missing").ended(1, "No such file")
    photo = _Case(outcome, "heap-photo")
    photo.expect("its bytes are a frame's", photo.recording()["photographed"] >= 1)
    bell = _Case(outcome, "heap-bell")
    bell.ended(0)
    bell.expect("30 frames, and what came just before", bell.recording()["frames"] > 30)
    killed = _Case(outcome, "heap-killed")
    killed.expect("it was killed", killed.run["status"] == KILLED)
    killed.recording(killed=True)
    for case in (photo, bell):
        case.expect("the way heap", case.said["way"] == "heap")
    before, after = outcome.rows("area")
    if after["owned"] != before["owned"]:
        raise LabError(f"of the area is left: {before}, {after}; see {outcome.console}")


def _judge_plain(outcome: Outcome) -> None:
    """Pages of plain CMA are refused in one line, which says why."""
    found = {"mmap": NO_DISK, "userptr": NO_DRIVER, "dmabuf": "none is free"}
    plain = _Case(outcome, "plain")
    plain.took("copy", {**found, "heap": "its area is plain CMA", "copy": "8 buffers"})
    _Case(outcome, "plain-refused").ended(1, "its area is plain CMA")
    _Case(outcome, "plain-copy").whole("copy", RECORDED)


TERMINATED: Final = 128 + 15
KILLED: Final = 128 + 9


def _judge_endings(outcome: Outcome) -> None:
    """Whatever happens to a recording, its index says what is in the file, and what is not."""
    losses = _Case(outcome, "losses")
    losses.ended(TERMINATED, "is damaged and left out")
    row = losses.recording()
    losses.expect("frames were lost", row["lost"] >= 3)
    losses.expect("three were damaged", row["damaged"] == 3)

    photo = _Case(outcome, "photo")
    photo.ended(TERMINATED, "SIGUSR1 is ignored")
    photo.expect("its bytes are a frame's", photo.recording()["photographed"] >= 1)
    # Asked for again while the first was being written.
    photo.expect("two were taken", photo.said["photos"] == 2)
    _Case(outcome, "busy").ended(1, "is busy")
    _Case(outcome, "refused-format").ended(1, "refuses 320x180 ABCD: it offers")

    bell = _Case(outcome, "bell")
    bell.ended(0)
    row = bell.recording()
    (rang,) = outcome.rows("rang")
    bell.expect("nothing was written before", rang["before"] == 0)
    bell.expect("60 frames, and what came just before", row["frames"] > 60)
    bell.expect("what came long before is not there", row["first"] > 0)
    bell.expect("it waited in memory", 0 < bell.said["copies_per_byte"] <= 2)

    for way in ("mmap", "copy", "buffered"):
        killed = _Case(outcome, f"killed-{way}")
        killed.expect("it was killed", killed.run["status"] == KILLED)
        row = killed.recording(killed=True)
        # The ring's thread is ahead of the index by as much as it has written since.
        if way != "copy":
            rest = row["size"] - row["indexed"]
            killed.expect("one frame more at most", rest <= row["frame_bytes"])
    for way in ("mmap", "dmabuf", "copy", "buffered"):
        full = _Case(outcome, f"full-{way}")
        full.ended(1, "No space left on device")
        full.recording()
        failing = _Case(outcome, f"failing-{way}")
        failing.ended(1, "Input/output error")
        failing.recording()

    pulled = _Case(outcome, "pulled")
    pulled.ended(1, "is gone")
    pulled.recording()
    _Case(outcome, "gone").ended(1, "no camera at")


# ------------------------------------------------------------------------------ power cuts

CUT_WAYS: Final = ("dmabuf", "heap", "copy")
# Lines of a guest before the power goes: the picture that was learnt, and promises.
CUT_ROWS: Final = 4


def _cut(
    kernel: Path, seed: int, way: str, durability: str, options: str = ""
) -> tuple[int, Outcome]:
    """Record until the power goes, boot again and look: the frames promised, and that boot."""
    name = f"recorder-cut-{way}-{durability}"
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        image = Path(temp) / "disk.img"
        create_disk(image, volatile=True)
        machine = Machine(
            "x86-fast",
            words=("vivid.allocators=1", "vivid.node_types=1", "hugepages=8"),
            disks=(Disk(image=image, volatile=True),),
        )
        values = {"camera": SCATTERED, "size": MIDDLE, "way": way, "durability": durability}
        script = jobs.script("recorder-cut", **values, options=options)
        writing = Job(
            name, script, kernel, machine, programs=("mke2fs",), files=files(),
            cut_s=random.Random(seed).uniform(0.1, 4.0),
            cut_when=lambda rows: len(rows) >= CUT_ROWS,
        )  # fmt: skip
        told = boot(writing).require().rows("promised")
        looking = Job(
            f"{name}-after", jobs.script("recorder-cut-after", size=MIDDLE), kernel, machine,
            programs=("e2fsck",),
        )  # fmt: skip
        return int(told[-1]["frames"]), boot(looking)


def _kept(promised: int, after: Outcome) -> str:
    """What is wrong with what is left, or nothing."""
    rows = after.rows("pattern")
    if after.failure is not None or not rows:
        return after.failure or "nothing was looked at"
    if rows[0]["wrong"]:
        return str(rows[0]["wrong"])
    if rows[0]["frames"] < promised:
        return f"{rows[0]['frames']} frames of {promised}"
    return ""


def power_cuts(kernel: Path) -> None:
    """What a recording has indexed with --durability sync is there after a power cut, each byte."""
    seed = fresh_seed()
    for number, way in enumerate(CUT_WAYS):
        promised, after = _cut(kernel, seed + number, way, "sync")
        if wrong := _kept(promised, after):
            again = f"seed {seed}; to repeat: NOCOPY_SEED={seed}"
            raise LabError(f"way {way}: {wrong} ({again}); see {after.console}")


def power_cut_notices(kernel: Path) -> None:
    """Without it they are not, where nobody else syncs: the test above can fail."""
    promised, after = _cut(kernel, fresh_seed(), "copy", "process", "-o commit=3600")
    # A disk that cannot be read says nothing of the recording on it.
    if after.exit is None or not after.rows("mounted"):
        raise LabError(f"{after.failure}; see {after.console}")
    if not _kept(promised, after):
        raise LabError(f"all of {promised} frames were there, unsynced; see {after.console}")


# What `lab test` runs beside the boots.
CHECKS: Final[dict[str, Callable[[Path], None]]] = {
    "a power cut takes no frame that is synced and indexed": power_cuts,
    "a power cut takes frames that are not": power_cut_notices,
}
