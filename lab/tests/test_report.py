# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import report, samples
from nocopy_lab.checks.kunit import kselftest
from nocopy_lab.checks.source import (
    added_lines,
    changed_functions,
    figures,
    letter_rows,
    only_line_numbers,
)
from nocopy_lab.experiments import demo, demo_report, everything
from nocopy_lab.paths import LabError
from nocopy_lab.run import ktap
from nocopy_lab.units import duration


def test_a_stored_table_is_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "HERE", tmp_path / "drawn")
    monkeypatch.setattr(samples, "STORED", tmp_path / "stored")
    for directory in ("drawn", "stored"):
        (tmp_path / directory / "stores").mkdir(parents=True)
    everything.require_drawn()  # not of what draws no table
    drawn, table = (tmp_path / directory / "stores/table.md" for directory in ("drawn", "stored"))
    drawn.with_name("results.json").write_bytes(b"{}")
    table.with_name("results.json.gz").write_bytes(gzip.compress(b"{}"))
    for text in ("", "new"):
        drawn.write_text("new")
        with pytest.raises(LabError, match=r"stores/table\.md is not what is drawn"):
            everything.require_drawn()
        table.write_text(text)
    everything.require_drawn()
    # What was measured here is not in the repository.
    drawn.write_text("own")
    drawn.with_name("results.json").write_bytes(b"{ }")
    everything.require_drawn()


def test_percentiles_are_samples() -> None:
    values = [float(n) for n in range(1, 101)]
    assert report.percentile(values, 0.5) == 50
    assert report.percentile(values, 0.99) == 99
    assert report.percentile([7.0], 0.99) == 7
    assert math.isnan(report.percentile([], 0.5))


@pytest.mark.parametrize(
    ("ns", "text"),
    [(12, "12 ns"), (15_230, "15.2 µs"), (672_000, "672 µs"), (1.84e8, "184 ms"), (2e9, "2 s")],
)
def test_durations_have_units(ns: float, text: str) -> None:
    assert duration(ns) == text


def stored(config: str, scale: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"type": "load_tick", "seconds": 0.5, "read_mib": 9.0, "read_ops": 7, "write_ops": 1},
        {"type": "phase", "name": "quiet"},
        {"type": "load_tick", "seconds": 1.0, "read_mib": 10.0, "read_ops": 100, "write_ops": 10},
        {"type": "load_tick", "seconds": 3.0, "read_mib": 30.0, "read_ops": 500, "write_ops": 20},
        {"type": "phase", "name": "shots"},
        {"type": "shot", "ok": True, "frame_ns": 5_000_000 * scale, "reqbufs_ns": 9},
        {"type": "shot", "ok": False, "frame_ns": 0, "reqbufs_ns": 0},
        {"type": "phase", "name": "sweep"},
    ]
    rows += [
        {"type": "alloc", "ok": True, "pages": pages, "ns": pages * scale * 10 + rep}
        for pages in demo.SIZES
        for rep in range(3)
    ]
    rows += [{"type": "load", "vmstat_delta": {"workingset_refault_file": 7}}]
    return {"config": config, "command": ["qemu"], "job": "true\n", "rows": rows}


def test_the_demo_is_drawn_from_its_json_alone(tmp_path: Path) -> None:
    results = {
        "kernel": {"release": "6.12"},
        "qemu": "7.2",
        "seed": 1,
        "memory_mib": 1024,
        "cma_mib": 256,
        "runs": [stored(config, scale) for scale, config in enumerate(demo.CONFIGS, 1)],
    }
    samples.save(tmp_path, results)
    page = demo_report.draw(tmp_path).read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "10.0 MiB/s" in page
    assert "205/s" in page
    assert "1/2" in page
    demo_report.show(tmp_path)


def test_ktap_counts_tests_and_sees_failures() -> None:
    console = (
        "[    0.5] KTAP version 1\n"
        "[    0.5]     # Subtest: gcma_dmem\n"
        "[    0.6]     ok 1 store_then_load\n"
        "[    0.6]     not ok 2 revoke\n"
        "[    0.6]     ok 3 slow # SKIP not now\n"
        "[    0.7] not ok 1 gcma_dmem\n"
    )
    assert ktap(console) == (["store_then_load"], ["revoke", "suite gcma_dmem"])


