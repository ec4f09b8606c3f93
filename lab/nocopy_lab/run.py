# SPDX-License-Identifier: MIT OR Apache-2.0
"""One boot: a job goes in, results and a console come out.

The guest's first serial port is its console. The second carries results, one JSON object a line;
the last is {"exit": N}. A boot is good if that line arrived with N = 0 and the kernel did not
complain.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache as once
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, initramfs
from nocopy_lab.arch import UM, X86
from nocopy_lab.board import BOARDS, Disk, Machine, qemu_version, with_device_tree
from nocopy_lab.paths import (
    LAB,
    LOGS,
    LabError,
    cache,
    disk_full_is_one_line,
    free_mib,
    locked,
    require_space,
    require_tool,
    tail,
    write_if_changed,
)

Row = dict[str, Any]

# What a kernel prints when something is wrong. A job may tolerate some, by these names.
SPLATS: Final[dict[str, str]] = {
    "bug": r"\bBUG: (?!KCSAN)|kernel BUG at|Bad page state|bad page map",
    "race": r"\bBUG: KCSAN",
    "warning": r"\bWARNING: (?!CPU\d+: no)",
    "oops": r"\bOops\b|general protection fault|Unable to handle kernel",
    "panic": r"Kernel panic",
    "sanitizer": r"\b(KASAN|KFENCE|UBSAN|KMEMLEAK)\b.*(:|in )",
    "lockdep": r"possible recursive locking|circular locking|inconsistent lock state|"
    r"possible irq lock inversion|suspicious RCU usage|DEBUG_LOCKS_WARN|lock held when returning",
    "atomic-sleep": r"sleeping function called from invalid context|scheduling while atomic",
    "stall": r"rcu: INFO: rcu_\S+ .*detected|blocked for more than|soft lockup|hard LOCKUP|"
    r"rcu_\S+ kthread starved",
    "allocation": r"page allocation failure|page allocation stalls",
    "oom": r"Out of memory: Killed|oom-kill:|invoked oom-killer",
    "user": r"segfault at|traps: ",
}

# Sanitizers announce themselves at boot; these lines are not reports.
_HARMLESS: Final = re.compile(
    r"KernelAddressSanitizer initialized|kcsan: (enabled|selftest|strict)"
)


# The last line of a kernel that powers off. After it the CPUs are stopped in any state. One that
# still runs may wake a task on a stopped one, and every kernel warns of that.
_GOODBYE: Final = re.compile(r"^(?:\[ *[\d.]+\] )?reboot: Power down", re.MULTILINE)
_STOPPED: Final = re.compile(r"WARNING: .* at native_smp_send_reschedule\+")


def splats(console: str, allow: Sequence[str] = ()) -> list[str]:
    """The lines of a console in which the kernel reports a fault."""
    wanted = re.compile("|".join(p for name, p in SPLATS.items() if name not in allow))
    life, *end = _GOODBYE.split(console, maxsplit=1)
    lines = life.splitlines()
    lines += [line for rest in end for line in rest.splitlines() if not _STOPPED.search(line)]
    return [line for line in lines if wanted.search(line) and not _HARMLESS.search(line)]


_KTAP: Final = re.compile(r"^(?:\[ *[\d.]+\] )?( *)(not ok|ok) \d+ ?-? ?([^#\n]*?) *(# ?SKIP.*)?$")


def ktap(console: str) -> tuple[list[str], list[str]]:
    """Passed and failed tests in the output of KUnit; of suites only those that failed."""
    passed: list[str] = []
    failed: list[str] = []
    for line in console.splitlines():
        found = _KTAP.match(line)
        if found and found[1] and not found[4]:
            (failed if found[2] == "not ok" else passed).append(found[3])
        elif found and not found[1] and found[2] == "not ok":
            failed.append(f"suite {found[3]}")
    return passed, failed


# Seconds after which a guest is ended. This limit is only for guests that hang: a slow host must
# not reach it. With one such guest all tests must still end before a hosted machine gives up.
LIMIT_S: Final = 1200.0
# Guests that measure take longer, and only whoever started them waits.
MEASURING_S: Final = 3600.0


@dataclass(frozen=True)
class Job:
    """What to boot and what to do in it."""

    name: str
    script: str
    kernel: Path
    machine: Machine = field(default_factory=Machine)
    limit_s: float = LIMIT_S
    programs: tuple[str, ...] = ()  # of the host, with their libraries
    files: dict[str, bytes] = field(default_factory=dict)
    allow: tuple[str, ...] = ()  # names in SPLATS
    # For a power cut: QEMU is killed so many seconds after the guest's rows are enough. 0: no cut.
    cut_s: float = 0.0
    cut_when: Callable[[Sequence[Row]], bool] = bool
    scratch_mib: tuple[int, ...] = ()  # sizes of empty disks /dev/vda, …; not on exact boards
    prose: bool = False  # what is no JSON is printed as it comes: commands that people type


# The kinds of rows in which a program says what it found, and where, when it found it.
FINDINGS: Final = ("wrong", "io_error", "blog_error", "load_error")


@dataclass
class Outcome:
    job: Job
    command: list[str]
    console: Path
    results: list[Row] = field(default_factory=list)
    exit: int | None = None
    host_s: float = 0.0
    failure: str | None = None
    cut: bool = False  # its power, by the lab
    timed_out: bool = False  # and so ended by the lab
    # What the console has had at the end: the next boot of this name begins a new one.
    said: str = ""

    def require(self) -> Outcome:
        """Return this outcome if the boot was good; else raise the reason."""
        if self.failure is not None:
            said = [f"{self.failure}; see {self.console}", tail(self.console), *self._last_rows()]
            # User Mode Linux has none; this one is of an earlier boot of the name.
            if self.exit is None and not self.timed_out and self.job.machine.arch is not UM:
                said.append(qemu_said(self.console.with_suffix(".qemu")))
            raise LabError("\n".join(line for line in said if line))
        return self

    def _last_rows(self) -> list[str]:
        """What programs of the guest found wrong, whole, and the last rows of the job."""
        wrong = [row for row in self.results if row.get("type") in FINDINGS]
        rows = [row for row in self.results if not str(row.get("type")).endswith("tick")]
        return [
            *(json.dumps(row) for row in wrong[:3]),
            *(json.dumps(row)[:400] for row in rows[-3:] if row not in wrong[:3]),
        ]

    def rows(self, kind: str) -> list[Row]:
        return [row for row in self.results if row.get("type") == kind]


# How QEMU's log shows a processor that is reset: all of its registers.
_REGISTERS: Final = re.compile(r" *([A-Za-z]+\d* *=|CPU Reset|FPU disabled|FPSCR:)")


def qemu_said(log: Path) -> str:
    """The last lines of QEMU's log. It begins with registers, which matter where a CPU gave up."""
    lines = tail(log, 1000).splitlines()
    gave_up = [at for at, line in enumerate(lines) if line == "Triple fault"]
    if gave_up:  # up to the line that says where
        return "\n".join(lines[gave_up[-1] : gave_up[-1] + 7])
    return "\n".join([line for line in lines if not _REGISTERS.match(line)][-5:])


