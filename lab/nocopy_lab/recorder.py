# SPDX-License-Identifier: MIT OR Apache-2.0
"""nocopy-record with cameras: the kernel's virtual ones, whose every byte is known.

One of the two gives scattered memory (vb2-vmalloc, as USB cameras do), the other contiguous memory
(vb2-dma-contig). Each recording is looked at by lab/guest/pattern.c, byte by byte. How many frames
a camera drops, and how late they are, depends on the host: nothing here does. What is judged is
that the index tells what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nocopy_lab import crates
from nocopy_lab.board import Machine
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome, Row

SCATTERED, CONTIGUOUS = "/dev/video0", "/dev/video1"
SMALL, MIDDLE, HD, FULL_HD = "320x180", "640x480", "1280x720", "1920x1080"

# The huge page of the area is the third gigabyte, where nothing of QEMU's is.
MACHINE: Final = Machine(
    "x86-fast",
    memory_mib=3200,
    cma_mib=0,
    features="+pdpe1gb",
    words=(
        "hugetlb_cma=1G", "gcma=file+swap",
        "vivid.n_devs=2", "vivid.allocators=0,1", "vivid.node_types=1,1",
    ),
)  # fmt: skip
# The same, and the area is one of plain CMA.
PLAIN: Final = replace(
    MACHINE,
    words=tuple("gcma=cma" if word.startswith("gcma=") else word for word in MACHINE.words),
)

LIBRARY: Final = """
hugepages=/sys/kernel/mm/hugepages
# text FILE: what is in it, for a string of JSON
text() { tr -s '\\n\\t\\\\"' ' ' <$1; }
# object FILE: the object in it, or null
object() { [ -s $1 ] && cat $1 || echo null; }
# tell CASE STATUS: what nocopy-record said, and how it ended
tell() {
	printf '{"type": "run", "case": "%s", "status": %d, "lines": %d, ' \\
		$1 $2 $(wc -l </tmp/$1.err)
	printf '"error": "%s", "said": %s}\\n' "$(text /tmp/$1.err)" "$(object /tmp/$1.out)"
}
# camera DEVICE SIZE: the words that say so; a host that is busy elsewhere is no dead camera
camera() { echo --device $1 --size $2 --format YUYV --rate 25; }
patient="--timeout 1h --json --quiet"
# learn SIZE: what pictures of this size look like, from each camera
learn() {
	for device in /dev/video0 /dev/video1; do
		need pattern --case learn --device $device --learn /tmp/rest-$1 \\
			--width ${1%x*} --height ${1#*x}
	done
}
# look CASE SIZE DIRECTORY [words]: at every byte of a recording; then it goes
look() {
	file=$3/$1.raw look=$1 size=$2
	shift 3
	need pattern --case $look --rest /tmp/rest-$size --width ${size%x*} --height ${size#*x} \\
		--check $file "$@"
	rm $file $file.index
}
# explain CASE DEVICE SIZE
explain() {
	nocopy-record explain $(camera $2 $3) --json /mnt/out.raw >/tmp/$1.out 2>/tmp/$1.err
	tell $1 $?
}
# begin CASE DEVICE SIZE DIRECTORY [words]: a recording
begin() {
	case=$1 size=$3 directory=$4 words=$(camera $2 $3)
	shift 4
	nocopy-record $words $patient "$@" $directory/$case.raw \\
		>/tmp/$case.out 2>/tmp/$case.err &
	recorder=$!
}
# end [SIGNAL]: that recording
end() {
	[ -z "$1" ] || kill -$1 $recorder
	wait $recorder
	tell $case $?
}
# record CASE DEVICE SIZE DIRECTORY [words]: from its beginning to its end
record() {
	begin "$@"
	end
	look $case $size $directory
}
# reached COUNT PATTERN: the index has so many such lines, or the recording is over
reached() {
	until [ "$(grep -c "$2" $directory/$case.raw.index)" -ge $1 ]; do
		kill -0 $recorder || break
		sleep 0.1
	done 2>/dev/null
}
# given COUNT DEVICE: the camera has given so many frames more
given() {
	left=$1 last=
	while [ $left -ge 0 ] && kill -0 $recorder; do
		now=$(pattern --device $2 --count)
		[ "$now" = "$last" ] || left=$((left - 1))
		last=$now
		sleep 0.01
	done
}
FRAME='^[0-9]' LOST='^# lost' DAMAGED='^# damaged'
"""

RECORDED: Final = 20
SCRIPT: Final = f"""{LIBRARY}
need scratch /dev/vda
mkdir /little
need /bin/mke2fs -q -F -t ext4 -b 4096 -O ^has_journal /dev/vdb
need mount -t ext4 /dev/vdb /little
for size in {SMALL} {MIDDLE} {HD} {FULL_HD}; do learn $size; done

# no huge page is free
explain scattered {SCATTERED} {MIDDLE}
explain contiguous-no-pages {CONTIGUOUS} {MIDDLE}
for way in mmap userptr dmabuf copy buffered; do
	record scattered-$way {SCATTERED} {MIDDLE} /mnt --way $way --frames {RECORDED}
done
for way in mmap userptr dmabuf; do
	begin refused-$way {CONTIGUOUS} {MIDDLE} /mnt --way $way --frames 1
	end
	[ ! -e /mnt/refused-$way.raw ] || exit 1
done
for way in copy buffered; do
	record contiguous-$way {CONTIGUOUS} {MIDDLE} /mnt --way $way --frames {RECORDED}
done

# pages of the area, large and less so
need echo 1 >$hugepages/hugepages-1048576kB/nr_hugepages
explain contiguous-1g {CONTIGUOUS} {FULL_HD}
record contiguous-dmabuf-1g {CONTIGUOUS} {FULL_HD} /mnt --frames 8
need echo 1 >$hugepages/hugepages-1048576kB/demote
explain contiguous-2m {CONTIGUOUS} {HD}
record contiguous-dmabuf-2m {CONTIGUOUS} {HD} /mnt --frames {RECORDED}
record scattered-dmabuf-2m {SCATTERED} {MIDDLE} /mnt --way dmabuf --frames {RECORDED}
record synced {CONTIGUOUS} {SMALL} /mnt --way dmabuf --durability sync --frames 5

# the camera drops frames, and flags some as broken
begin losses {SCATTERED} {SMALL} /mnt
reached 5 "$FRAME"
need pattern --device {SCATTERED} --drop 50
reached 3 "$LOST"
need pattern --device {SCATTERED} --drop 0
for n in 1 2 3; do
	need pattern --device {SCATTERED} --damage
	reached $n "$DAMAGED"
done
end TERM
look losses {SMALL} /mnt

# somebody wants a photo
begin photo {CONTIGUOUS} {MIDDLE} /mnt --photo /mnt/now.raw
reached 5 "$FRAME"
kill -USR2 $recorder
until [ -e /mnt/now.raw ] || ! kill -0 $recorder; do sleep 0.1; done
reached 10 "$FRAME"
end TERM
look photo {MIDDLE} /mnt --photo /mnt/now.raw

# a bell rings: by then there are more frames than buffers, which are so much later than the first
begin bell {CONTIGUOUS} {SMALL} /mnt --pre-roll 1s --trigger /tmp/bell --frames 60
given 1 {CONTIGUOUS}
sleep 3
given 20 {CONTIGUOUS}
printf '{{"type": "rang", "before": %d}}\\n' $(grep -c "$FRAME" /mnt/bell.raw.index)
echo >/tmp/bell
end
look bell {SMALL} /mnt

# killed, and a disk that is full
for way in mmap copy buffered; do
	begin killed-$way {SCATTERED} {MIDDLE} /mnt --way $way
	reached 10 "$FRAME"
	end KILL
	look killed-$way {MIDDLE} /mnt
	record full-$way {SCATTERED} {MIDDLE} /little --way $way
done

# somebody pulls out the plug
begin pulled {SCATTERED} {MIDDLE} /mnt
reached 5 "$FRAME"
echo vivid.0 >/sys/bus/platform/drivers/vivid/unbind
end
look pulled {MIDDLE} /mnt
explain gone {SCATTERED} {MIDDLE}
"""
# Of plain CMA, memory is not to be had for so long.
PLAIN_SCRIPT: Final = f"""{LIBRARY}
need scratch /dev/vda
learn {FULL_HD}
need echo 1 >$hugepages/hugepages-1048576kB/nr_hugepages
explain plain {CONTIGUOUS} {FULL_HD}
begin plain-dmabuf {CONTIGUOUS} {FULL_HD} /mnt --way dmabuf --frames 1
end
record plain-taken {CONTIGUOUS} {FULL_HD} /mnt --frames 5
"""


def build() -> None:
    """What the guest needs of ours."""
    crates.guest_record()


def files() -> dict[str, bytes]:
    """The program, for the guest."""
    return {"bin/nocopy-record": crates.guest_record()}


def jobs(image: Path) -> list[Job]:
    """One boot with all that works, and one with plain CMA."""
    return [
        Job("recorder", SCRIPT, image, MACHINE, programs=("mke2fs",), scratch_mib=(400, 16)),
        Job("recorder-cma", PLAIN_SCRIPT, image, PLAIN, programs=("mke2fs",), scratch_mib=(200,)),
    ]


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
NOT_PINNED: Final = "they may not be pinned for so long"


def judge(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        outcome.require()
        learnt = [row for row in outcome.rows("pattern") if row["case"] == "learn"]
        if not learnt or any(row["wrong"] for row in learnt):
            raise LabError(f"{outcome.job.name}: no pattern: {learnt}; see {outcome.console}")
    outcome, plain = outcomes
    _judge_ways(outcome)
    _judge_endings(outcome)
    why = {"mmap": NO_DISK, "userptr": NO_DRIVER, "dmabuf": NOT_PINNED, "copy": "8 buffers"}
    _Case(plain, "plain").took("copy", why)
    _Case(plain, "plain-dmabuf").ended(1, NOT_PINNED)
    _Case(plain, "plain-taken").whole("copy", 5)


def _judge_ways(outcome: Outcome) -> None:
    """Each way that a camera has is taken and gives its frames; the others are refused."""
    _Case(outcome, "scattered").took("mmap", {"mmap": "8 buffers"})
    refused = {"mmap": NO_DISK, "userptr": NO_DRIVER}
    small = {**refused, "dmabuf": "none is free", "copy": "8 buffers"}
    _Case(outcome, "contiguous-no-pages").took("copy", small)
    for way, words in {**refused, "dmabuf": "none is free"}.items():
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


TERMINATED: Final = 128 + 15
KILLED: Final = 128 + 9


def _judge_endings(outcome: Outcome) -> None:
    """Whatever happens to a recording, its index says what is in the file, and what is not."""
    losses = _Case(outcome, "losses")
    losses.ended(TERMINATED)
    row = losses.recording()
    losses.expect("frames were lost", row["lost"] >= 3)
    losses.expect("three were damaged", row["damaged"] == 3)

    photo = _Case(outcome, "photo")
    photo.ended(TERMINATED)
    photo.expect("its bytes are a frame's", photo.recording()["photographed"] >= 1)
    photo.expect("one was taken", photo.said["photos"] == 1)

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
        full = _Case(outcome, f"full-{way}")
        full.ended(1, "No space left on device")
        full.recording()

    pulled = _Case(outcome, "pulled")
    pulled.ended(1, "is gone")
    pulled.recording()
    _Case(outcome, "gone").ended(1, "no camera at")