def test_grown_line_numbers_are_no_changed_instructions() -> None:
    old = "mov    $0x1e1,%edx\ncall   ext4_error\n"
    assert only_line_numbers(old, old.replace("1e1", "1e2"), most=1)
    assert not only_line_numbers(old, old.replace("1e1", "1e3"), most=1)
    assert not only_line_numbers(old, old.replace("1e1", "1e0"), most=1)
    assert not only_line_numbers(old, old.replace("edx", "ecx"), most=9)
    assert not only_line_numbers(old, old + "nop\n", most=9)


def test_functions_that_are_laid_out_anew_do_the_same() -> None:
    old = "\n<f>:\n\tpush %rbx\n\tcall g\n\t\t\tR_X86_64_PLT32 g-0x4\n\tjne f\n\tret\n"
    moved = old.replace("<f>", "<f.isra.0>").replace("jne f\n", "je f\n\tjmp f\n")
    other = "\n<h>:\n\tret\n\tnopl 0x0(%rax)\n"
    assert changed_functions(old, moved, 0) == ["f"]
    assert not changed_functions(old, moved, 0, ["f"])
    assert not changed_functions(old + other, other + moved, 0, ["f"])
    assert changed_functions(old, moved.replace("\tret\n", "\tnop\n\tret\n"), 0, ["f"])
    assert changed_functions(old, old.replace("g-0x4", "gcma_load-0x4"), 0, ["f"])
    assert changed_functions(old, old + other, 0, ["f"]) == ["h"]


def test_added_lines_are_counted_by_file(tmp_path: Path) -> None:
    (tmp_path / "1.patch").write_text(
        "words\n---\n x | 2 +-\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\n+b\n"
        "diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1,3 @@\n+c\n+d\n"
    )
    assert added_lines(tmp_path, "x") == 1
    assert added_lines(tmp_path, "y") == 2
    assert added_lines(tmp_path, "z") == 0


def test_kselftest_wants_every_planned_test_to_pass() -> None:
    well = ["TAP version 13", "1..2", "ok 1 one", "# words", "ok 2 two"]
    assert kselftest(well) == (2, [])
    assert kselftest(well[:3]) == (2, ["1 results of 2 tests"])
    assert kselftest([*well[:4], "not ok 2 two"]) == (2, ["not ok 2 two"])
    assert kselftest([*well[:4], "ok 2 # SKIP two"]) == (2, ["ok 2 # SKIP two"])
    assert kselftest(["1..0 # SKIP no area"]) == (0, [])


def test_the_rows_of_a_letter_have_the_names_of_the_results() -> None:
    letter = """Median / worst:

  allocate                        CMA                GCMA
  64 pages, area idle       5.99 ms / 6 ms     561 ns / 561 ns
    full of clean cache    216 us / 669 us     561 ns / 562 ns
  release 32,768 pages   10.4 ms / 16.3 ms     125 us / 131 us
"""
    assert letter_rows(letter) == {
        "allocate 64 pages, area idle": ("5.99 ms / 6 ms", "561 ns / 561 ns"),
        "allocate 64 pages, area full of clean cache": ("216 us / 669 us", "561 ns / 562 ns"),
        "release 32,768 pages": ("10.4 ms / 16.3 ms", "125 us / 131 us"),
    }


def test_figures_are_found_in_text() -> None:
    text = "1,024 pages took 5.79 ms / 13.6 us, 65% more, +4.2 instructions at 1 GiB"
    assert figures(text) == ["5.79 ms", "13.6 us", "65%", "+4.2"]
    # One of several that have their unit in common.
    assert figures("costs +5.0 instructions, or +10.0; to load one +322.") == [
        "+5.0",
        "+10.0",
        "+322",
    ]


def test_no_line_leaves_panels_of_one_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tops: list[float] = []
    monkeypatch.setattr(
        report, "_save", lambda canvas, *_: tops.extend(a.get_ylim()[1] for a in canvas.axes)
    )
    panels = {"write": {"pdio": {512: 60.0, 4096: 50.0}}, "read": {"pdio": {512: 30.0, 4096: 90.0}}}
    figure = report.Figure("copies", "share", "")
    report.draw_panels(tmp_path, figure, panels, {"pdio": report.Style("#000000")}, "share")
    assert tops[0] == tops[1] > 90
