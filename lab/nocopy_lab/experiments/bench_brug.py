# SPDX-License-Identifier: MIT OR Apache-2.0
"""brug against other allocators: the experiments of its paper, more of them, and its targets.

Each run is a process of its own that does one piece of work on one allocator. The allocators of a
benchmark take turns (A B C A B C ...), so that what disturbs the machine disturbs all of them; the
first round is thrown away. What is compared are ratios of runs of the same round.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, crates, initramfs, jobs, kernel, names, progress, samples
from nocopy_lab.board import Machine
from nocopy_lab.experiments import are_of, mimalloc_bench, processor
from nocopy_lab.paths import OUT, REPO, LabError, require_tool, sha256, tail
from nocopy_lab.run import Job, boot
from nocopy_lab.units import binary_size

HERE: Final = OUT / "bench-brug"
CRATE: Final = REPO / "crates" / "brug-bench"
BUILT: Final = REPO / "target" / "bench" / "release"

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

RUN_LIMIT_S: Final = 180.0
# What takes longer than this is measured in fewer rounds.
SLOW_S: Final = 2.0
SLOW_ROUNDS: Final = 3
# Where the tuner is looked at, differences of percents count: so many times the rounds of what is
# over this quickly.
QUICK_S: Final = 0.25
QUICK_TIMES: Final = 3
TRAININGS: Final = 3
# Programs that are over at once, by benchmark, and how many runs of each make a round.
START: Final = "start"
SHORT: Final[Mapping[str, tuple[str, int, tuple[str, ...]]]] = {
    START: ("/bin/true", 40, ("/bin/true",)),
    "start-bash": ("bash -c true", 40, ("/bin/bash", "-c", "true")),
    "start-perl": ("perl -e 1", 40, ("/usr/bin/perl", "-e", "1")),
    "start-python": ("python3 -c pass", 10, ("/usr/bin/python3", "-c", "pass")),
    "start-make": (
        "make, four empty C files", 4,
        ("/usr/bin/make", "-s", "--eval=all: a b c d",
         "--eval=a b c d: ; @cc -S -o - -x c /dev/null > /dev/null", "all"),
    ),
}  # fmt: skip
# Runs in which a program should get the same base for its small objects, and what keeps the machine
# busy meanwhile. All but gcc have enough of them for a trial.
CHOICES: Final = 20
BUSY: Final = ("stress-ng", "--quiet", "--cpu", "4")
CHOOSERS: Final[Mapping[str, tuple[str, ...]]] = {
    "perl": ("perl", "-e", 'my %h; $h{$_} = "x" x ($_ % 50) for 1..400000; my @a = sort keys %h'),
    "jq": ("jq", "-n", "[range(200000) | {a: ., b: tostring}] | map(.b) | length"),
    "sqlite3": (
        "sqlite3", ":memory:",
        "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c "
        "where x < 200000) insert into t select x, hex(x) from c; create index i on t(b);",
    ),
    "gcc": (
        "gcc", "-O1", "-S", "-o", "/dev/null", "-include", "stdio.h", "-x", "c", "/dev/null",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """An allocator, with how to put it under a program."""

    label: str
    binary: str
    env: Mapping[str, str] = field(default_factory=dict)
    preload: str = ""  # name of a library, or a pattern of names
    trained: bool = False
    colour: str = "#999999"


def _brug(label: str, mode: str, colour: str, **env: str) -> Contender:
    return Contender(label, "brug", {"BRUG_ALLOC": mode, **env}, colour=colour)


CONTENDERS: Final[Mapping[str, Contender]] = {
    "glibc": Contender("glibc", "sys", colour="#000000"),
    "glibc-again": Contender("glibc again", "sys", colour="#666666"),
    "glibc-arena": Contender("glibc, one arena", "sys", {"MALLOC_ARENA_MAX": "1"}),
    "glibc-thp": Contender(
        "glibc, huge pages", "sys", {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    ),
    "jemalloc": Contender("jemalloc", "jemalloc", colour="#E69F00"),
    "jemalloc-thp": Contender(
        "jemalloc, huge pages", "jemalloc", {"_RJEM_MALLOC_CONF": "thp:always"}
    ),
    "mimalloc": Contender("mimalloc", "mimalloc", colour="#009E73"),
    "snmalloc": Contender("snmalloc", "snmalloc", colour="#CC79A7"),
    "rpmalloc": Contender("rpmalloc", "rpmalloc", colour="#882255"),
    "jemalloc-deb": Contender(
        "jemalloc (Debian)", "sys", preload="libjemalloc.so.2", colour="#F0C060"
    ),
    "mimalloc-deb": Contender(
        "mimalloc (Debian)", "sys", preload="libmimalloc.so.[23]", colour="#66C2A5"
    ),
    "tcmalloc-deb": Contender(
        "tcmalloc (Debian)", "sys", preload="libtcmalloc_minimal.so.4", colour="#F0E442"
    ),
    "glibc-preload": Contender("glibc", "sys", preload="libc.so.6", colour="#000000"),
    "brug": _brug("brug", "auto", "#0072B2"),
    "brug-trained": Contender(
        "brug, trained", "brug", {"BRUG_ALLOC": "auto"}, trained=True, colour="#004060"
    ),
    "brug-thp": _brug("brug, huge pages", "auto", "#0072B2", BRUG_THP="always"),
    "brug-nothp": _brug("brug, no huge pages", "auto", "#0072B2", BRUG_THP="never"),
    "brug-sys": _brug("brug SYS", "sys", "#A6CEE3"),
    "brug-jemalloc": _brug("brug Jemalloc", "jemalloc", "#FDBF6F"),
    "brug-mimalloc": _brug("brug Mimalloc", "mimalloc", "#B2DF8A"),
    "brug-mmap": _brug("brug MMAP", "mmap", "#D55E00"),
    "brug-template": _brug("brug Template", "template", "#56B4E9"),
    "libbrug": Contender("libbrug.so", "sys", preload="libbrug.so", colour="#56B4E9"),
    "libbrug-mmap": Contender(
        "libbrug.so, MMAP", "sys", {"BRUG_ALLOC": "mmap"}, "libbrug.so", colour="#D55E00"
    ),
    "libbrug-glibc": Contender(
        "libbrug.so, base glibc", "sys", {"BRUG_BASE": "glibc"}, "libbrug.so"
    ),
    "libbrug-mimalloc": Contender(
        "libbrug.so, base mimalloc", "sys", {"BRUG_BASE": "mimalloc"}, "libbrug.so"
    ),
}

FIXED: Final = ("brug-sys", "brug-jemalloc", "brug-mimalloc", "brug-mmap", "brug-template")
AUTO: Final = ("brug", "brug-trained")
LIBRARIES: Final = ("jemalloc-deb", "mimalloc-deb", "tcmalloc-deb")
PEERS: Final = ("glibc", "jemalloc", "mimalloc", "snmalloc", "rpmalloc", *LIBRARIES)
# A guest whose memory is as one of these says, by name: fresh, or without a free huge page, and who
# gets huge pages (see lab/guest/jobs/fragmented.sh).
GUEST_KERNEL: Final = "gcma-7.3"
GUEST_MIB: Final = 1536
FRAGMENTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "fresh": ("memory never used", "fresh", "madvise"),
    "pinned": ("no huge page, and none can be made", "pinned", "madvise"),
    "pinned-always": ("the same, huge pages for all", "pinned", "always"),
    "movable": ("half of each huge page in use", "movable", "madvise"),
    "movable-always": ("the same, huge pages for all", "movable", "always"),
    "merged": ("the same, and khugepaged at work", "merged", "always"),
}
# The nine groups of the paper's figures 7 to 12, and one more.
PAPER: Final = ("glibc", "jemalloc", "mimalloc", *FIXED, *AUTO)
ALL: Final = (*PEERS, "brug", "libbrug")
IN_TURN: Final = (
    "glibc", "jemalloc", "mimalloc", "tcmalloc-deb", "brug", "brug-nothp", "glibc-thp",
)  # fmt: skip

# What unchanged programs are run under, with the bases between which a trial chooses; and how
# benchmarks of mimalloc-bench begin.
SUITED: Final = ("glibc", *LIBRARIES, "libbrug")
NAMED: Final = ("libbrug-glibc", "libbrug-mimalloc")
SUITE: Final = "suite-"
FORKS: Final = ("glibc", "glibc-thp", "jemalloc", "mimalloc", "brug", "brug-nothp", "brug-thp")

COLLECTIONS: Final = (
    "vec", "vec-deque", "linked-list", "hash-map", "btree-map", "hash-set", "btree-set",
    "binary-heap", "string",
)  # fmt: skip
# One page for each node would be no use of memory: the paper leaves these out as well.
NODES: Final = ("linked-list", "btree-map", "btree-set")
REDIS_VALUES: Final = (40, 400, 4 * KIB, 40 * KIB)
ALIGNMENTS: Final = (16, 64, 128, 4096)
THREADS: Final = (1, 2, 4, 8)


@dataclass(frozen=True)
class Scale:
    """How much work there is: `share` of the usual, in so many rounds that count."""

    name: str
    rounds: int
    share: float

    def many(self, count: int) -> int:
        return max(round(count * self.share), 1)

    def size(self, most: int, least: int = 128 * KIB) -> int:
        """The largest power of two within the share and a sixth of the memory that is free."""
        limit = max(min(int(most * self.share), memory_available() // 6), least)
        return 1 << (limit.bit_length() - 1)


QUICK: Final = Scale("quick", 1, 1 / 64)
USUAL: Final = Scale("usual", 7, 1.0)


def memory_available() -> int:
    """Bytes that programs can have without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    raise LabError("/proc/meminfo does not say MemAvailable")


