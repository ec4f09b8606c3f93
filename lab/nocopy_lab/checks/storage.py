# SPDX-License-Identifier: MIT OR Apache-2.0
"""pdio on disks that fail: the power goes, or a part of the device gives errors; and its own
random test on filesystems that this machine's kernel may not have.

The power goes when QEMU is killed. On a volatile disk, what the guest has not flushed is gone then;
on the others, what reached the disk is there. The next boot replays the filesystem's journal,
looks whether what had been promised is there, and checks the filesystem.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates, initramfs, jobs
from nocopy_lab.board import Disk, Machine
from nocopy_lab.paths import REPO, LabError, require_tool
from nocopy_lab.run import Job, Outcome, Row, boot

IMAGE_MIB: Final = 512
DEVICES: Final = {"nvme": "/dev/nvme0n1", "virtio-blk": "/dev/vda", "ahci": "/dev/sda"}

# How each filesystem is made, and checked without repair.
MAKE: Final = {
    "ext4": "/bin/mke2fs -q -F -t ext4 -E nodiscard",
    "xfs": "/bin/mkfs.xfs -q -f -K",
    "btrfs": "/bin/mkfs.btrfs -q -f -K",
    "f2fs": "/bin/mkfs.f2fs -q -f -t 0",
}
CHECK: Final = {
    "ext4": "/bin/e2fsck -fn",
    "xfs": "/bin/xfs_repair -n",
    "btrfs": "/bin/btrfs check --readonly",
    "f2fs": "/bin/fsck.f2fs --dry-run",
}
PROGRAMS: Final = (
    "mke2fs", "e2fsck", "mkfs.xfs", "xfs_repair", "mkfs.btrfs", "btrfs", "mkfs.f2fs", "fsck.f2fs",
)  # fmt: skip

KINDS: Final = ("process", "safe", "sync", "overwrite")
# What dd copies: no two blocks alike.
SOURCE: Final = b"".join(b"%015d\n" % n for n in range(20_000))


@dataclass(frozen=True)
class Round:
    """A power cut: on which filesystem, on which disk."""

    filesystem: str
    driver: str
    volatile: bool

    @property
    def exact(self) -> bool:
        """Whether a stream may have no byte that was neither written nor zero: nothing that reached
        the disk was lost, and the filesystem gives a file no old blocks. Zeros there may be: what
        is on its way through the page cache does not keep what comes after it, and with it the
        file's size, from being first."""
        return not self.volatile and self.filesystem in ("ext4", "xfs")

    @property
    def name(self) -> str:
        return f"power-{self.filesystem}-{self.driver}{'-volatile' if self.volatile else ''}"

    def disk(self, image: Path) -> Disk:
        return Disk(image=image, driver=self.driver, volatile=self.volatile)


# No volatile NVMe disk: QEMU's acknowledges a write that must not stay in the cache (FUA, as the
# last block of a journal's transaction is written) like any other, so what a filesystem has been
# told is there would be lost. For the others Linux follows such a write with a flush.
ROUNDS: Final = (
    Round("ext4", "ahci", True),
    Round("xfs", "virtio-blk", True),
    Round("btrfs", "ahci", True),
    Round("f2fs", "virtio-blk", True),
    Round("ext4", "virtio-blk", False),
    Round("xfs", "nvme", False),
)


def build() -> None:
    """All programs of ours that the guests need."""
    crates.pdio()
    crates.promise()
    crates.pdio_test("model")
    crates.pdio_test("fuzz")
    crates.libpdio()


def _machine(*disks: Disk) -> Machine:
    return Machine("x86-fast", "reservation", cma_mib=0, disks=disks)


def _files() -> dict[str, bytes]:
    pdio = initramfs.placed("bin/pdio", crates.pdio())
    promise = initramfs.placed("bin/promise", crates.promise())
    return {**pdio, **promise, "source": SOURCE}


def create_disk(image: Path, volatile: bool) -> None:
    """Make an empty disk that loses what was not flushed, or one that does not."""
    if not volatile:
        with image.open("wb") as file:
            file.truncate(IMAGE_MIB << 20)
        return
    # Small clusters: only the first write to each can be lost.
    words: list[str | Path] = [require_tool("qemu-img", "qemu-utils"), "create", "-q"]
    words += ["-f", "qcow2", "-o", "cluster_size=4k", image, f"{IMAGE_MIB}M"]
    child.output(words)


