# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of brug that need more than `cargo test`: a machine that says no, and stricter tools.

What only a whole machine can refuse (overcommit, mappings, huge pages, memory of a control group)
is refused in a guest; there no test may be skipped. The tools are Miri, ThreadSanitizer,
AddressSanitizer and libFuzzer.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates, initramfs, jobs, progress
from nocopy_lab.arch import ARM64, X86, Arch
from nocopy_lab.checks import judges, programs
from nocopy_lab.paths import LOGS, REPO, LabError, require_tool
from nocopy_lab.run import Outcome

BRUG: Final = REPO / "crates/brug"
PROGRAMS: Final = REPO / "crates/brug-preload/tests/programs"


# ------------------------------------------------------------------------- tests that skip


def skipped(text: str) -> list[tuple[str, str]]:
    """Tests that say in `cargo test -- --show-output` that they cannot run here, and why."""
    found: dict[tuple[str, str], None] = {}
    test = "?"
    for line in text.splitlines():
        if begin := re.match(r"---- (\S+) stdout ----$", line):
            test = begin[1]
        elif reason := re.match(r"skipped(?: (\S+))?: (.+)$", line):
            found[test, ": ".join(filter(None, reason.groups()))] = None
    return list(found)


# ---------------------------------------------------------------------- the machine says no

# Cases that the guest must report for each word of the script.
_CASES: Final = {"rust": 1, "c": 4, "real": 2, "limits": 22}
_CALLS: Final = re.compile(r"^(rust|c|real|limits)\b(?!\(\))", re.MULTILINE)
# Programs in C that run there.
_PROGRAMS: Final = ("faults", "limits", "elsewhere", "forks")
# Real programs with their packages, and tests that cargo runs on this machine itself.
REAL: Final = {"sort": "coreutils", "sqlite3": "sqlite3"}
TESTS: Final = ("brug", "races", "smoke")


# And of the long one these.
SEQUENCES: Final = (
    "the_model_holds_across_threads_while_modes_change",
    "the_model_holds_for_the_fuzzers_bounded_run",
)


def guest_script(arch: Arch = X86) -> str:
    """Refusals. On another architecture all tests as well, and no programs of this machine."""
    given = {"tests": "", "sequences": "", "programs": " ".join(REAL)}
    if arch != X86:
        given = {"tests": " ".join(TESTS), "sequences": " ".join(SEQUENCES), "programs": ""}
    return jobs.script("brug-refused", **given)


def guest_cases(arch: Arch) -> int:
    """How many cases a guest reports."""
    cases = _CASES if arch == X86 else _CASES | {"real": 0}
    calls = _CALLS.findall(jobs.script("brug-refused"))
    return sum(cases[word] for word in calls) + (0 if arch == X86 else len(TESTS) + 1)


def _compiled(name: str, arch: Arch) -> Path:
    """One of the C programs, which the guest's own C library is for."""
    flags = ("-O2", "-fno-builtin", "-pthread")
    headers = sorted(PROGRAMS.glob("*.h"))
    return initramfs.compiled(f"dynamic-{name}", arch, flags, [PROGRAMS / f"{name}.c"], headers)


def guest_files(_image: str) -> dict[str, bytes]:
    """What the guest runs: the tests, libbrug.so, real programs, and the libraries of all."""
    library = crates.brug().library
    (process,) = crates.test_executables(
        crates.toolchain(),
        "guest-tests",
        ["--release", "--package", "brug", "--test", "process", "--locked"],
    )
    own = {"process": process, "libbrug.so": library}
    own |= {name: _compiled(name, X86) for name in _PROGRAMS}
    files = {f"brug/{name}": path.read_bytes() for name, path in own.items()}
    files["brug/lines"] = programs.random_lines(60_000).encode()
    for path in own.values():
        files |= initramfs.libraries(path)
    for program, package in REAL.items():
        path = Path(require_tool(program, package))
        files[f"brug/{program}"] = path.resolve().read_bytes()
        files |= initramfs.libraries(path)
    return files


def arm64_files(_image: str) -> dict[str, bytes]:
    """The same for a guest on 64-bit Arm, whose C library is Debian's."""
    tools, env = crates.aarch64(), crates.aarch64_linker()
    words = ["--target", crates.AARCH64, "--release", "--locked"]
    tools.run("aarch64-library", ["rustc", *words, *crates.LIBBRUG], env=env)
    tests = ["--package", "brug", "--lib"]
    for name in ("process", "sequences", *TESTS[1:]):
        tests += ["--test", name]
    own = {
        test.name.rpartition("-")[0]: test
        for test in crates.test_executables(tools, "aarch64-guest", [*words, *tests], env=env)
    }
    own["libbrug.so"] = crates.target() / crates.AARCH64 / "release/libbrug.so"
    own |= {name: _compiled(name, ARM64) for name in _PROGRAMS}
    files = {f"brug/{name}": path.read_bytes() for name, path in own.items()}
    return files | crates.aarch64_runtime()


def judge_guest(outcomes: Sequence[Outcome]) -> None:
    """Every case ran, none was skipped, all ended well."""
    (outcome,) = outcomes
    judges.cases(outcome, guest_cases(outcome.job.machine.arch))


# ----------------------------------------------------------------------------- stricter tools

