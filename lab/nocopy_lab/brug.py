# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of brug that need more than `cargo test`: a machine that says no, and stricter tools.

What only a whole machine can refuse (overcommit, mappings, huge pages, memory of a control group)
is refused in a guest; there no test may be skipped. The tools are Miri, ThreadSanitizer,
AddressSanitizer, loom and libFuzzer; and QEMU's user mode runs the tests as 64-bit Arm programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates, initramfs, programs
from nocopy_lab.arch import X86
from nocopy_lab.paths import REPO, LabError, cache, locked, sha256
from nocopy_lab.run import Outcome

BRUG: Final = REPO / "crates/brug"
FAULTS: Final = REPO / "crates/brug-preload/tests/programs/faults.c"


def target_directory() -> Path:
    """Where cargo builds."""
    return REPO / (os.environ.get("CARGO_TARGET_DIR") or "target")


# ------------------------------------------------------------------------- tests that skip


def skipped(text: str) -> list[tuple[str, str]]:
    """Tests that say in `cargo test -- --show-output` that they cannot run here, and why."""
    found: dict[tuple[str, str], None] = {}
    test = "?"
    for line in text.splitlines():
        if begin := re.match(r"---- (\S+) stdout ----$", line):
            test = begin[1]
        elif reason := re.match(r"skipped: (.+)$", line):
            found[test, reason[1]] = None
    return list(found)


# ---------------------------------------------------------------------- the machine says no

# Refusals, and what runs under each: `rust` is a test of crates/brug/tests/process.rs, `c` a kind
# of tests/programs/faults.c under libbrug.so, `same` a program that says the same as without it.
GUEST: Final = r"""
export RUST_BACKTRACE=1 TMPDIR=/tmp
run() {
	name=$1; shift
	"$@" >/tmp/said 2>&1 </dev/null
	code=$?
	[ $code = 0 ] || { echo "lab: $name ended with $code" >/dev/console
		tail -n 40 /tmp/said >/dev/console; }
	printf '{"type": "case", "name": "%s", "exit": %d, "skipped": %d}\n' "$name" $code \
		$(grep -c skipped: /tmp/said)
}
rust() { run "$condition: $1" /brug/process --exact "$1" --test-threads=1 --show-output; }
c() {
	for settings in BRUG_ALLOC=auto "BRUG_ALLOC=mmap BRUG_RETAIN=0" \
		"BRUG_BASE=jemalloc BRUG_THP=always" "BRUG_BASE=mimalloc BRUG_SWITCH_POINT=4K"; do
		run "$condition: faults $1, $settings" \
			env $settings LD_PRELOAD=/brug/libbrug.so /brug/faults "$1"
	done
}
same() {
	what=$1; shift
	"$@" >/tmp/expected 2>&1 </dev/null
	expected=$?
	env LD_PRELOAD=/brug/libbrug.so "$@" >/tmp/got 2>&1 </dev/null
	got=$?
	run "$condition: $what as under the C library" sh -c \
		"[ $got = $expected ] && [ $expected = 0 ] && cmp /tmp/expected /tmp/got"
}
real() {
	same sort /brug/sort -S 24M --parallel=2 -T /tmp /brug/lines
	same sqlite3 /brug/sqlite3 -batch :memory: "$SQL"
}
SQL="create table t(w); with recursive n(i) as (select 1 union all select i + 1 from n
	where i < 20000) insert into t select printf('%08x', i * 2654435761 % 4294967296) from n;
	create index i on t(w); select count(*), min(w), max(w) from t;
	select length(group_concat(w, ',')) from t;
	with recursive s(x, n) as (select 'ab', 1 union all select x || x, n + 1 from s where n < 20)
	select n, length(x) from s; pragma integrity_check;"

condition=swapless
rust an_idle_process_gives_its_memory_back_and_loses_the_thread
rust a_child_of_a_busy_process_can_use_everything

condition=mlockall
rust locked_memory_is_what_is_used_and_not_what_is_reserved
c locked

condition="strict overcommit"
echo 2 >/proc/sys/vm/overcommit_memory
echo 393216 >/proc/sys/vm/overcommit_kbytes
rust strict_overcommit_is_lived_with
c overcommit
real
echo 0 >/proc/sys/vm/overcommit_memory

condition="few mappings"
before=$(cat /proc/sys/vm/max_map_count)
echo 1500 >/proc/sys/vm/max_map_count
rust used_up_mappings_are_lived_with
c few-mappings
c mappings
real
echo $before >/proc/sys/vm/max_map_count

condition="no huge pages"
echo never >/sys/kernel/mm/transparent_hugepage/enabled
rust huge_pages_that_the_machine_denies_are_not_asked_for
real
condition="huge pages unasked"
echo always >/sys/kernel/mm/transparent_hugepage/enabled
rust huge_pages_that_nobody_asked_for_do_not_swell_small_objects
rust a_vector_gets_huge_pages_where_the_machine_has_them
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
condition="huge pages when asked"
rust a_vector_gets_huge_pages_where_the_machine_has_them

condition="memory cgroup"
mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 1
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/outer || exit 1
echo +memory >/sys/fs/cgroup/outer/cgroup.subtree_control
mkdir /sys/fs/cgroup/outer/inner
echo 96M >/sys/fs/cgroup/outer/inner/memory.max
echo $$ >/sys/fs/cgroup/outer/inner/cgroup.procs
c memory-cgroup
real
echo $$ >/sys/fs/cgroup/cgroup.procs
"""

