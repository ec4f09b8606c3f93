# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

from pathlib import Path

from nocopy_lab import report
from nocopy_lab.experiments import keeper
from nocopy_lab.run import Job, Outcome


def boot(name: str, value: int, failure: str | None = None) -> Outcome:
    job = Job(name, "", Path("/kernel"))
    return Outcome(job, [], Path("console"), [{"value": value}], failure=failure)


def kept(directory: Path) -> dict[str, int]:
    return {one["name"]: one["rows"][0]["value"] for one in report.load_results(directory)["runs"]}


def test_each_boot_is_stored_when_it_ends_well(tmp_path: Path) -> None:
    keep = keeper(tmp_path, {"kernel": "a"})
    keep(boot("one", 1))
    keep(boot("two", 2, failure="the guest was not done"))
    assert kept(tmp_path) == {"one": 1}


def test_others_of_the_same_kernel_stay(tmp_path: Path) -> None:
    for name, value in (("one", 1), ("two", 2), ("one", 3)):
        keeper(tmp_path, {"kernel": "a"})(boot(name, value))
    assert kept(tmp_path) == {"one": 3, "two": 2}


def test_others_of_another_kernel_do_not(tmp_path: Path) -> None:
    keeper(tmp_path, {"kernel": "a"})(boot("one", 1))
    keeper(tmp_path, {"kernel": "b"})(boot("two", 2))
    assert kept(tmp_path) == {"two": 2}


def test_nothing_stays_if_all_is_run_anew(tmp_path: Path) -> None:
    keeper(tmp_path, {"kernel": "a"})(boot("one", 1))
    keeper(tmp_path, {"kernel": "a"}, anew=True)(boot("two", 2))
    assert kept(tmp_path) == {"two": 2}