# Each orders the threads of tests/races.rs in its own way.
MIRI_SEEDS: Final = 4


def oldest_rust() -> None:
    """The oldest compiler that Cargo.toml promises."""
    version = "{}.{}".format(*crates.OLDEST)
    declared = re.search(r'^rust-version = "(.+)"', (REPO / "Cargo.toml").read_text(), re.M)
    if declared is None or declared[1] != version:
        raise LabError(f"Cargo.toml and lab/nocopy_lab/crates.py disagree: {version} is checked")
    # Without the allocators that are written in C.
    words = ["check", "--workspace", "--no-default-features", "--locked"]
    crates.release(version).run("oldest", [*words, "--target-dir", crates.target() / "oldest"])


def miri() -> None:
    """Undefined behaviour, data races and stale reads of the arena's own code."""
    tools = crates.release(crates.NIGHTLY, "miri", "rust-src")
    words = ["miri", "test", "--package", "brug", "--locked"]
    words += ["--target-dir", str(crates.target() / "miri")]
    flags = "-Zmiri-ignore-leaks -Zmiri-permissive-provenance -Zmiri-disable-isolation"
    # faults.rs starts processes; the rest of the unit tests are quick.
    tools.run(
        "miri-unit", [*words, "--lib", "--", "--skip", "faults"],
        limit_s=300, env={"MIRIFLAGS": flags},
    )  # fmt: skip
    seeds = f"{flags} -Zmiri-many-seeds=0..{MIRI_SEEDS}"
    tools.run("miri", [*words, "--test", "races"], limit_s=600, env={"MIRIFLAGS": seeds})
    passed = (LOGS / "cargo-miri.log").read_text(errors="replace").count("2 passed")
    if passed != MIRI_SEEDS:
        raise LabError(f"Miri ran {passed} of {MIRI_SEEDS} orders; see {LOGS}/cargo-miri.log")


def thread_sanitizer() -> None:
    """Data races, with a standard library that is instrumented as well."""
    tools = crates.release(crates.NIGHTLY, "miri", "rust-src")
    env = {"RUSTFLAGS": "-Zsanitizer=thread", "TSAN_OPTIONS": "halt_on_error=1"}
    words = ["-Zbuild-std", "--target", crates.HOST, "--target-dir", str(crates.target() / "tsan")]
    # With assertions the tests take fewer steps.
    words += ["--release", "--config", "profile.release.debug-assertions=true"]
    words += ["--package", "brug", "--locked", "--test", "races", "--test", "sequences"]
    tests = crates.test_executables(tools, "tsan", words, limit_s=900, env=env)
    if sorted(test.name.partition("-")[0] for test in tests) != ["races", "sequences"]:
        raise LabError(f"cargo built {len(tests)} tests for ThreadSanitizer, not both")
    for test in tests:
        only = [] if test.name.startswith("races") else ["across_threads"]
        log = LOGS / f"tsan-{test.name.partition('-')[0]}.log"
        child.run([test, *only], log=log, limit_s=300, what="tests under TSan", cwd=BRUG, env=env)
        if not re.search(r"[1-9]\d* passed", log.read_text(errors="replace")):
            raise LabError(f"no test ran under ThreadSanitizer; see {log}")


FUZZ_RUNS: Final = 1000
# Instrumentation as libFuzzer wants it.
FUZZ_FLAGS: Final = (
    "-Zsanitizer=address --cfg fuzzing -Cpasses=sancov-module "
    "-Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters "
    "-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
)


def fuzz() -> None:
    """Sequences of calls that libFuzzer makes up, in all modes, under AddressSanitizer."""
    tools = crates.release(crates.NIGHTLY, "miri", "rust-src")
    directory = crates.target() / "fuzz"
    words = ["build", "--release", "--manifest-path", str(BRUG / "fuzz/Cargo.toml"), "--locked"]
    words += ["--target", crates.HOST, "--target-dir", str(directory)]
    tools.run("fuzz-build", words, env={"RUSTFLAGS": FUZZ_FLAGS})
    log = LOGS / "fuzz.log"
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        corpus = Path(temp)
        for number, word in enumerate(programs.random_lines(64).splitlines()):
            (corpus / str(number)).write_bytes((word * 40).encode())
        options = ["-seed=1", f"-runs={FUZZ_RUNS}", "-max_len=4096", "-len_control=0"]
        options += ["-rss_limit_mb=6144", "-malloc_limit_mb=0", "-timeout=600", "-verbosity=1"]
        options += ["-print_final_stats=1", f"-artifact_prefix={LOGS}/fuzz-"]
        with progress.meter(f"fuzzing, {FUZZ_RUNS} inputs"):
            try:
                child.run(
                    [directory / crates.HOST / "release/sequences", *options, corpus],
                    log=log, limit_s=600, what="the fuzzer",
                )  # fmt: skip
            except LabError as error:
                said = log.read_text(errors="replace")
                found = re.findall(r"^(?:Test unit written to |Base64: ).*", said, re.M)
                raise LabError(f"{error}\n" + "\n".join(found)) from error
    ran = re.search(r"number_of_executed_units: (\d+)", log.read_text(errors="replace"))
    if ran is None or int(ran[1]) < FUZZ_RUNS:
        raise LabError(f"the fuzzer tried {ran[1] if ran else 'no'} inputs; see {log}")
