# SPDX-License-Identifier: MIT OR Apache-2.0
"""pdio against its targets, and its paper's measurements again: on this machine's disk, and on a
board whose processor is slow beside its disks.

Everything is measured by `pdio bench`, in rounds in which the ways of doing I/O take turns. The
board (`x86-slow`) counts instructions while it computes and waits in real time for its disks,
which QEMU serves from the host's memory. The AHCI disk is as slow as a hard disk by the guest's
own clock, with the block layer's limit for a cgroup.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, crates, initramfs, jobs, kernel, names, progress, samples
from nocopy_lab.board import BOARDS, SLOW_GLIBC, Disk, Machine, null_disk, qemu_version
from nocopy_lab.experiments import measure, pdio_tools, processor, stored
from nocopy_lab.paths import OUT, require_space, require_tool, sha256
from nocopy_lab.run import SHM, Job, Outcome
from nocopy_lab.units import binary_size

HERE: Final = OUT / "bench-pdio"

KIB: Final = 1 << 10
MIB: Final = 1 << 20

# The paper's block sizes: those its text names, and some between and beyond.
PAPER_SIZES: Final = (
    512, 4 * KIB, 16 * KIB, 64 * KIB, 512 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB,
)  # fmt: skip
FEW_SIZES: Final = (512, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
HOST_SIZES: Final = FEW_SIZES
MODES: Final = ("buffered", "direct", "dontcache", "pdio")

RUN_LIMIT_S: Final = 900.0


def words_of(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


# -------------------------------------------------------------------------------- this machine

HOST_MIB: Final = 512
HOST_ROUNDS: Final = 7
# fio, here and on the board.
FIO: Final = (
    "--name=best", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1",
    "--end_fsync=1",
)  # fmt: skip
FIO_ROUNDS: Final = 5
FIO_SETTINGS: Final = tuple(
    (bs, depth, fallocate)
    for bs, depth in ((MIB, 1), (MIB, 4), (4 * MIB, 4))
    for fallocate in ("none", "native")
)
FIRST_ROUNDS: Final = 9
FIRST_LOOP_MIB: Final = 1024
FIRST_MAKE: Final = {
    "ext4": ("mkfs.ext4", "e2fsprogs", "-q", "-F"),
    "xfs": ("mkfs.xfs", "xfsprogs", "-q", "-f"),
    "f2fs": ("mkfs.f2fs", "f2fs-tools", "-q", "-f"),
}
PASS_ROUNDS: Final = 41
PASS_CALLS: Final = 100_000
START_ROUNDS: Final = 41
START_RUNS: Final = 40  # of each in a round
START_PROGRAM: Final = "/bin/true"


# What a long copy does to a program that reads a set of pages beside it. Both are in one memory
# cgroup, of which the set takes three quarters; the copied tree is twice as large. All copies end
# with a sync.
NEIGHBOUR_WAYS: Final[dict[str, str]] = {
    "alone": "",
    # Otherwise cp lets the kernel copy, which leaves the library nothing to do.
    "cp --reflink=never": "/bin/cp -r --reflink=never tree copy",
    "cp --reflink=never, libpdio.so": "$preload /bin/cp -r --reflink=never tree copy",
    "pdio cp": "$pdio cp -r tree copy",
    "dd": "/bin/dd if=tree/1 of=copy bs=64k status=none",
    "dd, libpdio.so": "$preload /bin/dd if=tree/1 of=copy bs=64k status=none",
    "pdio dd": "$pdio dd if=tree/1 of=copy bs=64k status=none",
    "tar": "/bin/tar -cf copy tree",
    "tar, libpdio.so": "$preload /bin/tar -cf copy tree",
}
NEIGHBOUR_ROUNDS: Final = 3


def neighbour_script(**places: str | int) -> str:
    """Rounds in which the ways to copy take turns, for sh."""
    turns = (f"beside '{name}' '{words}'" for name, words in NEIGHBOUR_WAYS.items())
    return jobs.script("neighbour", **places) + "\n".join([*turns] * NEIGHBOUR_ROUNDS) + "\n"


@dataclass(frozen=True)
class Host:
    """One measurement on this machine."""

    name: str
    what: str
    words: tuple[str, ...]  # of pdio bench; empty for the others
    estimate_s: float


def host_runs() -> list[Host]:
    sweep = ("--sizes", words_of(HOST_SIZES), "--bytes", f"{HOST_MIB}M", "--seconds", "2")
    rounds = ("--rounds", str(HOST_ROUNDS))
    return [
        Host("host-write", "sequential writes", ("--direction", "write", *sweep, *rounds), 170),
        Host("host-read", "sequential reads", ("--direction", "read", *sweep, *rounds), 150),
        Host(
            "host-random",
            "random reads and overwrites of 4 KiB",
            ("random", "--seconds", "1.5", *rounds),
            110,
        ),
        Host("host-fio", "fio with io_uring, 1 MiB and more", (), 60),
        Host("host-preload", "calls of streams that libpdio.so leaves alone", (), 20),
        Host("host-start", "a program that is over at once, under libpdio.so", (), 10),
        Host("host-first", "the first 64 MiB of a process", (), 90),
        Host("host-neighbour", "a reader of a set of pages beside a long copy", (), 120),
        Host("host-announce", "streams under libpdio.so of which others are told", (), 40),
        Host("host-tools", "dd and cp, plain, under libpdio.so, and pdio in their place", (), 240),
    ]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on this machine's disk: memory would be no device."""
    HERE.mkdir(parents=True, exist_ok=True)
    require_space(HERE, 8 * HOST_MIB)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=HERE) as directory:
        yield Path(directory)


