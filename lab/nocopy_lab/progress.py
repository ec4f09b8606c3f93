# SPDX-License-Identifier: MIT OR Apache-2.0
"""Patience: show how far long work is, on a terminal and in a log alike.

A terminal has a live area at its foot. A log gets a line when something has begun, and one every
LINE_EVERY_S from then on, whether or not whoever works says how far it is.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from nocopy_lab import child

# Where there is no terminal, say where we are this often.
LINE_EVERY_S = 15.0
# What is over sooner is not worth a line of its own.
WORTH_A_LINE_S = 1.0

console = Console(stderr=False, highlight=False, soft_wrap=not sys.stdout.isatty())


class Meter:
    """One thing that goes on, with a share done and a few words."""

    def __init__(self, what: str, bar: Progress | None) -> None:
        self.what, self._bar = what, bar
        # Nobody has said how far it is: a bar that pulses.
        self._task = None if bar is None else bar.add_task(what, total=None, words="")
        self._thread = threading.get_ident()
        self._begin = time.monotonic()
        self._next_line = self._begin + WORTH_A_LINE_S
        self._share: float | None = None
        self._words = ""

    def at(self, share: float, words: str = "") -> None:
        """Now this share (0 to 1) is done; call as often as you like."""
        self._share, self._words = min(max(share, 0.0), 1.0), words
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=1.0, completed=self._share, words=words)

    def tick(self, now: float) -> None:
        """Give the log its line if it is time for one."""
        if self._bar is not None or now < self._next_line:
            return
        first = self._next_line < self._begin + LINE_EVERY_S
        self._next_line = self._begin + LINE_EVERY_S if first else now + LINE_EVERY_S
        line = f"  {self.what} ..."
        if not first:
            share = "" if self._share is None else f"{self._share:.0%} after "
            words = self._words or child.last_words(self._thread)
            line = f"  {self.what}: {share}{now - self._begin:.0f} s {words}".rstrip()
        # Where nobody reads any more, whoever works will find out.
        with contextlib.suppress(OSError):
            print(line, flush=True)

    def remove(self) -> None:
        """It is over."""
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)


class Meters:
    """Several things that go on side by side."""

    def __init__(self, bar: Progress | None, outer: Meters | None) -> None:
        self._bar = bar
        self._meters: list[Meter] = []
        self.outer = outer
        # How many others were begun inside this one: only the innermost speak.
        self.inner = 0

    def add(self, what: str) -> Meter:
        one = Meter(what, self._bar)
        with _lock:
            self._meters.append(one)
        return one

    def done(self, meter: Meter) -> None:
        with _lock:
            if meter in self._meters:
                self._meters.remove(meter)
                meter.remove()

    def tick(self, now: float) -> None:
        if self.inner == 0:
            for meter in self._meters:
                meter.tick(now)


_lock = threading.RLock()
_shown: list[Meters] = []
_bar: Progress | None = None
_mine = threading.local()


def _tick() -> None:
    while True:
        time.sleep(0.5)
        with _lock:
            for meters in _shown:
                meters.tick(time.monotonic())


_ticker = threading.Thread(target=_tick, daemon=True, name="progress")


# A narrower terminal has no room for the bar.
BAR_FROM: Final = 80


def _live() -> Progress:
    """What it is has half of the terminal at most, and the words have what the rest leaves."""
    what = Column(max_width=console.width // 2, no_wrap=True, overflow="ellipsis")
    left = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=what),
        *([BarColumn(bar_width=20)] if console.width >= BAR_FROM else []),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}", table_column=left),
        console=console,
        transient=True,
        expand=True,
    )


@contextlib.contextmanager
def meters() -> Iterator[Meters]:
    """A live area at the foot of the terminal, or lines where there is no terminal.

    Those that are begun inside others share the area with them.
    """
    global _bar
    outer: Meters | None = getattr(_mine, "meters", None)
    with _lock:
        if not _shown and console.is_terminal:
            _bar = _live()
            _bar.start()
        elif not _ticker.is_alive():
            _ticker.start()
        many = Meters(_bar, outer)
        _shown.append(many)
        if outer is not None:
            outer.inner += 1
    _mine.meters = many
    try:
        yield many
    finally:
        _mine.meters = outer
        with _lock:
            _shown.remove(many)
            if outer is not None:
                outer.inner -= 1
            if not _shown and _bar is not None:
                _bar.stop()
                _bar = None


@contextlib.contextmanager
def meter(what: str) -> Iterator[Meter]:
    """A single meter."""
    with meters() as many:
        one = many.add(what)
        try:
            yield one
        finally:
            many.done(one)
