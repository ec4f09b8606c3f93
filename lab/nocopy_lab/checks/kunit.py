# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tests of the kernel's own: KUnit and kselftest."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import kernel, trees
from nocopy_lab.board import Machine
from nocopy_lab.checks.kinds import NO_IMAGE, command
from nocopy_lab.paths import KERNEL, LabError
from nocopy_lab.run import Job, Outcome, ktap


def kunit_job(name: str, board: str, *words: str) -> Job:
    machine = Machine(board, words=("kunit.enable=1", *words))
    return Job(name, "true\n", NO_IMAGE, machine)


# What did not hold, and the values there were.
_EXPECTED: Final = re.compile(r"# (\S+: (?:EXPECTATION|ASSERTION) FAILED at .*(?:\n.*){1,3})")


_SKIPPED: Final = re.compile(r"ok \d+ (\S+) # ?SKIP (.*)")
# What kernels of the lab may be without.
_LARGE: Final = "no large folios"
_TIERS: Final = "the multi-generational LRU counts by tiers"
_ALONE: Final = "one processor"
_NEVER_FAIL: Final = "no failing allocations"


# What a kernel need not be configured for stands between #if and #endif.
_CONDITIONAL: Final = re.compile(r"^#if.*?^#endif", re.MULTILINE | re.DOTALL)
_CASE: Final = re.compile(r"^\tKUNIT_CASE\w*\((\w+)", re.MULTILINE)
PLACE, DMEM, CLIENTS = "place", "dmem", "clients"


def cases(suite: str) -> list[str]:
    """Tests of a suite of ours that every kernel has."""
    text = (KERNEL / f"mm/gcma/{suite}_test.c").read_text()
    return _CASE.findall(_CONDITIONAL.sub("", text))


def judge_kunit(
    outcomes: Sequence[Outcome],
    may_skip: Sequence[str] = (_TIERS, _NEVER_FAIL),
    suites: Sequence[str] = (PLACE, DMEM, CLIENTS),
) -> None:
    (outcome,) = outcomes
    outcome.require()
    passed, failed = ktap(outcome.said)
    if failed:
        why = "\n".join(_EXPECTED.findall(outcome.said))
        raise LabError(f"KUnit: {', '.join(failed)} failed; see {outcome.console}\n{why}".rstrip())
    skipped = dict(_SKIPPED.findall(outcome.said))
    missed = [name for name, why in skipped.items() if why not in may_skip]
    # A suite that is not in the kernel says nothing.
    there = {*passed, *skipped}
    missed += [name for suite in suites for name in cases(suite) if name not in there]
    if missed:
        raise LabError(f"KUnit: {', '.join(missed)} did not run; see {outcome.console}")


# `ARCH=um` and the lab's `rpi2` have no large folios, and the old lists; the first has one CPU.
judge_kunit_small: Final = partial(judge_kunit, may_skip=(_LARGE, _ALONE))
# What can check itself can have allocations fail, too.
judge_kunit_debug: Final = partial(judge_kunit, may_skip=(_TIERS,))

# With PREEMPT_RT there are no large folios.
judge_kunit_rt: Final = partial(judge_kunit, may_skip=(_LARGE, _TIERS))


def kselftest_files(image: str) -> dict[str, bytes]:
    """The kernel's own test program, built the way that kernel builds it, for any libc."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        tests = trees.patched_tree(kernel.CONFIGS[image].series) / "tools/testing/selftests/gcma"
        command("kselftest", ["make", "-C", tests, f"OUTPUT={temp}", "LDFLAGS=-static"])
        return {"bin/gcma_test": (Path(temp) / "gcma_test").read_bytes()}


def kselftest(lines: Sequence[str]) -> tuple[int, list[str]]:
    """How many tests a kselftest program had planned, and those that did not pass or ran not."""
    plan = next((int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line)), 0)
    results = [line for line in lines if re.match(r"(not )?ok \d+ ", line)]
    bad = [line for line in results if line.startswith("not ") or "# SKIP" in line]
    if len(results) != plan:
        bad.append(f"{len(results)} results of {plan} tests")
    return plan, bad


def judge_kselftest(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        plan, bad = kselftest([row["line"] for row in outcome.rows("ktap")])
        if bad:
            raise LabError(f"{outcome.job.name}: {bad[0]}; see {outcome.console}")
        outcome.require()
        if not plan:
            raise LabError(f"{outcome.job.name} planned no test; see {outcome.console}")
