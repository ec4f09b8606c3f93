# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import kernel, samples
from nocopy_lab.experiments import paper, paper_report
from nocopy_lab.experiments.paper_results import TABLE3, Measured, rates
from nocopy_lab.experiments.paper_statements import Statements, targets
from nocopy_lab.paths import GUEST, LabError

MS = 1_000_000
# How long things take: with GCMA as with reservation, with CMA a thousand times as long.
SLOW = {"reservation": 1, "gcma": 1, "file-only": 1, "cma": 1000}
# What the load gets done.
SPEED = {"reservation": 100, "gcma": 150, "file-only": 140, "cma": 145}


def ticks(per_s: int) -> list[dict[str, Any]]:
    return [
        {"type": "blog_tick", "seconds": n, "reads": n * per_s, "writes": n * per_s}
        for n in range(31)
    ]


def rows(config: str) -> list[dict[str, Any]]:
    slow = SLOW[config]

    def allocations(pages: tuple[int, ...]) -> list[dict[str, Any]]:
        return [
            {"type": "alloc", "pages": n, "ns": (1000 + run) * slow, "ok": True}
            for run in range(3)
            for n in pages
        ]

    pi = {"type": "shot", "ok": True, "pieces": [1000 * slow] * 25, "pieces_ns": 25_000 * slow}
    pi |= {"frame_ns": 900 * MS + 25_000 * slow, "reqbufs_ns": MS}
    vivid = {"type": "shot", "ok": True, "frame_ns": 9 * MS * slow, "reqbufs_ns": MS * slow}
    vivid |= {"reqbufs_switches": 0}
    system = {
        "type": "system", "linux": "6.12", "cpu": "", "cpus": 4, "swap": "/mnt/swap",
        "swap_kib": 102400, "area": "cma=256M",
    }  # fmt: skip
    made: list[dict[str, Any]] = [system]
    for name, what in (
        ("fig4-idle", allocations(paper.SIZES)),
        ("fig5-idle", allocations((paper.FIG5_PAGES,))),
        ("fig6-idle", [pi, pi]),
        ("fig7-alone", ticks(SPEED[config])),
        ("fig6-loaded", [*ticks(SPEED[config] - 10), pi, vivid, pi, vivid]),
        ("fig5-loaded", allocations((paper.FIG5_PAGES,))),
        ("fig4-loaded", allocations(paper.SIZES)),
        ("end", []),
    ):
        made += [{"type": "phase", "name": name}, *what]
    return made


def results() -> dict[str, Any]:
    table3 = [{"type": "table3", "what": what, "value": 100.0} for what in TABLE3]
    return {
        "kernel": {"release": "6.12"}, "qemu": "7.2", "seed": 1, "load": "blog",
        "memory_mib": 1024, "cma_mib": 256,
        "runs": [
            run
            for config in paper.CONFIGS
            for run in (
                {"name": f"paper-x86-loaded-{config}-all", "config": config, "board": "x86",
                 "rows": rows(config)},
                {"name": f"paper-x86-table3-{config}", "config": config, "board": "x86",
                 "rows": table3},
            )
        ],
    }  # fmt: skip


def test_phases_end_where_the_next_begins() -> None:
    data = Measured(results())
    assert len(data.of("gcma", "fig5-loaded", "alloc")) == 3
    assert data.phase("gcma", "never") == []


def test_shots_are_told_apart_by_their_pattern() -> None:
    data = Measured(results())
    assert data.shots("cma", "pi", "pieces_ns") == [25 * MS, 25 * MS]
    assert data.shots("gcma", "vivid", "frame_ns") == [9 * MS, 9 * MS]


def test_means_are_compared_by_size() -> None:
    assert Measured(results()).ratios("fig4-idle") == pytest.approx(
        dict.fromkeys(paper.SIZES, 1000)
    )


def test_scores_are_rates_of_thirds() -> None:
    assert Measured(results()).scores("gcma", False, "reads") == pytest.approx([150, 150, 150])
    assert rates(ticks(5)[:2], "reads", 3) == []


def test_failures_are_counted() -> None:
    stored = results()
    stored["runs"][0]["rows"][2]["ok"] = False
    assert Measured(stored).failed("cma", "fig4-idle") == (1, 3 * len(paper.SIZES))


def test_every_statement_has_a_verdict() -> None:
    made = Statements(Measured(results())).all()
    names = [name for name in vars(Statements) if not name.startswith("_") and name != "all"]
    # one of them needs counters that these results have not
    assert len(made) == len(names) - 1
    for one in made:
        assert one.verdict.split(" ")[0].rstrip(",") in ("holds", "stronger", "does", "the")
        assert one.ours


def test_statements_about_what_was_not_run_are_left_out() -> None:
    assert Statements(Measured(results() | {"runs": []})).all() == []
    assert list(targets(Measured(results() | {"runs": []}))) == []