def _output(command: Sequence[str | Path], cwd: Path, env: dict[str, str] | None = None) -> str:
    return child.output(command, limit_s=RUN_LIMIT_S, cwd=cwd, env=env)


def _pdio_bench(program: Path, words: Sequence[str], where: Path) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(
        _output([program, "bench", *words, "--json", "-", where], where)
    )
    return measured


def _fio(where: Path, direction: str, bs: int, depth: int, fallocate: str) -> dict[str, Any]:
    """One run; on its own file, so that a read finds what a write left."""
    file = where / "fio"
    if direction == "write":
        file.unlink(missing_ok=True)
    words = [
        require_tool("fio", "fio"), *FIO, f"--filename={file}", f"--rw={direction}",
        f"--bs={bs}", f"--iodepth={depth}", f"--size={HOST_MIB}M", f"--fallocate={fallocate}",
        "--output-format=json",
    ]  # fmt: skip
    job = json.loads(_output(words, where))["jobs"][0]
    side = job[direction]
    # Its run time has the sync at the end.
    return {"bytes": side["io_bytes"], "seconds": side["runtime"] / 1e3}


def _fio_rounds(program: Path, where: Path) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    base = ["--bytes", f"{HOST_MIB}M", "--sizes", str(MIB), "--modes", "pdio", "--rounds", "1"]
    for number in range(FIO_ROUNDS):
        for direction in ("write", "read"):
            settings = FIO_SETTINGS if direction == "write" else FIO_SETTINGS[1::2]
            for bs, depth, fallocate in settings:
                row = _fio(where, direction, bs, depth, fallocate)
                label = f"{binary_size(bs)}, depth {depth}, fallocate={fallocate}"
                rows.append({"round": number, "direction": direction, "setting": label, **row})
            words = [*base, "--direction", direction]
            (target,) = _pdio_bench(program, words, where)["targets"]
            (result,) = target["results"]
            best = result["runs"][0]
            row = {key: best[key] for key in ("bytes", "seconds")}
            rows.append({"round": number, "direction": direction, "setting": "pdio", **row})
    (where / "fio").unlink()
    return {"rows": rows}


def _preload_rounds(where: Path) -> dict[str, Any]:
    """Elapsed time of small writes with and without the library, on a stream it does not take."""
    library = crates.libpdio()
    rows: list[dict[str, Any]] = []
    # tmpfs is nothing to take over; every call goes through the library all the same.
    with tempfile.TemporaryDirectory(prefix="nocopy-", dir=SHM) as memory:
        words = ["dd", "if=/dev/zero", f"of={memory}/file", "bs=4k", f"count={PASS_CALLS}"]
        for number in range(PASS_ROUNDS + 1):
            for name in ("without", "with") if number % 2 else ("with", "without"):
                env = {"LD_PRELOAD": str(library)} if name == "with" else {}
                begin = time.perf_counter()
                _output([*words, "conv=notrunc"], where, env)
                seconds = time.perf_counter() - begin
                if number:  # the first takes its pages fresh
                    rows.append({"round": number, "name": name, "seconds": seconds})
    return {"rows": rows, "command": "dd if=/dev/zero of=FILE bs=4k conv=notrunc"}


