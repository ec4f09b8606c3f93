# SPDX-License-Identifier: MIT OR Apache-2.0
"""The boards: what machine QEMU plays, and how memory is divided on it.

`x86` is the measuring instrument: with -icount one instruction takes one nanosecond of guest
time, nothing in the guest depends on the host's clock, and two boots give the same figures to the
last digit. It has one CPU: under icount QEMU runs virtual CPUs in turn, each until the next timer
of the machine expires, so that with several a latency would mostly tell how long the other CPUs'
turns were; `x86-smp` does just that. `x86-fast` runs four at the speed and with the races of the
host; it finds bugs. `arm64` does so on another architecture, and has a device tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nocopy_lab import child
from nocopy_lab.arch import ARM64, X86, Arch
from nocopy_lab.paths import LabError, require_tool

# A fixed model, so that neither QEMU's version nor the host's CPU changes a figure. It lacks
# ERMS, for which copies to user space would count one instruction per byte. RDRAND answers from
# QEMU's -seed, so that the guest need not wait for entropy.
X86_CPU: Final = "Nehalem-v1,+rdrand"
ARM64_CPU: Final = "cortex-a57"
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


BOARDS: Final[dict[str, Board]] = {
    board.name: board
    for board in (
        Board("x86", "1 CPU, 1 GiB; guest time counts instructions, exact", True, 1),
        Board("x86-smp", "4 CPUs that take turns, 1 GiB; guest time counts instructions", True, 4),
        Board("x86-fast", "4 CPUs, 1 GiB; as fast as the host can, with real races", False, 4),
        Board(
            "arm64", "4 Cortex-A57, 1 GiB, a device tree; as fast as the host can", False, 4, ARM64
        ),
    )
}


@dataclass(frozen=True)
class Disk:
    """An image file of the host as a disk of the guest, optionally throttled."""

    image: Path
    driver: str = "virtio-blk"  # or "nvme"
    bytes_per_s: int = 0
    io_per_s: int = 0


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

    @property
    def exact(self) -> bool:
        return BOARDS[self.board].exact

    @property
    def arch(self) -> Arch:
        return BOARDS[self.board].arch

    @property
    def cpus(self) -> int:
        return BOARDS[self.board].cpus

    def kernel_words(self) -> list[str]:
        words = ["panic=-1", "nokaslr"]
        if self.arch is X86:
            words += ["console=ttyS0", "lab_results=ttyS1", "random.trust_cpu=on"]
        else:
            words += ["console=ttyAMA0", "lab_results=ttyS0"]
        if self.exact and self.cpus == 1:
            # The HPET is this board's timer. Calibrating the local APIC's is a busy loop of
            # PAUSE, each of which leaves QEMU's translated code: half a minute of host time.
            words.append("noapictimer")
        if self.cma_mib:
            words += [f"cma={self.cma_mib}M", f"gcma={CONFIGS[self.config]}"]
        return words + list(self.words)

    def accelerator(self) -> list[str]:
        if self.exact:
            return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
        if self.kvm:
            return ["-accel", "kvm"]
        return ["-accel", "tcg,thread=multi"]

    def hardware(self) -> list[str]:
        """The emulator and what there is without memory and devices of ours."""
        if self.arch is ARM64:
            machine, model = "virt", ARM64_CPU
        else:
            # With several CPUs taking turns, the HPET's compare register is always too late.
            machine = "pc,hpet=off" if self.exact and self.cpus > 1 else "pc"
            model = "host" if self.kvm and not self.exact else X86_CPU
        words = [require_tool(*self.arch.qemu), "-M", machine, *self.accelerator()]
        return [*words, "-cpu", model, "-smp", str(self.cpus)]

    def command(
        self, kernel: Path, initramfs: Path, console: Path | None, results: Path | None
    ) -> list[str]:
        """The QEMU command line; without a console file, the console is the terminal."""
        memory = self.memory_mib + self.extra_mib
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
        words += ["-serial", "chardev:con"]
        sink = f"file,id=results,path={results}" if results else "null,id=results"
        words += ["-chardev", sink]
        # virt has one serial port of its own.
        port = ["-serial", "chardev:results"]
        words += port if self.arch is X86 else ["-device", "pci-serial,chardev=results"]
        for number, disk in enumerate(self.disks):
            words += self._disk(number, disk)
        return words

    @staticmethod
    def _disk(number: int, disk: Disk) -> list[str]:
        words: list[str] = []
        limits = ""
        if disk.bytes_per_s:
            limits += f",x-bps-total={disk.bytes_per_s}"
        if disk.io_per_s:
            limits += f",x-iops-total={disk.io_per_s}"
        # A scratch disk need not survive the host: flushes cost nothing.
        file = f"driver=raw,file.driver=file,file.filename={disk.image},cache.no-flush=on"
        if limits:
            words += ["-object", f"throttle-group,id=limit{number}{limits}"]
            words += ["-blockdev", f"{file},node-name=raw{number}"]
            words += [
                "-blockdev",
                f"driver=throttle,throttle-group=limit{number},file=raw{number},node-name=disk{number}",
            ]
        else:
            words += ["-blockdev", f"{file},node-name=disk{number}"]
        device = {"virtio-blk": "virtio-blk-pci", "nvme": "nvme"}[disk.driver]
        serial = f",serial=disk{number}" if disk.driver == "nvme" else ""
        return [*words, "-device", f"{device},drive=disk{number}{serial}"]


def qemu_version() -> str:
    qemu = require_tool(*X86.qemu)
    return child.output([qemu, "--version"]).splitlines()[0].removeprefix("QEMU emulator version ")


def with_device_tree(machine: Machine, directory: Path) -> Machine:
    """The machine with its device_tree added to what QEMU says about the hardware."""
    if not machine.device_tree:
        return machine
    dtc = require_tool("dtc", "device-tree-compiler")
    own, source, both = (directory / name for name in ("own.dtb", "both.dts", "both.dtb"))
    command = machine.hardware()
    command[2] += f",dumpdtb={own}"
    child.output([*command, "-m", str(machine.memory_mib), "-display", "none"])
    text = child.output([dtc, "-q", "-I", "dtb", "-O", "dts", own])
    source.write_text(f"{text}\n{machine.device_tree}\n")
    child.output([dtc, "-q", "-I", "dts", "-O", "dtb", "-o", both, source])
    return replace(machine, dtb=both)
