# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that people use, plain, under libpdio.so, and pdio's commands in their place.

All ways take turns at each piece of work, and another one is the first in each round.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child
from nocopy_lab.paths import require_tool

KIB: Final = 1 << 10
MIB: Final = 1 << 20

ROUNDS: Final = 7
DD_MIB: Final = 256
DD_SIZES: Final = (512, 4 * KIB, 64 * KIB, MIB)
# As many files as a program's sources, of such sizes in KiB.
TREE_FILES: Final = 2645
TREE_KIB: Final = (0.2, 1, 2, 3, 5, 8, 12, 20, 40, 90)
TREE_DIRECTORY: Final = 40  # files in one
# A file of 2 GiB with 20 MiB in it.
SPARSE_MIB: Final = 2048
SPARSE_PIECE: Final = 64 * KIB
SPARSE_PIECES: Final = 320

# Runs a command with an environment.
Run = Callable[[Sequence[str], dict[str, str]], object]
PLAIN, LIBRARY, COMMAND = "plain", "libpdio.so", "pdio"


@dataclass(frozen=True)
class Work:
    """What is done, with the command of each way; `cold` has to leave the page cache before."""

    name: str
    ways: Mapping[str, Sequence[str]]
    made: Path
    cold: Path | None = None


def _dd(program: Path, where: Path) -> list[Work]:
    found = []
    for size in DD_SIZES:
        count = DD_MIB * MIB // size
        for name, words in (
            ("write", (f"of={where}/written", "if=/dev/zero", "conv=fsync")),
            ("read", (f"if={where}/source", "of=/dev/null")),
        ):
            words = (*words, f"bs={size}", f"count={count}", "status=none")
            plain = (require_tool("dd", "coreutils"), *words)
            cold = where / "source" if name == "read" else None
            ways = {PLAIN: plain, LIBRARY: plain, COMMAND: (str(program), "dd", *words)}
            found.append(Work(f"dd {name} {size}", ways, where / "written", cold))
    return found


def _copies(program: Path, where: Path) -> list[Work]:
    copy = require_tool("cp", "coreutils")
    sparse = (f"{where}/sparse", f"{where}/copy")
    tree = (f"{where}/tree", f"{where}/copy")
    # All share blocks where the filesystem can: then this says what that takes.
    ways = {
        PLAIN: (copy, "-r", *tree),
        LIBRARY: (copy, "-r", *tree),
        COMMAND: (str(program), "cp", "-r", *tree),
    }
    return [
        Work(
            "sparse copy",
            {PLAIN: (copy, *sparse), COMMAND: (str(program), "cp", *sparse)},
            where / "copy",
        ),
        Work("tree, cold", ways, where / "copy", where / "tree"),
        Work("tree, warm", ways, where / "copy"),
    ]


def _prepare(where: Path) -> None:
    draw = random.Random(1)
    with (where / "source").open("wb") as file:
        for _ in range(DD_MIB):
            file.write(draw.randbytes(MIB))
    with (where / "sparse").open("wb") as file:
        file.truncate(SPARSE_MIB * MIB)
        for piece in range(SPARSE_PIECES):
            file.seek(piece * (SPARSE_MIB * MIB // SPARSE_PIECES))
            file.write(draw.randbytes(SPARSE_PIECE))
    for number in range(TREE_FILES):
        directory = where / "tree" / str(number // TREE_DIRECTORY)
        directory.mkdir(parents=True, exist_ok=True)
        size = round(draw.choice(TREE_KIB) * KIB * draw.uniform(0.7, 1.3))
        (directory / f"{number}.c").write_bytes(draw.randbytes(size))
    os.sync()


def _forget(what: Path) -> None:
    """The page cache has nothing of these files any more, names and inodes excepted."""
    for path in [what] if what.is_file() else [one for one in what.rglob("*") if one.is_file()]:
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _gone(what: Path) -> None:
    if what.is_dir():
        shutil.rmtree(what)
    else:
        what.unlink(missing_ok=True)
    os.sync()


def _timed(run: Run, words: Sequence[str], env: dict[str, str]) -> dict[str, float]:
    before, begin = child.processor_s(), time.perf_counter()
    run(words, env)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "processor": child.processor_s() - before}


def measure(program: Path, library: Path, where: Path, run: Run) -> dict[str, Any]:
    """Rows of all rounds but the first, in which blocks of the disk are used for the first time."""
    _prepare(where)
    rows: list[dict[str, Any]] = []
    works = [*_dd(program, where), *_copies(program, where)]
    for number in range(ROUNDS + 1):
        for work in works:
            names = list(work.ways)
            turn = number % len(names)
            for way in names[turn:] + names[:turn]:
                _gone(work.made)
                if work.cold:
                    _forget(work.cold)
                env = {"LD_PRELOAD": str(library)} if way == LIBRARY else {}
                row = _timed(run, work.ways[way], env)
                if number:
                    rows.append({"round": number, "work": work.name, "way": way, **row})
    return {"rows": rows}


# Of the plain program's time: work, way, target.
_COLD: Final = dict(zip(DD_SIZES, (0.5, 0.6, 0.8, 0.8), strict=True))
TARGETS: Final[Sequence[tuple[str, str, float]]] = (
    ("dd write 512", LIBRARY, 0.5),
    *((f"dd read {size}", way, most) for way in (LIBRARY, COMMAND) for size, most in _COLD.items()),
    ("sparse copy", COMMAND, 1.2),
    ("tree, cold", COMMAND, 0.9),
    ("tree, warm", COMMAND, 1.0),
    ("tree, cold", LIBRARY, 1.02),
    ("tree, warm", LIBRARY, 1.02),
)
