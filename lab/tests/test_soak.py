# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nocopy_lab import kernel
from nocopy_lab.checks import soak
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome

KERNEL = Path("/kernel")


def test_a_seed_is_a_round() -> None:
    assert soak.job(7, KERNEL) == soak.job(7, KERNEL)
    assert soak.job(7, KERNEL) != soak.job(7 + len(soak.KINDS), KERNEL)


def test_all_kinds_have_their_turn() -> None:
    assert {soak.kind(seed) for seed in range(100, 103)} == set(soak.KINDS)


def test_every_round_leaves_room() -> None:
    for seed in range(200):
        job = soak.job(seed, KERNEL)
        assert f"\nworkers={job.machine.cpus}\n" in job.script


def _outcome(**changed: int) -> Outcome:
    oracle = {"type": "oracle", "ops": 60_000, "cma_allocs": 9, "cma_failed": 0, "cma_pins": 1}
    area = dict.fromkeys(("owned", "quarantined", "bad_releases", "alloc_fails"), 0)
    for name, value in changed.items():
        (area if name in area else oracle)[name] = value
    stats = {"type": "gcma_stats", "areas": {"reserved": area}}
    before = {"areas": {"reserved": area | {"owned": 0}}}
    return Outcome(
        Job("soak", "", KERNEL),
        [],
        Path("console"),
        [
            oracle,
            {"type": "plug", "unplugged": 3},
            stats | before | {"label": "start"},
            stats | {"label": "end"},
        ],
    )


def test_a_good_round() -> None:
    soak.judge(_outcome())


@pytest.mark.parametrize("wrong", ["cma_failed", "owned", "quarantined", "bad_releases"])
def test_a_bad_round(wrong: str) -> None:
    with pytest.raises(LabError, match="1"):
        soak.judge(_outcome(**{wrong: 1}))


def test_a_round_goes_on_until_it_has_done_what_it_is_for() -> None:
    """994560 ended before anybody was out of memory, on a computer that was busy."""
    for seed in (994560, *range(30)):
        (goals,) = re.findall(r"^goals=(\S+)", soak.job(seed, KERNEL).script, re.MULTILINE)
        named = goals.split(",")
        assert {f"{goal}=1" for goal in soak.GOALS} <= set(named)
        assert ("oom_kill=1" in named) == soak.greedy(seed)
    assert soak.greedy(994560)


@pytest.mark.parametrize(
    ("minutes", "rounds", "ran"),
    [(1e-9, 0, [5]), (2.5, 0, [5, 6, 7]), (1e-9, 2, [5, 6])],
)
def test_kernels_that_are_built_take_no_time_from_the_rounds(
    monkeypatch: pytest.MonkeyPatch, minutes: float, rounds: int, ran: list[int]
) -> None:
    """Each round takes a minute, and each kernel an hour."""
    passed = 0.0
    seeds: list[int] = []

    def image(_name: str) -> SimpleNamespace:
        nonlocal passed
        passed += 3600
        return SimpleNamespace(bootable=KERNEL)

    def one(seed: int, _bootable: Path) -> Outcome:
        nonlocal passed
        passed += 60
        seeds.append(seed)
        return replace(_outcome(), job=soak.job(seed, KERNEL))

    monkeypatch.setattr(kernel, "image", image)
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    monkeypatch.setattr(soak, "one", one)
    monkeypatch.setattr(soak, "summary", lambda _: "")
    monkeypatch.setattr(soak, "totals", lambda _: "")
    soak.run(minutes, rounds, 5)
    assert seeds == ran


def test_what_rounds_have_in_all() -> None:
    one = _outcome()
    for row in one.results:
        if "areas" in row:
            row["areas"]["reserved"]["allocs"] = 9
    seeds = range(20)
    all_of_them = [replace(one, job=soak.job(seed, KERNEL)) for seed in seeds]
    said = soak.totals(all_of_them)
    assert said.startswith("180 allocations, none failed; ")
    assert said.endswith(", 60 CPUs unplugged")
    counts = re.search(r"; (\d+) rounds with .*, (\d+) with zswap", said)
    assert counts and all(0 < int(count) < len(seeds) for count in counts.groups())
