# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import re
import subprocess

import pytest

from nocopy_lab.checks import oracle
from nocopy_lab.checks.guest import GUEST_CHECKS
from nocopy_lab.paths import GUEST
from nocopy_lab.run import LIMIT_S, Job


def oracles() -> list[Job]:
    return [job for one in GUEST_CHECKS for job in one.jobs if job.name.split("-")[0] == "oracle"]


def test_an_oracle_ends_when_it_has_gone_through_everything() -> None:
    """How many pages come back in so many seconds is the computer's affair."""
    without = set()
    for job in oracles():
        goals = re.findall(r"--until (\S+)", job.script)
        if not goals:
            without.add(job.name)
            continue
        for counter in (*oracle.STORES, *oracle.LOADS):
            assert f"{counter}=" in goals[0], job.name
    # Plain CMA stores nothing.
    assert without == {"oracle-cma"}


def test_what_the_oracle_waits_for_is_made() -> None:
    """The file it waits for is made by one of the commands that prepare for it."""
    library = (GUEST / "lib/oracle.sh").read_text()
    assert f"\nenough={oracle.ENOUGH}\n" in library
    functions = re.findall(r"^(\w+)\(\) \{\n(.*?)^\}", library, re.MULTILINE | re.DOTALL)
    makers = {name for name, body in functions if ">$enough" in body}
    for job in oracles():
        (prepare,) = re.findall(r"^prepare=(.*)$", job.script, re.MULTILINE)
        waits = "--until-exists" in job.script
        assert waits == bool(makers & set(re.findall(r"\w+", prepare))), job.name


def test_commands_of_oracles_are_there() -> None:
    text = "".join((GUEST / f"lib/{name}.sh").read_text() for name in ("lab", "oracle"))
    there = set(re.findall(r"^(\w+)\(\)", text, re.MULTILINE)) | {"true"}
    for job in oracles():
        for value in re.findall(r"^(?:swap|mount|prepare|after)=(.*)$", job.script, re.MULTILINE):
            for command in filter(None, value.strip("'").removeprefix("need ").split("; ")):
                assert command.split()[0] in there, f"{job.name}: {command}"


def test_no_guest_fails_because_the_machine_is_slow() -> None:
    assert {job.limit_s for one in GUEST_CHECKS for job in one.jobs} == {LIMIT_S}


@pytest.mark.parametrize(("status", "goes_on"), [(137, True), (1, False), (124, False)])
def test_only_what_was_killed_is_given_up(status: int, goes_on: bool) -> None:
    script = f". {GUEST}/lib/lab.sh; (exit {status}) || {{ given_up; echo on; }}"
    said = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, timeout=60)
    assert (said.returncode == 0, said.stdout) == (goes_on, b"on\n" if goes_on else b"")


def test_a_failure_behind_a_pipe_ends_the_job() -> None:
    """That end of a pipe is another shell."""
    for file in GUEST.glob("*/*.sh"):
        for line in file.read_text().splitlines():
            assert not re.search(r"[^|]\| need ", line) or line.endswith("|| exit 1"), line
