# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a check is, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates, names, trees
from nocopy_lab.board import Machine
from nocopy_lab.paths import LAB, LOGS
from nocopy_lab.run import Job, Outcome


class Skip(Exception):  # noqa: N818  # not an error
    """This check cannot run here; the text says why."""


class MayBeAsked:
    """A check that takes so long that it runs only if asked for, by the first word of its name."""

    name: str
    asked: bool
    quick: bool  # one of `make check`

    def asked_for(self, only: str) -> bool:
        return not self.asked or any(self.name.startswith(part) for part in names.parts(only))


# The kernel of a job until there is one.
NO_IMAGE: Final = Path("/nonexistent")
# Programs and an area have to share what there is.
SMALL: Final = Machine("x86-fast", memory_mib=704, cma_mib=64)


# Lanes: checks of the host run one at a time in each, in the order of their definition.
CRATES: Final = "crates"  # the lab's own as well
KERNELS: Final = "kernels"


@dataclass(frozen=True)
class HostCheck(MayBeAsked):
    name: str
    run: Callable[[], None]
    asked: bool = False
    quick: bool = False
    lane: str = CRATES


HOST_CHECKS: Final[list[HostCheck]] = []


def check(
    name: str, *, asked: bool = False, quick: bool = False, lane: str = CRATES
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make a function a host check."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        HOST_CHECKS.append(HostCheck(name, function, asked, quick, lane))
        return function

    return add


def crates_check(
    name: str, *, asked: bool = False, quick: bool = False
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A host check that is skipped when what it needs is not there and cannot be installed."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        def checked() -> None:
            try:
                function()
            except crates.Unavailable as reason:
                raise Skip(str(reason)) from reason

        check(name, asked=asked, quick=quick)(checked)
        return function

    return add


# Which of the two kernels of the image `gcma` a check boots. The main part is for both; 6.12 alone
# has what the demonstration boots and traces record.
NEWER: Final = ("7.3",)
OLDER: Final = ("6.12",)
BOTH: Final = (*NEWER, *OLDER)


@dataclass(frozen=True)
class GuestCheck(MayBeAsked):
    """Boots of one kernel image, and what must be true of them."""

    name: str
    image: str
    jobs: Sequence[Job] = ()
    judge: Callable[[Sequence[Outcome]], None] = field(default=lambda outcomes: all_well(outcomes))
    # What the guest gets beside the jobs' own files, made for the image when the check runs.
    files: Callable[[str], dict[str, bytes]] = lambda image: {}
    # Instead of both: something that boots the kernel as it likes.
    run: Callable[[Path], None] | None = None
    prepare: Callable[[], None] | None = None  # before any boots: it may show its progress
    on: tuple[str, ...] = NEWER
    asked: bool = False
    quick: bool = False


def all_well(outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        outcome.require()


FAILED_IMAGES: Final[set[str]] = set()
# What could not be prepared, and why.
UNREADY: Final[dict[Callable[[], None] | None, Exception]] = {}


# Parts of a check that could not run here, by name, and why; they count as skipped.
SKIPPED_PARTS: Final[list[tuple[str, str]]] = []


def log_of(name: str) -> Path:
    return LOGS / f"check-{name}.log"


def command(name: str, words: Sequence[str | Path], limit_s: float = 300.0) -> None:
    child.run(words, log=log_of(name), limit_s=limit_s, what=name, cwd=LAB)


def our_files() -> list[str]:
    """C sources and headers of ours, by in-tree path."""
    return [name for name in trees.new_files() if name.endswith((".c", ".h"))]