def _start_rounds(where: Path) -> dict[str, Any]:
    """Processor time of a program that does nothing, with and without the library.

    In a copy, as one installs it: what a linker has written lies in the page cache page by page,
    and takes longer to map.
    """
    library = str(shutil.copy(crates.libpdio(), where))
    rows: list[dict[str, Any]] = []
    for number in range(START_ROUNDS + 1):
        for name in ("without", "with") if number % 2 else ("with", "without"):
            env = {"LD_PRELOAD": library} if name == "with" else {}
            spent = child.spent_by([START_PROGRAM], env, START_RUNS, RUN_LIMIT_S)
            if number:  # the first may read the library from the disk
                rows.append({"round": number, "name": name, "seconds": spent.processor_s})
    return {"rows": rows, "command": START_PROGRAM}


def _announce_rounds(where: Path) -> dict[str, Any]:
    """A program that writes and tells another process, with and without the library."""
    said = _output([crates.announce(), where], where)
    return {"rows": [json.loads(line) for line in said.splitlines()]}


HOST_NEIGHBOUR_MIB: Final = 512


MEMORY_GROUPS: Final = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))


def limits_memory(group: Path) -> bool:
    """True if memory of a cgroup that is made in this one can be limited."""
    controllers = group / "cgroup.subtree_control"
    if controllers.is_file():
        return "memory" in controllers.read_text().split()
    return (group / "memory.limit_in_bytes").is_file()


def _neighbour_rounds(program: Path, where: Path) -> dict[str, Any]:
    """What a reader gets beside a long copy, in a memory cgroup of both."""
    group = next((one for one in MEMORY_GROUPS if limits_memory(one)), None)
    if group is None or os.geteuid() != 0:
        print("host-neighbour: left out: no memory cgroup can be made here", flush=True)
        return {"rows": []}
    neighbour = where / "neighbour"
    neighbour.write_bytes(initramfs.guest_programs()["neighbour"])
    neighbour.chmod(0o755)
    script = neighbour_script(
        limit=HOST_NEIGHBOUR_MIB * MIB, group=str(group), where=str(where), pdio=str(program),
        library=str(crates.libpdio()), neighbour=str(neighbour),
    )  # fmt: skip
    said = _output(["sh", "-c", script], where)
    return {"rows": [json.loads(line) for line in said.splitlines()]}


@contextmanager
def _loop(where: Path, filesystem: str) -> Iterator[Path]:
    """A filesystem in a file, reached directly: its own page cache is the only one."""
    tool, package, *words = FIRST_MAKE[filesystem]
    image, mounted = where / "image", where / "mounted"
    with image.open("wb") as file:
        file.truncate(FIRST_LOOP_MIB * MIB)
    mounted.mkdir(exist_ok=True)
    loop = child.output(
        [require_tool("losetup", "mount"), "-f", "--show", "--direct-io=on", image]
    ).strip()
    try:
        child.output([require_tool(tool, package), *words, loop])
        child.output([require_tool("mount", "mount"), "-t", filesystem, loop, mounted])
        try:
            yield mounted
        finally:
            child.output([require_tool("umount", "mount"), mounted])
    finally:
        child.output([require_tool("losetup", "mount"), "-d", loop])
        image.unlink()


def _first_rounds(program: Path, where: Path) -> dict[str, Any]:
    """What a process gets that has learned nothing, and one that remembers, on each filesystem that
    this machine's kernel has and this user may mount."""
    have = Path("/proc/filesystems").read_text().split()
    words = ["first", "--rounds", str(FIRST_ROUNDS)]
    targets: list[dict[str, Any]] = []
    for filesystem in FIRST_MAKE:
        if filesystem not in have or os.geteuid() != 0:
            print(f"host-first: without {filesystem}: it cannot be mounted here", flush=True)
            continue
        with _loop(where, filesystem) as mounted:
            targets += _pdio_bench(program, words, mounted)["targets"]
    if not targets:
        targets = _pdio_bench(program, words, where)["targets"]
    return {"targets": targets}


