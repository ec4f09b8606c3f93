# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs checks, and counts how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from rich.markup import escape

from nocopy_lab import child, crates, initramfs, names, progress
from nocopy_lab.checks import hooks, host, lanes  # noqa: F401  # they have checks
from nocopy_lab.checks.guest import GUEST_CHECKS
from nocopy_lab.checks.kinds import (
    CRATES,
    FAILED_IMAGES,
    HOST_CHECKS,
    KERNELS,
    SKIPPED_PARTS,
    UNREADY,
    GuestCheck,
    HostCheck,
    Skip,
)
from nocopy_lab.checks.source import bootable, build
from nocopy_lab.paths import LOGS, LabError, locked, tool
from nocopy_lab.run import Job, Outcome, boot

# So many checks run side by side.
WORKERS: Final = 2
# So many of those that took longest are named at the end.
SLOWEST: Final = 10


@dataclass
class Tally:
    total: int
    begun: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    _took: list[tuple[float, str]] = field(default_factory=list)
    _said: list[str] = field(default_factory=list)  # of those that did not pass
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str) -> str:
        """A check begins; returns its name with its number."""
        with self._lock:
            self.begun += 1
            return f"check {self.begun} of {self.total}, {name}"

    def count(
        self, name: str, seconds: float, verdict: Exception | None, also: bool = False
    ) -> None:
        """One more has ended, or a part of one that counts also."""
        with self._lock:
            self.total += also
            self.begun += also
            at = f"{self.passed + self.failed + self.skipped + 1:{len(str(self.total))}}"
            of = f"{at}/{self.total}  {name}"
            self._took.append((seconds, name))
            if verdict is None:
                self.passed += 1
                progress.console.print(f"[green]PASS[/]  {of}  ({seconds:.1f} s)")
            elif isinstance(verdict, Skip):
                self.skipped += 1
                self._said.append(f"skipped: {name} ({verdict})")
                progress.console.print(f"[yellow]SKIP[/]  {of}  ({escape(str(verdict))})")
            else:
                self.failed += 1
                self._said.append(f"failed: {name}")
                progress.console.print(f"[red]FAIL[/]  {of}  ({seconds:.1f} s)")
                progress.console.print(f"      {verdict}", markup=False)

    def summary(self) -> list[str]:
        """What one looks for at the end of a long log: what did not pass, what took longest, and
        how many there were."""
        slowest = sorted(self._took, reverse=True)[:SLOWEST]
        told = [f"{name} {seconds:.0f} s" for seconds, name in slowest]
        return [
            *sorted(self._said),
            *([f"longest: {'; '.join(told)}"] if len(self._took) > SLOWEST else []),
            f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped",
        ]


def _judged(function: Callable[[], None]) -> Exception | None:
    try:
        function()
    except (LabError, Skip) as verdict:
        return verdict
    except Exception as error:  # a bug in a check is a failure of that check
        return LabError(f"the check itself failed: {type(error).__name__}: {error}")
    return None


def _boot(job: Job) -> Outcome:
    with progress.meter(job.name) as meter:
        begin = time.monotonic()
        done = threading.Event()

        def tick() -> None:
            while not done.wait(1.0):
                meter.at((time.monotonic() - begin) / job.limit_s, "of its time limit")

        threading.Thread(target=tick, daemon=True).start()
        try:
            return boot(job)
        finally:
            done.set()


def _guest_check(guest: GuestCheck) -> None:
    if guest.image in FAILED_IMAGES:
        raise Skip(f"the {guest.image} kernel did not build")
    wanted = {p for job in guest.jobs for p in job.programs}
    missing = sorted(p for p in wanted if tool(p) is None)
    if missing:
        package = initramfs.PACKAGES.get(missing[0])
        how = f"; run: apt-get install {package}" if package else ""
        raise Skip(f"no program {missing[0]} for the guest{how}")
    if guest.prepare in UNREADY:
        raise UNREADY[guest.prepare]
    if guest.run is not None:
        guest.run(bootable(guest.image))
        return
    try:
        files = guest.files(guest.image)
    except crates.Unavailable as reason:
        raise Skip(str(reason)) from reason
    jobs = [
        replace(job, kernel=bootable(guest.image), files={**job.files, **files})
        for job in guest.jobs
    ]
    guest.judge([_boot(job) for job in jobs])