# Cases that the guest must report: one for each `rust`, four for each `c`, two for each `real`.
_CALLS: Final = re.compile(r"^(rust|c|real)\b(?!\(\))", re.MULTILINE)
GUEST_CASES: Final = sum({"rust": 1, "c": 4, "real": 2}[word] for word in _CALLS.findall(GUEST))


def _compiled(source: Path) -> Path:
    """A C program of the host, compiled once for each content."""
    gcc = X86.tool("gcc")
    flags = ("-O2", "-fno-builtin", "-pthread")
    key = sha256(child.output([gcc, "--version"]), " ".join(flags), source.read_bytes())
    binary = cache() / "guest" / f"dynamic-{source.stem}-{key[:16]}"
    with locked(cache() / "guest/.lock"):
        if not binary.is_file():
            fresh = binary.with_suffix(".new")
            log = cache() / f"guest/dynamic-{source.stem}.log"
            words: list[str | Path] = [gcc, *flags, "-o", fresh, source]
            child.run(words, log=log, limit_s=120, what=f"compiling {source.name}")
            fresh.replace(binary)
    return binary


def guest_files() -> dict[str, bytes]:
    """What the guest runs: the tests, libbrug.so, real programs, and the libraries of all."""
    library = crates.brug().library
    (process,) = crates.test_executables(
        crates.toolchain(),
        "guest-tests",
        ["--release", "--package", "brug", "--test", "process", "--locked"],
    )
    own = {"process": process, "libbrug.so": library, "faults": _compiled(FAULTS)}
    files = {f"brug/{name}": path.read_bytes() for name, path in own.items()}
    files["brug/lines"] = programs.random_lines(60_000).encode()
    for path in own.values():
        files |= initramfs.libraries(path)
    for program, package in (("sort", "coreutils"), ("sqlite3", "sqlite3")):
        path = Path(programs.need(program, package))
        files[f"brug/{program}"] = path.resolve().read_bytes()
        files |= initramfs.libraries(path)
    return files


def judge_guest(outcomes: Sequence[Outcome]) -> None:
    """Every case ran, none was skipped, all ended well."""
    (outcome,) = outcomes
    cases = outcome.rows("case")
    bad = [f"{case['name']} ({case['exit']})" for case in cases if case["exit"]]
    if bad:
        raise LabError(f"{'; '.join(bad)}; see {outcome.console}")
    outcome.require()
    idle = [case["name"] for case in cases if case["skipped"]]
    if idle:
        raise LabError(f"skipped although the guest permits it: {'; '.join(idle)}")
    if len(cases) != GUEST_CASES:
        raise LabError(f"{len(cases)} of {GUEST_CASES} cases ran; see {outcome.console}")