@dataclass(frozen=True)
class Bench:
    """One piece of work, and the allocators that do it."""

    name: str
    what: str
    words: tuple[str, ...]
    contenders: tuple[str, ...]
    kind: str = "time"  # or another of KINDS
    settle: int = 0  # bytes that must have the host's memory behind them before the time runs


class _Benches(list[Bench]):
    def add(
        self, name: str, what: str, words: str, contenders: Sequence[str], kind: str = "time",
        settle: int = 0,
    ) -> None:  # fmt: skip
        self.append(Bench(name, what, tuple(words.split()), tuple(contenders), kind, settle))


def benches(scale: Scale, suite: Path | None = None) -> list[Bench]:
    """All of them, those that say most first; with the programs of a copy of mimalloc-bench."""
    made = _Benches()
    _growth(made, scale)
    _programs(made)
    _shapes(made, scale)
    _paper(made, scale)
    _servers(made, scale)
    _counted(made)
    if suite is not None:
        _suite(made, mimalloc_bench.source(suite))
    return made


def _growth(made: _Benches, scale: Scale) -> None:
    """Large objects that grow, and what that does to memory and to fork."""
    add, size = made.add, binary_size
    top = scale.size(GIB)
    add(
        "double", f"4 KiB to {size(top)} by doubling, every page touched, twice in a process",
        f"grow --to {top} --lives 2 --time-calls",
        (*ALL, "glibc-thp", "jemalloc-thp", "brug-thp", "brug-nothp", "brug-trained"),
        settle=top * 3 // 2,
    )  # fmt: skip
    top = scale.size(256 * MIB)
    add(
        "linear-64k", f"64 KiB to {size(top)} in steps of 64 KiB",
        f"grow --from 65536 --to {top} --step +65536",
        (*ALL, "glibc-thp", "brug-thp", "brug-nothp", "brug-trained"),
        settle=top * 3 // 2,
    )  # fmt: skip
    # The same where programs take turns, as on a machine in use: nobody has just had the memory.
    large = scale.size(GIB)
    add("in-turn-double", f"4 KiB to {size(large)} by doubling, twice in a process, in turn",
        f"grow --to {large} --lives 2", IN_TURN)  # fmt: skip
    add("in-turn-linear-64k", f"64 KiB to {size(top)} by 64 KiB, twice in a process, in turn",
        f"grow --from 65536 --to {top} --step +65536 --lives 2", IN_TURN)  # fmt: skip
    for name, (what, memory, ask) in FRAGMENTED.items():
        most = str(max(scale.many(256), 16) * MIB)
        made.append(Bench(f"fragmented-{name}", f"64 KiB steps in a guest, {what}",
                          (memory, ask, "wait", "--to", most), IN_TURN, "guest"))  # fmt: skip
    large = min(int(10 * GIB * scale.share), memory_available() // 2) // MIB * MIB
    add("fork", f"fork beside a buffer of {size(large)} that has grown",
        f"fork --bytes {large}", FORKS)  # fmt: skip
    add("snapshot", "2000 pages of a buffer written while a forked child has it, too",
        f"fork --bytes {scale.size(GIB)} --writes 2000", FORKS)  # fmt: skip


def _programs(made: _Benches) -> None:
    """Programs that are over at once, and those whose base a trial chooses."""
    for bench, (program, runs, command) in SHORT.items():
        what = f"{program}, processor time of a run"
        words = (str(runs), *command)
        made.append(Bench(bench, what, words, ("glibc", "libbrug", *LIBRARIES), START))
    for program, command in CHOOSERS.items():
        what = f"{program}, whose small objects get the same base, the machine kept busy"
        made.append(Bench(f"choice-{program}", what, command, ("libbrug",), "choice"))


def _shapes(made: _Benches, scale: Scale) -> None:
    """Growth that is aligned, side by side, in other steps, or by other threads; small objects."""
    add, size = made.add, binary_size
    top = scale.size(256 * MIB)
    for align in ALIGNMENTS:
        add(
            f"align-{align}", f"4 KiB to {size(top)} by doubling, aligned to {align} bytes",
            f"grow --to {top} --align {align}",
            ("glibc", "jemalloc", "mimalloc", "snmalloc", "brug"),
            settle=top * 3 // 2,
        )  # fmt: skip
    add(
        "interleaved-16", "16 vectors in turn, 4 to 128 KiB each",
        f"grow --to 131072 --objects 16 --lives {scale.many(200)}",
        (*ALL, "brug-trained"),
    )  # fmt: skip
    add(
        "interleaved-4", "4 vectors in turn, 64 KiB to 4 MiB each",
        f"grow --from 65536 --to 4194304 --objects 4 --lives {scale.many(20)}",
        (*ALL, "brug-trained"),
    )  # fmt: skip
    top = scale.size(64 * MIB)
    add("peak-1", f"4 KiB to {size(top)} by doubling, once",
        f"grow --to {top}", ALL)  # fmt: skip
    add("peak-4", f"4 vectors in turn, 4 KiB to {size(top)} each",
        f"grow --to {top} --objects 4", ALL)  # fmt: skip
    top = scale.size(512 * MIB, 8 * MIB)
    add("burst", f"{size(top)} in vectors, all but every tenth freed, then a second of idleness",
        f"burst --bytes {top}", ALL)  # fmt: skip
    top = scale.size(64 * KIB, KIB)
    add("linear-1", f"1 byte to {size(top)}, byte by byte",
        f"grow --from 1 --to {top} --step +1 --lives {scale.many(10)}", ALL)  # fmt: skip
    top = scale.size(16 * MIB)
    add("linear-4k", f"4 KiB to {size(top)} in steps of 4 KiB",
        f"grow --to {top} --step +4096 --lives 4", ALL)  # fmt: skip
    top = scale.size(256 * MIB)
    add("grow-1.5", f"4 KiB to {size(top)} by half of the size",
        f"grow --to {top} --step x1.5", ALL, settle=top * 3 // 2)  # fmt: skip
    add("oscillate", "64 KiB to 16 MiB and back, over and over",
        f"oscillate --most 16777216 --cycles {scale.many(20)}", ALL)  # fmt: skip
    add("cross-thread", "buffers grow to 1 MiB, by another thread at each step",
        f"cross-thread --objects {scale.many(200)} --to 1048576", ALL)  # fmt: skip
    for calls in ("malloc-free", "realloc"):
        add(f"small-{calls}", f"objects of up to 4 KiB, {calls}",
            f"small --calls {calls} --operations {scale.many(2_000_000)}",
            (*PEERS, *FIXED[:3], "brug", "libbrug"))  # fmt: skip


def _paper(made: _Benches, scale: Scale) -> None:
    """What the paper's figures 1 to 12 and its table 1 have."""
    add, size = made.add, binary_size
    top = scale.size(64 * MIB)
    add("fig1", f"life of an object, 1 KiB to {size(top)}, filled",
        f"grow --from 1024 --to {top} --touch fill --lives 6 --time-calls",
        ("glibc", "jemalloc", "mimalloc", "tcmalloc-deb", "brug-mmap", "brug"))  # fmt: skip
    add("fig2a", "4 to 128 KiB by doubling, all of it written after each step",
        f"grow --to 131072 --touch refill --lives {scale.many(20000)} --time-calls",
        (*PAPER, "tcmalloc-deb"))  # fmt: skip
    top = scale.size(2 * GIB)
    add("fig2b", f"4 KiB to {size(top)} by doubling, filled",
        f"grow --to {top} --touch fill --time-calls",
        ("glibc", "jemalloc", "mimalloc", "tcmalloc-deb", "brug-mmap", "brug"),
        settle=top * 3 // 2)  # fmt: skip
    few = scale.size(256 * MIB)
    items = {
        "vec": 8_000_000, "vec-deque": 8_000_000, "linked-list": 3_000_000,
        "hash-map": 1_000_000, "btree-map": 500_000, "hash-set": 1_000_000, "btree-set": 500_000,
        "binary-heap": 4_000_000, "string": 60_000_000,
    }  # fmt: skip
    for kind in COLLECTIONS:
        contenders = [c for c in PAPER if c != "brug-mmap" or kind not in NODES]
        add(f"fig9-{kind}", f"{kind}, {scale.many(items[kind]):,} items",
            f"collection --kind {kind} --items {scale.many(items[kind])}", contenders,
            settle=few)  # fmt: skip
    for count in THREADS:
        add(f"table1-{count}", f"{count} threads, an object each grows to 124 KiB in turn",
            f"threads --threads {count} --lives {min(scale.many(30), 30)}",
            ("glibc", "glibc-arena", "jemalloc", "mimalloc", "brug"), "calls")  # fmt: skip
    ints = scale.many(10_000_000)
    add("fig7", f"{ints:,} integers into a Vec, 15 times",
        f"push --grain int --bytes {4 * ints} --lives 15",
        (*PAPER, "glibc-again", "tcmalloc-deb"), settle=few)  # fmt: skip
    top = scale.size(GIB) // 8 * 5
    add("fig8", f"{size(top)} into a Vec in pages of 4 KiB",
        f"push --grain page --bytes {top}", PAPER, settle=top * 3 // 2)  # fmt: skip
    add("fig10", f"{ints:,} integers into an Arrow buffer, 15 times",
        f"arrow --grain int --bytes {4 * ints} --lives 15", PAPER, settle=few)  # fmt: skip
    add("fig11", f"{size(top)} into an Arrow buffer in pages of 4 KiB",
        f"arrow --grain page --bytes {top}", PAPER, settle=top * 3 // 2)  # fmt: skip
    add("fig12", "link two WebAssembly modules with Wasmtime",
        f"link --links {scale.many(4000)}", PAPER, settle=few)  # fmt: skip


def _servers(made: _Benches, scale: Scale) -> None:
    """Redis, as in figure 13, and with values that grow."""
    add, size = made.add, binary_size
    servers = ("jemalloc-deb", "glibc-preload", "mimalloc-deb", "tcmalloc-deb", "libbrug-mmap",
               "libbrug")  # fmt: skip
    operations = {40: 60_000, 400: 50_000, 4 * KIB: 25_000, 40 * KIB: 4_000}
    for value in REDIS_VALUES:
        add(f"fig13-{value}", f"Redis, 90 % inserts of {size(value)}, 10 % reads",
            f"--value {value} --operations {scale.many(operations[value])}", servers,
            "redis")  # fmt: skip
    for value in REDIS_VALUES[2:]:
        points = 2000 if value < 40 * KIB else 200
        add(f"append-{value}", f"Redis, values that grow by {size(value)} at a time",
            f"--append --points {points} --value {value} "
            f"--operations {scale.many(operations[value])}", servers, "redis")  # fmt: skip


def _counted(made: _Benches) -> None:
    """Instructions of fast paths."""
    add = made.add
    for work in ("malloc-free", "realloc"):
        add(f"instructions-{work}", f"objects of up to 4 KiB, {work}, instructions of an operation",
            f"small --calls {work} --operations",
            ("glibc", "jemalloc", "mimalloc", *FIXED[:3], "brug", "libbrug"),
            "instructions")  # fmt: skip
    for work in ("linked-list", "btree-map"):
        add(f"instructions-{work}", f"{work}, instructions of an item",
            f"collection --kind {work} --items",
            ("glibc", "jemalloc", "mimalloc", *FIXED[:3], "brug", "libbrug"),
            "instructions")  # fmt: skip


def _suite(made: _Benches, suite: Path) -> None:
    """Programs of mimalloc-bench, from its sources."""
    for name in mimalloc_bench.PROGRAMS:
        words = (str(suite), name, *mimalloc_bench.arguments(suite, name))
        what = f"mimalloc-bench: {name}"
        made.append(Bench(f"{SUITE}{name}", what, words, (*SUITED, *NAMED), "program"))


# --------------------------------------------------------------------------------- measuring


def build(wasmtime: bool = True) -> None:
    """Build the binaries, and libbrug.so."""
    words: list[str | Path] = ["build", "--release", "--locked", "--target-dir", BUILT.parent]
    words += ["--manifest-path", CRATE / "Cargo.toml"]
    if not wasmtime:
        words.append("--no-default-features")
    with progress.meter("building the other allocators and the benchmarks"):
        crates.toolchain().run("bench-brug", words, limit_s=3600)
    crates.brug()


def library(name: str) -> Path:
    """Where a shared library is."""
    if name == "libbrug.so":
        found = [crates.brug().library]
    else:
        found = sorted(path for where in ("*/", "") for path in Path("/usr/lib").glob(where + name))
    for path in found:
        if path.exists():
            return path
    raise LabError(f"{name} is not installed; see lab/packages-bench-brug.txt")


# Settings of allocators and of the loader that a user may have for other purposes.
FOREIGN: Final = re.compile(r"BRUG_|MALLOC_|MIMALLOC_|_RJEM_|TCMALLOC_|GLIBC_TUNABLES$|LD_PRELOAD$")


def _clear_settings() -> None:
    for key in [key for key in os.environ if FOREIGN.match(key)]:
        del os.environ[key]


def environment(bench: str, name: str) -> dict[str, str]:
    """What a contender needs in its environment."""
    contender = CONTENDERS[name]
    env = dict(contender.env)
    if contender.preload:
        env["LD_PRELOAD"] = str(library(contender.preload))
    if contender.trained:
        env["BRUG_PROFILE"] = str(_profile(bench))
    return env


def _profile(bench: str) -> Path:
    return HERE / "profiles" / f"{bench}.profile"


_communicate: Final = functools.partial(child.communicate, limit_s=RUN_LIMIT_S)


def _timed(bench: Bench, name: str) -> dict[str, Any]:
    binary = BUILT / CONTENDERS[name].binary
    words = ["--settle", str(bench.settle), *bench.words]
    out, _ = _communicate([binary, *words], env=environment(bench.name, name))
    return dict(json.loads(out))


def _start(bench: Bench, name: str) -> dict[str, Any]:
    """The processor time of a program that does little; a round is many runs of it."""
    runs, command = int(bench.words[0]), bench.words[1:]
    added = environment(bench.name, name)
    spent = child.spent_by(command, {**os.environ, **added}, runs, RUN_LIMIT_S)
    return {
        "seconds": spent.processor_s,
        "minor_faults": round(spent.minor_faults, 1),
        "instructions": _whole(command, tuple(added.items())),
    }


@functools.cache
def _whole(command: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> int:
    """Instructions of all processes of a command, from the loader's first to the last."""
    valgrind = require_tool("valgrind", "valgrind")
    words = ("--tool=callgrind", "--trace-children=yes", "--callgrind-out-file=/dev/null")
    return collected(_communicate([valgrind, *words, *command], env=dict(env))[1])


def _program(bench: Bench, name: str) -> dict[str, Any]:
    """A program of mimalloc-bench: its time, and the maximum of memory that it had."""
    source, program = Path(bench.words[0]), bench.words[1]
    with _directory() as temp, mimalloc_bench.stdin(source, program).open("rb") as stdin:
        used = temp / "used"
        # The peak of a child begins with its parent's: that of time(1) is small, ours is not.
        command: list[str | Path] = [require_tool("time", "time"), "-f", "%M", "-o", used]
        # Only the program itself gets the allocator.
        command += ["env", *(f"{k}={v}" for k, v in environment(bench.name, name).items())]
        command += [mimalloc_bench.built(source, program), *bench.words[2:]]
        before, begin = child.processor_s(), time.monotonic()
        out, said = _communicate(command, stdin=stdin.fileno(), cwd=temp)
        passed, spent = time.monotonic() - begin, child.processor_s() - before
        most_kib = used.read_text()
    took = mimalloc_bench.seconds(program, out + said, passed)
    return {
        "seconds": took,
        "cpu_seconds": mimalloc_bench.processor_seconds(program, took, passed, spent),
        "peak_rss_bytes": int(most_kib) * KIB,
    }


@functools.cache
def _guest_kernel() -> Path:
    return kernel.image(GUEST_KERNEL).bootable


def _guest(bench: Bench, name: str) -> dict[str, Any]:
    """One boot of the exact board, in which time is instructions, for one allocator."""
    memory, ask, *words = bench.words
    contender = CONTENDERS[name]
    binary = BUILT / contender.binary
    env = dict(contender.env)
    files = initramfs.placed("bench/work", binary)
    if contender.preload:
        found = library(contender.preload)
        env["LD_PRELOAD"] = f"/bench/{found.name}"
        files |= initramfs.placed(f"bench/{found.name}", found)
    job = Job(
        f"bench-brug-{bench.name}-{name}",
        jobs.script(
            "fragmented",
            memory=memory,
            ask=ask,
            environment=" ".join(["env", *(f"{key}={value}" for key, value in env.items())]),
            command=" ".join(["/bench/work", *words]),
        ),
        _guest_kernel(),
        Machine(config="reservation", memory_mib=GUEST_MIB, cma_mib=0),
        files=files,
    )
    outcome = boot(job).require()
    (record,) = (row["data"] for row in outcome.rows("work"))
    events = {row["name"]: row["count"] for row in outcome.rows("event")}
    free = [row["free_huge"] for row in outcome.rows("fragmented")]
    return {**record, "events": events, **({"free_huge": free[0]} if free else {})}


def _choice(bench: Bench, name: str) -> dict[str, Any]:
    """The base that a program gets while others keep the processors busy, and why.

    Of several processes, the one that had most to choose by.
    """
    require_tool(bench.words[0], bench.words[0])
    require_tool(BUSY[0], BUSY[0])
    with tempfile.TemporaryDirectory() as temp, child.started(BUSY) as busy:
        file = Path(temp) / "statistics"
        env = environment(bench.name, name) | {"BRUG_STATS": f"json:{file}"}
        begin = time.monotonic()
        _communicate(bench.words, env={**os.environ, **env})
        seconds = time.monotonic() - begin
        if busy.poll() is not None:
            raise LabError(f"{BUSY[0]} ended with status {busy.returncode}: nothing was busy")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    row = max(rows, key=lambda row: sum(base["samples"] for base in row["bases"]))
    return {
        "seconds": seconds,
        "base": row["base"],
        "why": row["base_why"],
        "gain_percent": row["base_gain_percent"],
    }


def choices(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many runs each base was chosen, and between which gains of the challenger."""
    bases = [row["base"] for row in rows if "base" in row]
    gains = [row["gain_percent"] for row in rows if row.get("gain_percent") is not None]
    counts = ", ".join(
        f"{base} in {bases.count(base)} of {len(bases)}" for base in sorted(set(bases))
    )
    return f"{counts}; gain {min(gains)} to {max(gains)} %" if gains else f"{counts}; no trial"


def _calls(bench: Bench, name: str) -> dict[str, Any]:
    """A timed run, and another one under strace that counts calls for memory."""
    record = _timed(bench, name)
    strace = require_tool("strace", "strace")
    with tempfile.NamedTemporaryFile() as counts:
        command: list[str | Path] = [
            strace, "-f", "-c", "-o", counts.name,
            "-e", "trace=brk,mmap,mremap,munmap,mprotect,madvise",
        ]  # fmt: skip
        # Only the program itself gets the allocator and its settings.
        for key, value in environment(bench.name, name).items():
            command += ["-E", f"{key}={value}"]
        binary = BUILT / CONTENDERS[name].binary
        _communicate([*command, binary, *bench.words])
        record["system_calls"] = strace_counts(Path(counts.name).read_text())
    return record


def strace_counts(text: str) -> dict[str, int]:
    """Calls by name, from the table that strace -c prints."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and re.fullmatch(r"[\d.]+", words[0]) and words[-1] != "total":
            found[words[-1]] = int(words[3])
    return found


INSTRUCTION_RUNS: Final = {"small": (50_000, 250_000), "collection": (10_000, 50_000)}


def _instructions(bench: Bench, name: str) -> dict[str, Any]:
    """Instructions of one operation: the difference of a long and a short run."""
    valgrind = require_tool("valgrind", "valgrind")
    # Against a base that is known, and not the one that a trial finds under callgrind's clock.
    env = {"BRUG_BASE": "glibc"} | environment(bench.name, name)
    counted: list[int] = []
    record: dict[str, Any] = {}
    short, long = INSTRUCTION_RUNS[bench.words[0]]
    for operations in (short, long):
        out, said = _communicate(
            [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null",
             BUILT / CONTENDERS[name].binary, *bench.words, str(operations)],
            env=env,
        )  # fmt: skip
        counted.append(collected(said))
        record = json.loads(out)
    return {
        "instructions": (counted[1] - counted[0]) / (long - short),
        "checksum": record["checksum"],
    }


def collected(text: str) -> int:
    """The total that callgrind reports, of all processes."""
    found = re.findall(r"Collected : (\d+)", text)
    if not found:
        raise LabError("valgrind did not say how many instructions there were")
    return sum(map(int, found))


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """A short-lived directory with a short name: the path of a socket has 100 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as name:
        yield Path(name)


def _redis(bench: Bench, name: str) -> dict[str, Any]:
    """Throughput of a fresh server under our client's load."""
    with _directory() as temp:
        # Debian's one binary is the server when it is called that; this needs no service.
        server = temp / "redis-server"
        server.symlink_to(require_tool("redis-check-rdb", "redis-tools"))
        socket = temp / "socket"
        # A processor for the server and one for the client, or the scheduler decides the result.
        pin = [["taskset", "--cpu-list", str(cpu)] for cpu in sorted(os.sched_getaffinity(0))[:2]]
        pin_server, pin_client = pin if len(pin) == 2 else ([], [])
        command: list[str | Path] = [
            *pin_server, server, "--port", "0", "--unixsocket", socket,
            "--save", "", "--appendonly", "no", "--dir", temp, "--logfile", temp / "log",
        ]  # fmt: skip
        env = environment(bench.name, name)
        with (
            (temp / "said").open("wb") as said,
            child.started(command, env=env, stdout=said.fileno(), stderr=said.fileno()) as process,
        ):
            try:
                load = BUILT / "redis-load"
                out, _ = _communicate([*pin_client, load, "--socket", socket, *bench.words])
            except LabError as error:
                state = process.poll()
                last = tail(temp / "log", 1) or tail(temp / "said", 1) or "it said nothing"
                ended = "" if state is None else f" ended with status {state}"
                raise LabError(f"{error}; the server{ended}: {last}") from None
            proc = Path("/proc") / str(process.pid)
            maps = (proc / "maps").read_text()
            status = (proc / "status").read_text()
            # After the name in parentheses: the 12th and 13th fields are user and system ticks.
            ticks = (proc / "stat").read_text().rpartition(")")[2].split()[11:13]
        preload = CONTENDERS[name].preload
        if preload and Path(library(preload)).resolve().name not in maps:
            raise LabError(f"{preload} was not loaded: {(temp / 'said').read_text().strip()}")
        record = dict(json.loads(out))
        record["server_cpu_seconds"] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        record["peak_rss_bytes"] = int(peak[1]) * KIB if peak else 0
        return record


KINDS: Final[Mapping[str, Callable[[Bench, str], dict[str, Any]]]] = {
    "time": _timed,
    START: _start,
    "choice": _choice,
    "guest": _guest,
    "program": _program,
    "redis": _redis,
    "calls": _calls,
    "instructions": _instructions,
}

Runs = dict[str, list[dict[str, Any]]]  # by contender; each record says its round


def _train(bench: Bench) -> None:
    """Runs that leave a profile for the ones that are measured."""
    profile = _profile(bench.name)
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.unlink(missing_ok=True)
    for _ in range(TRAININGS):
        _timed(bench, "brug-trained")
    if not profile.is_file():
        raise LabError("brug wrote no profile")


def measure(bench: Bench, rounds: int, tick: Callable[[], None] = lambda: None) -> Runs:
    """All contenders in turn; a failure is kept in the place of a record."""
    if bench.kind == "choice" and rounds > 1:
        rounds = CHOICES
    if bench.kind == START and rounds > 1:
        # Short rounds are disturbed alike.
        rounds *= QUICK_TIMES
    once = bench.kind in ("calls", "instructions", "guest")  # these do not vary from round to round
    runs: Runs = {name: [] for name in bench.contenders}
    wanted = dict.fromkeys(bench.contenders, 1 if once else rounds)
    if "brug-trained" in wanted:
        try:
            _train(bench)
        except LabError as error:
            runs["brug-trained"].append({"round": 1, "failed": str(error)})
            wanted["brug-trained"] = 0
    number = 1 if once else 0
    while number <= max(wanted.values()):
        # Everyone has everyone before it at some time.
        turn = number % len(bench.contenders)
        for name in bench.contenders[turn:] + bench.contenders[:turn]:
            tick()
            if number > wanted[name]:
                continue
            begin = time.monotonic()
            try:
                record = KINDS[bench.kind](bench, name)
            except LabError as error:
                runs[name].append({"round": number, "failed": str(error)})
                wanted[name] = 0
                continue
            passed = time.monotonic() - begin
            # What such a program says of itself may be of a part of its time.
            seconds = passed if bench.kind == "program" else record.get("seconds", 0.0)
            if number > 0:
                runs[name].append({"round": number, **record})
            elif seconds > SLOW_S and bench.kind != "choice":
                wanted[name] = min(wanted[name], SLOW_ROUNDS)
            elif rounds > 1 and "brug-trained" in wanted and seconds < QUICK_S:
                wanted[name] = rounds * QUICK_TIMES
        number += 1
    return runs


def disagreement(runs: Runs) -> str:
    """Which contenders left other data than most, if any did."""
    sums = {name: {r["checksum"] for r in rows if "checksum" in r} for name, rows in runs.items()}
    flat = [value for values in sums.values() for value in values]
    if not flat:
        return ""
    usual = statistics.mode(flat)
    return ", ".join(name for name, values in sums.items() if values - {usual})


def smoke() -> None:
    """Two short benchmarks, once: everyone must do them and leave the same data."""
    _clear_settings()
    build(wasmtime=False)
    everyone = (
        "glibc", "jemalloc", "mimalloc", "snmalloc", "rpmalloc", "brug", *FIXED, "libbrug",
    )  # fmt: skip
    for bench in benches(QUICK):
        if bench.name not in ("interleaved-4", "small-realloc"):
            continue
        runs = measure(replace(bench, contenders=everyone), QUICK.rounds)
        failed = [f"{n}: {r['failed']}" for n, rows in runs.items() for r in rows if "failed" in r]
        if failed:
            raise LabError(f"{bench.name} failed with {'; '.join(failed)}")
        if wrong := disagreement(runs):
            raise LabError(f"{bench.name} leaves other data with {wrong}")


def _others() -> str:
    """A hash of all that is compared with brug, and of what puts load on servers."""
    names_of = {contender.binary for contender in CONTENDERS.values()} | {"redis-load"}
    files = [BUILT / name for name in sorted(names_of - {"brug"})]
    for name in sorted(
        {contender.preload for contender in CONTENDERS.values()} - {"", "libbrug.so"}
    ):
        with contextlib.suppress(LabError):  # not installed: those who need it say so
            files.append(library(name))
    return sha256(*(file.read_bytes() for file in files))[:16]


def _provenance(scale: Scale) -> dict[str, Any]:
    digest = sha256((BUILT / "brug").read_bytes(), crates.brug().library.read_bytes())
    return {
        "experiment": "bench-brug",
        "scale": scale.name,
        "rounds": scale.rounds,
        "machine": {
            "cpu": processor(),
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()),
            "huge_pages": _huge_pages(),
        },
        "brug": digest[:16],
        "others": _others(),
    }


def _huge_pages() -> str:
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", file.read_text()) if file.is_file() else None
    return chosen[1] if chosen else "none"


def chosen(only: str, scale: Scale, suite: Path | None = None) -> list[Bench]:
    """The benchmarks that `only` names."""
    every = benches(scale, suite)
    wanted = names.chosen(only, [bench.name for bench in every], "benchmark")
    return [bench for bench in every if bench.name in wanted]


def directory(quick: bool) -> Path:
    """Where results are: what was measured must outlive a look at whether it all runs."""
    return HERE.with_name(HERE.name + "-quick") if quick else HERE


def run(only: str = "", quick: bool = False, suite: Path | None = None) -> None:
    """Measure what `only` names; other results of the same binaries on this machine stay.

    With `suite`, a copy of mimalloc-bench, its programs as well.
    """
    _clear_settings()
    scale, here = QUICK if quick else USUAL, directory(quick)
    wanted = chosen(only, scale, suite)
    # Wasmtime takes longer to build than everything else together.
    build(wasmtime=any(bench.words[0] == "link" for bench in wanted))
    about = _provenance(scale)
    results = about | {"memory_available": memory_available(), "benches": {}, "runs": {}}
    if only and (here / "results.json").is_file():
        before = samples.load(here)
        if are_of(before, about):
            results |= {"benches": before["benches"], "runs": before["runs"]}
        else:
            print("earlier results are of other binaries or another scale: left out", flush=True)
    with progress.meters() as meters:
        meter = meters.add("measuring")
        for number, bench in enumerate(wanted):
            turns = (scale.rounds + 1) * len(bench.contenders)
            done = 0

            def tick(bench: Bench = bench, number: int = number, turns: int = turns) -> None:
                nonlocal done
                done += 1
                meter.at((number + min(done / turns, 1)) / len(wanted), bench.name)

            begin = time.monotonic()
            runs = measure(bench, scale.rounds, tick)
            results["benches"][bench.name] = {
                "what": bench.what,
                "kind": bench.kind,
                "command": " ".join(bench.words),
                "took_seconds": round(time.monotonic() - begin, 1),
            }
            results["runs"][bench.name] = runs
            # What there is must not be lost when somebody ends this early.
            samples.save(here, results)
    wrong = {b.name: d for b in wanted if (d := disagreement(results["runs"][b.name]))}
    for bench in wanted:
        if bench.kind == "choice":
            print(f"{bench.name}: {choices(results['runs'][bench.name]['libbrug'])}", flush=True)
    if wrong:
        said = "; ".join(f"{bench}: {who}" for bench, who in wrong.items())
        raise LabError(f"wrong data after {said}; see {here / 'results.json'}")
