# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nocopy_lab import crates, kernel, names, report, samples
from nocopy_lab.experiments import bench_gcma, bench_pdio, gcma_report, keeper
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome, Row


def boot(name: str, value: int, failure: str | None = None) -> Outcome:
    job = Job(name, "", Path("/kernel"))
    return Outcome(job, [], Path("console"), [{"value": value}], failure=failure)


def kept(directory: Path) -> dict[str, int]:
    return {one["name"]: one["rows"][0]["value"] for one in samples.load(directory)["runs"]}


@pytest.mark.parametrize("cut", [0, 2, -9])
def test_damaged_results_of_the_repository_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(samples, "OUT", tmp_path / "out")
    monkeypatch.setattr(samples, "STORED", tmp_path / "docs/results")
    packed = tmp_path / "docs/results/some/results.json.gz"
    packed.parent.mkdir(parents=True)
    for content in (gzip.compress(b'{"a": 1}')[:cut], b"junk"):
        packed.write_bytes(content)
        with pytest.raises(LabError, match=r"json\.gz is damaged; run: git checkout "):
            samples.load(tmp_path / "out/some")


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("", ["linear-1", "double", "swap, on a disk"]),
        ("double, linear", ["linear-1", "double"]),
        ("double,", ["double"]),
        ("swap, on", ["swap, on a disk"]),  # a name may have a comma
    ],
)
def test_what_only_names(only: str, found: list[str]) -> None:
    assert names.chosen(only, ["linear-1", "double", "swap, on a disk"], "run") == found


@pytest.mark.parametrize(("only", "part"), [("double,no,linear", "no"), (",", ",")])
def test_a_part_that_names_nothing_is_an_error(only: str, part: str) -> None:
    with pytest.raises(LabError, match=f"no run has '{part}' in its name; there are: double$"):
        names.chosen(only, ["double"], "run")


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


def test_results_that_do_not_say_stay(tmp_path: Path) -> None:
    keeper(tmp_path, {"kernel": "a"})(boot("one", 1))
    keeper(tmp_path, {"kernel": "a", "programs": "b"})(boot("two", 2))
    assert kept(tmp_path) == {"one": 1, "two": 2}
    keeper(tmp_path, {"kernel": "a", "programs": "c"})(boot("three", 3))
    assert kept(tmp_path) == {"three": 3}


def test_nothing_stays_if_all_is_run_anew(tmp_path: Path) -> None:
    keeper(tmp_path, {"kernel": "a"})(boot("one", 1))
    keeper(tmp_path, {"kernel": "a"}, anew=True)(boot("two", 2))
    assert kept(tmp_path) == {"two": 2}


def test_results_of_another_layout_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"kernel": "a"}')
    with pytest.raises(LabError, match="not as this version writes it"):
        keeper(tmp_path, {"kernel": "a"})
    assert (tmp_path / "results.json").read_text() == '{"kernel": "a"}'


def test_what_comes_with_the_repository_is_drawn_where_nothing_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "OUT", tmp_path / "out")
    monkeypatch.setattr(samples, "STORED", tmp_path / "docs/results")
    directory, stored = tmp_path / "out/paper/x86", tmp_path / "docs/results/paper/x86"
    with pytest.raises(LabError, match="measure first"):
        samples.load(directory)
    stored.mkdir(parents=True)
    (stored / "results.json.gz").write_bytes(gzip.compress(b'{"of": "the repository"}'))
    assert samples.load(directory) == {"of": "the repository"}
    samples.save(directory, {"of": "this machine"})
    assert samples.load(directory) == {"of": "this machine"}


def alloc(pages: int, ns: int) -> Row:
    return {"type": "alloc", "pages": pages, "ns": ns, "release_ns": 2 * ns, "ok": True}


def test_what_no_run_is_called_is_refused_before_kernels_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "image", lambda name: pytest.fail(f"built {name}"))
    monkeypatch.setattr(crates, "pdio", lambda: pytest.fail("built pdio"))
    with pytest.raises(LabError, match="no run has 'nosuch' in its name; there are: states, "):
        bench_gcma.run("6.12", "nosuch")
    with pytest.raises(LabError, match="no run has 'nosuch' in its name; there are: "):
        bench_pdio.run("nosuch")


