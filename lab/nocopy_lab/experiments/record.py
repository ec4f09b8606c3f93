# SPDX-License-Identifier: MIT OR Apache-2.0
"""nocopy-record beside the programs that people record with, on a slow board under load.

The board (`x86-slow`) has 500 million instructions a second, 1 GiB of memory of which 256 MiB are
the contiguous area, an NVMe disk, and two of the kernel's virtual cameras: one with contiguous
buffers, as the cameras of small boards have, one with scattered ones, as USB cameras have. Every
program is Debian's own, from a disk with a Debian root. lab/guest/recording.c runs them, and the
kernel's tracepoints say of each alike when a frame was where.

quiet:   nobody else runs: what the processor does for a frame, by what is left of its idle time;
         then samples of where it is, to see what copies (boots of their own, as they take little)
load:    beside the demonstration's load: at several rates, then for long at one
hogs:    the same beside two programs more that take all of the processor that they get
switch:  beside the load, while somebody takes contiguous memory of other sizes from the area again
         and again, as a camera does that changes its mode (boots of their own)
photo:   beside the load, while photos of the recorder's own frames are asked for
blog:    beside a server of blogs
minutes: ten minutes beside the load
hour:    an hour, while others take contiguous memory of changing sizes

Of the last two only the end of the file is kept, as no disk here has room for all of it.

The same on arm64 (`arm64-slow`), what nobody else disturbs and what is long; and what nobody
disturbs on the exact board (`x86`), whose disk is in its memory, to the last instruction.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nocopy_lab import crates, debian, initramfs, jobs, kernel, names
from nocopy_lab.arch import ARM64
from nocopy_lab.board import SLOW_GLIBC, Disk, Machine, null_disk
from nocopy_lab.experiments import keeper, measure, provenance
from nocopy_lab.experiments.bench_pdio import NVME_BYTES_PER_S
from nocopy_lab.experiments.demo import (
    ANON_MIB,
    FILES_MIB,
    HOT_PERCENT,
    SWAP_MIB,
    TOUCHES,
    WARM_S,
)
from nocopy_lab.experiments.paper import BLOGS, HEAP_MIB, NICE
from nocopy_lab.paths import OUT, LabError, sha256
from nocopy_lab.run import Job, Outcome, Row

HERE: Final = OUT / "record"

SEED: Final = 1
SLOW_BOARD: Final = "x86-slow"
PACKAGES: Final = ("v4l-utils", "ffmpeg")
WIDTH, HEIGHT = 1280, 720
FRAME_BYTES: Final = 2 * WIDTH * HEIGHT  # YUYV
BUFFERS: Final = 8
# Ours, beside nocopy-record.
PROGRAMS: Final = ("recording", "load", "blog", "sweep")
CONTIGUOUS, SCATTERED = 0, 1  # numbers of the cameras
FILE: Final = "/mnt/out.raw"
PHOTO: Final = "/mnt/photo.raw"
# A frame is late if its buffer comes back after so many frame times.
LATE_FRAMES: Final = 2

# What is typed. v4l2-ctl has 3 buffers unless told, ffmpeg asks for 256 and gets 64.
V4L2_DEFAULT: Final = (
    f"v4l2-ctl -d {{device}} --set-fmt-video=width={WIDTH},height={HEIGHT},pixelformat=YUYV "
    f"--set-parm={{rate}} --stream-mmap --stream-to={FILE}"
)
V4L2_CTL: Final = V4L2_DEFAULT.replace("--stream-mmap", f"--stream-mmap={BUFFERS}")
FFMPEG: Final = (
    "ffmpeg -nostdin -hide_banner -loglevel error -f v4l2 -input_format yuyv422 "
    f"-video_size {WIDTH}x{HEIGHT} -framerate {{rate}} -i {{device}} "
    f"-c:v copy -f rawvideo -y {FILE}"
)
OURS: Final = (
    f"nocopy-record --device {{device}} --size {WIDTH}x{HEIGHT} --format YUYV --rate {{rate}} "
    f"--buffers {BUFFERS} --timeout 1h --quiet --json"
)


@dataclass(frozen=True)
class Way:
    """A program with a camera."""

    name: str
    camera: int
    command: str
    of_debian: bool = True

    def words(self, rate: int) -> str:
        command = self.command.format(device=f"/dev/video{self.camera}", rate=rate)
        return f"chroot /debian {command}" if self.of_debian else f"/mnt/{command}"


WAYS: Final[dict[str, Way]] = {
    way.name: way
    for way in (
        # The camera alone: its frames are taken and given back.
        Way("camera", CONTIGUOUS, V4L2_CTL.replace(f" --stream-to={FILE}", "")),
        Way("camera-scattered", SCATTERED, V4L2_CTL.replace(f" --stream-to={FILE}", "")),
        Way("v4l2-ctl", CONTIGUOUS, V4L2_CTL),
        Way("v4l2-ctl-default", CONTIGUOUS, V4L2_DEFAULT),
        Way("ffmpeg", CONTIGUOUS, FFMPEG),
        Way("v4l2-ctl-scattered", SCATTERED, V4L2_CTL),
        Way("dmabuf", CONTIGUOUS, f"{OURS} {FILE}", of_debian=False),
        Way("heap", CONTIGUOUS, f"{OURS} {FILE}", of_debian=False),
        Way("copy", CONTIGUOUS, f"{OURS} --way copy {FILE}", of_debian=False),
        Way("mmap", SCATTERED, f"{OURS} {FILE}", of_debian=False),
        Way("buffered", CONTIGUOUS, f"{OURS} --way buffered {FILE}", of_debian=False),
    )
}


@dataclass(frozen=True)
class Boot:
    """What is done with the area, and what runs: all of it, or what takes little time."""

    config: str
    whole: tuple[str, ...]
    little: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return *self.whole, *self.little


BOOTS: Final[dict[str, Boot]] = {
    "cma": Boot("cma", ("v4l2-ctl", "ffmpeg"), ("v4l2-ctl-scattered",)),
    "default": Boot("cma", ("v4l2-ctl-default",)),
    "reservation": Boot("reservation", ("v4l2-ctl",)),
    "gcma": Boot("gcma", ("dmabuf", "copy"), ("mmap", "v4l2-ctl")),
    # Without huge pages: where they are free, they are taken before the heap is.
    "heap": Boot("gcma", ("heap",)),
}

QUIET_RATE, QUIET_S = 40, 12
CACHED_S: Final = 3
PROFILE_S, PROFILE_US = 6, 100
RATES: Final = (30, 40, 50, 60)
RATE_S: Final = 9
# As fast as the camera goes: 111 MB/s.
LONG_RATE, LONG_S, LONG_ROUNDS = 60, 21, 2
HOG_RATE, HOG_S = 30, 20

SWITCH_RATE, SWITCH_S = 30, 33
# Pages: from half a frame to eight frames of 1920×1080.
SWITCH_SIZES: Final = (225, 450, 1013, 4050, 8100)
PHOTO_PAGES: Final = 1013  # a frame of 1920×1080
SWITCH_HOLD_MS, SWITCH_PAUSE_MS = 100, 150

# Recordings that take long, or have a load of their own, and the boots that they are of.
PHOTO_RATE, PHOTO_S, PHOTO_MS = 30, 63, 1000
PHOTOS: Final[dict[str, Boot]] = {
    "reservation": Boot("reservation", ("dmabuf", "copy")),
    "gcma": Boot("gcma", ("dmabuf", "copy")),
    "heap": Boot("gcma", ("heap",)),
}
BLOG_RATE, BLOG_S = 30, 24
# The lowest of RATES at which v4l2-ctl as it comes loses frames, or is late with them.
MINUTES_RATE, MINUTES_S = 50, 603
MINUTES: Final = ("default", "gcma", "heap")
HOUR_RATE, HOUR_S = 30, 3603
HOUR: Final = ("cma", "heap")
HOUR_HOLD_MS, HOUR_INTERVAL_MS = 1000, 2000
HOUR_READERS, HOUR_READER_PAUSE_MS = 16, 50
HOUR_PHOTO_MS: Final = 5000

LIMIT_S: Final = 7200.0

NVME: Final = Disk(driver="nvme", size_mib=4096, memory=True, bytes_per_s=NVME_BYTES_PER_S)


def _take(case: str, name: str, rate: int, seconds: int, more: str = "") -> str:
    way = WAYS[name]
    return f"take {case}:{name}:{rate} {way.camera} {seconds} '{way.words(rate)}{more}'\n"


def _take_long(case: str, name: str, rate: int, seconds: int, photo_ms: int = 0) -> str:
    """One of which only the end is kept; nocopy-record takes photos meanwhile if wanted."""
    photos = bool(photo_ms) and not WAYS[name].of_debian
    counting = f"--late-us {LATE_FRAMES * 1_000_000 // rate}"
    if photos:
        counting += f" --photo {PHOTO} --photo-ms {photo_ms}"
    more = f" --photo {PHOTO}" if photos else ""
    return f"counting='{counting}'\n" + _take(case, name, rate, seconds, more)


def _quiet(one: Boot) -> Iterator[str]:
    for name in ("camera", "camera-scattered", *one.names):
        yield _take("quiet", name, QUIET_RATE, QUIET_S)
    yield "counting=--cached\n"
    for name in one.names:
        yield _take("cached", name, QUIET_RATE, CACHED_S)
    yield f"counting='--profile {PROFILE_US}'\n"
    for name in one.names:
        yield _take("profile", name, QUIET_RATE, PROFILE_S)


def _loaded(one: Boot) -> Iterator[str]:
    for rate in RATES:
        for name in one.names if rate == LONG_RATE else one.whole:
            yield _take("rate", name, rate, RATE_S)
    for _ in range(LONG_ROUNDS):
        for name in one.whole:
            yield _take("long", name, LONG_RATE, LONG_S)


def _beside_hogs(one: Boot) -> Iterator[str]:
    for name in one.whole:
        yield _take("hogs", name, HOG_RATE, HOG_S)


def _beside_switches(one: Boot) -> Iterator[str]:
    for name in one.whole:
        yield _take("switch", name, SWITCH_RATE, SWITCH_S)


def _beside_blogs(one: Boot) -> Iterator[str]:
    """All but ffmpeg, which has not begun beside this load when 24 seconds are over."""
    for name in one.whole:
        if name != "ffmpeg":
            yield _take("blog", name, BLOG_RATE, BLOG_S)


def _with_photos(one: Boot) -> Iterator[str]:
    for name in one.names:
        yield _take_long("photo", name, PHOTO_RATE, PHOTO_S, PHOTO_MS)


@dataclass(frozen=True)
class Boots:
    """What all boots have in common."""

    image: kernel.Image
    program: dict[str, bytes]
    root: Path
    board: str = SLOW_BOARD
    cameras: str = f"/dev/video{CONTIGUOUS} /dev/video{SCATTERED}"
    tunables: str = SLOW_GLIBC

    def job(self, name: str, one: Boot, script: str, **values: object) -> Job:
        debian_disk = Disk(image=self.root, driver="virtio-blk", read_only=True)
        machine = Machine(
            self.board, one.config, words=_words(one), disks=(NVME, debian_disk), seed=SEED
        )
        text = jobs.script(
            script, disk="/dev/nvme0n1", frame_bytes=FRAME_BYTES,
            cameras=self.cameras, seed=SEED, swap=SWAP_MIB, files=FILES_MIB, anon=ANON_MIB,
            touches=TOUCHES, hot=HOT_PERCENT, warm=WARM_S, counting="", hogs="",
            tunables=self.tunables, **values,
        )  # fmt: skip
        return Job(
            f"record-{name}", text, self.image.bootable, machine, programs=("mke2fs",),
            files=self.program, allow=("allocation",), limit_s=LIMIT_S,
        )  # fmt: skip

    def every(self) -> Iterator[Job]:
        for name, one in BOOTS.items():
            yield self.job(f"quiet-{name}", one, "record-quiet", quiet="".join(_quiet(one)))
        for name, one in BOOTS.items():
            yield self.job(
                f"load-{name}", one, "record-load", loaded="".join(_loaded(one)),
                beside_hogs="".join(_beside_hogs(one)),
            )  # fmt: skip
        for name, one in BOOTS.items():
            if name != "default":
                yield self.job(
                    f"switches-{name}", one, "record-switches",
                    beside="".join(_beside_switches(one)), sizes=_list(SWITCH_SIZES),
                    hold_ms=SWITCH_HOLD_MS, interval_ms=SWITCH_PAUSE_MS,
                )  # fmt: skip
        for name, one in PHOTOS.items():
            yield self.job(
                f"photos-{name}", one, "record-load", loaded="".join(_with_photos(one)),
                beside_hogs="",
            )  # fmt: skip
        for name, one in BOOTS.items():
            yield self.job(
                f"blog-{name}", one, "record-blog", beside="".join(_beside_blogs(one)), **_BLOG
            )
        for name in MINUTES:
            take = _take_long("minutes", BOOTS[name].whole[0], MINUTES_RATE, MINUTES_S)
            yield self.job(
                f"minutes-{name}", BOOTS[name], "record-load", loaded=take, beside_hogs=""
            )
        for name in HOUR:
            take = _take_long("hour", BOOTS[name].whole[0], HOUR_RATE, HOUR_S, HOUR_PHOTO_MS)
            yield self.job(
                f"hour-{name}", BOOTS[name], "record-hour", beside=take, readers=HOUR_READERS,
                pause_ms=HOUR_READER_PAUSE_MS,
                sizes=_list(SWITCH_SIZES), hold_ms=HOUR_HOLD_MS,
                interval_ms=HOUR_INTERVAL_MS, other_sizes=PHOTO_PAGES,
                other_hold_ms=SWITCH_HOLD_MS, other_interval_ms=HOUR_PHOTO_MS, **_BLOG,
            )  # fmt: skip


_BLOG: Final[dict[str, object]] = {
    "blogs": BLOGS,
    "heap": HEAP_MIB,
    "blog_nice": NICE,
    "blog_warm": 20,
}


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


# On 64-bit Arm. Linux 7.3 tells more idle time than there was: a tick too much for each wake-up
# there. So a program of the lowest priority has what is left of the processor.
ARM64_BOARD: Final = "arm64-slow"
ARM64_BOOTS: Final[dict[str, Boot]] = {
    "arm64-cma": Boot("cma", ("v4l2-ctl", "ffmpeg")),
    "arm64-gcma": Boot("gcma", ("dmabuf", "copy")),
    "arm64-heap": Boot("gcma", ("heap",)),
}

# On the exact board: what anybody's frame takes there, and the disk's part of it.
EXACT_BOARD: Final = "x86"
EXACT_BOOTS: Final[dict[str, Boot]] = {
    "exact-cma": Boot("cma", ("v4l2-ctl", "v4l2-ctl-default")),
    "exact-gcma": Boot("gcma", ("dmabuf", "copy", "buffered")),
    "exact-heap": Boot("gcma", ("heap",)),
}
EXACT_S: Final = 10
EXACT_DISK_MIB: Final = 1024
EXACT_DISK_NS: Final = 50_000  # that a request takes
EXACT_REQUESTS: Final = 100  # of a frame each, to time the disk itself


def _words(one: Boot) -> tuple[str, ...]:
    """Of the kernel: the cameras, and huge pages if they are wanted."""
    words = ("vivid.n_devs=2", "vivid.allocators=1,0", "vivid.node_types=1,1")
    return (*words, f"hugepages={BUFFERS}") if "dmabuf" in one.names else words


def arm64_boots(image: kernel.Image, program: dict[str, bytes], root: Path) -> list[Job]:
    """Boots on 64-bit Arm."""
    boots = Boots(image, program, root, ARM64_BOARD, cameras=f"/dev/video{CONTIGUOUS}", tunables="")
    made = []
    for name, one in ARM64_BOOTS.items():
        quiet = "".join(_take("quiet", way, QUIET_RATE, QUIET_S) for way in ("camera", *one.whole))
        quiet += "counting=--cached\n"
        quiet += "".join(_take("cached", way, QUIET_RATE, CACHED_S) for way in one.whole)
        loaded = [_take("long", way, LONG_RATE, LONG_S) for way in one.whole] * LONG_ROUNDS
        made.append(
            boots.job(
                name, one, "record-arm64", quiet="counting=--fill\n" + quiet,
                loaded="counting=\n" + "".join(loaded),
            )
        )  # fmt: skip
    return made


def exact_boots(
    image: kernel.Image, program: dict[str, bytes], others: dict[str, bytes]
) -> list[Job]:
    """Boots on the exact board; `others` are programs of Debian, by their paths there."""
    made = []
    files = program | {f"debian/{name}": data for name, data in others.items()}
    for name, one in EXACT_BOOTS.items():
        machine = Machine(
            EXACT_BOARD, one.config, extra_mib=EXACT_DISK_MIB + 64, seed=SEED,
            words=(
                *_words(one),
                *null_disk(EXACT_DISK_MIB // 1024, completion_ns=EXACT_DISK_NS),
            ),
        )  # fmt: skip
        text = jobs.script(
            "record-exact", disk="/dev/nullb0", frame_bytes=FRAME_BYTES, requests=EXACT_REQUESTS,
            disk_words=f"irqmode=2 completion_nsec={EXACT_DISK_NS}",
            cameras=f"/dev/video{CONTIGUOUS}", counting="",
            quiet="".join(
                _take("quiet", way, QUIET_RATE, EXACT_S) for way in ("camera", *one.whole)
            ),
        )  # fmt: skip
        made.append(
            Job(
                f"record-{name}", text, image.bootable, machine, programs=("mke2fs", "dd"),
                files=files, limit_s=LIMIT_S,
            )
        )  # fmt: skip
    return made


def _known_of(image: kernel.Image, packages: list[str]) -> Row:
    """What a boot has to tell that is not of the kernel and the packages of the others."""
    return {"type": "about", "kernel": image.about(), "packages": packages}


def _expected(job: Job) -> dict[str, float]:
    return {"recording": float(sum("take " in line for line in job.script.splitlines()))}


def require_taken(row: Row, console: Path) -> None:
    """Raise LabError unless there are frames; of ours, by the case's way and to the end."""
    case = str(row["case"])
    way = WAYS[case.split(":")[1]]
    if not row["frames"]:
        raise LabError(f"{case}: no frame, status {row['status']}; see {console}")
    if way.of_debian:
        return
    said = row.get("said") or {}
    if (taken := said.get("way")) != way.name:
        raise LabError(f"{case}: the way was {taken}; see {console}")
    # As SIGINT ends it in order.
    if row["status"] != 128 + signal.SIGINT:
        raise LabError(f"{case}: it ended with status {row['status']}; see {console}")
    # The last may have been asked for just before the end.
    photos = row.get("photos")
    if photos is not None and (not photos or len(photos) + 1 < said["photos"]):
        raise LabError(f"{case}: {len(photos)} of {said['photos']} photos came; see {console}")


