# SPDX-License-Identifier: MIT OR Apache-2.0
"""Real programs under libbrug.so, compared with what they do under the C library.

A scenario runs a program in a directory of its own and returns what has to be the same whatever
the allocator. Under brug every process also leaves a line of counters, so that a library that was
never loaded cannot pass.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates
from nocopy_lab.initramfs import BENCH
from nocopy_lab.paths import LAB, LOGS, REPO, LabError, require_tool, tail

# What libbrug.so is told, by the name that a failure is reported under.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "auto": {"BRUG_ALLOC": "auto"},
    "mmap": {"BRUG_ALLOC": "mmap"},
    "template": {"BRUG_ALLOC": "template"},
    "sys, nothing retained": {"BRUG_ALLOC": "sys", "BRUG_RETAIN": "0"},
    "auto on the C library, from 4 KiB on": {
        "BRUG_ALLOC": "auto",
        "BRUG_BASE": "glibc",
        "BRUG_SWITCH_POINT": "4K",
    },
    "auto on mimalloc, huge pages": {
        "BRUG_ALLOC": "auto",
        "BRUG_BASE": "mimalloc",
        "BRUG_THP": "always",
    },
}


@dataclass(frozen=True)
class Place:
    """Where a scenario runs, and in which environment."""

    directory: Path
    env: Mapping[str, str]
    log: Path

    def run(
        self, words: Sequence[str | Path], *, limit_s: float = 120.0, ok: Sequence[int] = (0,)
    ) -> str:
        """Run a command here; everything it says, warnings included."""
        what = f"{Path(words[0]).name} {' '.join(str(word) for word in words[1:])}"[:60]
        child.run(
            words,
            log=self.log,
            limit_s=limit_s,
            what=what,
            cwd=self.directory,
            env=self.env,
            ok=ok,
        )
        return self.log.read_text(errors="replace")


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def random_lines(count: int) -> str:
    """Lines that look random and are always the same."""
    return "".join(
        hashlib.sha256(str(number).encode()).hexdigest()[: 8 + number % 56] + "\n"
        for number in range(count)
    )


# -------------------------------------------------------------------------------- scenarios

PYTHON_TESTS: Final = (
    "test_list", "test_dict", "test_set", "test_tuple", "test_array", "test_bytes", "test_deque",
    "test_json", "test_sort", "test_memoryview", "test_struct", "test_zlib", "test_thread",
    "test_mmap",
)  # fmt: skip


def python(place: Place) -> str:
    """Part of CPython's own tests, every object from malloc."""
    interpreter = "/usr/bin/python3"
    words = [interpreter, "-m", "unittest", *(f"test.{name}" for name in PYTHON_TESTS)]
    place = Place(place.directory, {**place.env, "PYTHONMALLOC": "malloc"}, place.log)
    said = place.run(words, limit_s=240)
    ran, verdict = re.search(r"^Ran (\d+) tests", said, re.M), said.strip().splitlines()[-1]
    if ran is None or int(ran[1]) < 500:
        raise LabError(f"too few of Python's tests ran; see {place.log}")
    return f"{ran[1]} tests: {verdict}"


def git(place: Place) -> str:
    """A history of generated files, cloned, packed and checked."""
    program = require_tool("git", "git")
    origin = place.directory / "origin"
    who = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(place.directory),
    }  # fmt: skip
    place = Place(place.directory, {**place.env, **who}, place.log)
    stream: list[str] = []
    text = random_lines(6000).splitlines(keepends=True)
    for commit in range(60):
        stream.append(
            f"commit refs/heads/main\ncommitter a <a@example.org> {1e9 + commit:.0f} +0000"
        )
        stream.append(f"data 6\nstep {commit % 10}")
        for name in range(8):
            body = "".join(text[(commit * 7 + name * 500) % 3000 :][: 400 + commit * 40])
            stream.append(
                f"M 100644 inline directory{name % 3}/file{name}\ndata {len(body)}\n{body}"
            )
    (place.directory / "stream").write_text("\n".join(stream) + "\n")
    place.run([program, "init", "-q", "-b", "main", origin])
    importer = f"exec {program} -C origin fast-import --quiet <stream"
    place.run(["sh", "-c", importer])
    place.run([program, "clone", "-q", "--no-local", "origin", "copy"])
    place.run([program, "-C", "copy", "gc", "-q", "--aggressive", "--prune=now"])
    said = place.run([program, "-C", "copy", "fsck", "--full", "--strict", "--no-progress"])
    said += place.run([program, "-C", "copy", "rev-list", "--objects", "--all"])
    said += place.run([program, "-C", "copy", "log", "--stat", "-p", "--format=%H %T"])
    said += _digest(*sorted((place.directory / "copy").glob("directory*/file*")))
    return said


GCC_FLAGS: Final = ("-O2", "-g", "-w", f"-I{BENCH}")


