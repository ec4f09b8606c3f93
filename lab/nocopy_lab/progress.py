# SPDX-License-Identifier: MIT OR Apache-2.0
"""Patience: show how far long work is, on a terminal and in a log alike."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

# Where there is no terminal, say where we are this often.
LINE_EVERY_S = 15.0

console = Console(stderr=False, highlight=False, soft_wrap=not sys.stdout.isatty())


class Meter:
    """One thing that goes on, with a share done and a few words."""

    def __init__(self, what: str, bar: Progress | None, task: TaskID | None) -> None:
        self.what, self._bar, self._task = what, bar, task
        self._begin = self._said = time.monotonic()

    def at(self, share: float, words: str = "") -> None:
        """Now this share (0 to 1) is done; call as often as you like."""
        share = min(max(share, 0.0), 1.0)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=share, words=words)
            return
        now = time.monotonic()
        if now - self._said >= LINE_EVERY_S:
            self._said = now
            print(
                f"  {self.what}: {share:4.0%} after {now - self._begin:.0f} s {words}", flush=True
            )


class Meters:
    """Several things that go on side by side."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar

    def add(self, what: str) -> Meter:
        if self._bar is None:
            print(f"  {what} ...", flush=True)
            return Meter(what, None, None)
        return Meter(what, self._bar, self._bar.add_task(what, total=1.0, words=""))

    def done(self, meter: Meter) -> None:
        if self._bar is not None and meter._task is not None:
            self._bar.remove_task(meter._task)


@contextlib.contextmanager
def meters() -> Iterator[Meters]:
    """A live area at the foot of the terminal, or lines where there is no terminal."""
    if not console.is_terminal:
        yield Meters(None)
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
        console=console,
        transient=True,
    ) as bar:
        yield Meters(bar)


@contextlib.contextmanager
def meter(what: str) -> Iterator[Meter]:
    """A single meter."""
    with meters() as many:
        one = many.add(what)
        yield one
        many.done(one)
