# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which of many tasks run side by side: one of each lane, each after those that it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Task:
    """Something to do, which reports by itself how it ended."""

    run: Callable[[], None]
    # Of those with the same word, one runs at a time: they share a directory. "" shares nothing.
    lane: str = ""
    after: tuple[Task, ...] = ()


class _Schedule:
    def __init__(self, tasks: Sequence[Task]) -> None:
        self._left = list(tasks)
        self._ended: set[Task] = set()
        self._lanes: set[str] = set()
        self._changed = threading.Condition()

    def _next(self) -> Task | None:
        for task in self._left:
            if task.lane not in self._lanes and self._ended.issuperset(task.after):
                return task
        return None

    def work(self) -> None:
        """Do the first task that can run, until none is left."""
        while True:
            with self._changed:
                while (task := self._next()) is None:
                    if not self._left:
                        return
                    self._changed.wait()
                self._left.remove(task)
                if task.lane:
                    self._lanes.add(task.lane)
            try:
                task.run()
            except BaseException:
                self.stop()
                raise
            finally:
                with self._changed:
                    self._ended.add(task)
                    self._lanes.discard(task.lane)
                    self._changed.notify_all()

    def stop(self) -> None:
        """Nothing new begins."""
        with self._changed:
            self._left.clear()
            self._changed.notify_all()


def run(tasks: Sequence[Task], workers: int, end: Callable[[], None]) -> None:
    """Do all tasks, the first ones first; if this is interrupted, `end` ends what runs."""
    known: set[Task] = set()
    for task in tasks:
        if not known.issuperset(task.after):
            raise ValueError("a task comes before one that it needs")
        known.add(task)
    schedule = _Schedule(tasks)
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(schedule.work) for _ in range(workers)]
        try:
            while wait(futures, timeout=0.3).not_done:
                pass  # and hear signals
        except BaseException:
            schedule.stop()
            end()
            raise
    for future in futures:
        future.result()
