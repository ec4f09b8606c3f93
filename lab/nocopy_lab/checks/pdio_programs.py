# SPDX-License-Identifier: MIT OR Apache-2.0
"""Real programs under libpdio.so, compared with what they do without it.

A scenario runs programs in a directory of its own, on a disk, and returns what has to be the same.
Under the library every process also appends what streams it took; where the library should have
taken some and did not, the check fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nocopy_lab import crates
from nocopy_lab.checks.programs import Place
from nocopy_lab.paths import LOGS, REPO, LabError, require_tool

# What libpdio.so is told, by the name that a failure is reported under, and how much data there is.
MIB: Final = 1 << 20
SETTINGS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "defaults": ({}, 80 * MIB),
    "short streams": ({"PDIO_SEQUENTIAL": "256K", "PDIO_MIN_SIZE": "1M"}, 12 * MIB),
    "short streams, hasty": (
        {"PDIO_SEQUENTIAL": "0", "PDIO_MIN_SIZE": "0", "PDIO_LINGER": "1ms", "PDIO_MEMORY": "1M"},
        12 * MIB,
    ),
    "short streams, seen late": (
        {"PDIO_SEQUENTIAL": "256K", "PDIO_MIN_SIZE": "1M", "PDIO_PROMPT": "0"},
        12 * MIB,
    ),
    "short streams, always direct": (
        {"PDIO_SEQUENTIAL": "64K", "PDIO_MIN_SIZE": "0", "PDIO_STRATEGY": "direct"},
        12 * MIB,
    ),
}
# Streams in memory are not taken, and /tmp is memory on many systems.
DISK: Final = Path("/var/tmp")


def _data(path: Path, size: int) -> Path:
    """A file of bytes that look random and are always the same."""
    block = hashlib.shake_256(b"pdio").digest(1 << 20)
    with path.open("wb") as out:
        for number in range(-(-size // len(block))):
            turned = block[number % 4093 :] + block[: number % 4093]
            out.write(turned[: min(len(block), size - number * len(block))])
    return path


def _digest(*files: Path) -> str:
    digests = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return " ".join(digests) + "\n"


def _without_times(said: str) -> str:
    """dd's report without how long it took."""
    return re.sub(r"copied, .*", "copied", said)


def dd(place: Place, size: int) -> str:
    """Block sizes from a disk sector on, and what conv= can do."""
    source = _data(place.directory / "source", size + 777)
    said = ""
    for number, words in enumerate(
        (
            ["bs=512"], ["bs=4096"], ["bs=65536"], ["bs=1M"], ["bs=7777"], ["bs=9M"],
            ["ibs=3000", "obs=8192"], ["bs=64K", "conv=fsync"], ["bs=64K", "conv=notrunc"],
            ["bs=64K", "conv=swab,sync"], ["bs=4K", "conv=sparse"], ["bs=1M", "oflag=append"],
            ["bs=1000", "skip=3", "seek=5"], ["bs=1M", "iflag=fullblock", "conv=fdatasync"],
            ["bs=1M", "oflag=direct"],
        )
    ):  # fmt: skip
        out = place.directory / "out"
        if "conv=notrunc" in words:
            out.write_bytes(b"x" * (size + 5000))
        run = place.run([require_tool("dd", "coreutils"), f"if={source}", f"of={out}", *words])
        said += f"{number} {_without_times(run)}{_digest(out)}"
        out.unlink()
    return said


def cp(place: Place, size: int) -> str:
    """By read and write: what copy_file_range and clones do is the kernel's."""
    source = _data(place.directory / "source", size + 1)
    out = place.directory / "out"
    said = place.run([require_tool("cp", "coreutils"), "--reflink=never", "-p", source, out])
    said += _digest(out) + str(out.stat().st_mtime_ns == source.stat().st_mtime_ns)
    said += place.run(["cp", "--sparse=always", "--reflink=never", source, out]) + _digest(out)
    said += place.run(["cp", source, out]) + _digest(out)
    return said


def tar(place: Place, size: int) -> str:
    """Archives of large and small files, compressed and not, and out of them again."""
    files = place.directory / "files"
    files.mkdir()
    large = _data(files / "large", size)
    small = [_data(files / f"small{number}", number * 997) for number in range(40)]
    program = require_tool("tar", "tar")
    place.run([program, "-cf", "plain.tar", "--sort=name", "files"])
    place.run([program, "-czf", "packed.tar.gz", "--sort=name", "files"])
    said = _digest(place.directory / "plain.tar")
    said += place.run([program, "-df", "plain.tar"])
    for archive in ("plain.tar", "packed.tar.gz"):
        large.unlink()
        place.run([program, "-xf", archive])
        said += _digest(large, *small) + str(int(large.stat().st_mtime))
    # What the archive says of times is the same only without them.
    return re.sub(r"\d{10}", "", said[64:])