def all_checks() -> list[HostCheck | GuestCheck]:
    return [*HOST_CHECKS, *GUEST_CHECKS]


def named(only: str) -> list[HostCheck | GuestCheck]:
    """The check of this name, or else all that names.chosen() gives."""
    every = {one.name: one for one in all_checks()}
    if only in every:
        return [every[only]]
    hint = "lab/lab test --list names them"
    return [every[name] for name in names.chosen(only, every, "check", hint)]


def run_all(only: str = "", asked: bool = False, quick: bool = False) -> bool:
    """Run the checks that `only` names; true if some passed and none failed.

    With `asked`, those that run only if asked for run as well. With `quick`, only those of
    `make check` run.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    wanted = [one for one in named(only) if (one.quick if quick else asked or one.asked_for(only))]
    if not wanted:
        raise LabError(f"those with '{only}' run only if asked for by the first word, or --all")
    hosts = [one for one in wanted if isinstance(one, HostCheck)]
    guests = [one for one in wanted if isinstance(one, GuestCheck)]
    tally = Tally(len(hosts) + len(guests))
    # Logs have one name each, and from some of them is read how a check ended.
    with locked(LOGS / ".checks.lock"):
        lanes.run(_tasks(hosts, guests, tally), WORKERS, child.end_all)
    print(*tally.summary(), sep="\n", flush=True)
    return tally.failed == 0 and tally.passed > 0


def _tasks(
    hosts: Sequence[HostCheck], guests: Sequence[GuestCheck], tally: Tally
) -> list[lanes.Task]:
    """Builds of kernels; checks of the host in their order; guest checks and what they need."""

    def checked(name: str, run: Callable[[], None], parts: bool = False) -> None:
        begin = time.monotonic()
        with progress.meter(tally.begin(name)):
            verdict = _judged(run)
        if child.closing():
            return
        tally.count(name, time.monotonic() - begin, verdict)
        if parts:
            for part, reason in SKIPPED_PARTS:
                tally.count(f"{name}: {part}", 0.0, Skip(reason), also=True)
            SKIPPED_PARTS.clear()

    def kernel(number: int, name: str) -> None:
        begin = time.monotonic()
        with progress.meter(f"kernel {number} of {len(images)} for the guests, {name}"):
            verdict = _judged(partial(build, name))
        if verdict is not None and not child.closing():
            FAILED_IMAGES.add(name)
            # The checks that boot it are skipped, and few kernels have a check of their own.
            tally.count(
                f"kernel {name} for the guests", time.monotonic() - begin, verdict, also=True
            )

    def ready(prepare: Callable[[], None]) -> None:
        with progress.meter("programs and disks for the guests"):
            verdict = _judged(prepare)
        if verdict is not None:
            UNREADY[prepare] = verdict

    # Kernels first: guests begin as soon as one is there and the crates leave them a processor.
    images: dict[str, lanes.Task] = {}
    for name in dict.fromkeys(guest.image for guest in guests):
        images[name] = lanes.Task(partial(kernel, len(images) + 1, name), KERNELS)
    checks = [
        lanes.Task(partial(checked, one.name, one.run, one.lane == CRATES), one.lane)
        for one in hosts
    ]
    prepared = {
        prepare: lanes.Task(partial(ready, prepare), CRATES)
        for prepare in dict.fromkeys(guest.prepare for guest in guests)
        if prepare is not None
    }
    tasks = [*images.values(), *checks, *prepared.values()]
    for guest in guests:
        needs = [images[guest.image]]
        if guest.prepare is not None:
            needs.append(prepared[guest.prepare])
        run = partial(checked, guest.name, partial(_guest_check, guest))
        tasks.append(lanes.Task(run, after=tuple(needs)))
    return tasks
