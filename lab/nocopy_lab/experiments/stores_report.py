# SPDX-License-Identifier: MIT OR Apache-2.0
"""How the stores compare, in tables and a figure, from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nocopy_lab import progress, report, samples
from nocopy_lab.experiments.stores import BEFORE, NONE, STORES
from nocopy_lab.report import Figure, Table

# The newest store of what was measured is compared with this one, and shown beside these.
EARLIER: Final = "2x8"
SHOWN: Final = ("adaptive", "workingset", "2x8-pages", EARLIER)


def measured(results: Mapping[str, Any]) -> list[str]:
    """The stores that were there when it was measured, the newest last."""
    return [store for store in STORES if all(store in row["stores"] for row in results["rows"])]


def _sum(row: Mapping[str, Any], store: str, what: str, judged: bool = True) -> int:
    who = row["stores"][store]
    groups = [row["judged"]] if judged and row["judged"] else list(who)
    return sum(int(who.get(group, {}).get(what, 0)) for group in groups)


def disk_share(row: Mapping[str, Any], store: str) -> float:
    """Of the accesses that are judged, in percent."""
    return 100 * _sum(row, store, "disk") / max(_sum(row, store, "accesses"), 1)


def requests_share(row: Mapping[str, Any], store: str) -> float:
    """Of all accesses, a thousand: requests to the disk."""
    everyone = _sum(row, store, "accesses", judged=False)
    return 1000 * _sum(row, store, "requests", judged=False) / max(everyone, 1)


def copies(row: Mapping[str, Any], store: str) -> float:
    """Pages copied into the area, an access."""
    everyone = _sum(row, store, "accesses", judged=False)
    return _sum(row, store, "copies", judged=False) / max(everyone, 1)


def kept(row: Mapping[str, Any], store: str) -> float:
    """Of the reads that the first store saves, how many this one does, in percent.

    NaN if that saves none.
    """
    none = _sum(row, NONE, "disk")
    before = none - _sum(row, BEFORE, "disk")
    if before * 1000 < _sum(row, NONE, "accesses"):
        return float("nan")
    return 100 * (none - _sum(row, store, "disk")) / before


def _cell(row: Mapping[str, Any], store: str) -> str:
    parts = (disk_share(row, store), copies(row, store), requests_share(row, store))
    return "{:.1f} / {:.2f} / {:.0f}".format(*parts)


def tables(results: Mapping[str, Any]) -> list[Table]:
    made: list[Table] = []
    there = measured(results)
    compared = (EARLIER, there[-1])
    for kind, title in (("recorded", "Recorded traces"), ("made", "Sequences made")):
        rows = []
        for row in results["rows"]:
            if row["kind"] != kind:
                continue
            shares = [kept(row, store) for store in compared]
            rows.append(
                [row["name"], *(_cell(row, store) for store in (NONE, *there)),
                 *("–" if share != share else f"{share:.0f} %" for share in shares)]
            )  # fmt: skip
        saved = (f"saved, {STORES[store][0].split(',')[0]}" for store in compared)
        head = ("", "no area", *(STORES[store][0] for store in there), *saved)
        if rows:
            made.append(Table(title, head, rows))
    rows = [
        [row["name"], f"{100 * row['guest']['waits'] / row['guest']['reads']:.1f} %",
         f"{disk_share({**row, 'stores': row['whole']}, 'fifo'):.1f} %"]
        for row in results["rows"] if "guest" in row
    ]  # fmt: skip
    if rows:
        head = ("", "in the guest", "in the model")
        made.append(Table("Reads that went to the disk with every page kept", head, rows))
    return made


FIGURE: Final = Figure(
    "stores",
    "reads that go to the disk [%]",
    "Of recorded traces and of sequences that were made, the reads that go to the disk, by what "
    "the area keeps. Beside a stream only the other's reads count.",
)


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    groups = {}
    shown = (*SHOWN, measured(results)[-1])
    for row in results["rows"]:
        # With the owner's share, or where nothing differs.
        shares = [disk_share(row, store) for store in (NONE, *shown)]
        if "," in row["name"] or max(shares) - min(shares) < 1:
            continue
        label = row["name"].replace("-", "\n") + ("" if row["kind"] == "made" else "\n(trace)")
        groups[label] = {
            STORES[s][0]: (disk_share(row, s),) * 3 for s in shown
        }  # fmt: skip
    colours = {STORES[s][0]: STORES[s][1] for s in shown}
    report.draw_groups(directory, FIGURE, groups, colours, FIGURE.title)
    found = tables(results)
    of = "No traces that were recorded"
    if "kernel" in results:
        of = f"Kernel {results['kernel']['release']}, QEMU {results['qemu']}"
    (directory / "table.md").write_text(
        "# What the area should keep\n\n" + HOW_READ + "\n\n"
        + "".join(report.markdown_table(table) for table in found)
        + f"{of}, seed {results['seed']}. [What was decided](../../design.md#gcma).\n"
    )  # fmt: skip
    report.page(
        directory / "index.html",
        "What the area should keep",
        [
            report.paragraph(HOW_READ),
            report.html_figure(directory, FIGURE),
            *map(report.html_table, found),
        ],
    )
    return directory / "index.html"


HOW_READ: Final = (
    "Each cell: reads that go to the disk in percent (of those that are judged: beside a stream, "
    "the other's) / pages copied into the area for each access / requests to the disk for each "
    "thousand accesses, neighbouring pages being one request up to 128 KiB. The last columns: of "
    "the reads of the disk that the adaptive FIFO saves, how many the others "
    "save. All are of the second half of a sequence. A model of RAM stands before the area."
)


def show(directory: Path) -> None:
    """Of the stores that the figure shows, disk reads and copies alone."""
    results = samples.load(directory)
    shown = (*SHOWN, measured(results)[-1])
    heads = [STORES[store][0] for store in shown]
    rows = [
        [row["name"], *(_cell(row, store).rpartition(" / ")[0] for store in (NONE, *shown))]
        for row in results["rows"]
    ]
    title = "Reads from the disk [%] / copies an access"
    progress.console.print(report.rich_table(Table(title, ("", "no area", *heads), rows)))