def _host(run: Host, program: Path) -> dict[str, Any]:
    with scratch() as where:
        if run.name == "host-fio":
            data = _fio_rounds(program, where)
        elif run.name == "host-preload":
            data = _preload_rounds(where)
        elif run.name == "host-start":
            data = _start_rounds(where)
        elif run.name == "host-first":
            data = _first_rounds(program, where)
        elif run.name == "host-neighbour":
            data = _neighbour_rounds(program, where)
        elif run.name == "host-announce":
            data = _announce_rounds(where)
        elif run.name == "host-tools":
            data = pdio_tools.measure(
                program, crates.libpdio(), where, lambda words, env: _output(words, where, env)
            )
        else:
            data = _pdio_bench(program, run.words, where)
    return {"what": run.what, "command": " ".join(["pdio", "bench", *run.words]), "data": data}


# ---------------------------------------------------------------------------------- the board

BOARD_MIB: Final = 64  # a measurement, and as much page cache for it
NVME_BYTES_PER_S: Final = 2_000_000_000  # PCIe 2, four lanes: the paper's limit
HDD_BYTES_PER_S: Final = 110_000_000
HDD_SEEKS_PER_S: Final = 120

NVME: Final = Disk(driver="nvme", size_mib=768, memory=True, bytes_per_s=NVME_BYTES_PER_S)
HDD: Final = Disk(driver="ahci", size_mib=768, memory=True)

