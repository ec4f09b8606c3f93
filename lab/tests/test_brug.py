# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import initramfs, jobs, report, samples
from nocopy_lab.arch import ARM64, X86
from nocopy_lab.checks import brug
from nocopy_lab.experiments import bench_brug, brug_report, mimalloc_bench
from nocopy_lab.experiments.brug_report import Measured, effect
from nocopy_lab.paths import LabError
from nocopy_lab.report import quartiles, verdict


def test_quartiles_are_about_the_median() -> None:
    assert quartiles([4.0, 1.0, 3.0, 2.0, 5.0, 6.0, 7.0]) == (2.0, 4.0, 6.0)
    assert quartiles([2.0]) == (2.0, 2.0, 2.0)


def test_several_benchmarks_are_chosen_with_commas_between() -> None:
    names = [bench.name for bench in bench_brug.chosen("fork,snapshot", bench_brug.QUICK)]
    assert names == ["fork", "snapshot"]
    with pytest.raises(LabError, match="no benchmark has 'nothing' in its name"):
        bench_brug.chosen("nothing", bench_brug.QUICK)


@pytest.mark.parametrize(
    ("values", "limit", "at_least", "said"),
    [
        ([0.9, 0.8, 0.7], 1.0, False, "met"),
        ([1.2, 1.3, 1.4], 1.0, False, "missed"),
        ([0.9, 0.99, 1.1, 1.2, 0.8], 1.0, False, "met, within the spread"),
        ([0.9, 1.01, 1.1, 1.2, 0.8], 1.0, False, "missed, within the spread"),
        ([1.1, 1.2, 1.3], 1.05, True, "met"),
        ([1.0, 0.9, 1.01], 1.05, True, "missed"),
    ],
)
def test_a_target_is_judged_by_the_median(
    values: list[float], limit: float, at_least: bool, said: str
) -> None:
    assert verdict(values, limit, at_least) == said


@pytest.mark.parametrize(
    ("paper", "values", "said"),
    [
        (1.95, [1.8, 1.9, 2.0], "reproduces"),
        (1.95, [3.8, 3.9, 4.0], "same direction, another size"),
        (1.95, [0.9, 1.0, 1.1], "does not reproduce"),
        (0.92, [0.90, 0.93, 0.95], "reproduces"),
        (0.92, [1.05, 1.06, 1.07], "does not reproduce"),
        (1.0, [1.01, 1.01, 1.02], "reproduces"),
        (1.06, [], "not run"),
    ],
)
def test_an_effect_of_the_paper_is_found_by_direction_and_size(
    paper: float, values: list[float], said: str
) -> None:
    assert effect(paper, values) == said


def record(number: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"round": number, "seconds": seconds, "checksum": "c", **more}


def results(runs: dict[str, bench_brug.Runs]) -> dict[str, Any]:
    kinds = {bench.name: bench for bench in bench_brug.benches(bench_brug.QUICK)}
    return {
        "machine": {
            "cpu": "x",
            "cpus": 2,
            "kernel": "6",
            "libc": "glibc 2",
            "huge_pages": "always",
        },
        "scale": "quick",
        "rounds": 1,
        "memory_available": 1 << 30,
        "benches": {
            name: {"what": kinds[name].what, "kind": kinds[name].kind, "command": "grow"}
            for name in runs
        },
        "runs": runs,
    }


def test_ratios_are_of_the_same_round_and_leave_failures_out() -> None:
    data = Measured(
        results(
            {
                "fig7": {
                    "glibc": [record(1, 1.0), record(2, 2.0)],
                    "brug": [record(2, 1.0), {"round": 3, "failed": "exit status 1"}],
                }
            }
        )
    )
    assert data.ratios("fig7", "brug", "glibc") == [0.5]
    assert data.ratios("fig7", "jemalloc", "glibc") == []
    assert data.failures() == ["fig7, brug: exit status 1"]
    assert data.best("fig7", ("glibc", "brug", "jemalloc")) == "brug"


def test_other_data_than_most_is_named() -> None:
    runs = {"glibc": [record(1, 1)], "jemalloc": [record(1, 1)], "brug": [record(1, 1)]}
    assert bench_brug.disagreement(runs) == ""
    runs["brug"].append(record(2, 1) | {"checksum": "other"})
    assert bench_brug.disagreement(runs) == "brug"


