# SPDX-License-Identifier: MIT OR Apache-2.0
"""Child processes that never outlive the lab.

Each child leads its own process group and has a time limit. What is still running when
the lab ends, by whatever way a program can notice, is ended by its own process group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nocopy_lab.paths import CLOSING, LabError, held, tail

# How long a child may take to end after SIGTERM before it gets SIGKILL.
GRACE_S = 3.0
# A time limit ends what hangs. Nothing may fail because the machine is slow or does other things.
PATIENCE = 5

_running: set[subprocess.Popen[bytes]] = set()
# The logs that children of run() write, by the thread that waits for them.
_logs: dict[int, Path] = {}
_lock = threading.Lock()
_reaping = threading.Lock()
# True while the main thread starts a child. A signal that comes then is kept, by its number.
_starting = False
_told = 0


class TimedOut(LabError):  # noqa: N818
    """A child was ended because its time was up."""


class Leader(subprocess.Popen[bytes]):
    """The leader of a process group. What it left there ends before it is reaped: from then on its
    number may be somebody else's."""

    def poll(self) -> int | None:
        with _reaping:
            with contextlib.suppress(ChildProcessError, ProcessLookupError, PermissionError):
                look = os.WEXITED | os.WNOWAIT | os.WNOHANG
                if self.returncode is None and os.waitid(os.P_PID, self.pid, look):
                    os.killpg(self.pid, signal.SIGKILL)
            return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        begin, pause = time.monotonic(), 0.0005
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() - begin > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            # As Popen.wait() does.
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return status


def end(process: subprocess.Popen[bytes]) -> None:
    """End one child and all of its process group."""
    if process.poll() is not None:
        return
    for sign, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break


def end_all() -> None:
    """End every child that is still running, and start no new one."""
    CLOSING.set()
    with _lock:
        left = list(_running)
    for process in left:
        end(process)


def closing() -> bool:
    """Whether the lab has been told to end: what fails from now on says nothing."""
    return CLOSING.is_set()


def _leave() -> None:
    global _told
    # Once: what is cleaned up on the way out has children, too.
    told, _told = _told, 0
    if told == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + told)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    global _told
    if CLOSING.is_set():
        return  # it is ending, and must not be kept from ending its children
    _told = number
    if not _starting:
        _leave()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals wait in the main thread: a child that is not known yet would be left behind."""
    global _starting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _starting = True
    try:
        yield
    finally:
        _starting = False
    if _told:
        _leave()


def end_children_with_us() -> None:
    """Call once in the main thread: signals that people send end the lab and all its children.

    Under nohup it goes on when the terminal goes.
    """
    atexit.register(end_all)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without what a surrounding make or a user's kernel habits leave in it."""
    drop = {
        "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARCH", "CROSS_COMPILE",
        "KCFLAGS", "KCPPFLAGS", "KAFLAGS", "O", "V", "W", "C", "CFLAGS", "LDFLAGS",
        "MAKEFILES", "GNUMAKEFLAGS", "LLVM", "LLVM_IAS", "LOCALVERSION", "CPATH", "C_INCLUDE_PATH",
        "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTUP_TOOLCHAIN",
    }  # fmt: skip
    # KCONFIG_CONFIG is a file that configuring would write.
    # Git tells its hooks of the repository that calls them: ours would be that one.
    # What programs say is looked through; LANGUAGE counts even beside LC_ALL=C.UTF-8, and Linux's
    # Makefile lets the compiler see no LC_ALL.
    prefixes = ("KBUILD_", "KCONFIG_", "GIT_", "LANG", "LC_")
    kept = {k: v for k, v in os.environ.items() if k not in drop and not k.startswith(prefixes)}
    kept["LC_ALL"] = "C.UTF-8"
    kept.update(extra or {})
    return kept