def gzip(place: Place, size: int) -> str:
    """There and back."""
    source = _data(place.directory / "source", size)
    program = require_tool("gzip", "gzip")
    said = place.run([program, "-1", "-n", "-k", source]) + _digest(Path(f"{source}.gz"))
    source.unlink()
    said += place.run([program, "-d", f"{source}.gz"]) + _digest(source)
    return said


SQL: Final = """
create table t(id integer primary key, body blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
  insert into t select i, zeroblob(i % 3000) from n;
create index by_length on t(length(body));
begin; update t set body = zeroblob(5000) where id % 7 = 0; rollback;
update t set body = zeroblob(5000) where id % 7 = 0;
delete from t where id % 3 = 0;
vacuum;
vacuum into 'copy.db';
pragma journal_mode = wal;
insert into t(body) select body from t limit 2000;
pragma integrity_check;
select count(*), sum(length(body)) from t;
"""


def sqlite(place: Place, size: int) -> str:
    """A database with rollbacks, a write-ahead log, and a vacuum."""
    program = require_tool("sqlite3", "sqlite3")
    sql = SQL.format(rows=size // 2000)
    said = place.run([program, "-batch", "base.db", sql])
    return said + place.run([program, "-batch", "copy.db", "pragma integrity_check;"])


def git(place: Place, size: int) -> str:
    """A repository with large files: added, committed, packed, checked, cloned."""
    program = require_tool("git", "git")
    who = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(place.directory),
        "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    place = Place(place.directory, {**place.env, **who}, place.log)
    place.run([program, "init", "-q", "-b", "main", "origin"])
    for number in range(3):
        _data(place.directory / "origin/large", size // 2 + number)
        for small in range(20):
            _data(place.directory / f"origin/small{small}", (small + number) * 3000)
        place.run([program, "-C", "origin", "add", "-A"])
        place.run([program, "-C", "origin", "commit", "-q", "-m", f"step {number}"])
    place.run([program, "-C", "origin", "gc", "-q", "--prune=now"])
    place.run([program, "clone", "-q", "--no-local", "origin", "copy"])
    said = place.run([program, "-C", "copy", "fsck", "--full", "--strict", "--no-progress"])
    said += place.run([program, "-C", "copy", "rev-list", "--objects", "--all"])
    return said + _digest(place.directory / "copy/large")


PYTHON: Final = """
import hashlib, mmap, os, shutil, subprocess, sys
size = int(sys.argv[1])
block = hashlib.shake_256(b'python').digest(100_003)
with open('file', 'w+b') as file:
    while file.tell() < size:
        file.write(block)
    file.seek(1000)
    file.write(b'patched')
    print(file.read(10).hex(), file.tell())
    file.seek(0, 2)
    print(file.tell(), os.fstat(file.fileno()).st_size)
    file.write(b'appended')
    file.flush()
    print(os.path.getsize('file'))
    file.truncate(size - 5)
    with mmap.mmap(file.fileno(), 0) as map:
        print(hashlib.sha256(map).hexdigest())
with open('file', 'rb', buffering=0) as file:
    total = hashlib.sha256()
    while data := file.read(70_000):
        total.update(data)
    print(total.hexdigest(), file.tell())
    file.seek(12345)
    print(subprocess.run(['head', '-c', '10'], stdin=file, capture_output=True).stdout.hex())
fd = os.open('raw', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for number in range(size // 5000):
    os.write(fd, block[number % 100 :][:5000])
pid = os.fork()
if pid == 0:
    os.write(fd, b'child')
    os._exit(0)
os.waitpid(pid, 0)
os.write(fd, b'parent')
subprocess.run(['sh', '-c', 'echo shell >&%d' % fd], pass_fds=[fd])
os.write(fd, b'end')
os.fsync(fd)
os.close(fd)
shutil.copyfile('raw', 'copied')
shutil.copyfileobj(open('raw', 'rb'), open('copied2', 'wb'))
for name in 'raw', 'copied', 'copied2':
    print(hashlib.sha256(open(name, 'rb').read()).hexdigest())
"""


def python(place: Place, size: int) -> str:
    """Reads, writes, seeks, maps, children."""
    return place.run([require_tool("python3", "python3"), "-c", PYTHON, str(size)])


def transcode(place: Place, size: int) -> str:
    """A converter of media: threads, probes, a header filled in later."""
    source = REPO / "crates/pdio-preload/tests/programs/transcode.c"
    bare = {name: value for name, value in place.env.items() if name != "LD_PRELOAD"}
    gcc = require_tool("gcc", "gcc")
    words: list[str | Path] = [gcc, "-O2", "-pthread", "-o", "transcode", source]
    Place(place.directory, bare, place.log).run(words)
    _data(place.directory / "in", size + 4321)
    program = place.directory / "transcode"
    return place.run([program, "in", "out"]) + _digest(place.directory / "out")


def fio(place: Place, size: int) -> str:
    """Patterns that are written and verified, by every engine that is not the kernel's own."""
    program = require_tool("fio", "fio")
    said = ""
    for engine, pattern, direct in (
        ("sync", "write", 0), ("psync", "write", 0), ("vsync", "write", 0),
        ("sync", "randwrite", 0), ("psync", "randwrite", 0), ("sync", "readwrite", 0),
        ("psync", "write", 1), ("posixaio", "write", 0), ("libaio", "write", 1),
        ("io_uring", "write", 0), ("mmap", "write", 0),
    ):  # fmt: skip
        words = [program, "--name=job", "--filename=file", f"--rw={pattern}", "--bs=16k"]
        words += [
            f"--size={size}",
            f"--ioengine={engine}",
            f"--direct={direct}",
            "--fallocate=none",
        ]
        words += [
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--end_fsync=1",
            "--thread",
        ]
        run = place.run(words)
        found = re.search(r"err=\s*(\d+)", run)
        said += f"{engine} {pattern} {direct}: {found[1] if found else run}\n"
        (place.directory / "file").unlink()
    return said


@dataclass(frozen=True)
class Scenario:
    run: Callable[[Place, int], str]
    # Programs that must have had streams taken.
    taken: tuple[str, ...]
    # In shared memory they could tell others without a call, so by default no writes are taken.
    shares_memory: bool = False


SCENARIOS: Final[dict[str, Scenario]] = {
    "dd": Scenario(dd, ("dd",)),
    "cp": Scenario(cp, ("cp",)),
    "tar": Scenario(tar, ("tar",)),
    "gzip": Scenario(gzip, ("gzip",)),
    # Its files are locked, or written here and there: never taken.
    "sqlite": Scenario(sqlite, ()),
    "git": Scenario(git, ("git",)),
    "python": Scenario(python, ("python3",)),
    "transcode": Scenario(transcode, ("transcode",)),
    "fio": Scenario(fio, ("fio",), shares_memory=True),
}


def _one(name: str, size: int, setting: str, env: Mapping[str, str]) -> str:
    log = LOGS / "pdio" / f"{name}-{re.sub(r'[^a-z0-9]+', '-', setting)}.log"
    with tempfile.TemporaryDirectory(prefix="nocopy-", dir=DISK) as directory:
        return SCENARIOS[name].run(Place(Path(directory), env, log), size)


def _streams(statistics: Path) -> dict[str, int]:
    """How many streams were taken, by program."""
    found: dict[str, int] = {}
    for program, count in re.findall(
        r"^pdio: (\S+) \[\d+\]: (\d+) streams? taken", statistics.read_text(errors="replace"), re.M
    ):
        program = re.sub(r"^python3\.\d+$", "python3", program)
        found[program] = found.get(program, 0) + int(count)
    return found


def compare(name: str) -> None:
    """Run a scenario without the library and with it, with every setting."""
    library = crates.libpdio()
    for setting, (words, size) in SETTINGS.items():
        expected = _one(name, size, f"{setting} bare", {"LD_PRELOAD": ""})
        if not expected.strip():
            raise LabError(f"{name} says nothing without libpdio.so; the comparison is broken")
        with tempfile.TemporaryDirectory(prefix="nocopy-") as directory:
            statistics = Path(directory) / "statistics"
            env = {**words, "LD_PRELOAD": str(library), "PDIO_STATS": str(statistics)}
            env["PDIO_COSTS"] = "0"  # What was measured on this machine must not matter.
            try:
                got = _one(name, size, setting, env)
            except LabError as error:
                raise LabError(f"{name} fails under libpdio.so ({setting}): {error}") from error
            if not statistics.is_file():
                raise LabError(f"{name} did not run under libpdio.so ({setting}): no statistics")
            streams = _streams(statistics)
        scenario = SCENARIOS[name]
        left_alone = scenario.shares_memory and words.get("PDIO_PROMPT") != "0"
        for program in () if left_alone else scenario.taken:
            if not streams.get(program):
                raise LabError(f"libpdio.so took no stream of {program} ({setting})")
        if got != expected:
            for side, text in (("bare", expected), ("pdio", got)):
                (LOGS / "pdio" / f"{name}-differs-{side}.txt").write_text(text)
            raise LabError(
                f"{name} differs under libpdio.so ({setting}); "
                f"compare {LOGS}/pdio/{name}-differs-*.txt"
            )