def test_the_tuner_is_compared_with_the_best_mode_of_each_benchmark() -> None:
    data = Measured(
        results(
            {
                "fig7": {
                    "brug": [record(1, 1.1)],
                    "brug-sys": [record(1, 1.0)],
                    "brug-mmap": [record(1, 3.0)],
                },
                "fig10": {"brug": [record(1, 1.0)], "brug-mmap": [record(1, 1.0)]},
            }
        )
    )
    assert brug_report.against_best(data, "brug") == {"fig7": [1.1], "fig10": [1.0]}
    assert brug_report.against_best(data, "brug-trained") == {}


def test_programs_of_mimalloc_bench_are_compared_with_glibc() -> None:
    def run(seconds: float) -> list[dict[str, Any]]:
        return [record(1, seconds, peak_rss_bytes=1000)]

    runs = {
        "suite-cfrac": {"glibc": run(2.0), "libbrug": run(1.0)},
        "suite-barnes": {"glibc": run(1.0), "libbrug": run(2.0)},
    }
    table = brug_report.suite_table(Measured({"benches": runs, "runs": runs}))
    assert table is not None
    assert [row[:3] for row in table.rows] == [
        ["cfrac", "2 s", "0.50 (0.50–0.50)"],
        ["barnes", "1 s", "2.00 (2.00–2.00)"],
        ["geometric mean", "", "1.00"],
    ]
    assert brug_report.suite_table(Measured(results({}))) is None
    runs["suite-barnes"]["glibc"] = [{"round": 1, "failed": "no time"}]
    left = brug_report.suite_table(Measured({"benches": runs, "runs": runs}))
    assert left is not None
    assert [row[0] for row in left.rows] == ["cfrac", "geometric mean"]


def test_what_the_trial_chose_is_compared_with_the_better_base() -> None:
    def run(seconds: float, size: int) -> list[dict[str, Any]]:
        return [record(1, seconds, cpu_seconds=seconds, peak_rss_bytes=size)]

    runs = {
        "suite-cfrac": {
            "libbrug": run(1.5, 30),
            "libbrug-glibc": run(2.0, 10),
            "libbrug-mimalloc": run(1.0, 20),
        },
        "suite-barnes": {"libbrug": run(1.0, 10)},
    }
    data = Measured({"benches": runs, "runs": runs})
    assert brug_report.against_bases(data, brug_report.processor) == {"cfrac": [1.5]}
    table = brug_report.base_table(data)
    assert table is not None
    assert table.rows == [
        ["cfrac", "2 s", "1 s", "1.50 (1.50–1.50)", "1.50"],
        ["geometric mean", "", "", "1.50", "1.50"],
    ]
    assert brug_report.base_table(Measured(results({}))) is None


def test_a_program_that_runs_for_a_fixed_time_says_how_fast_it_was(tmp_path: Path) -> None:
    assert mimalloc_bench.seconds("cfrac", "nothing", 2.5) == 2.5
    assert mimalloc_bench.seconds("larson", "relative time: 7.25s.", 5.0) == 7.25
    assert mimalloc_bench.seconds("glibc-thread", "500000\n", 5.0) == 2.0
    assert mimalloc_bench.seconds("rptest", "...2000000 memory ops/CPU second", 16.0) == 0.5
    assert mimalloc_bench.processor_seconds("cfrac", 2.5, 2.5, 2.4) == 2.4
    assert mimalloc_bench.processor_seconds("larson", 7.0, 5.0, 10.0) == 14.0
    assert mimalloc_bench.processor_seconds("rptest", 0.5, 16.0, 0.3) == 0.3
    with pytest.raises(LabError, match="did not say"):
        mimalloc_bench.seconds("larson", "nothing", 5.0)
    with pytest.raises(LabError, match="git clone"):
        mimalloc_bench.source(tmp_path)


