# SPDX-License-Identifier: MIT OR Apache-2.0
"""The boards: what machine QEMU plays, and how memory is divided on it.

`x86` is the measuring instrument: with -icount one instruction takes one nanosecond of guest
time, nothing in the guest depends on the host's clock, and two boots give the same figures to the
last digit, see EXACT. It has one CPU: under icount QEMU runs virtual CPUs in turn, each until the
next timer of the machine expires, so that with several a latency would mostly tell how long the
other CPUs' turns were. `x86-fast` runs four at the speed and with the races of the host; it finds
bugs. `arm64` does so on another architecture, and has a device tree. `rpi2` is a computer that
people have: 32 bits, and memory that the kernel cannot see all of at a time.

`x86-slow` is a small computer with fast disks. Its time counts instructions as well, at half the
pace, but while it waits for a disk its time is the host's: what it computes costs the same in
every run, what it waits for does not. `x86-slow-smp` has two such CPUs, and the host's time only.
`arm64-slow` is the same of the other architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nocopy_lab import child
from nocopy_lab.arch import ARM, ARM64, UM, X86, Arch
from nocopy_lab.paths import LabError, require_tool

# A fixed model, so that neither QEMU's version nor the host's CPU changes a figure. It lacks
# ERMS, for which copies to user space would count one instruction per byte. RDRAND answers from
# QEMU's -seed, so that the guest need not wait for entropy.
X86_CPU: Final = "Nehalem-v1,+rdrand"
# With ERMS, copies between user and kernel count one instruction for each byte, and so does glibc
# from SLOW_GLIBC on: on a slow computer memory is slower than the processor.
SLOW_CPU: Final = f"{X86_CPU},+erms"
SLOW_GLIBC: Final = "glibc.cpu.x86_rep_movsb_threshold=128:glibc.cpu.x86_rep_stosb_threshold=128"
# With memory tags; what else it has costs the emulator more than it shows.
ARM64_CPU: Final = "max,pauth=off,sve=off,lpa2=off"
# That of many small boards; a fixed model as well.
SLOW_ARM64_CPU: Final = "cortex-a53"
# While the guest's CPU is idle, QEMU's main loop moves the guest's clock to the next timer. It may
# look a moment after the CPU has halted and before the CPU's last instructions are counted: then
# the clock moves too far, by so many of them. A recording, of which nothing is kept, has the two
# threads take turns, so that this cannot happen.
EXACT: Final = "sleep=off,rr=record,rrfile=/dev/null"
MEMORY_MIB: Final = 1024
CMA_MIB: Final = 256

# What people call a configuration -> the mode of the contiguous area on the kernel command line.
CONFIGS: Final[dict[str, str]] = {
    "reservation": "none",
    "cma": "cma",
    "file-only": "file",
    "swap-only": "swap",
    "gcma": "file+swap",
}


@dataclass(frozen=True)
class Board:
    name: str
    about: str
    exact: bool  # guest time counts instructions; two boots are identical
    cpus: int
    arch: Arch = X86
    # An instruction takes two to this power nanoseconds; none: as long as it takes the host.
    shift: int | None = None
    cpu: str = X86_CPU
    kvm: bool = False  # where it works
    machine: str = "pc"  # what QEMU calls it
    disk: str = "virtio-blk"  # driver of its scratch disks
    device_tree: str = ""  # beyond what its device tree says


# The results go to the second serial port, which the board's pins leave no room for.
RPI2_TREE: Final = '/ { soc { serial@7e215040 { status = "okay"; }; }; };'

BOARDS: Final[dict[str, Board]] = {
    board.name: board
    for board in (
        Board("x86", "1 CPU, 1 GiB; guest time counts instructions, exact", True, 1, shift=0),
        Board(
            "x86-fast", "4 CPUs, 1 GiB; as fast as the host can, with real races", False, 4,
            kvm=True,
        ),
        Board(
            "arm64", "4 Arm CPUs with memory tags, 1 GiB, a device tree; as fast as the host can",
            False, 4, ARM64, cpu=ARM64_CPU, machine="virt,mte=on",
        ),
        Board(
            "rpi2", "a Raspberry Pi 2, with high memory and an SD card; as fast as the host can",
            False, 4, ARM, cpu="", machine="raspi2b", disk="sd", device_tree=RPI2_TREE,
        ),
        Board("uml", "User Mode Linux: 1 CPU, no disk; a program of the host", False, 1, UM),
        Board(
            "x86-slow", "1 CPU, 500 million instructions a second, 1 GiB; fast disks", False, 1,
            shift=1, cpu=SLOW_CPU,
        ),
        Board(
            "x86-slow-smp", "2 CPUs as fast as the host emulates them, 1 GiB; fast disks", False, 2,
            cpu=SLOW_CPU,
        ),
        Board(
            "arm64-slow",
            "1 Arm CPU, 500 million instructions a second, 1 GiB, a device tree; fast disks", False,
            1, ARM64, shift=1, cpu=SLOW_ARM64_CPU, machine="virt",
        ),
    )
}  # fmt: skip


# What a filesystem is made with.
WRITES_AT_ONCE: Final = 2000


@dataclass(frozen=True)
class Disk:
    """A disk of the guest, optionally throttled; an empty one for one boot unless image is given.

    A volatile one loses what was written to new places and not flushed when QEMU is killed, as a
    disk with a write cache does when the power goes: it is a qcow2 image, whose map of new
    clusters reaches the file when the guest flushes.
    """

    image: Path | None = None
    driver: str = "virtio-blk"  # or "nvme", "ahci", "sd"
    bytes_per_s: int = 0
    io_per_s: int = 0
    writes_per_s: int = 0  # after the first WRITES_AT_ONCE
    size_mib: int = 0
    memory: bool = False  # the empty one is in the host's memory
    volatile: bool = False
    read_only: bool = False  # several boots may have it at a time


def null_disk(gib: int, *, completion_ns: int = 0, mbps: int = 0) -> tuple[str, ...]:
    """Kernel parameters for /dev/nullb0, a disk that takes what is written of the guest's memory.

    It answers at once, or so long after each request; `mbps` limits what it moves in a second.
    """
    words = ["nr_devices=1", "memory_backed=1", f"gb={gib}", "bs=4096"]
    words.append(f"irqmode={2 if completion_ns else 0}")
    if completion_ns:
        words.append(f"completion_nsec={completion_ns}")
    if mbps:
        words.append(f"mbps={mbps}")
    return tuple(f"null_blk.{word}" for word in words)


@dataclass(frozen=True)
class Machine:
    """One board with one division of its memory."""

    board: str = "x86"
    config: str = "gcma"
    memory_mib: int = MEMORY_MIB
    cma_mib: int = CMA_MIB
    # More RAM, for disks that live in guest memory (null_blk) and should not cost the board any.
    extra_mib: int = 0
    words: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()
    seed: int = 1
    kvm: bool = False
    # Ticks of the host's time-stamp counter in a millisecond, which are the guest's; 0: not known.
    tsc_khz: int = 0
    # Other than the board's.
    shift: int | None = None
    cores: int = 0
    features: str = ""  # of the CPU, in QEMU's words
    # Source of what the device tree says beyond QEMU's own, and the file made from both.
    device_tree: str = ""
    dtb: Path | None = None

    def __post_init__(self) -> None:
        if self.board not in BOARDS:
            raise LabError(f"no board '{self.board}'; there are: {', '.join(BOARDS)}")
        if self.config not in CONFIGS:
            raise LabError(f"no configuration '{self.config}'; there are: {', '.join(CONFIGS)}")

        if self.exact and self.disks:
            raise LabError(f"a disk of the host makes '{self.board}' inexact; use null_blk in it")
        if self.arch is UM and self.disks:
            raise LabError(f"the board '{self.board}' has no disks; use null_blk in it")

    @property
    def exact(self) -> bool:
        return BOARDS[self.board].exact

    @property
    def arch(self) -> Arch:
        return BOARDS[self.board].arch

    @property
    def cpus(self) -> int:
        return self.cores or BOARDS[self.board].cpus

    @property
    def counts(self) -> bool:
        """Guest time is the number of instructions."""
        return BOARDS[self.board].shift is not None

    def kernel_words(self) -> list[str]:
        words = ["panic=-1", "nokaslr"]
        if self.arch is X86:
            words += ["console=ttyS0", "lab_results=ttyS1", "random.trust_cpu=on"]
        elif self.arch is UM:
            # Results go to what is open as its standard input.
            words += ["console=tty0", "con=null", "con1=null,fd:0", "lab_results=tty1"]
        else:
            port = "ttyS1" if self.arch is ARM else "ttyS0"
            words += ["console=ttyAMA0", f"lab_results={port}"]
        if self.arch is X86 and not self.counts:
            # A host that is busy elsewhere for a tenth of a second is no broken timer.
            words.append("no_timer_check")
            # Nor a wrong one. Linux 7.3 compares the clocks of two CPUs with interrupts off, and
            # gives up after a time by the clock in use. If that is still the ticks, it stands still
            # meanwhile; and if the other CPU waits for this one to change it, both do for ever.
            words.append("tsc=nowatchdog")
            # What the guest would find out about its clock, where the host takes the processor
            # away meanwhile: once it was a 70th, and all went 70 times as fast.
            if self.tsc_khz:
                words.append(f"tsc_early_khz={self.tsc_khz}")
        if not self.exact:
            # Nor is it a stalled CPU, unless it goes on; no more can be said than five minutes.
            words.append("rcupdate.rcu_cpu_stall_timeout=300")
        if self.counts and self.arch is X86:
            # The HPET is this board's timer. Calibrating the local APIC's is a busy loop of
            # PAUSE, each of which leaves QEMU's translated code: half a minute of host time.
            words.append("noapictimer")
        if self.cma_mib:
            words += [f"cma={self.cma_mib}M", f"gcma={CONFIGS[self.config]}"]
        return words + list(self.words)

    def accelerator(self) -> list[str]:
        if self.counts:
            shift = BOARDS[self.board].shift if self.shift is None else self.shift
            how = EXACT if self.exact else "sleep=on"
            return ["-accel", "tcg,thread=single", "-icount", f"shift={shift},{how}"]
        if self.kvm:
            return ["-accel", "kvm"]
        return ["-accel", "tcg,thread=multi"]

    def hardware(self) -> list[str]:
        """The emulator and what there is without memory and devices of ours."""
        board = BOARDS[self.board]
        words = [require_tool(*self.arch.qemu), "-M", board.machine, *self.accelerator()]
        if model := "host" if self.kvm else board.cpu:
            words += ["-cpu", f"{model},{self.features}" if self.features else model]
        return [*words, "-smp", str(self.cpus)]

    def command(
        self, kernel: Path, initramfs: Path, console: Path | None, results: Path | None
    ) -> list[str]:
        """The command line of QEMU; without a console file, the console is the terminal.

        User Mode Linux is a command itself; its console is its standard output.
        """
        memory = self.memory_mib + self.extra_mib
        if self.arch is UM:
            terminal = "con0=null,fd:1" if console else "con0=fd:0,fd:1"
            files = [f"mem={memory}M", f"initrd={initramfs}", terminal]
            return [str(kernel), *files, *self.kernel_words()]
        words = [
            *self.hardware(),
            *("-m", str(memory), "-nodefaults", "-no-reboot", "-display", "none"),
            *("-rtc", "base=2025-01-01T00:00:00,clock=vm", "-seed", str(self.seed)),
            *("-kernel", str(kernel), "-initrd", str(initramfs)),
            *("-append", " ".join(self.kernel_words())),
        ]
        if self.dtb:
            words += ["-dtb", str(self.dtb)]
        if console is None:
            words += ["-chardev", "stdio,id=con,mux=on,signal=off", "-mon", "con"]
        else:
            words += ["-chardev", f"file,id=con,path={console}"]
            # QEMU's own log says then if a processor gave up, of which the console has nothing.
            words += ["-d", "cpu_reset"]
        words += ["-serial", "chardev:con"]
        sink = f"file,id=results,path={results}" if results else "null,id=results"
        words += ["-chardev", sink]
        # virt has one serial port of its own.
        port = ["-serial", "chardev:results"]
        words += ["-device", "pci-serial,chardev=results"] if self.arch is ARM64 else port
        if any(disk.driver == "ahci" for disk in self.disks):
            words += ["-device", "ich9-ahci,id=ahci"]
        for number, disk in enumerate(self.disks):
            words += self._disk(number, disk)
        return words

    @staticmethod
    def _disk(number: int, disk: Disk) -> list[str]:
        if disk.driver == "sd":
            drive = f"if=sd,format=raw,cache=unsafe,file={disk.image}"
            if disk.bytes_per_s:
                drive += f",throttling.bps-total={disk.bytes_per_s}"
            return ["-drive", drive]
        words: list[str] = []
        limits = ""
        if disk.bytes_per_s:
            limits += f",x-bps-total={disk.bytes_per_s}"
        if disk.io_per_s:
            limits += f",x-iops-total={disk.io_per_s}"
        if disk.writes_per_s:
            limits += f",x-iops-write={disk.writes_per_s},x-iops-write-max={WRITES_AT_ONCE}"
        file = f"file.driver=file,file.filename={disk.image}"
        # Other scratch disks need not survive the host: flushes cost nothing.
        file += ",driver=qcow2" if disk.volatile else ",driver=raw,cache.no-flush=on"
        if disk.read_only:
            file += ",read-only=on,file.read-only=on"
        if limits:
            words += ["-object", f"throttle-group,id=limit{number}{limits}"]
            words += ["-blockdev", f"{file},node-name=raw{number}"]
            words += [
                "-blockdev",
                f"driver=throttle,throttle-group=limit{number},file=raw{number},node-name=disk{number}",
            ]
        else:
            words += ["-blockdev", f"{file},node-name=disk{number}"]
        device = {
            "virtio-blk": "virtio-blk-pci",
            "nvme": f"nvme,serial=disk{number}",
            "ahci": f"ide-hd,bus=ahci.{number}",
        }[disk.driver]
        return [*words, "-device", f"{device},drive=disk{number}"]


def qemu_version() -> str:
    qemu = require_tool(*X86.qemu)
    return child.output([qemu, "--version"]).splitlines()[0].removeprefix("QEMU emulator version ")


def with_device_tree(machine: Machine, kernel: Path, directory: Path) -> Machine:
    """The machine with its device_tree added to what is known about the hardware.

    That is what QEMU says, or where it does not, what was built with the kernel.
    """
    ours = BOARDS[machine.board].device_tree + machine.device_tree
    if not ours:
        return machine
    dtc = require_tool("dtc", "device-tree-compiler")
    own, source, both = (directory / name for name in ("own.dtb", "both.dts", "both.dtb"))
    if machine.arch.dtb:
        own = kernel.with_name(machine.arch.dtb)
        if not own.is_file():
            raise LabError(f"{own} is missing; the {machine.board} board needs it with its kernel")
    else:
        command = machine.hardware()
        command[2] += f",dumpdtb={own}"
        child.output([*command, "-m", str(machine.memory_mib), "-display", "none"])
    text = child.output([dtc, "-q", "-I", "dtb", "-O", "dts", own])
    source.write_text(f"{text}\n{ours}\n")
    child.output([dtc, "-q", "-I", "dts", "-O", "dtb", "-o", both, source])
    return replace(machine, dtb=both)