def promises(rows: Sequence[Row]) -> list[Row]:
    """The last promise about each file."""
    last = {row["file"]: row for row in rows if row.get("type") == "promise"}
    return list(last.values())


def _checking(one: Round, kept: Sequence[Row]) -> str:
    lines = [f"need mount -t {one.filesystem} {DEVICES[one.driver]} /mnt", "bad=0"]
    for row in kept:
        if row["kind"] == "dd":
            said = f'{{"type": "broken", "why": "{row["file"]} is not the source"}}'
            lines.append(f"cmp /source {row['file']} || {{ bad=1; echo '{said}'; }}")
            continue
        words = f"{row['kind']} {row['seed']} {row['file']} {row['units']}"
        exact = " exact" if one.exact and row["kind"] != "overwrite" else ""
        lines.append(f"promise check {words}{exact} || bad=1")
    lines += ["need umount /mnt", f"need {CHECK[one.filesystem]} {DEVICES[one.driver]} >&2"]
    return "\n".join([*lines, "exit $bad", ""])


def all_promise(kinds: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether each kind has promised something: its first promise is about an empty file."""
    return {row["kind"] for row in rows if row.get("units")} >= set(kinds)


def _writing(
    one: Round,
    seed: int,
    machine: Machine,
    kernel: Path,
    cut_s: float,
    kinds: Sequence[str],
    meanwhile: str,
    options: str = "",
) -> Job:
    """Write; the power goes so long after all kinds have promised something."""
    script = jobs.script(
        "storage-write",
        make=MAKE[one.filesystem],
        device=DEVICES[one.driver],
        filesystem=one.filesystem,
        options=options,
        kinds=" ".join(kinds),
        seed=seed % 1000,
        meanwhile=meanwhile,
    )
    return Job(
        one.name, script, kernel, machine, programs=PROGRAMS, files=_files(), cut_s=cut_s,
        cut_when=partial(all_promise, kinds),
    )  # fmt: skip


def power_cut(one: Round, seed: int, machine: Machine, kernel: Path) -> Job:
    """Write. The power goes at a random time after all kinds have promised something."""
    after = random.Random(seed).uniform(0.3, 4.0)
    return _writing(one, seed, machine, kernel, after, KINDS, "copy")


def hasty_cut(one: Round, seed: int, machine: Machine, kernel: Path) -> Job:
    """Promise, and never sync. Nobody else does, and the filesystem does not for an hour."""
    return _writing(one, seed, machine, kernel, 0.3, ["hasty"], "wait", "-o commit=3600")


def cut(
    one: Round, kernel: Path, seed: int, how: Callable[[Round, int, Machine, Path], Job]
) -> Outcome:
    """Write, cut the power, boot again and look: that boot."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        image = Path(temp) / "disk.img"
        create_disk(image, one.volatile)
        machine = _machine(one.disk(image))
        job = how(one, seed, machine, kernel)
        written = boot(job).require()
        if broken := [str(row["why"]) for row in written.rows("broken")]:
            raise LabError(f"{'; '.join(broken)} (seed {seed}); see {written.console}")
        if not job.cut_when(written.results):
            raise LabError(f"the power went before anything was promised; see {written.console}")
        kept = promises(written.results)
        checking = Job(
            f"{one.name}-after", _checking(one, kept), kernel, machine, programs=PROGRAMS,
            files=_files(),
        )  # fmt: skip
        return boot(checking)


def fresh_seed() -> int:
    """Another one each time, or the one that is to be repeated."""
    given = os.environ.get("NOCOPY_SEED", "")
    if given and not given.isdecimal():
        raise LabError(f"NOCOPY_SEED={given} is no number from 0 on")
    return int(given) if given else random.SystemRandom().randrange(1_000_000)


def power_cuts(kernel: Path) -> None:
    """What was promised is there after a power cut, and the filesystem is whole."""
    seed = fresh_seed()
    for number, one in enumerate(ROUNDS):
        outcome = cut(one, kernel, seed + number, power_cut)
        again = f"seed {seed}; to repeat: NOCOPY_SEED={seed}"
        if outcome.failure is not None:
            broken = [str(row["why"]) for row in outcome.rows("broken")]
            said = "; ".join(broken) or outcome.failure
            raise LabError(f"{one}: {said} ({again}); see {outcome.console}")


def power_cut_notices(kernel: Path) -> None:
    """A stream that promises before it syncs is found out: the test above can fail."""
    seed = fresh_seed()
    outcome = cut(ROUNDS[0], kernel, seed, hasty_cut)
    if outcome.exit in (None, 0) or not outcome.rows("broken"):
        raise LabError(
            f"a promise made before its sync was kept (seed {seed}); see {outcome.console}"
        )


def failing_device(kernel: Path) -> None:
    """An error of the device is reported once; what was accepted is written when it can be."""
    job = Job(
        "failing-device", jobs.script("storage-failing"), kernel,
        _machine(Disk(driver="nvme", size_mib=256)),
        programs=("mke2fs", "e2fsck", "filefrag", "dmsetup"), files=_files(),
    )  # fmt: skip
    outcome = boot(job)
    broken = [str(row["why"]) for row in outcome.rows("broken")]
    if broken:
        raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
    outcome.require()
    if len(outcome.rows("failed")) != 4 or len(outcome.rows("kept")) != 4:
        raise LabError(f"the device did not fail as it should; see {outcome.console}")


MODEL_FILESYSTEMS: Final = 9


def model(kernel: Path) -> None:
    """pdio's random operations against an array of bytes, on every filesystem of the guest."""
    seed = fresh_seed() % 1000
    job = Job(
        "model",
        jobs.script("storage-model", seed=seed),
        kernel,
        _machine(Disk(driver="nvme", size_mib=1024), Disk(size_mib=512)),
        programs=(*PROGRAMS, "bindfs"),
        files=initramfs.placed("bin/model", crates.pdio_test("model")),
    )
    outcome = boot(job)
    if outcome.failure is not None:
        raise LabError(f"{outcome.failure} (seed {seed}); see {outcome.console}")
    names = [str(row["filesystem"]) for row in outcome.rows("model")]
    if len(names) != MODEL_FILESYSTEMS:
        raise LabError(f"ran on {', '.join(names) or 'nothing'} only; see {outcome.console}")


UNTAKEN_SECONDS: Final = 20


def untaken(kernel: Path) -> None:
    """Where libpdio.so takes no files, every call does what it does without the library."""
    seed = fresh_seed()
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        sequences = Path(temp) / "sequences"
        source = REPO / "crates/pdio-preload/tests/programs/sequences.c"
        gcc = require_tool("gcc", "build-essential")
        child.output([gcc, "-O2", "-fno-builtin", "-pthread", "-o", sequences, source])
        files = {
            **initramfs.placed("bin/fuzz", crates.pdio_test("fuzz")),
            **initramfs.placed("built/libpdio.so", crates.libpdio()),
            **initramfs.placed("built/sequences", sequences),
        }
    job = Job(
        "untaken",
        jobs.script("storage-untaken", seed=seed, seconds=UNTAKEN_SECONDS),
        kernel,
        _machine(Disk(size_mib=512)),
        programs=("mke2fs", "bindfs"),
        files=files,
    )
    outcome = boot(job)
    if outcome.failure is not None:
        raise LabError(f"{outcome.failure} (seed {seed}); see {outcome.console}")
    ran = {str(row["filesystem"]): row["sequences"] for row in outcome.rows("untaken")}
    if sorted(ran) != ["FUSE", "NFS"] or not all(ran.values()):
        raise LabError(f"sequences that ran: {ran}; see {outcome.console}")


# What `lab test` runs.
CHECKS: Final[dict[str, Callable[[Path], None]]] = {
    "a power cut takes nothing promised": power_cuts,
    "a power cut takes what was promised too soon": power_cut_notices,
    "a device's error is reported once": failing_device,
    "random operations in the guest, on f2fs, NFS and all others": model,
    "random sequences for libpdio.so in the guest, on NFS and FUSE": untaken,
}
