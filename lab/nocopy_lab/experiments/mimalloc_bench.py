# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of mimalloc-bench, from a copy of it that the user names.

Those that build from that copy alone, with the arguments that its own script gives them. Nothing of
it is part of this repository: https://github.com/daanx/mimalloc-bench.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nocopy_lab import initramfs
from nocopy_lab.arch import X86
from nocopy_lab.paths import LabError

CPUS: Final = len(os.sched_getaffinity(0))
OLD_C: Final = ("-std=gnu89",)


@dataclass(frozen=True)
class Program:
    """How it is built and run; paths are those of mimalloc-bench's directory bench/."""

    sources: str
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # of the sources
    stdin: str = ""
    # Of a program that runs for a fixed time: its own word for how long the same work took, or for
    # how much it did.
    took: str = ""
    did: str = ""
    # Of one that does the same work in each run, and sleeps in between: how much it did in a second
    # of that work.
    rate: str = ""


PROGRAMS: Final[Mapping[str, Program]] = {
    "cfrac": Program(
        "cfrac/*.c", ("17545186520507317056371138836327483792789528",),
        (*OLD_C, "-DNOMEMOPT=1"), ("getopt.c", "pfactor.c"),
    ),
    "espresso": Program("espresso/*.c", ("{bench}/espresso/largest.espresso",), OLD_C),
    "barnes": Program("barnes/*.c", flags=OLD_C, stdin="barnes/input"),
    "larson": Program(
        "larson/larson.cpp", ("5", "8", "1000", "5000", "100", "4141", "{cpus}"), ("-DCPP=1",),
        took=r" time: ([\d.]+)",
    ),
    "larson-sized": Program(
        "larson/larson.cpp", ("5", "8", "1000", "5000", "100", "4141", "{cpus}"),
        ("-DCPP=1", "-DSIZED=1", "-fsized-deallocation"), took=r" time: ([\d.]+)",
    ),
    "alloc-test": Program("alloc-test/*.cpp", ("1",), ("-DBENCH=4",)),
    "xmalloc-test": Program(
        "xmalloc-test/*.c", ("-w", "{cpus}", "-t", "5", "-s", "64"), took=r"rtime: ([\d.]+)"
    ),
    "cache-scratch": Program(
        "cache-scratch/*.cpp", ("{cpus}", "1000", "1", "2000000", "{cpus}")
    ),
    "cache-thrash": Program("cache-thrash/*.cpp", ("{cpus}", "1000", "1", "2000000", "{cpus}")),
    "malloc-large": Program("malloc-large/malloc-large.cpp"),
    "mstress": Program("mstress/*.c", ("{cpus}", "50", "25")),
    "mleak": Program("mleak/*.c", ("50",)),
    "rptest": Program(
        "rptest/*.c", ("{cpus}", "0", "1", "2", "500", "1000", "100", "8", "16000"),
        rate=r"\.\.\.(\d+) memory ops",
    ),
    "glibc-simple": Program("glibc-bench/bench-malloc-simple.c"),
    "glibc-thread": Program(
        "glibc-bench/bench-malloc-thread.c", ("{cpus}",), did=r"^([\d.]+)"
    ),
}  # fmt: skip


def source(directory: Path) -> Path:
    """The programs' sources in a copy of mimalloc-bench."""
    bench = directory / "bench"
    if not (bench / "cfrac/cfrac.c").is_file():
        raise LabError(
            f"{directory} is no copy of mimalloc-bench; "
            "git clone https://github.com/daanx/mimalloc-bench"
        )
    return bench.resolve()


def arguments(bench: Path, name: str) -> list[str]:
    """What the program is given."""
    return [word.format(bench=bench, cpus=CPUS) for word in PROGRAMS[name].arguments]


def stdin(bench: Path, name: str) -> Path:
    """What it reads."""
    file = PROGRAMS[name].stdin
    return bench / file if file else Path("/dev/null")


def built(bench: Path, name: str) -> Path:
    """The program, compiled once for each content of its directory and each compiler."""
    program = PROGRAMS[name]
    files = [
        file for file in sorted(bench.glob(program.sources)) if file.name not in program.without
    ]
    if not files:
        raise LabError(f"{bench} has no {program.sources}")
    beside = files[0].parent
    plus = files[0].suffix == ".cpp"
    flags = ("-O3", "-DNDEBUG", "-w", "-pthread", *(["-std=c++17"] if plus else []), *program.flags)
    inside = [file for file in sorted(beside.iterdir()) if file.is_file() and file not in files]
    # Not for programs in C: it allocates before they begin.
    rest = (f"-I{beside}", *(["-lstdc++"] if plus else []), "-lm")
    return initramfs.compiled(name, X86, flags, files, inside, rest)


def seconds(name: str, said: str, passed: float) -> float:
    """How long it took: what has `passed`, or what a program says whose time does not tell."""
    program = PROGRAMS[name]
    pattern = program.took or program.did or program.rate
    if not pattern:
        return passed
    found = re.search(pattern, said, re.MULTILINE)
    if found is None or not float(found[1]):
        raise LabError(f"{name} did not say how fast it was")
    # Seconds for a million of what it counts.
    return float(found[1]) if program.took else 1e6 / float(found[1])


def processor_seconds(name: str, took: float, passed: float, spent: float) -> float:
    """Its processor time: what it has `spent`; if it runs for a fixed time, for the same work."""
    program = PROGRAMS[name]
    return took * spent / passed if program.took or program.did else spent
