# SPDX-License-Identifier: MIT OR Apache-2.0
"""pdio and libpdio.so on 64-bit Arm.

How the library jumps to the C library's functions, where it keeps what it knows of each thread, and
whose caller it asks for a version are written down for each architecture. A guest runs the tests
that need all of this to be right, and random sequences of a new seed. No compiler is there, so
everything is built here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import crates, initramfs, jobs
from nocopy_lab.arch import ARM64
from nocopy_lab.checks import judges
from nocopy_lab.checks.storage import fresh_seed
from nocopy_lab.paths import REPO
from nocopy_lab.run import Outcome

PROGRAMS: Final = REPO / "crates/pdio-preload/tests/programs"
SECONDS: Final = 20
# Tests of each file, and random sequences.
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "semantics": (
        "standard_output_keeps_order_with_printf",  # numbers with a point in registers of their own
        "spawned_children_share_the_offset",
        "an_executed_program_finds_everything",
        "other_names_of_a_call_do_the_same",
        "bare_system_calls_are_understood",
        "threads_on_one_descriptor",
        "signal_handlers_write_and_jump",
        "signal_handlers_are_given_what_the_kernel_gave",
        "a_cancelled_thread_leaves_the_stream_whole",
        "a_call_that_is_left_leaves_nothing",
        "errors_are_the_kernels",
        "a_thread_that_the_program_cloned_reads_and_writes",
        "a_program_may_have_large_variables_of_each_thread",
        "a_program_has_the_versions_of_functions_that_it_was_built_with",
    ),
    "tells": (
        "calls_that_others_can_see_come_after_what_was_written",
        "a_fault_loses_nothing",
        "a_small_alternate_stack_loses_nothing",
        "a_signal_that_only_a_call_unblocks_ends_the_program",
        "a_thread_can_be_cancelled_where_it_waits",
        "a_signal_from_elsewhere_loses_nothing",
    ),
    "calls": ("a_message_takes_no_other_call",),
    "api": (
        "lines_are_those_that_a_buf_reader_finds",
        "parts_of_a_vectored_write_arrive_in_order",
        "threads_write_their_own_parts_of_one_file_while_others_read",
        "a_stream_may_change_threads",
    ),
    "model": ("random_operations_match_an_array_of_bytes",),
}
# What the program `large` has in each thread, as that test wants it.
LARGE: Final = (58_000, 59_000, 60_000, 122_000, 123_000, 124_000, 4 << 20)


def script() -> str:
    """What the guest does."""
    names = {file: " ".join(tests) for file, tests in TESTS.items()}
    return jobs.script("pdio-arm64", files=" ".join(TESTS), seconds=SECONDS, **names)


def _programs() -> dict[str, Path]:
    """What the tests would compile, for the guest's own C library."""
    names = ("semantics", "tells", "sequences", "messages", "foreign", "loading")
    wanted: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
    wanted["loading-older"] = ("loading", "-DOLDER")
    wanted |= {f"large-{size}": ("large", f"-DLARGE={size}") for size in LARGE}
    headers = sorted(PROGRAMS.glob("*.h"))
    made = {}
    for name, (source, *more) in wanted.items():
        flags = ("-O2", "-fno-builtin", "-pthread", *more)
        sources = [PROGRAMS / f"{source}.c"]
        made[name] = initramfs.compiled(f"arm64-{name}", ARM64, flags, sources, headers)
    return made


def files(_image: str) -> dict[str, bytes]:
    """The library as people have it, the tests with all assertions, what they run, and a seed."""
    tools, env = crates.aarch64(), crates.aarch64_linker()
    words = ["--target", crates.AARCH64, "--locked", "-p", "pdio-preload"]
    tools.run("aarch64-libpdio", ["build", "--release", *words], env=env)
    words += ["-p", "pdio"]
    for name in (*TESTS, "fuzz"):
        words += ["--test", name]
    own = {
        f"tests/{test.name.rpartition('-')[0]}": test
        for test in crates.test_executables(tools, "aarch64-pdio", words, env=env)
    }
    own["libpdio.so"] = crates.target() / crates.AARCH64 / "release/libpdio.so"
    placed = {"pdio/seed": str(fresh_seed()).encode()} | crates.aarch64_runtime()
    for name, path in (own | _programs()).items():
        placed |= initramfs.placed(f"pdio/{name}", path, ARM64)
    return placed


def judge(outcomes: Sequence[Outcome]) -> None:
    """Every test ran, none was skipped, all passed."""
    (outcome,) = outcomes
    judges.cases(outcome, len(TESTS) + 1)
