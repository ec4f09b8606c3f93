# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nocopy_lab import samples, traces
from nocopy_lab.experiments import stores, stores_report
from nocopy_lab.paths import LabError
from nocopy_lab.run import Job, Outcome

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

FRAMES = 1024
RAM = 1024


def played(records: str, *words: str) -> dict[str, dict[str, int]]:
    """Counters of everybody by store, of the whole sequence."""
    given = ("--frames", str(FRAMES), "--ram", f"0={RAM}", "--from", "0", *words)
    found = stores.play(given, records)
    names = next(iter(next(iter(found.values())).values()))
    return {
        store: {name: sum(group[name] for group in who.values()) for name in names}
        for store, who in found.items()
    }


def test_what_fits_is_read_from_the_disk_once() -> None:
    records = "".join(f"R 0 1 0 {RAM + FRAMES // 2}\n" for _ in range(6))
    for store, counts in played(records).items():
        once = store not in (stores.NONE, "workingset")
        assert (counts["disk"] == RAM + FRAMES // 2) == once, store
        assert counts["disk"] + counts["ram"] + counts["area"] == counts["accesses"], store


def test_a_page_that_is_read_stays_and_one_that_is_mapped_moves() -> None:
    push = f"R 0 2 0 {2 * RAM}\n"  # until the first page is in the area
    read = played(f"R 0 1 0 1\nR 0 2 0 {RAM}\nR 0 1 0 1\nR 0 1 0 1\n")["fifo"]
    assert (read["area"], read["ram"]) == (2, 0)
    mapped = played(f"R 0 1 0 1\nR 0 2 0 {RAM}\nM 0 1 0 1\nM 0 1 0 1\n")["fifo"]
    assert (mapped["area"], mapped["ram"]) == (1, 1)
    written = played(f"R 0 1 0 1\nR 0 2 0 {RAM}\nW 0 1 0 1\n{push}R 0 1 0 1\n")["fifo"]
    assert written["disk"] == 1 + 2 * RAM + (written["area"] == 0)


def test_what_the_owner_has_holds_nothing() -> None:
    records = "".join(f"R 0 1 0 {RAM + FRAMES // 2}\n" for _ in range(6))
    for store, counts in played(records, "--owned", f"0:{FRAMES}").items():
        assert counts["copies"] == 0 and counts["area"] == 0, store
    taken = played(f"R 0 1 0 {2 * RAM}\nA 0 0 0 {FRAMES}\nF 0 0 0 {FRAMES}\nR 0 1 0 1\n")
    for store, counts in taken.items():
        assert counts["area"] == 0, store


def test_swap_is_offered_and_wanted_as_recorded() -> None:
    counts = played("O 0 0 5 1\nI 0 0 5 1\nI 0 0 5 1\n")["2x8"]
    assert (counts["offers"], counts["area"], counts["disk"]) == (1, 1, 1)


def test_a_deleted_file_is_gone() -> None:
    counts = played(f"R 0 1 0 1\nR 0 2 0 {RAM}\nD 0 1 0 1\nR 0 1 0 1\n")["fifo"]
    assert counts["area"] == 0 and counts["disk"] == RAM + 2


@pytest.mark.parametrize("records", ["R 0 1 0\n", "X 0 1 0 1\n", "R 9 1 0 1\n", "R 0 1 0 1\nno\n"])
def test_records_that_mean_nothing_are_refused(records: str) -> None:
    with pytest.raises(LabError, match="record"):
        played(records)


@pytest.mark.parametrize(
    "words", [("--owned", "1000:100"), ("--store", "x:nothing=1"), ("--what",)]
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(LabError):
        played("R 0 1 0 1\n", *words)


def test_a_trace_that_lost_events_is_not_kept() -> None:
    trace = traces.TRACES["uniform"]
    for rows in ([], [{"type": "recorded", "records": 5, "lost": 1}]):
        outcome = Outcome(Job("trace", "", Path("/kernel")), [], Path("console"), rows)
        with pytest.raises(LabError, match="nothing was recorded"):
            traces.store(trace, outcome)


def test_the_page_is_drawn_from_what_is_stored(tmp_path: Path) -> None:
    who = {"accesses": 1000, "disk": 500, "ram": 400, "area": 100, "requests": 50, "copies": 10}
    better = {**who, "disk": 250}
    compared = (stores_report.EARLIER, [*stores.STORES][-1])
    row = {
        "name": "one", "kind": "made", "judged": "0",
        "stores": {s: {"0": better if s in compared else who} for s in
                   (stores.NONE, *stores.STORES)},
    }  # fmt: skip
    row["stores"][stores.BEFORE]["0"] = {**who, "disk": 375}  # type: ignore[index]
    # Nothing of a kernel is known where no trace was played.
    samples.save(tmp_path, {"seed": 1, "rows": [row]})
    stores_report.draw(tmp_path)
    assert "No traces that were recorded, seed 1." in (tmp_path / "table.md").read_text()
    about = {"kernel": {"release": "6.12"}, "qemu": "7.2", "seed": 1}
    samples.save(tmp_path, {**about, "rows": [row]})
    assert stores_report.kept(row, stores_report.EARLIER) == 200
    assert stores_report.draw(tmp_path).is_file()
    assert "25.0 / 0.01 / 50 | 200 % | 200 % |" in (tmp_path / "table.md").read_text()
    # What is newer than the results is left out, and the last before it compared.
    del row["stores"][compared[1]]  # type: ignore[attr-defined]
    samples.save(tmp_path, {**about, "rows": [row]})
    stores_report.draw(tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert "mm/gcma" not in table and "| 200 % | 0 % |" in table