def gcc(place: Place) -> str:
    """Programs of this repository, compiled to the same bytes."""
    programs = REPO / "crates/brug-preload/tests/programs"
    sources = [*sorted((LAB / "guest").glob("**/*.c")), *sorted(programs.glob("*.c*"))]
    digests: list[str] = []
    for source in sources:
        name = "g++" if source.suffix == ".cpp" else "gcc"
        compiler = require_tool(name, name)
        out = place.directory / f"{source.stem}.o"
        said = place.run(
            [
                compiler,
                *GCC_FLAGS,
                f"-fdebug-prefix-map={place.directory}=.",
                "-c",
                source,
                "-o",
                out,
            ]
        )
        digests.append(f"{source.name} {_digest(out)} {said}")
    return "\n".join(digests)


SQL: Final = """
create table t(id integer primary key, word text, body blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
  insert into t select i, printf('%08x', (i * 2654435761) % 4294967296), zeroblob(i % 300) from n;
create index by_word on t(word);
select count(*), min(word), max(word), sum(length(body)) from t;
select length(group_concat(word, ',')), substr(group_concat(word), 1000000, 40) from t;
select hex(substr(x, 3000000, 8)), length(x)
  from (select group_concat(replace(printf('%.100c', 'x'), 'x', word), '') as x from t);
update t set body = zeroblob(2000) where id % 50 = 0;
delete from t where id % 3 = 0;
vacuum;
select a.word, count(*) from t a join t b on b.word > a.word and b.word < a.word || 'zz'
  group by a.word order by 2 desc, 1 limit 5;
with recursive s(x, n) as (select 'ab', 1 union all select x || x, n + 1 from s where n < 22)
  select n, length(x) from s;
pragma integrity_check;
"""


def sqlite(place: Place) -> str:
    """Tables, indices, long strings, a vacuum."""
    program = require_tool("sqlite3", "sqlite3")
    return place.run([program, "-batch", place.directory / "base.db", SQL])


def sort(place: Place) -> str:
    """More lines than fit its buffer."""
    (place.directory / "lines").write_text(random_lines(400_000))
    program = require_tool("sort", "coreutils")
    place.run([program, "-S", "8M", "--parallel=2", "-T", ".", "-o", "some", "lines"])
    place.run([program, "-S", "256M", "-r", "-o", "all", "lines"])
    return _digest(place.directory / "some", place.directory / "all")


NODE_WORKER: Final = """
const { parentPort, workerData } = require('worker_threads');
const crypto = require('crypto'), zlib = require('zlib');
function work(seed) {
  let text = '';
  const list = [], map = new Map(), sum = crypto.createHash('sha256');
  for (let i = 0; i < 60000; i++) {
    text += (i * seed).toString(36);
    list.push({ i, name: 'n' + i * seed });
    map.set('k' + i % 5000, list.length);
  }
  for (let size = 64; size < 1 << 24; size *= 3) sum.update(Buffer.alloc(size, text));
  sum.update(zlib.inflateSync(zlib.deflateSync(Buffer.from(JSON.stringify(list)))));
  return [seed, text.length, map.size, sum.digest('hex')].join(' ');
}
if (parentPort) parentPort.postMessage(work(workerData));
module.exports = work;
"""

NODE_MAIN: Final = """
const { Worker } = require('worker_threads');
console.log(require('./script.js')(1));
const lines = [];
for (const seed of [2, 3, 4]) {
  const worker = new Worker('./script.js', { workerData: seed });
  worker.on('message', line => { if (lines.push(line) == 3) console.log(lines.sort().join(' ')); });
}
"""


def node(place: Place) -> str:
    """Strings, buffers, compression, and worker threads."""
    program = require_tool("node", "nodejs")
    script = place.directory / "script.js"
    script.write_text(NODE_WORKER)
    return place.run([program, "-e", NODE_MAIN])


# Nothing on the network: a socket in the scenario's directory.
REDIS: Final = """
port 0
unixsocket redis.sock
save ""
appendonly no
enable-debug-command yes
dbfilename dump.rdb
"""


def _redis_commands() -> str:
    """Strings and lists that grow, values of every size, keys that go."""
    lines: list[str] = []
    for number, word in enumerate(random_lines(12000).splitlines()):
        lines.append(f"APPEND text:{number % 40} {word * (1 + number % 40)}")
        lines.append(f"RPUSH list:{number % 7} {word}")
        lines.append(f"HSET hash:{number % 90} {word[:8]} {word}")
        lines.append(f"SET value:{number % 3000} {word * (number % 500)}x")
        lines.append(f"ZADD rank {number % 977} {word}")
    lines += [f"DEL value:{number}" for number in range(0, 3000, 3)]
    lines += [f"SETRANGE text:{number} {200000 + number * 999} end" for number in range(40)]
    return "\n".join(lines) + "\n"