def test_real_times_stand_beside_the_virtual_ones() -> None:
    idle: Row = {"type": "phase", "name": "idle"}
    runs = [
        {"name": f"bench-real-gcma-{number}", "rows": [idle, alloc(64, ns)]}
        for number, ns in enumerate((100, 300, 200))
    ]
    runs.append({"name": "bench-states-gcma", "rows": [idle, alloc(64, 770)]})
    made = gcma_report.real({"runs": runs})
    assert made is not None
    row = next(row for row in made.rows if row[0] == "allocate 64 pages, area idle")
    assert row[1:] == ["–", "–", "770 ns", "200 ns (100 ns to 300 ns)"]
    assert gcma_report.real({"runs": runs[3:]}) is None


def test_lines_stand_beside_those_of_the_other_kernel_where_they_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def results(release: str, *states: tuple[str, int]) -> dict[str, object]:
        rows = [
            row for state, ns in states for row in ({"type": "phase", "name": state}, alloc(64, ns))
        ]
        return {
            "kernel": {"release": release},
            "runs": [{"name": "bench-states-gcma", "rows": rows}],
        }

    before = results("6.12.1", ("idle", 1000), ("clean", 1000))
    monkeypatch.setattr(samples, "load", lambda _: before)
    made = gcma_report.beside(results("7.3.1", ("idle", 1040), ("clean", 1100)))
    assert made is not None
    (row,) = (row for row in made.rows if row[0].startswith("allocate 64 pages"))
    assert row == ["allocate 64 pages, area full of clean cache", "–", "–", "1 µs", "1.1 µs"]
    assert gcma_report.beside(before) is None


@pytest.mark.parametrize(("ours", "verdict"), [(12e6, "met"), (14e6, "missed")])
def test_launches_of_the_first_round_do_not_count(ours: float, verdict: str) -> None:
    warm = [{"type": "launch", "ns": 9e9}] * bench_gcma.LAUNCH_APPS
    runs = [
        {"name": f"bench-launch-plain-{config}", "rows": [*warm, {"type": "launch", "ns": ns}]}
        for config, ns in (("reservation", 30e6), ("cma", 10e6), ("gcma", ours))
    ]
    words = f"start an application, {gcma_report.LAUNCH_WORDS['plain']}"
    (line,) = (line for line in gcma_report.lines({"runs": runs}) if line.work == words)
    assert line.cell("reservation") == "30 ms"
    assert line.verdict() == verdict


def test_says_where_cma_is_ahead_in_turn_and_in_real_time() -> None:
    def turn(config: str, ns: int) -> dict[str, object]:
        rows = [{"type": "reread", "ns_total": 100 * ns, "reads": 100}]
        return {"name": f"bench-reread-mapped-{config}", "rows": rows}

    idle: Row = {"type": "phase", "name": "idle"}
    real = [
        {"name": f"bench-real-{config}-0", "rows": [idle, alloc(64, ns)]}
        for config, ns in (("cma", 100), ("gcma", 300))
    ]
    said = gcma_report.ahead({"runs": [turn("cma", 150), turn("gcma", 10000), *real]})
    assert [line.partition(":")[0] for line in said] == [
        "touch the mapped pages of 864 MiB in turn",
        "allocate 64 pages, area idle, in real time",
    ]
    assert "67 times" in said[0]


def test_names_the_targets_that_a_measurement_left_out() -> None:
    targets = [report.Target(name, 1.0, values) for name, values in (("a", [0.5]), ("b", [0.6]))]
    assert report.not_measured(targets) == []
    assert len(report.measured([*targets, report.Target("c", 1.0, [])])) == 2
    assert report.not_measured([*targets, report.Target("c", 1.0, [])]) == [
        "Not measured, of what has a target: c."
    ]
    few = [targets[0], *(report.Target(str(n), 1.0, []) for n in range(9))]
    assert report.not_measured(few) == []
