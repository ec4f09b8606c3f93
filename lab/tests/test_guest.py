# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import re

from nocopy_lab.checks import guest
from nocopy_lab.checks.guest import GUEST_CHECKS
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
        for counter in (*guest.STORES, *guest.LOADS):
            assert f"{counter}=" in goals[0], job.name
    # Plain CMA stores nothing.
    assert without == {"oracle-cma"}


def test_what_the_oracle_waits_for_is_made() -> None:
    for one in GUEST_CHECKS:
        for job in one.jobs:
            if "--until-exists" in job.script:
                assert f">{guest.ENOUGH}" in job.script.split("--until-exists")[0], job.name


def test_no_guest_fails_because_the_machine_is_slow() -> None:
    assert {job.limit_s for one in GUEST_CHECKS for job in one.jobs} == {LIMIT_S}