@contextlib.contextmanager
def started(
    command: Sequence[str | Path],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is ended when the block is left."""
    with _lock, _uninterrupted():
        # Asked under the lock: end_all() ends what is known by then, and nothing may come later.
        if CLOSING.is_set():
            raise LabError("interrupted")
        try:
            process = Leader(
                [str(word) for word in command],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=clean_environment(env),
                start_new_session=True,
                pass_fds=held(),
            )
        except FileNotFoundError as error:
            if error.filename != str(command[0]):
                raise
            said = f"{command[0]} is not installed; install it, and run this again"
            raise LabError(said) from error
        _running.add(process)
    try:
        yield process
    finally:
        end(process)
        with _lock:
            _running.discard(process)


@contextlib.contextmanager
def _written(log: Path) -> Iterator[None]:
    me = threading.get_ident()
    _logs[me] = log
    try:
        yield
    finally:
        del _logs[me]


def last_words(thread: int) -> str:
    """What the child that this thread waits for has written last."""
    log = _logs.get(thread)
    if log is None:
        return ""
    lines = [line.strip() for line in tail(log, 5).splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return "".join(letter for letter in said if letter.isprintable())[:80]


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    limit_s: float,
    what: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_poll: Callable[[], None] | None = None,
    ok: Sequence[int] = (0,),
) -> int:
    """Run a command with its output in a log; failure says what, the last lines, and where.

    The limit is for a machine that does nothing else; see PATIENCE.
    """
    limit_s *= PATIENCE
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with (
        log.open("wb") as out,
        _written(log),
        started(command, stdout=out.fileno(), stderr=subprocess.STDOUT, cwd=cwd, env=env) as child,
    ):
        while True:
            try:
                status = child.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if on_poll is not None:
                    on_poll()
                if time.monotonic() - begin > limit_s:
                    end(child)
                    raise TimedOut(
                        f"{what}: still not done after {limit_s:.0f} s; see {log}\n{tail(log)}"
                    ) from None
    if status not in ok:
        raise LabError(f"{what} failed (exit status {status}); see {log}\n{tail(log)}")
    return status


def until(done: Callable[[], bool], *, limit_s: float, what: str) -> None:
    """Wait until something is so; the limit as in run()."""
    begin = time.monotonic()
    while not done():
        if time.monotonic() - begin > limit_s * PATIENCE:
            raise TimedOut(f"{what}: still not so after {limit_s * PATIENCE:.0f} s")
        time.sleep(0.05)


def communicate(
    command: Sequence[str | Path],
    *,
    limit_s: float = 60.0,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Standard output and messages of a short command; the limit as in run()."""
    limit_s *= PATIENCE
    pipe = subprocess.PIPE
    name = Path(command[0]).name  # results may have what went wrong, and no place of this machine
    with started(command, stdin=stdin, stdout=pipe, stderr=pipe, cwd=cwd, env=env) as child:
        try:
            out, err = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"{name}: not done after {limit_s:.0f} s") from None
    said = err.decode(errors="replace")
    # Of a library that it cannot preload the loader only warns: what ran was the plain program.
    if child.returncode != 0 or "cannot be preloaded" in said:
        text = said.strip().splitlines() or ["no message"]
        raise LabError(f"{name} failed (exit status {child.returncode}): {text[-1]}")
    return out.decode(errors="replace"), said


def output(
    command: Sequence[str | Path],
    *,
    limit_s: float = 60.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Standard output of a short command; the limit as in run()."""
    return communicate(command, limit_s=limit_s, cwd=cwd, env=env)[0]


def processor_s() -> float:
    """Processor time of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


@dataclass(frozen=True)
class Spent:
    """What a run of a program takes, of all its processes."""

    processor_s: float
    minor_faults: float


def spent_by(command: Sequence[str], env: Mapping[str, str], runs: int, limit_s: float) -> Spent:
    """The mean of several runs of a program that is over at once: what `started` does in the new
    process itself would be most of that. Nothing else may end meanwhile. The limit is of each run,
    as in run()."""
    output(command, limit_s=limit_s, env=env)  # raises if a library cannot be preloaded
    limit_s *= PATIENCE
    before, faults = processor_s(), _minor_faults()
    for _ in range(runs):
        process = os.posix_spawn(command[0], tuple(command), env)
        pidfd = os.pidfd_open(process)
        ended: list[int] = []
        try:
            ended, _, _ = select.select([pidfd], [], [], limit_s)
        finally:
            if not ended:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            state = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if not ended:
            raise LabError(f"{command[0]} was not done after {limit_s:.0f} s")
        if state:
            raise LabError(f"{command[0]} ended with status {state}")
    return Spent((processor_s() - before) / runs, (_minor_faults() - faults) / runs)
