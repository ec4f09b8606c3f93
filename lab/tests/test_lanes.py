# SPDX-License-Identifier: MIT OR Apache-2.0
"""What runs beside what."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nocopy_lab.checks import lanes


class Diary:
    """What began and ended, in this order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._lock = threading.Lock()

    def note(self, what: str) -> None:
        with self._lock:
            self.said.append(what)

    def work(self, name: str, until: threading.Event | None = None) -> Callable[[], None]:
        def run() -> None:
            self.note(f"+{name}")
            if until is not None and not until.wait(60):
                self.note(f"{name} waited in vain")
            self.note(f"-{name}")

        return run


def nothing() -> None:
    pass


def test_one_of_a_lane_at_a_time_and_in_order() -> None:
    diary, end = Diary(), threading.Event()
    tasks = [
        lanes.Task(diary.work("a", end), "one"),
        lanes.Task(diary.work("b"), "one"),
        lanes.Task(end.set, "other"),
    ]
    lanes.run(tasks, 2, nothing)
    assert diary.said == ["+a", "-a", "+b", "-b"]


def test_what_shares_nothing_runs_side_by_side() -> None:
    diary, first, second = Diary(), threading.Event(), threading.Event()

    def meet(mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        diary.note("met" if other.wait(60) else "alone")

    tasks = [
        lanes.Task(lambda: meet(first, second)),
        lanes.Task(lambda: meet(second, first)),
    ]
    lanes.run(tasks, 2, nothing)
    assert diary.said == ["met", "met"]


def test_a_task_waits_for_what_it_needs() -> None:
    diary = Diary()
    image = lanes.Task(diary.work("image"), "kernels")
    tasks = [image, *(lanes.Task(diary.work("guest"), after=(image,)) for _ in range(3))]
    lanes.run(tasks, 2, nothing)
    assert diary.said[:2] == ["+image", "-image"]
    assert sorted(diary.said[2:]) == ["+guest"] * 3 + ["-guest"] * 3
    with pytest.raises(ValueError, match="before one that it needs"):
        lanes.run(tasks[::-1], 2, nothing)


def test_nothing_begins_after_a_task_that_failed() -> None:
    diary = Diary()

    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        lanes.run([lanes.Task(fail), lanes.Task(diary.work("never"))], 1, nothing)
    assert diary.said == []