def test_targets_are_missed_when_they_are() -> None:
    assert all(target.met for target in targets(Measured(results())))
    stored = results()
    for run in stored["runs"]:
        if run["config"] == "gcma":
            run["rows"] = [row | {"value": 98.0} if "value" in row else row for row in run["rows"]]
    missed = [one.what for one in targets(Measured(stored)) if not one.met]
    assert len(missed) == 4
    assert all("table 3" in what for what in missed)


def test_a_shot_that_others_held_up_is_told_from_a_slow_one() -> None:
    stored = results()
    for run in stored["runs"]:
        rows = run["rows"]
        if run["config"] == "gcma" and rows[0]["type"] == "system":
            first = next(n for n, row in enumerate(rows) if "reqbufs_switches" in row)
            rows[first] = rows[first] | {"reqbufs_ns": 2 * MS, "reqbufs_switches": 3}
    rows = paper_report.target_table(Measured(stored)).rows
    assert [row[-1] for row in rows if row[-1] != "met"] == [
        "missed: other threads had the processor while buffers were filled, in 1 of 2 with GCMA "
        "and 0 of 2 with Reservation; where none had, the longest took 1 ms, 1 ms: 1.000 ×"
    ]


def test_every_figure_of_the_paper_is_drawn(tmp_path: Path) -> None:
    samples.save(tmp_path, results())
    page = paper_report.draw(tmp_path).read_text()
    for name in ("fig1", "fig4-idle", "fig5a", "fig5b", "fig6a", "fig6b", "fig7"):
        assert (tmp_path / f"{name}.png").is_file()
    assert page.count("<figure>") == page.count("data:image/png;base64,") == 10


def test_parts_share_boots() -> None:
    names = [boot.name for boot in paper.boots(("fig4", "fig5"))]
    assert names == [
        f"{kind}-{config}-{parts}"
        for kinds in ((("loaded", "fig5+fig4"),), (("idle", "fig4+fig5"),))
        for config in paper.CONFIGS
        for kind, parts in kinds
    ]


def test_the_load_with_a_camera_is_measured_while_photos_are_taken() -> None:
    steps = paper.boots(("fig7",))[0].steps
    assert "fig6_loaded" in steps
    assert "fig4_loaded" not in steps


def test_a_benchmark_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOGBENCH", "/nowhere/blogbench")
    with pytest.raises(LabError, match="/nowhere/blogbench"):
        paper.blogbench()


def test_steps_of_boots_are_there() -> None:
    text = (GUEST / "lib/paper.sh").read_text()
    there = set(re.findall(r"^(\w+)\(\)", text, re.MULTILINE))
    for load in (False, True):
        for boot in paper.boots(paper.PARTS, load):
            assert there.issuperset(boot.steps), boot.name


def test_huge_pages_have_an_area_of_their_own(tmp_path: Path) -> None:
    image = kernel.Image("gcma", tmp_path)
    words = {
        boot.name: " ".join(paper.job(boot, "x86", image).machine.kernel_words())
        for boot in paper.boots(("huge",))
    }
    assert "hugetlb_cma=1024M gcma=file+swap" in words["huge-gcma"]
    assert "hugetlb_cma=1024M gcma=cma" in words["huge-cma"]
    assert "cma=" not in words["huge-compaction"]


def test_the_load_reads_what_it_wrote(tmp_path: Path) -> None:
    """Also where two of its threads write the same file, which many on one blog do."""
    blog = tmp_path / "blog"
    source = GUEST / "blog.c"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", blog, source], check=True, timeout=600)
    words: list[str | Path] = [blog, "--dir", tmp_path, "--blogs", "1"]
    subprocess.run([*words, "--prepare"], check=True, timeout=600, capture_output=True)
    words += ["--commenters", "100", "--readers", "20", "--seconds", "5"]
    ran = subprocess.run(words, check=False, timeout=600, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(("taken_kib", "good"), [(100_000, True), (5_000, False)])
def test_a_card_that_took_no_memory_ends_the_boot(taken_kib: int, good: bool) -> None:
    """As when the data is removed before it was written. The guest is a shell with stubs."""
    script = f"""
say() {{ :; }}; dd() {{ :; }}; rm() {{ :; }}
need() {{ "$@" || exit 1; }}
stat() {{ echo $((100000 * 1024)); }}
. {GUEST}/lib/paper.sh
filled_percent={paper.FILLED_PERCENT}
free_kib() {{ read -r kib <&3; echo $kib; }}
exec 3<<END
500000
{500_000 - taken_kib}
END
fill_card
"""
    words = ["bash", "-c", script]
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=600)
    assert (ran.returncode == 0) == good
    assert f'"kib": 100000, "taken_kib": {taken_kib}, ' in ran.stdout


def test_the_card_is_synced_before_its_file_goes() -> None:
    """free_kib() syncs."""
    text = (GUEST / "lib/paper.sh").read_text()
    begin, end = text.index("of=/mnt/fill"), text.index("rm /mnt/fill")
    assert "$(free_kib)" in text[begin:end]
    assert text[text.index("free_kib() {") :].splitlines()[1] == "\tsync"
