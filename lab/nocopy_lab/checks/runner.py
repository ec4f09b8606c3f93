# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs checks, and counts how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from nocopy_lab import child, crates, initramfs, progress
from nocopy_lab.checks import host  # noqa: F401  # has checks
from nocopy_lab.checks.guest import GUEST_CHECKS
from nocopy_lab.checks.kinds import (
    FAILED_IMAGES,
    HOST_CHECKS,
    SKIPPED_PARTS,
    UNREADY,
    GuestCheck,
    HostCheck,
    Skip,
)
from nocopy_lab.checks.source import bootable, build
from nocopy_lab.paths import LOGS, LabError
from nocopy_lab.run import Job, Outcome, boot


@dataclass
class Tally:
    total: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        return self.passed + self.failed + self.skipped

    def next(self, name: str) -> str:
        """The check that comes next, with its number."""
        return f"check {self.done + 1} of {self.total}, {name}"

    def count(self, name: str, seconds: float, verdict: Exception | None) -> None:
        """One more has ended."""
        width = len(str(self.total))
        at = f"{self.done + 1:{width}}/{self.total}"
        took = f"{seconds:.1f} s"
        if verdict is None:
            self.passed += 1
            progress.console.print(f"[green]PASS[/]  {at}  {name}  ({took})")
        elif isinstance(verdict, Skip):
            self.skipped += 1
            progress.console.print(f"[yellow]SKIP[/]  {at}  {name}  ({verdict})", markup=True)
        else:
            self.failed += 1
            progress.console.print(f"[red]FAIL[/]  {at}  {name}  ({took})")
            progress.console.print(f"      {verdict}", markup=False)

    def last_line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def _judged(function: Callable[[], None]) -> Exception | None:
    try:
        function()
    except (LabError, Skip) as verdict:
        return verdict
    except Exception as error:  # a bug in a check is a failure of that check
        return LabError(f"the check itself failed: {error!r}")
    return None


def _boot_checks(checks: Sequence[GuestCheck], tally: Tally) -> None:
    lock = threading.Lock()
    with progress.meters() as bars, ThreadPoolExecutor(2) as pool:

        def one_job(job: Job) -> Outcome:
            with lock:
                meter = bars.add(job.name)
            begin = time.monotonic()
            done = threading.Event()

            def tick() -> None:
                while not done.wait(1.0):
                    meter.at((time.monotonic() - begin) / job.limit_s, "of its time limit")

            clock = threading.Thread(target=tick, daemon=True)
            clock.start()
            try:
                return boot(job)
            finally:
                done.set()
                with lock:
                    bars.done(meter)

        def one_check(guest: GuestCheck) -> None:
            begin = time.monotonic()

            def judged() -> None:
                if guest.image in FAILED_IMAGES:
                    raise Skip(f"the {guest.image} kernel did not build")
                wanted = {"sweep", "oracle", *(p for job in guest.jobs for p in job.programs)}
                missing = sorted(p for p in wanted if not initramfs.have(p))
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
                    files = guest.files()
                except crates.Unavailable as reason:
                    raise Skip(str(reason)) from reason
                jobs = [
                    replace(job, kernel=bootable(guest.image), files={**job.files, **files})
                    for job in guest.jobs
                ]
                guest.judge([one_job(job) for job in jobs])

            verdict = _judged(judged)
            with lock:
                tally.count(guest.name, time.monotonic() - begin, verdict)

        futures = [pool.submit(one_check, guest) for guest in checks]
        try:
            while not all(future.done() for future in futures):
                time.sleep(0.3)
        except BaseException:
            for future in futures:
                future.cancel()
            child.end_all()
            raise
        for future in futures:
            future.result()


def all_checks() -> list[HostCheck | GuestCheck]:
    return [*HOST_CHECKS, *GUEST_CHECKS]


def run_all(only: str = "", asked: bool = False, quick: bool = False) -> bool:
    """Run the check named `only`, or else all whose name contains it; true if none failed.

    Those that run only if asked for all are, with `asked`; with `quick`, nothing but those of
    `make check` is.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    exact = only in [one.name for one in all_checks()]

    def wanted(one: HostCheck | GuestCheck) -> bool:
        if quick:
            return one.quick
        if not (asked or one.asked_for(only)):
            return False
        return one.name == only if exact else only in one.name

    hosts = [one for one in HOST_CHECKS if wanted(one)]
    guests = [guest for guest in GUEST_CHECKS if wanted(guest)]
    tally = Tally(len(hosts) + len(guests))
    for one in hosts:
        begin = time.monotonic()
        with progress.meter(tally.next(one.name)):
            verdict = _judged(one.run)
        tally.count(one.name, time.monotonic() - begin, verdict)
        for part, reason in SKIPPED_PARTS:
            tally.total += 1
            tally.count(f"{one.name}: {part}", 0.0, Skip(reason))
        SKIPPED_PARTS.clear()
    images = list(dict.fromkeys(guest.image for guest in guests))
    for number, name in enumerate(images, 1):
        with progress.meter(f"kernel {number} of {len(images)} for the guests, {name}"):
            verdict = _judged(lambda name=name: build(name))  # type: ignore[misc]
        if verdict is not None:
            FAILED_IMAGES.add(name)
    for prepare in dict.fromkeys(guest.prepare for guest in guests if guest.prepare):
        with progress.meter("programs and disks for the guests"):
            verdict = _judged(prepare)
        if verdict is not None:
            UNREADY[prepare] = verdict
    if guests:
        _boot_checks(guests, tally)
    print(tally.last_line(), flush=True)
    return tally.failed == 0