def _arm64(wanted: Collection[str]) -> tuple[list[Job], Row]:
    """Those of the wanted boots that are on 64-bit Arm, and what is known of them."""
    if not any(f"record-{name}" in wanted for name in ARM64_BOOTS):
        return [], {}
    image, root = kernel.image("arm64"), debian.disk(PACKAGES, ARM64.debian)
    program = {"bin/nocopy-record": crates.record_aarch64().read_bytes()}
    program |= crates.aarch64_runtime()
    made = [job for job in arm64_boots(image, program, root) if job.name in wanted]
    return made, _known_of(image, debian.versions(PACKAGES, ARM64.debian))


def run(only: str = "") -> None:
    """Boot what `only` names; what is stored of the others stays."""
    # Before anything is built or fetched.
    known = [job.name for job in Boots(kernel.Image("gcma", Path()), {}, Path()).every()]
    known += [f"record-{one}" for one in (*EXACT_BOOTS, *ARM64_BOOTS)]
    wanted = names.chosen(only, known, "boot")
    image, root = kernel.image("gcma"), debian.disk(PACKAGES)
    program = initramfs.placed("bin/nocopy-record", crates.record())
    every = list(Boots(image, program, root).every())
    every += exact_boots(image, program, debian.program(PACKAGES, "usr/bin/v4l2-ctl"))
    arm64, of_arm64 = _arm64(wanted)
    chosen = [job for job in every if job.name in wanted] + arm64
    guest = initramfs.guest_programs()
    ours = (crates.record().read_bytes(), *(guest[name] for name in PROGRAMS))
    about: dict[str, Any] = provenance(image, SEED) | {
        "experiment": "record",
        "packages": debian.versions(PACKAGES),
        # Results of other ones are not mixed with these.
        "programs": sha256(*ours),
    }
    keep = keeper(HERE, about, anew=not only)

    def keep_known(outcome: Outcome) -> None:
        if outcome.job in arm64:
            outcome.results.insert(0, of_arm64)
        for row in outcome.rows("recording"):
            require_taken(row, outcome.console)
        keep(outcome)

    measure(chosen, _expected, each=keep_known)