def test_another_compiler_makes_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path / "cache"))
    for name, text in {
        "malloc-large/malloc-large.cpp": "#include <vector>\nint main() { std::vector<int> v(9); }",
        "mleak/mleak.c": '#include "mleak.h"\nint main(void) { return ZERO; }',
        "mleak/mleak.h": "#define ZERO 0",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = {name: mimalloc_bench.built(tmp_path, name) for name in ("malloc-large", "mleak")}
    for name, binary in made.items():
        assert mimalloc_bench.built(tmp_path, name) == binary
        needs = initramfs.libraries(binary)
        assert (name == "malloc-large") == any("libstdc++" in library for library in needs)
    monkeypatch.setattr(initramfs, "_tools", lambda _: "another")
    assert mimalloc_bench.built(tmp_path, "mleak") != made["mleak"]
    monkeypatch.undo()
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mleak/mleak.h").write_text("#define ZERO (1 - 1)")
    assert mimalloc_bench.built(tmp_path, "mleak") != made["mleak"]


def test_strace_and_callgrind_are_understood() -> None:
    table = (
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        " 60.00    0.000300           3       100           brk\n"
        " 40.00    0.000200           2        90         1 mremap\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        "100.00    0.000500           2       190         1 total\n"
    )
    assert bench_brug.strace_counts(table) == {"brk": 100, "mremap": 90}
    assert bench_brug.collected("==7== Collected : 123456\n") == 123456
    assert bench_brug.collected("==7== Collected : 12\n==8== Collected : 34\n") == 46
    with pytest.raises(LabError):
        bench_brug.collected("")


def test_choices_are_counted_and_failed_runs_are_not() -> None:
    rows: list[dict[str, Any]] = [
        {"base": "glibc", "gain_percent": 3},
        {"failed": "x"},
        {"base": "mimalloc", "gain_percent": 26},
    ]
    said = "glibc in 1 of 2, mimalloc in 1 of 2; gain 3 to 26 %"
    assert bench_brug.choices(rows) == said
    assert (
        bench_brug.choices([{"base": "glibc", "gain_percent": None}]) == "glibc in 1 of 1; no trial"
    )


def test_every_benchmark_names_contenders_that_exist() -> None:
    for scale in (bench_brug.QUICK, bench_brug.USUAL):
        names = [bench.name for bench in bench_brug.benches(scale)]
        assert len(names) == len(set(names))
        for bench in bench_brug.benches(scale):
            assert set(bench.contenders) <= set(bench_brug.CONTENDERS)
            assert bench.kind in bench_brug.KINDS


def test_brug_is_drawn_from_its_json_alone(tmp_path: Path) -> None:
    def one(number: int, name: str) -> dict[str, Any]:
        return record(
            number, 1.0 + 0.1 * number + len(name) / 100, lives=[1.0, 0.5], realloc_seconds=1e-6,
            operations=10, live_bytes=1 << 20, idle_rss_bytes=1 << 20, peak_rss_bytes=3 << 20,
            base_rss_bytes=1 << 20, moves=7, minor_faults=9, instructions=100.0,
            steps=[{"size": 1 << n, "seconds": n * 1e-6} for n in (12, 13)],
            waits={key: {"p999": 3e5, "worst": 4e6} for key in brug_report.WAITS},
            events={"thp_fault_alloc": 124, "compact_stall": 5},
        )  # fmt: skip

    everything = results(
        {
            bench.name: {name: [one(n, name) for n in (1, 2, 3)] for name in bench.contenders}
            for bench in bench_brug.benches(bench_brug.QUICK)
        }
    )
    samples.save(tmp_path, everything)
    page = brug_report.draw(tmp_path).read_text()
    assert page.count("data:image/png;base64,") == 1 + len(brug_report.GROUPS)
    assert "not run" not in page
    brug_report.show(tmp_path)


def test_nothing_is_said_of_what_was_not_measured(tmp_path: Path) -> None:
    nothing = results({})
    samples.save(tmp_path, nothing)
    brug_report.draw(tmp_path)
    assert "|" not in (tmp_path / "table.md").read_text()
    assert report.measured(brug_report.targets(nothing)) == []
    assert {one.verdict for one in brug_report.statements(nothing)} == {"not run"}


def test_a_test_that_skips_is_found_in_what_cargo_shows() -> None:
    said = """
running 3 tests
test one ... ok
test two ... ok

successes:

---- one stdout ----
skipped: no such limit here
skipped: no such limit here
---- tests::two stdout ----
something skipped: not at the beginning of the line
skipped xfs: only root can

successes:
    one
"""
    assert brug.skipped(said) == [
        ("one", "no such limit here"),
        ("tests::two", "xfs: only root can"),
    ]


def test_the_guest_reports_every_case_of_its_script() -> None:
    script = jobs.script("brug-refused")
    lines = [line.split()[0] for line in script.splitlines() if line[:1].isalpha()]
    cases = {"rust": 1, "c": 4, "real": 2, "limits": 22}
    here = sum(lines.count(word) * each for word, each in cases.items())
    assert here == brug.guest_cases(X86) > 30
    arm64 = here - 2 * lines.count("real") + len(brug.TESTS) + 1
    assert arm64 == brug.guest_cases(ARM64)