def temporary() -> str:
    """Make a directory for the files of one boot."""
    with disk_full_is_one_line(Path(tempfile.gettempdir())):
        return tempfile.mkdtemp(prefix="nocopy-")


Watch = Callable[[Row], None]


class _Reader:
    """Follows the results file while the guest writes it."""

    def __init__(self, path: Path, watch: Watch | None, prose: bool = False) -> None:
        self.path, self.watch, self.prose = path, watch, prose
        self.rest = b""
        self.offset = 0
        self.rows: list[Row] = []
        self.exit: int | None = None
        self.garbage: str | None = None
        self.begun = False  # the first line is not the job's, see lab/guest/init

    def poll(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if lines and not self.begun:
            self.begun = True
            del lines[0]
        for line in lines:
            self._line(line.decode(errors="replace").strip())

    def _line(self, line: str) -> None:
        if not line:
            return
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, or more than a reader of it takes
            row = None
        ends = isinstance(row, dict) and set(row) == {"exit"}
        if not isinstance(row, dict) or (ends and not isinstance(row["exit"], int)):
            if self.prose:
                print(line, flush=True)
            else:
                self.garbage = self.garbage or line[:120]
            return
        if ends:
            self.exit = row["exit"]
            return
        if row.get("type") != "progress":
            self.rows.append(row)
        if self.watch is not None:
            self.watch(row)


KVM: Final = Path("/dev/kvm")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Seconds for a probe boot; if it takes longer, KVM counts as broken.
KVM_PROBE_S: Final = 30.0


def kvm_works(kernel: Path) -> bool:
    """True if this kernel really runs under KVM here; tried once per boot of the host.

    Opening /dev/kvm is not enough: nested virtualisation may run firmware and still fail in Linux.
    """
    try:
        with KVM.open("r+b"):
            pass
    except OSError:
        return False
    # One file, which begins anew with each boot of the host: what was found before says nothing.
    note, name = cache() / "kvm.json", str(kernel.resolve())
    known = {"boot": BOOT_ID.read_text().strip(), "qemu": qemu_version()}
    with locked(cache() / "kvm.lock"):
        try:
            before = json.loads(note.read_text())
        except (OSError, ValueError):  # there is none, or it was cut off in a crash
            before = {}
        if {key: before.get(key) for key in known} == known:
            known = before
        if name not in known:
            machine = Machine(board="x86-fast", kvm=True)
            probe = Job("kvm-probe", "true\n", kernel, machine, limit_s=KVM_PROBE_S)
            works = _boot(probe, None).failure is None
            if not works and child.closing():
                return False  # whether it does was not found out
            known |= {name: "yes" if works else "no"}
            write_if_changed(note, json.dumps(known, indent=1) + "\n")
    return known[name] == "yes"


@once
def tsc_khz() -> int:
    """How fast the time-stamp counter of this machine ticks; 0 where it has none."""
    if platform.machine() != X86.name:
        return 0
    ticks = initramfs.compiled("ticks", X86, ("-O2",), [LAB / "host/ticks.c"])
    return int(child.output([ticks]))


def on_this_host(machine: Machine, kernel: Path) -> Machine:
    """The machine with what depends on where it runs."""
    if BOARDS[machine.board].kvm and kvm_works(kernel):
        return replace(machine, kvm=True)
    if machine.arch is X86 and not machine.counts:
        return replace(machine, tsc_khz=tsc_khz())
    return machine


def boot(job: Job, watch: Watch | None = None) -> Outcome:
    """Boot a job and wait for its end. Failures inside the guest do not raise."""
    return _boot(replace(job, machine=on_this_host(job.machine, job.kernel)), watch)


class _Processors:
    """Host processors for boots that have to stay on one: each gets the one with the fewest boots.

    When QEMU runs all virtual CPUs on one thread it leaves out their memory barriers, although its
    device models run on other threads. On two processors the NVMe model then misses the guest's
    doorbell once in a thousand requests, and that request is lost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boots = dict.fromkeys(sorted(os.sched_getaffinity(0)), 0)

    @contextlib.contextmanager
    def one(self) -> Iterator[int]:
        with self._lock:
            number = min(self._boots, key=lambda cpu: self._boots[cpu])
            self._boots[number] += 1
        try:
            yield number
        finally:
            with self._lock:
                self._boots[number] -= 1


_processors = _Processors()


def _boot(job: Job, watch: Watch | None) -> Outcome:
    if not (job.machine.counts and job.machine.disks):
        return _boot_with(job, watch, ())
    with _processors.one() as number:
        taskset = require_tool("taskset", "util-linux")
        return _boot_with(job, watch, (taskset, "--cpu-list", str(number)))


def _boot_with(job: Job, watch: Watch | None, prefix: Sequence[str]) -> Outcome:
    LOGS.mkdir(parents=True, exist_ok=True)
    require_space(LOGS, 64)
    console = LOGS / f"{job.name}.console"
    with (
        locked(LOGS / f".{job.name}.lock"),  # one boot at a time writes there
        disk_full_is_one_line(LOGS),
        tempfile.TemporaryDirectory(prefix="nocopy-", dir=_directory(job)) as temp,
    ):
        console.write_bytes(b"")
        ramfs, results = Path(temp) / "initramfs.cpio", Path(temp) / "results"
        initramfs.write(ramfs, job.machine.arch, job.script, job.programs, job.files)
        results.write_bytes(b"")
        machine = with_scratch(job.machine, Path(temp), job.scratch_mib)
        machine = with_device_tree(machine, job.kernel, Path(temp))
        _require_plain(machine.arch is UM, Path(temp), LOGS, job.kernel)
        command = [*prefix, *machine.command(job.kernel, ramfs, console, results)]
        (LOGS / f"{job.name}.command").write_text(shlex.join(command) + "\n")
        (LOGS / f"{job.name}.job").write_text(job.script)
        outcome = Outcome(job, command, console)
        reader = _Reader(results, watch, job.prose)
        user_mode = machine.arch is UM
        qemu_log = console if user_mode else LOGS / f"{job.name}.qemu"
        begin = time.monotonic()
        cut_at = float("inf")
        with (
            qemu_log.open("wb") as log,
            results.open("r+b") as sink,
            child.started(
                command,
                stdin=sink.fileno() if user_mode else subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=subprocess.STDOUT,
                env={"TMPDIR": temp} if user_mode else {},  # its RAM is a file there
            ) as process,
        ):
            while True:
                try:
                    process.wait(0.25)
                    break
                except subprocess.TimeoutExpired:
                    reader.poll()
                if job.cut_s and job.cut_when(reader.rows):
                    cut_at = min(cut_at, time.monotonic() + job.cut_s)
                if time.monotonic() > cut_at:
                    outcome.cut = True
                    process.kill()
                    process.wait()
                    break
                if time.monotonic() - begin > job.limit_s:
                    outcome.timed_out = True
                    break
            reader.poll()
        outcome.host_s = time.monotonic() - begin
        (LOGS / f"{job.name}.results").write_bytes(results.read_bytes())
        outcome.said = console.read_bytes().decode(errors="replace").replace("\r", "")
    outcome.results, outcome.exit = reader.rows, reader.exit
    status = None if outcome.timed_out else process.returncode
    outcome.failure = _verdict(outcome, reader, status, qemu_log)
    return outcome


def _ended(status: int) -> str:
    """How a process ended, by what its parent was told."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by signal {-status}, {signal.strsignal(-status) or 'which has no name'}"


def _verdict(outcome: Outcome, reader: _Reader, status: int | None, log: Path) -> str | None:
    name = outcome.job.name
    found = splats(outcome.said, outcome.job.allow)
    if found:
        return f"{name}: the kernel complains: {found[0].strip()[:160]}"
    if outcome.cut and status == -signal.SIGKILL:
        return None
    if status is None:
        return f"{name}: the guest was not done after {outcome.job.limit_s:.0f} s"
    if status != 0 and outcome.job.machine.arch is UM:
        if "Linux version" in outcome.said:
            return f"{name}: the kernel ended with status {status}"
        said = tail(log, 1) or "no message"
        return (
            f"{name}: User Mode Linux does not start here ({said}); it needs ptrace(), and TMPDIR "
            "has to be a directory that is not mounted noexec"
        )
    if status != 0:
        return f"{name}: QEMU {_ended(status)}: {tail(log, 1) or 'no message'}"
    if reader.garbage is not None:
        return f"{name}: the guest sent a line that is no JSON object: {reader.garbage!r}"
    if reader.exit is None:
        # QEMU also ends well if the guest resets itself, as after a triple fault.
        end = "it powered off" if _GOODBYE.search(outcome.said) else f"QEMU {_ended(status)}"
        return f"{name}: the guest ended without telling how its job went: {end}"
    if reader.exit != 0:
        return f"{name}: the guest's job failed with exit status {reader.exit}"
    return None


def _require_plain(user_mode: bool, *paths: Path) -> None:
    """QEMU's options end at a comma, words of a kernel's command line at a space."""
    bad = " " if user_mode else ","
    for path in paths:
        if bad in str(path):
            raise LabError(
                f"{path} has a '{bad}' in its name, where a board would not find it; put the "
                "repository, NOCOPY_CACHE and TMPDIR elsewhere"
            )


def with_scratch(machine: Machine, directory: Path, sizes_mib: Sequence[int]) -> Machine:
    """The machine with images in a directory for its empty disks and for those of `sizes_mib`."""
    driver = BOARDS[machine.board].disk
    wanted = (*(Disk(size_mib=mib, driver=driver) for mib in sizes_mib), *machine.disks)
    require_space(directory, sum(disk.size_mib for disk in wanted if disk.image is None))
    disks = []
    for number, disk in enumerate(wanted):
        if disk.image is None:
            image = directory / f"scratch{number}.img"
            with image.open("wb") as file:
                file.truncate(disk.size_mib << 20)
            disk = replace(disk, image=image)
        disks.append(disk)
    return replace(machine, disks=tuple(disks))


# A directory of the host whose files are in memory.
SHM: Final = Path("/dev/shm")


def _directory(job: Job) -> Path | None:
    """Where the files of a boot should be, if it matters."""
    need = sum(disk.size_mib for disk in job.machine.disks if disk.memory)
    if job.machine.arch is UM:
        need += job.machine.memory_mib + job.machine.extra_mib
    return SHM if need and SHM.is_dir() and free_mib(SHM) > 2 * need else None


def boot_all(
    jobs: Sequence[Job],
    watch: Callable[[Job, Row], None] | None = None,
    at_once: int = 2,
    each: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Boot independent jobs, `at_once` at a time; return outcomes in the order of the jobs.

    `each` is called with every outcome as soon as its boot has ended, one call at a time.
    """
    lock = threading.Lock()

    def one(job: Job) -> Outcome:
        outcome = boot(job, None if watch is None else lambda row: watch(job, row))
        if each is not None:
            with lock:
                each(outcome)
        return outcome

    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(one, job) for job in jobs]
        try:
            left = set(futures)
            while left:
                done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException as error:
            for future in futures:
                future.cancel()
            if not isinstance(error, Exception):  # we were told to stop: do not wait for guests
                child.end_all()
            raise
        return [future.result() for future in futures]