TOOLS: Final = ("mke2fs", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs")

COMMON: Final = (
    f"--bytes {BOARD_MIB}M --cache {BOARD_MIB}M --rounds 1 --modes buffered,direct,dontcache,pdio"
)
SWEEP: Final = """
bench write paper {common} --source --profile --direction write --sizes {sizes}
bench read paper {common} --profile --direction read --sizes {sizes}
"""
PLAIN: Final = "bench plain paper {common} --direction write --sizes {sizes}\n"
# What a process gets that knows nothing of the disk.
FIRST: Final = f"bench first first --cache {BOARD_MIB}M --rounds 1 --modes buffered,direct,pdio\n"


STORAGE: Final = "storage"
OLDER: Final = "storage-6.12"


def _job(
    name: str, filesystem: str, script: str, disk: Disk | None, guest: dict[str, bytes],
    **machine: Any,
) -> Job:  # fmt: skip
    """A boot of which the kernel is still a configuration's name."""
    device = {"nvme": "/dev/nvme0n1", "ahci": "/dev/sda"}[disk.driver] if disk else "/dev/nullb0"
    cgroups = "old_cgroups"
    if disk is HDD:
        limits = f"rbps={HDD_BYTES_PER_S} wbps={HDD_BYTES_PER_S}"
        if "random" in name:
            limits += f" riops={HDD_SEEKS_PER_S} wiops={HDD_SEEKS_PER_S}"
        cgroups = f"limited_disk {limits}"
    fixed: dict[str, Any] = {
        "board": "x86-slow",
        "config": "reservation",
        "cma_mib": 0,
        "words": ("profile=4",),
    }
    settings = fixed | machine
    return Job(
        f"bench-pdio-{name}",
        jobs.script(
            "bench-pdio",
            fill_mib=EXACT_DISK_GIB << 10 if settings["words"] == EXACT_DISK else 0,
            tunables=SLOW_GLIBC,
            cgroups=cgroups,
            filesystem=filesystem,
            device=device,
            benches=f"\n{script}",
        ),
        Path(STORAGE),
        Machine(disks=(disk,) if disk else (), **settings),
        limit_s=RUN_LIMIT_S,
        programs=TOOLS,
        files=guest,
    )


# Each way on each filesystem, in figures that no host changes: the disk is in the guest's memory.
FILESYSTEMS: Final = ("ext4", "xfs", "btrfs", "f2fs")
WAYS_MIB: Final = 128
WAYS_SIZES: Final = (4 * KIB, 64 * KIB, MIB)
# And without fio.
OTHER_SIZES: Final = (512, 16 * KIB, 256 * KIB, 4 * MIB, 16 * MIB)
WAYS: Final = (
    f"bench ways paper --bytes {WAYS_MIB}M --cache {BOARD_MIB}M --rounds 1 "
    f"--modes {','.join(MODES)} --sizes {{sizes}}\n"
)
# Beside them fio, in requests of the calls' size, without what it does for its own statistics and
# for disks that compress. At the largest depth requests go in batches, which helps small ones.
FIO_ON_BOARD: Final = (*FIO, "--gtod_reduce=1", "--scramble_buffers=0", "--runtime=4", "--minimal")
FIO_DEPTHS: Final[dict[int, tuple[str, ...]]] = {
    1: (),
    4: (),
    16: (),
    64: ("--iodepth_batch=16", "--iodepth_batch_complete_max=64"),
}
FIO_MEMORY: Final = 16 * MIB  # of all requests in flight; the page cache has the rest
# fio allocates a file before it starts its clock, if it is told to.
FRESH, ALLOCATED = "none", "native"


def fio_command(direction: str, block: int, depth: int, fallocate: str) -> str:
    """A stream of fio in a guest: to a file that is not there, or from one that is."""
    file = "/mnt/new" if direction == "write" else "/mnt/old"
    words = [
        "fio", *FIO_ON_BOARD, f"--filename={file}", f"--rw={direction}", f"--bs={block}",
        f"--iodepth={depth}", *FIO_DEPTHS[depth], f"--size={WAYS_MIB}M",
        f"--fallocate={fallocate}",
    ]  # fmt: skip
    return " ".join(words)


def _fio_streams(sizes: Sequence[int]) -> Iterator[str]:
    yield f"begin_fio {BOARD_MIB} {WAYS_MIB}\n"
    for direction, files in (("write", (FRESH, ALLOCATED)), ("read", (FRESH,))):
        for block in sizes:
            for depth in FIO_DEPTHS:
                if depth * block > FIO_MEMORY:
                    continue
                for fallocate in files:
                    command = fio_command(direction, block, depth, fallocate)
                    yield f"stream_fio {direction} {block} {depth} {fallocate} {command}\n"


EXACT_DISK_GIB: Final = 1
EXACT_DISK: Final = null_disk(
    EXACT_DISK_GIB, completion_ns=50_000, mbps=NVME_BYTES_PER_S // 1_000_000
)
# What is looked at on Linux 6.12 as well.
OLDER_SIZES: Final = (64 * KIB,)

# Beyond the paper: clocks in nanoseconds an instruction, cores, frames.
SHIFTS: Final = (0, 1, 2, 3)
SHIFT_SIZES: Final = (512, 4 * KIB, MIB)
CORES: Final = (1, 2)
FRAMES: Final = (  # label, words: video of 1280 x 720 in two bytes, and a sensor's samples
    ("video", f"--frame {1280 * 720 * 2} --rate 30 --length 6"),
    ("sensor", "--frame 4096 --rate 2000 --length 6"),
)
HOGS: Final = (0, 2)


# Where libpdio.so takes no files, on the exact board: the disk is in the guest's memory.
ELSEWHERE: Final = "elsewhere"
ELSEWHERE_MIB: Final = 192
ELSEWHERE_SIZES: Final = (4 * KIB, 64 * KIB, MIB)
ELSEWHERE_ROUNDS: Final = 3
ELSEWHERE_WAYS: Final = ("plain", "direct", "preload", "pdio")


def _elsewhere(guest: dict[str, bytes]) -> Job:
    script = jobs.script(
        "bench-elsewhere",
        mib=ELSEWHERE_MIB,
        sizes=" ".join(map(str, ELSEWHERE_SIZES)),
        rounds=ELSEWHERE_ROUNDS,
        ways=" ".join(ELSEWHERE_WAYS),
    )
    return Job(
        f"bench-pdio-{ELSEWHERE}",
        script,
        Path(STORAGE),
        Machine(config="reservation", cma_mib=0, extra_mib=1280, words=null_disk(1)),
        limit_s=3 * RUN_LIMIT_S,
        programs=("mke2fs", "bindfs", "dd"),
        files=guest | initramfs.placed("bin/libpdio.so", crates.libpdio()),
    )


# A reader beside a long copy, on the exact board's one processor.
NEIGHBOUR: Final = "neighbour"
BOARD_NEIGHBOUR_MIB: Final = 160


def _neighbour(guest: dict[str, bytes]) -> Job:
    places = {"pdio": "/bin/pdio", "library": "/bin/libpdio.so", "neighbour": "/bin/neighbour"}
    script = jobs.script("bench-neighbour", fill_mib=EXACT_DISK_GIB << 10) + neighbour_script(
        limit=BOARD_NEIGHBOUR_MIB * MIB, group="/cgroup", where="/mnt", **places
    )
    return Job(
        f"bench-pdio-{NEIGHBOUR}",
        script,
        Path(STORAGE),
        Machine(config="reservation", cma_mib=0, extra_mib=1280, words=EXACT_DISK),
        limit_s=3 * RUN_LIMIT_S,
        programs=("mke2fs", "cp", "dd", "tar"),
        files=guest | initramfs.placed("bin/libpdio.so", crates.libpdio()),
    )


def board_jobs(guest: dict[str, bytes]) -> list[Job]:
    """All boots, the longest first."""
    made: list[Job] = []

    def add(name: str, filesystem: str, script: str, disk: Disk | None, **machine: Any) -> None:
        script = script.replace("{common}", COMMON)
        made.append(_job(name, filesystem, script, disk, guest, **machine))

    paper, few = words_of(PAPER_SIZES), words_of(FEW_SIZES)
    add("ahci-ext4", "ext4", SWEEP.replace("{sizes}", paper), HDD)
    add("nvme-ext4", "ext4", SWEEP.replace("{sizes}", paper), NVME)
    add("ahci-xfs", "xfs", SWEEP.replace("{sizes}", few), HDD)
    add("nvme-xfs", "xfs", SWEEP.replace("{sizes}", few), NVME)
    add("tmpfs", "tmpfs", SWEEP.replace("{sizes}", paper), None)
    add("plain-ext4", "ext4", PLAIN.replace("{sizes}", paper), NVME)
    add("plain-xfs", "xfs", PLAIN.replace("{sizes}", few), NVME)
    stream = "".join(
        f"bench {label}-{hogs} stream {words} --hogs {hogs} --cache {BOARD_MIB}M --rounds 1 "
        "--modes buffered,direct,pdio\n"
        for label, words in FRAMES
        for hogs in HOGS
    )
    add("stream", "ext4", stream, NVME)
    for filesystem in ("btrfs", "f2fs"):
        add(filesystem, filesystem, SWEEP.replace("{sizes}", few), NVME)
    exact = {"board": "x86", "shift": 1, "extra_mib": 1280, "words": EXACT_DISK}
    has_fio = {"lib/shm.so": initramfs.preload_library("shm")}

    def add_ways(name: str, filesystem: str, sizes: Sequence[int], storage: str) -> None:
        script = WAYS.replace("{sizes}", words_of(sizes)) + "".join(_fio_streams(sizes))
        add(f"ways-{name}", filesystem, script, None, **exact)
        made[-1] = replace(
            made[-1],
            kernel=Path(storage),
            limit_s=3 * RUN_LIMIT_S,
            programs=(*TOOLS, "fio"),
            files=guest | has_fio,
        )

    for filesystem in FILESYSTEMS:
        add_ways(filesystem, filesystem, WAYS_SIZES, STORAGE)
    add_ways("6.12", "ext4", OLDER_SIZES, OLDER)
    for filesystem in FILESYSTEMS:
        others = WAYS.replace("{sizes}", words_of(OTHER_SIZES))
        add(f"sizes-{filesystem}", filesystem, others, None, **exact)
    made += [_elsewhere(guest), _neighbour(guest)]
    for filesystem in FIRST_MAKE:
        add(f"first-{filesystem}", filesystem, FIRST, None, **exact)
    add("random", "ext4", "bench random random {common} --seconds 2\n", NVME)
    add("random-ahci", "ext4", "bench random random {common} --seconds 2\n", HDD)
    repeat = PLAIN.replace("--rounds 1", "").replace("{common}", COMMON.replace("1 --m", "3 --m"))
    add("repeat", "ext4", repeat.replace("{sizes}", words_of(SHIFT_SIZES)), NVME)
    sizes = words_of(SHIFT_SIZES)
    for shift in SHIFTS:
        if shift != 1:
            add(f"clock-{shift}", "ext4", PLAIN.replace("{sizes}", sizes), NVME, shift=shift)
    for cores in CORES:
        add(
            f"cores-{cores}", "ext4",
            PLAIN.replace("{sizes}", sizes), NVME, board="x86-slow-smp", cores=cores,
        )  # fmt: skip
    return made


def _expected(job: Job) -> dict[str, float]:
    if job.name.endswith(ELSEWHERE):
        ways = len(ELSEWHERE_SIZES) * len(ELSEWHERE_WAYS) - 1  # not direct in small calls
        return {"timed": float(2 * 2 * ways * ELSEWHERE_ROUNDS)}
    if job.name.endswith(NEIGHBOUR):
        return {"neighbour": float(len(NEIGHBOUR_WAYS) * NEIGHBOUR_ROUNDS)}
    counted = {"bench": "\nbench ", "fio": "\nstream_fio "}
    return {kind: float(job.script.count(words)) for kind, words in counted.items()}


# ----------------------------------------------------------------------------------- the whole

# Of all boots, two at a time, on two processors.
BOARD_ESTIMATE_S: Final = 4400.0


def _provenance() -> dict[str, Any]:
    return {
        "experiment": "bench-pdio",
        "machine": {"cpu": processor(), "kernel": platform.release()},
    }


def run(only: str = "") -> None:
    """Measure what `only` names; others of this machine stay, and say what build of pdio they are
    of."""
    every = [*(one.name for one in host_runs()), *(job.name for job in board_jobs({}))]
    wanted = names.chosen(only, every, "run")
    program = crates.pdio()
    guest = initramfs.placed("bin/pdio", program)
    image = kernel.image(STORAGE)
    binaries = {"pdio": program, "libpdio": crates.libpdio()}
    build = {name: sha256(path.read_bytes())[:16] for name, path in binaries.items()}
    about = _provenance() | {
        "storage_kernel": image.about(),
        "qemu": qemu_version(),
    }
    hosts = [one for one in host_runs() if one.name in wanted]
    boots = [job for job in board_jobs(guest) if job.name in wanted]
    results: dict[str, Any] = {**about, "host": {}, "board": {}}
    if only and (HERE / "results.json").is_file():
        before = samples.load(HERE)
        # Figures of the exact board are of no machine.
        exact = all(BOARDS[one["board"]].exact for one in before["board"].values())
        same = [key for key in about if key != "machine" or before["host"] or not exact]
        if all(before.get(key) == about[key] for key in same):
            results = before | about
        else:
            print("earlier results are of another machine or kernel: left out", flush=True)
    share = len(boots) / len(board_jobs(guest))
    seconds = sum(one.estimate_s for one in hosts) + share * BOARD_ESTIMATE_S
    print(f"this takes about {max(round(seconds / 60), 1)} minutes", flush=True)
    with progress.meters() as meters:
        meter = meters.add("measuring on this machine") if hosts else None
        total = sum(one.estimate_s for one in hosts)
        done = 0.0
        for one in hosts:
            if meter:
                meter.at(done / total, one.name)
            results["host"][one.name] = build | _host(one, program)
            samples.save(HERE, results)
            done += one.estimate_s
        if meter:
            meters.done(meter)
    if boots:
        images = {name: kernel.image(name) for name in {str(job.kernel) for job in boots}}
        releases = {f"{one.bootable}": one.about()["release"] for one in images.values()}
        boots = [replace(job, kernel=images[str(job.kernel)].bootable) for job in boots]

        def keep(outcome: Outcome) -> None:
            """What there is must not be lost when somebody ends this early."""
            if outcome.failure is None:
                name = outcome.job.name.removeprefix("bench-pdio-")
                linux = {"linux": releases[str(outcome.job.kernel)]}
                results["board"][name] = build | linux | stored(outcome)
                samples.save(HERE, results)

        measure([job for job in boots if job.machine.counts], _expected, each=keep)
        # These use the host's processors as they are: alone.
        measure([job for job in boots if not job.machine.counts], _expected, 1, keep)
