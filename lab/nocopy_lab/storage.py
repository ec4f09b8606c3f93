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
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates
from nocopy_lab.board import Disk, Machine
from nocopy_lab.paths import LabError, require_tool
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

WRITE: Final = """
need {make} {device}
need mount -t {filesystem} {options} {device} /mnt
need sync
for kind in {kinds}; do
	promise write $kind {seed} /mnt/$kind &
done
{meanwhile}
exit 1
"""
MEANWHILE: Final = """n=0
while pdio dd if=/source of=/mnt/dd.$n bs=7777 conv=fsync status=none; do
	echo "{\\"type\\": \\"promise\\", \\"kind\\": \\"dd\\", \\"file\\": \\"/mnt/dd.$n\\"}"
	n=$((n + 1))
done"""


def build() -> None:
    """All programs of ours that the guests need."""
    crates.guest_pdio()
    crates.guest_example("promise")
    crates.guest_test("model")


def _machine(*disks: Disk) -> Machine:
    return Machine("x86-fast", "reservation", cma_mib=0, disks=disks)


def _files() -> dict[str, bytes]:
    return {
        "bin/pdio": crates.guest_pdio(),
        "bin/promise": crates.guest_example("promise"),
        "source": SOURCE,
    }


def _create(image: Path, volatile: bool) -> None:
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


def _writing(
    one: Round,
    seed: int,
    machine: Machine,
    kernel: Path,
    cut_s: float,
    cut_rows: int,
    kinds: str,
    meanwhile: str,
    options: str = "",
) -> Job:
    """Write; the power goes so long after so many promises."""
    script = WRITE.format(
        make=MAKE[one.filesystem],
        device=DEVICES[one.driver],
        filesystem=one.filesystem,
        options=options,
        kinds=kinds,
        seed=seed % 1000,
        meanwhile=meanwhile,
    )
    return Job(
        one.name, script, kernel, machine, programs=PROGRAMS, files=_files(), cut_s=cut_s,
        cut_rows=cut_rows,
    )  # fmt: skip


def power_cut(one: Round, seed: int, machine: Machine, kernel: Path) -> Job:
    """Write. The power goes at a random time after there are as many promises as kinds."""
    after = random.Random(seed).uniform(0.3, 4.0)
    kinds = " ".join(KINDS)
    return _writing(one, seed, machine, kernel, after, len(KINDS), kinds, MEANWHILE)


def hasty_cut(one: Round, seed: int, machine: Machine, kernel: Path) -> Job:
    """Promise, and never sync. Nobody else does, and the filesystem does not for an hour."""
    # The first promise is about an empty file.
    return _writing(one, seed, machine, kernel, 0.3, 2, "hasty", "wait", "-o commit=3600")


def cut(
    one: Round, kernel: Path, seed: int, how: Callable[[Round, int, Machine, Path], Job]
) -> Outcome:
    """Write, cut the power, boot again and look: that boot."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        image = Path(temp) / "disk.img"
        _create(image, one.volatile)
        machine = _machine(one.disk(image))
        kept = promises(boot(how(one, seed, machine, kernel)).require().results)
        checking = Job(
            f"{one.name}-after", _checking(one, kept), kernel, machine, programs=PROGRAMS,
            files=_files(),
        )  # fmt: skip
        return boot(checking)


def fresh_seed() -> int:
    """Another one each time, or the one that is to be repeated."""
    given = os.environ.get("NOCOPY_SEED")
    return int(given) if given else random.SystemRandom().randrange(1_000_000)


def power_cuts(kernel: Path, rounds: Sequence[Round] = ROUNDS) -> None:
    """What was promised is there after a power cut, and the filesystem is whole."""
    seed = fresh_seed()
    for number, one in enumerate(rounds):
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


# A part of the device fails, under a file that is there: nothing but its data is concerned.
FAILING: Final = """
export DM_DISABLE_UDEV=1
device=/dev/nvme0n1
sectors=$(cat /sys/block/nvme0n1/size)
good="0 $sectors linear $device 0"
table() {
	need dmsetup suspend --nolockfs disk
	printf '%s\\n' "$1" | need dmsetup load disk
	need dmsetup resume disk
}
printf '%s\\n' "$good" | dmsetup create disk || exit 1
need scratch /dev/mapper/disk
size=$((16 << 20))
head -c $size /dev/zero >/mnt/file && sync || exit 1
# Its first extent, in sectors:   0:        0..   32767:    34816..     67583:  32768: ...
set -- $(/bin/filefrag -b512 -v /mnt/file | grep '^ *0:' | tr -s ':. ' ' ')
[ "$6" -ge 24576 ] || { echo "the file is in pieces: $*" >&2; exit 1; }
at=$(($4 + 16384)); end=$((at + 2048))
around() {
	printf '0 %d linear %s 0\\n%d 2048 %s\\n%d %d linear %s %d' \\
		$at $device $at "$1" $end $((sectors - end)) $device $end
}
mkfifo /tmp/whole
for target in error "flakey $device $at 0 3600 1 error_writes"; do
	bad=$(around "$target")
	table "$bad"
	# Commands fail with one line and status 1.
	for run in "dd if=/source of=/mnt/file bs=4k seek=2000 conv=notrunc,fsync status=none" \\
		"dd if=/source of=/mnt/file bs=1M seek=8 oflag=direct conv=notrunc,fsync status=none"; do
		pdio $run 2>/tmp/said
		status=$?
		cat /tmp/said >&2
		if [ $status != 1 ] || [ $(grep -c "Input/output error" /tmp/said) != 1 ]; then
			echo "{\\"type\\": \\"broken\\", \\"why\\": \\"status $status of pdio $run\\"}"
			exit 1
		fi
	done
	# A stream reports it once, keeps the data, and writes it when the device is whole again.
	for linger in "" linger; do
		table "$bad"
		rm -f /tmp/out
		promise heal /mnt/file 7 $linger </tmp/whole >/tmp/out &
		exec 4>/tmp/whole
		until grep -q . /tmp/out; do
			kill -0 $! || break
			sleep 0.1
		done
		[ -z "$linger" ] || sleep 0.5
		table "$good"
		echo >&4
		exec 4>&-
		wait $!
		status=$?
		cat /tmp/out
		[ $status = 0 ] || exit 1
	done
