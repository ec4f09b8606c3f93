# SPDX-License-Identifier: MIT OR Apache-2.0
"""The guest's file system: busybox, our measuring programs, one job.

Two cpio archives, which the kernel unpacks one after the other: the base, the same for every
boot of the lab, and the job. Both are written here and depend on nothing but their contents.
"""

from __future__ import annotations

import re
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache as once
from pathlib import Path
from typing import Final

from nocopy_lab import child, debian, jobs
from nocopy_lab.arch import X86, Arch
from nocopy_lab.paths import GUEST, KERNEL, cache, locked, require_tool, sha256

BENCH = KERNEL / "lab/mm/cma_bench"  # the driver, whose requests the programs know
WARNINGS = ("-Wall", "-Wextra", "-Werror")
CFLAGS = ("-O2", "-static", "-pthread", *WARNINGS)
LIBRARY_CFLAGS = ("-O2", "-shared", "-fPIC", *WARNINGS)
# The directory of sources that are libraries, each by itself, for other people's programs.
PRELOAD = GUEST / "preload"


@dataclass
class Archive:
    """A cpio archive in the newc format, sorted, without times or owners."""

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    devices: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def directory(self, name: str) -> None:
        while name and name not in self.files:
            self.files[name] = (stat.S_IFDIR | 0o755, b"")
            name = name.rpartition("/")[0]

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.directory(name.rpartition("/")[0])
        self.files[name] = (stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        self.directory(name.rpartition("/")[0])
        self.files[name] = (stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int) -> None:
        self.directory(name.rpartition("/")[0])
        self.files[name] = (stat.S_IFCHR | 0o600, b"")
        self.devices[name] = (stat.S_IFCHR | 0o600, major, minor)

    def pack(self) -> bytes:
        out = bytearray()
        entries = sorted(self.files.items(), key=lambda item: item[0])
        for inode, (name, (mode, content)) in enumerate(entries, 1):
            _, major, minor = self.devices.get(name, (0, 0, 0))
            links = 2 if stat.S_ISDIR(mode) else 1
            self._entry(out, name, inode, mode, links, content, major, minor)
        self._entry(out, "TRAILER!!!", 0, 0, 1, b"", 0, 0)
        return bytes(out) + b"\0" * (-len(out) % 512)

    @staticmethod
    def _entry(
        out: bytearray, name: str, inode: int, mode: int, links: int, content: bytes,
        major: int, minor: int,
    ) -> None:  # fmt: skip
        raw = name.encode() + b"\0"
        numbers = (inode, mode, 0, 0, links, 0, len(content), 0, 0, major, minor, len(raw), 0)
        out += b"070701" + b"".join(b"%08X" % n for n in numbers) + raw
        out += b"\0" * (-len(out) % 4)
        out += content
        out += b"\0" * (-len(out) % 4)


def guest_sources() -> dict[str, list[Path]]:
    """The C files of each of our programs: one beside this name, or all in a directory of it."""
    alone = {source.stem: [source] for source in sorted(GUEST.glob("*.c"))}
    for source in sorted(GUEST.glob("*/*.c")):
        if source.parent != PRELOAD:
            alone.setdefault(source.parent.name, []).append(source)
    return alone


@once
def _tools(gcc: str) -> str:
    """A hash of a compiler and of the C library that it links."""
    library = Path(child.output([gcc, "-print-file-name=libc.a"]).strip())
    content = library.read_bytes() if library.is_file() else b""
    return sha256(child.output([gcc, "--version"]), content)


def compiled(
    name: str,
    arch: Arch,
    flags: Sequence[str],
    sources: Sequence[Path],
    headers: Sequence[Path] = (),
    rest: Sequence[str] = (),
) -> Path:
    """What a compiler makes, once for each content of sources and headers, compiler, C library and
    flags. `rest` is what follows from these."""
    gcc = arch.tool("gcc")
    content = [file.read_bytes() for file in (*headers, *sources)]
    key = sha256(_tools(gcc), " ".join(flags), *content)
    binary = cache() / "guest" / f"{name}-{key[:16]}"
    with locked(cache() / "guest/.lock"):
        if not binary.is_file():
            fresh = binary.with_suffix(".new")
            child.run(
                [gcc, *flags, *sources, *rest, "-o", fresh],
                log=cache() / f"guest/{name}.log",
                limit_s=120,
                what=f"compiling {name}",
            )
            fresh.replace(binary)
    return binary


def guest_programs(arch: Arch = X86) -> dict[str, bytes]:
    """Our C programs."""
    headers = [*sorted(GUEST.glob("**/*.h")), *sorted(BENCH.glob("*.h"))]
    return {
        name: compiled(name, arch, CFLAGS, sources, headers, (f"-I{BENCH}", "-lm")).read_bytes()
        for name, sources in guest_sources().items()
    }


def preload_library(name: str) -> bytes:
    """A library of ours, to be preloaded by programs of the host in a guest."""
    return compiled(f"{name}.so", X86, LIBRARY_CFLAGS, [PRELOAD / f"{name}.c"]).read_bytes()


def libraries(path: Path) -> dict[str, bytes]:
    """The shared libraries that a program or library of the host loads, by guest path."""
    found = re.findall(r"(/\S+) \(0x", child.output(["ldd", path]))
    return {name.lstrip("/"): Path(name).resolve().read_bytes() for name in found}


def placed(name: str, program: Path, arch: Arch = X86) -> dict[str, bytes]:
    """A program at this path of the guest, without what debuggers read, and the libraries of one
    that is of this machine."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        stripped = Path(temp) / program.name
        child.output([arch.tool("strip"), "--strip-debug", "-o", stripped, program])
        return {name: stripped.read_bytes(), **({} if arch.foreign else libraries(program))}


# Which package has a program of the host that guests may need.
PACKAGES: Final = {
    "chattr": "e2fsprogs",
    "mke2fs": "e2fsprogs",
    "e2fsck": "e2fsprogs",
    "filefrag": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "xfs_repair": "xfsprogs",
    "mkfs.btrfs": "btrfs-progs",
    "btrfs": "btrfs-progs",
    "mkfs.erofs": "erofs-utils",
    "mkfs.f2fs": "f2fs-tools",
    "fsck.f2fs": "f2fs-tools",
    "dmsetup": "dmsetup",
    "dd": "coreutils",
    "perf": "linux-perf",
}


def with_libraries(program: str, package: str) -> dict[str, bytes]:
    """A program of the host with the shared libraries it loads, by guest path."""
    path = Path(require_tool(program, package))
    return program_file(path, path.name)


def program_file(path: Path, name: str) -> dict[str, bytes]:
    """Any program under a name in the guest's path, with the shared libraries it loads."""
    content = path.resolve().read_bytes()
    dynamic = b"/ld-linux" in content[:8192]
    return {f"bin/{name}": content, **(libraries(path) if dynamic else {})}


# What a guest of another architecture needs of Debian, with all that they depend on.
FOREIGN: Final = ("busybox-static", "e2fsprogs")


def foreign_root(arch: Arch) -> Path:
    """A directory with these packages for another architecture, unpacked and not installed."""
    root = cache() / f"debian-{arch.debian}-{sha256(*FOREIGN)[:12]}"
    debian.unpacked(root, FOREIGN, arch=arch.debian, dependencies=True)
    return root


def own_busybox() -> Path:
    """A static busybox for this machine; not installed, as it would take the place of another."""
    root = cache() / "debian-busybox"
    debian.unpacked(root, ["busybox-static"])
    return root / "bin/busybox"


def foreign_files(root: Path) -> dict[str, bytes]:
    """mke2fs and all libraries of a foreign root, by guest path."""
    files = {"bin/mke2fs": (root / "sbin/mke2fs").read_bytes()}
    # The last where that is a link, which ** does not follow: programs name their loader so.
    for path in sorted({*root.glob("**/*.so*"), *root.glob("lib*/ld-*.so*")}):
        if path.is_file() and "gconv" not in path.parts:
            files[str(path.relative_to(root))] = path.read_bytes()
    return files


def base_archive(arch: Arch, host_programs: tuple[str, ...]) -> bytes:
    """Everything but the job."""
    archive = Archive()
    for name in ("dev", "proc", "sys", "tmp", "root", "mnt", "etc", "run"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.device("dev/null", 1, 3)
    # Our own tells the names of the applets, as another architecture's does not run here.
    own = own_busybox()
    busybox = foreign_root(arch) / "bin/busybox" if arch.foreign else own
    archive.add("bin/busybox", busybox.read_bytes(), 0o755)
    for applet in set(child.output([own, "--list"]).split()) - {"busybox"}:
        archive.link(f"bin/{applet}", "busybox")
    if host_programs and arch.foreign:
        for guest_path, data in foreign_files(foreign_root(arch)).items():
            archive.add(guest_path, data, 0o755)
    else:
        for name in host_programs:
            for guest_path, data in with_libraries(name, PACKAGES.get(name, name)).items():
                archive.add(guest_path, data, 0o755)
    for name, data in guest_programs(arch).items():
        archive.add(f"bin/{name}", data, 0o755)
    for name, data in jobs.library().items():
        archive.add(name, data)
    archive.add("init", (GUEST / "init").read_bytes(), 0o755)
    return archive.pack()


def job_archive(script: str, files: dict[str, bytes] | None = None) -> bytes:
    archive = Archive()
    archive.add("job", (". /lib/lab.sh\n" + script).encode(), 0o755)
    for name, data in (files or {}).items():
        archive.add(name.lstrip("/"), data, 0o755)
    return archive.pack()


def write(
    path: Path,
    arch: Arch,
    script: str,
    host_programs: tuple[str, ...],
    files: dict[str, bytes] | None = None,
) -> None:
    path.write_bytes(base_archive(arch, host_programs) + job_archive(script, files))