def redis(place: Place) -> str:
    """A server that is filled, measured, saved from a forked child, and read again."""
    tools = Path(require_tool("redis-benchmark", "redis-tools")).parent
    # redis-server is another name of redis-check-rdb; its own package would start a daemon.
    server = place.directory / "redis-server"
    server.symlink_to((tools / "redis-check-rdb").resolve())
    (place.directory / "redis.conf").write_text(REDIS)
    (place.directory / "commands").write_text(_redis_commands())
    bare = {name: value for name, value in place.env.items() if name != "LD_PRELOAD"}
    client = Place(place.directory, bare, place.log)
    cli: list[str | Path] = [tools / "redis-cli", "-s", "redis.sock"]
    log = place.log.with_name(place.log.name + ".server")
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as out,
        child.started(
            [server, "redis.conf"],
            stdout=out.fileno(),
            stderr=out.fileno(),
            cwd=place.directory,
            env=place.env,
        ) as process,
    ):
        socket = place.directory / "redis.sock"
        child.until(
            lambda: socket.exists() or process.poll() is not None,
            limit_s=120, what=f"redis-server listens (see {log})",
        )  # fmt: skip
        if process.poll() is not None:
            raise LabError(f"redis-server did not start; see {log}\n{tail(log)}")
        client.run(["sh", "-c", f"exec {tools}/redis-cli -s redis.sock --pipe <commands"])
        before = client.run([*cli, "DEBUG", "DIGEST"])
        said = before + client.run([*cli, "DBSIZE"])
        said += client.run([*cli, "DEBUG", "RELOAD"]) + client.run([*cli, "BGSAVE"])
        if client.run([*cli, "DEBUG", "DIGEST"]) != before:
            raise LabError(f"redis does not read back what it saved; see {log}")
        benchmark: list[str | Path] = [tools / "redis-benchmark", "-s", "redis.sock", "-q"]
        benchmark += ["-n", "4000", "-d", "4096", "-r", "500"]
        benchmark += ["-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset"]
        measured = client.run(benchmark)
        rows = re.findall(r"^([^\r\n:]+): [\d.]+ requests per second", measured, re.M)
        said += " ".join(re.sub(r".*\r", "", row) for row in rows)
        child.until(
            lambda: "rdb_bgsave_in_progress:0" in client.run([*cli, "INFO", "persistence"]),
            limit_s=120, what=f"redis ends its background save (see {log})",
        )  # fmt: skip
        saved = client.run([*cli, "INFO", "persistence"])
        said += str("rdb_last_bgsave_status:ok" in saved)
        client.run([*cli, "SHUTDOWN", "NOSAVE"], ok=(0, 1))
        child.until(
            lambda: process.poll() is not None,
            limit_s=120, what=f"redis-server ends (see {log})",
        )  # fmt: skip
        if process.returncode != 0:
            raise LabError(f"redis-server ended with status {process.returncode}; see {log}")
    return said


SCENARIOS: Final[dict[str, Callable[[Place], str]]] = {
    "python": python,
    "git": git,
    "gcc": gcc,
    "sqlite": sqlite,
    "sort": sort,
    "node": node,
    "redis": redis,
}

# ------------------------------------------------------------------------------ comparison


def _one(name: str, setting: str, env: Mapping[str, str]) -> str:
    log = LOGS / "brug" / f"{name}-{re.sub(r'[^a-z0-9]+', '-', setting)}.log"
    with tempfile.TemporaryDirectory(prefix="nocopy-") as directory:
        return SCENARIOS[name](Place(Path(directory), env, log))


def compare(name: str) -> None:
    """Run a scenario under the C library and under brug with every setting."""
    library = crates.brug().library
    expected = _one(name, "glibc", {"LD_PRELOAD": ""})
    if not expected.strip():
        raise LabError(f"{name} says nothing under the C library; the comparison is broken")
    for setting, words in SETTINGS.items():
        with tempfile.TemporaryDirectory(prefix="nocopy-") as directory:
            counters = Path(directory) / "counters"
            env = {
                **words,
                "LD_PRELOAD": str(library),
                "BRUG_STATS": f"json:{counters}",
            }
            try:
                got = _one(name, setting, env)
            except LabError as error:
                raise LabError(f"{name} fails under brug ({setting}): {error}") from error
            if not counters.is_file():
                raise LabError(f"{name} did not run under brug ({setting}): no counters")
            for line in counters.read_text().splitlines():
                json.loads(line)
        if got != expected:
            for side, text in (("glibc", expected), ("brug", got)):
                (LOGS / "brug" / f"{name}-differs-{side}.txt").write_text(text)
            raise LabError(
                f"{name} differs under brug ({setting}); compare {LOGS}/brug/{name}-differs-*.txt"
            )