done
pdio dd if=/source of=/mnt/file bs=4k seek=2000 conv=notrunc,fsync status=none || exit 1
umount /mnt || exit 1
need /bin/e2fsck -fn /dev/mapper/disk >&2
"""


def failing_device(kernel: Path) -> None:
    """An error of the device is reported once; what was accepted is written when it can be."""
    job = Job(
        "failing-device", FAILING, kernel, _machine(Disk(driver="nvme", size_mib=256)),
        programs=("mke2fs", "e2fsck", "filefrag", "dmsetup"), files=_files(),
    )  # fmt: skip
    outcome = boot(job)
    broken = [str(row["why"]) for row in outcome.rows("broken")]
    if broken:
        raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
    outcome.require()
    if len(outcome.rows("failed")) != 4 or len(outcome.rows("kept")) != 4:
        raise LabError(f"the device did not fail as it should; see {outcome.console}")


# f2fs on the disk, and what the test makes of the rest: image files on it, tmpfs, overlayfs.
MODEL: Final = """
need /bin/mkfs.f2fs -q -f -t 0 /dev/nvme0n1
mkdir -p /var/tmp
need mount -t f2fs /dev/nvme0n1 /var/tmp
ln -s mke2fs /bin/mkfs.ext4
export PDIO_MODEL_SEEDS=1 PDIO_MODEL_FIRST={seed} RUST_BACKTRACE=1
model --nocapture >/tmp/said 2>&1
status=$?
grep -v ': case .*seed' /tmp/said >&2
sed -n 's/\\(.*\\): case .*/\\1/p' /tmp/said | sort -u | while read -r name; do
	echo "{{\\"type\\": \\"model\\", \\"filesystem\\": \\"$name\\"}}"
done
umount -l /var/tmp
exit $status
"""
MODEL_FILESYSTEMS: Final = 7


def model(kernel: Path) -> None:
    """pdio's random operations against an array of bytes, on every filesystem of the guest."""
    seed = fresh_seed() % 1000
    job = Job(
        "model",
        MODEL.format(seed=seed),
        kernel,
        _machine(Disk(driver="nvme", size_mib=1024)),
        programs=PROGRAMS,
        files={"bin/model": crates.guest_test("model")},
    )
    outcome = boot(job)
    if outcome.failure is not None:
        raise LabError(f"{outcome.failure} (seed {seed}); see {outcome.console}")
    names = [str(row["filesystem"]) for row in outcome.rows("model")]
    if len(names) != MODEL_FILESYSTEMS:
        raise LabError(f"ran on {', '.join(names) or 'nothing'} only; see {outcome.console}")


# What `lab test` runs.
CHECKS: Final[dict[str, Callable[[Path], None]]] = {
    "a power cut takes nothing promised": power_cuts,
    "a power cut takes what was promised too soon": power_cut_notices,
    "a device's error is reported once": failing_device,
    "random operations in the guest, on f2fs and all others": model,
}
