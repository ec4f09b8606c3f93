# SPDX-License-Identifier: MIT OR Apache-2.0
"""The processor architectures that kernels and guest programs are made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nocopy_lab.paths import require_tool


@dataclass(frozen=True)
class Arch:
    name: str  # what the kernel's Makefile calls it
    debian: str  # what Debian calls it
    prefix: str  # of the compiler and its tools
    package: str  # that has the compiler
    image: str  # what boots, in an object directory
    qemu: tuple[str, str] = ("", "")  # the emulator, and the package that has it
    dtb: str = ""  # the device tree of its board, built with the kernel, if QEMU does not make it

    @property
    def foreign(self) -> bool:
        """Programs of this machine do not run on it."""
        return bool(self.prefix)

    @property
    def image_name(self) -> str:
        return self.image.rpartition("/")[2]

    def tool(self, name: str) -> str:
        """Full path of gcc, ld, … for this architecture."""
        return require_tool(self.prefix + name, self.package)

    def make_words(self) -> Sequence[str]:
        words = [f"ARCH={self.name}"]
        return [*words, f"CROSS_COMPILE={self.prefix}"] if self.prefix else words


X86: Final = Arch(
    "x86_64",
    "amd64",
    "",
    "build-essential",
    "arch/x86/boot/bzImage",
    ("qemu-system-x86_64", "qemu-system-x86"),
)
ARM: Final = Arch(
    "arm",
    "armhf",
    "arm-linux-gnueabihf-",
    "gcc-arm-linux-gnueabihf",
    "arch/arm/boot/zImage",
    ("qemu-system-arm", "qemu-system-arm"),
    "bcm2836-rpi-2-b.dtb",
)
ARM64: Final = Arch(
    "arm64",
    "arm64",
    "aarch64-linux-gnu-",
    "gcc-aarch64-linux-gnu",
    "arch/arm64/boot/Image",
    ("qemu-system-aarch64", "qemu-system-arm"),
)
# User Mode Linux: the kernel is a program of this machine.
UM: Final = Arch("um", "amd64", "", "build-essential", "linux")
