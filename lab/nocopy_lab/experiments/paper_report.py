# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `paper` measured, next to what the paper says; from results.json alone."""

from __future__ import annotations

import gzip
import math
import re
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nocopy_lab import report, samples
from nocopy_lab.board import BOARDS, CMA_MIB
from nocopy_lab.experiments.paper import (
    AREAS_MIB,
    CAMERA_PAUSE_S,
    FIG5_PAGES,
    HERE,
    HUGE_PAGES,
    SCORES,
    SIZES,
    USES_PERCENT,
    WARM_S,
)
from nocopy_lab.experiments.paper_results import (
    NAN,
    SHOWN,
    TABLE3,
    Measured,
    Row,
    hit_rate,
    mean,
    rates,
)
from nocopy_lab.experiments.paper_statements import Statements, targets, times
from nocopy_lab.paths import REPO
from nocopy_lab.report import COLOURS, NAMES, Figure, Table, percentile
from nocopy_lab.units import duration

DOCS: Final = REPO / "docs/results"
# The paper's values: reservation, CMA, GCMA.
TABLE3_PAPER: Final = {
    "lat_ctx_us": (147.36, 143.525, 142.93),
    "file_mibps": (511.77, 517.6, 519.73),
    "mem_read_mibps": (1426.33, 1438.33, 1434.5),
    "mem_write_mibps": (696.5, 701.25, 699.966),
}


def statement_table(data: Measured) -> Table:
    return Table(
        "The paper's statements",
        ("where", "what it says", "paper", "here", ""),
        [one.row() for one in Statements(data).all()],
    )


def target_table(data: Measured) -> Table:
    rows, reasons = [], set[str]()
    for target in targets(data):
        verdict = target.verdict
        if target.why and not target.met:
            reason = target.why(data)
            verdict += ", as above" if reason in reasons else f": {reason}"
            reasons.add(reason)
        rows.append([target.what, target.wanted, target.ours, verdict])
    return Table("What GCMA has to show", ("", "target", "measured", ""), rows)


def table3(data: Measured) -> Table | None:
    rows = []
    for what, (name, unit, _) in TABLE3.items():
        values = [data.table3(config, what) for config in SHOWN]
        if math.isnan(sum(values[:3])):
            continue
        paper = " / ".join(f"{value:g}" for value in TABLE3_PAPER[what])
        rows.append([f"{name} [{unit}]", *(f"{value:,.2f}" for value in values), paper])
    head = ("", *(NAMES[config] for config in SHOWN), "paper: reservation / CMA / GCMA")
    return Table("Table 3: an idle system", head, rows) if rows else None


def configurations(data: Measured) -> Table | None:
    """Tables 1 and 2, as the boots say themselves."""
    rows = []
    for config in SHOWN:
        for run in reversed(data.runs):
            found = [row for row in run["rows"] if row.get("type") == "system"]
            if run["config"] != config or not found:
                continue
            one = found[0]
            swap = "zram" if "zram" in one["swap"] else "a file on the card"
            # Of plain CMA's area what is free counts as free memory.
            area_kib = data.results["cma_mib"] << 10 if config == "cma" else 0
            free = [
                row["free_kib"] - area_kib for row in run["rows"] if row.get("type") == "filled"
            ]
            rows.append(
                [
                    NAMES[config],
                    f"Linux {one['linux']}",
                    f"{one['cpus']} × {one['cpu'] or 'ARMv7'}",
                    f"{data.results['memory_mib']:,} MiB",
                    f"{free[0] / 1024:,.0f} MiB" if free else "–",
                    f"{one['swap_kib'] / 1024:.0f} MiB, {swap}",
                    one["area"].strip(),
                ]
            )
            break
    head = (
        "", "kernel", "processors", "memory", "free beside the area before the load", "swap",
        "contiguous area",
    )  # fmt: skip
    return Table("Tables 1 and 2: what was booted", head, rows) if rows else None


def fig4_table(data: Measured, which: str) -> Table | None:
    rows = []
    for pages in SIZES:
        cells = []
        for config in SHOWN:
            values = data.allocations(config, f"fig4-{which}", pages)
            tried = [
                row for row in data.of(config, f"fig4-{which}", "alloc") if row["pages"] == pages
            ]
            bad = len(tried) - len(values)
            said = [duration(mean(values))] if values else []
            said += [f"{bad} of {len(tried)} failed"] if bad else []
            cells.append(", ".join(said))
        ratio = data.ratios(f"fig4-{which}").get(pages, NAN)
        if any(cells):
            rows.append([f"{pages:,}", *cells, "" if math.isnan(ratio) else times(ratio)])
    head = ("pages", *(NAMES[config] for config in SHOWN), "CMA / GCMA")
    return Table(f"Fig. 4: mean latency, {which}", head, rows) if rows else None


def beyond(data: Measured) -> list[Table]:
    """What the paper has not."""
    made: list[Table] = []
    head = ("hit rate of the area", "reads", "writes")
    for title, unit, found in (
        ("The size of the area", "MiB", by_size(data)),
        ("A part of it allocated", "%", by_use(data)),
    ):
        if len(found) > 1:
            rows = [
                [f"{n} {unit}", f"{rate:.1%}", f"{reads:,.0f}/s", f"{writes:,.0f}/s"]
                for n, (rate, reads, writes) in found.items()
            ]
            made.append(Table(title, ("", *head), rows))
    hour = [row for row in data.run("hour") if row.get("type") == "alloc"]
    if hour:
        values = [row["ns"] for row in hour]
        made.append(
            Table(
                "An allocation every second for an hour, 64 to 32,768 pages",
                ("allocations", "failed", "median", "99 %", "worst"),
                [
                    [
                        f"{len(hour):,}", str(sum(not row["ok"] for row in hour)),
                        *(duration(percentile(values, q)) for q in (0.5, 0.99)),
                        duration(max(values)),
                    ]
                ],
            )
        )  # fmt: skip
    rows = []
    for kind, name in HUGE_NAMES.items():
        pools = huge(data, kind)
        if pools:
            times = [row["ns"] for row in pools]
            got = [row["got"] if kind == "compaction" else row["small"] for row in pools]
            rows.append(
                [
                    name, duration(percentile(times, 0.5)), duration(max(times)),
                    f"{min(got)} to {max(got)} of {HUGE_PAGES}",
                    f"{sum(not row['ok'] for row in pools)} of {len(pools)}",
                ]
            )  # fmt: skip
    if rows:
        head5 = ("1 GiB in pages of 2 MiB from", "median", "worst", "pages", "failed")
        made.append(Table("Huge pages while the load runs", head5, rows))
    return made


def _area(data: Measured, name: str) -> tuple[float, float, float] | None:
    """Hit rate of the area, reads and writes of the load in a second."""
    rows = data.run(name)
    at = {row["name"]: n for n, row in enumerate(rows) if row.get("type") == "phase"}
    if "end" not in at:
        return None
    stats = [row for row in rows if row.get("type") == "gcma_stats"]
    reads, writes = (rates(rows[at["begin"] : at["end"]], f)[0] for f in ("reads", "writes"))
    return hit_rate(stats), reads, writes


def by_size(data: Measured) -> dict[int, tuple[float, float, float]]:
    return {mib: found for mib in AREAS_MIB if (found := _area(data, f"area-{mib}"))}


def by_use(data: Measured) -> dict[int, tuple[float, float, float]]:
    names = {n: f"use-{n}" if n else f"area-{CMA_MIB}" for n in USES_PERCENT}
    return {n: found for n, name in names.items() if (found := _area(data, name))}


HUGE_NAMES: Final = {
    "compaction": "compaction",
    "cma": "an area that is CMA",
    "gcma": "an area that is GCMA",
}
HUGE_COLOURS: Final = {
    HUGE_NAMES["compaction"]: "#009E73",
    HUGE_NAMES["cma"]: COLOURS["cma"],
    HUGE_NAMES["gcma"]: COLOURS["gcma"],
}


def huge(data: Measured, kind: str) -> list[Row]:
    return [row for row in data.run(f"huge-{kind}") if row.get("type") == "pool"]


# ------------------------------------------------------------------------- figures

LOADED_WORDS: Final = "while the blog server runs"


def _shots_cdf(data: Measured, pattern: str, field: str) -> dict[str, list[float]]:
    return {config: data.shots(config, pattern, field) for config in SHOWN}


def figures(data: Measured, directory: Path) -> list[Figure]:
    """Draw each figure of the paper in its own form, and ours beyond."""
    drawn: list[Figure] = []

    def cdf(name: str, axis: str, caption: str, series: Mapping[str, Sequence[float]]) -> None:
        if any(series.values()):
            drawn.append(Figure(name, axis, caption))
            report.draw_cdf(directory, drawn[-1], series)

    cdf(
        "fig1", "photo shot",
        f"Fig. 1: photo shots {LOADED_WORDS}. The paper: at most 9.8 s with CMA, 1.6 s with "
        "reservation.",
        {c: data.shots(c, "pi", "frame_ns") for c in ("reservation", "cma")},
    )  # fmt: skip
    for which, words in (("idle", "idle"), ("loaded", LOADED_WORDS)):
        means = {
            c: {n: mean(v) for n in SIZES if (v := data.allocations(c, f"fig4-{which}", n))}
            for c in SHOWN
        }
        if any(means.values()):
            drawn.append(
                Figure(
                    f"fig4-{which}", "mean latency",
                    f"Fig. 4: mean latency of contiguous allocations by size, {words}. The paper "
                    "(idle): CMA takes 14.89 to 129.41 times as long as GCMA.",
                )
            )  # fmt: skip
            report.draw_lines(directory, drawn[-1], means, "pages of 4 KiB", times=True)
    paper5 = {
        "idle": "GCMA mostly under 1 ms, CMA from 4 ms to more than 100 ms",
        "loaded": "GCMA mostly under 2 ms, CMA from 4 ms to more than 4 s",
    }
    for letter, which in (("a", "idle"), ("b", "loaded")):
        words = "idle" if which == "idle" else LOADED_WORDS
        cdf(
            f"fig5{letter}", f"allocation of {FIG5_PAGES:,} pages",
            f"Fig. 5{letter}: allocations of {FIG5_PAGES:,} pages, {words}. The paper: "
            f"{paper5[which]}.",
            {c: data.allocations(c, f"fig5-{which}", FIG5_PAGES) for c in SHOWN},
        )  # fmt: skip
    cdf(
        "fig6a", "photo shot",
        f"Fig. 6a: photo shots {LOADED_WORDS}, each with 25 allocations of 64 pages. The paper: "
        "at most 9.8 s with CMA, 1.04 s with GCMA.",
        _shots_cdf(data, "pi", "frame_ns"),
    )  # fmt: skip
    cdf(
        "fig6b", "allocations of a shot",
        "Fig. 6b: the 25 allocations of each of these shots together. The paper: 4 ms to 10 s with "
        "CMA, 750 µs to 3.32 ms with GCMA.",
        _shots_cdf(data, "pi", "pieces_ns"),
    )  # fmt: skip
    cdf(
        "fig6a-vivid",
        "photo shot",
        "The same with the virtual camera's own pattern: six buffers of 1920×1080.",
        _shots_cdf(data, "vivid", "frame_ns"),
    )
    cdf(
        "fig6b-vivid",
        "buffers of a shot",
        "And its buffers alone; with GCMA and reservation that is filling them with zeros.",
        _shots_cdf(data, "vivid", "reqbufs_ns"),
    )
    if bars := _fig7(data):
        drawn.append(
            Figure(
                "fig7", "score, reservation = 1",
                "Fig. 7: what the load gets done, alone and while a photo is taken every "
                f"{CAMERA_PAUSE_S // 2} s; median, least and most of {SCORES} runs. The paper: CMA "
                "and GCMA above 1 in every case, GCMA above CMA.",
            )
        )  # fmt: skip
        names = {NAMES[c]: COLOURS[c] for c in SHOWN}
        report.draw_groups(directory, drawn[-1], bars, names, drawn[-1].title)
    return drawn + _beyond_figures(data, directory)


def _beyond_figures(data: Measured, directory: Path) -> list[Figure]:
    drawn: list[Figure] = []

    def lines(name: str, axis: str, caption: str, points: Mapping[int, float], x: str) -> None:
        if len(points) > 1:
            drawn.append(Figure(name, axis, caption))
            report.draw_lines(directory, drawn[-1], {"gcma": points}, x)

    for name, found, words, x in (
        ("area", by_size(data), "the size of the area", "area [MiB]"),
        ("use", by_use(data), "how much of the area is allocated", "allocated [%]"),
    ):
        lines(
            f"{name}-hits", "hit rate [%]",
            f"Of the evicted pages that were wanted again, how many were in the area, by {words}.",
            {n: 100 * one[0] for n, one in found.items()}, x,
        )  # fmt: skip
        lines(
            f"{name}-reads", "reads in a second", f"What the load reads, by {words}.",
            {n: one[1] for n, one in found.items()}, x,
        )  # fmt: skip
    hour = [row["ns"] for row in data.run("hour") if row.get("type") == "alloc"]
    if hour:
        drawn.append(
            Figure(
                "hour", "cma_alloc()",
                f"An allocation of 64 to 32,768 pages every second for an hour, {len(hour):,} in "
                f"all; the longest took {duration(max(hour))}.",
            )
        )  # fmt: skip
        report.draw_cdf(directory, drawn[-1], {"gcma": hour})
    times = {name: [row["ns"] for row in huge(data, kind)] for kind, name in HUGE_NAMES.items()}
    if all(times.values()):
        drawn.append(
            Figure(
                "huge", "milliseconds",
                "512 huge pages of 2 MiB while the load has files and memory everywhere: gathered "
                "by compaction, or as 1 GiB from an area and taken apart. Median, least and most.",
            )
        )  # fmt: skip
        bars = {
            "512 pages of 2 MiB": {
                name: (min(ns) / 1e6, percentile(ns, 0.5) / 1e6, max(ns) / 1e6)
                for name, ns in times.items()
            }
        }
        report.draw_groups(directory, drawn[-1], bars, HUGE_COLOURS, "milliseconds", log=True)
    return drawn


def _fig7(data: Measured) -> dict[str, dict[str, tuple[float, float, float]]]:
    groups: dict[str, dict[str, tuple[float, float, float]]] = {}
    for camera in (False, True):
        for field in ("writes", "reads"):
            base = mean(data.scores("reservation", camera, field))
            bars = {}
            for config in SHOWN:
                values = [v / base for v in data.scores(config, camera, field)]
                if values and not math.isnan(base):
                    bars[NAMES[config]] = (min(values), statistics.median(values), max(values))
            if bars:
                groups[f"{field.capitalize()}{' / cam' if camera else ''}"] = bars
    return groups


# --------------------------------------------------------------------------- pages


def how(results: dict[str, Any]) -> str:
    about = results["kernel"]
    board = results["runs"][0]["board"]
    if BOARDS[board].exact:
        times = (
            "Times are virtual, one nanosecond for each instruction of one processor, and the "
            "same in every run of the same programs; caches, memory bandwidth and contention are "
            "not in them."
        )
        card = "its disk gives 20 MiB/s and answers after 400 µs, like an SD card"
    else:
        times = (
            "Times are those of the emulating machine: they vary, and say who is ahead by "
            "multiples, not by per cents."
        )
        card = "its disk is the board's SD card, emulated, with 20 MiB/s at most"
    load = (
        "Blogbench"
        if results["load"] == "Blogbench"
        else "a blog server of 100 readers, 3 writers, 1 rewriter and 5 commenters on 1.2 GiB of "
        "small files, with 160 MiB of memory of its own (lab/guest/blog.c)"
    )
    return (
        f"Linux {about['release']} on the board {board} in QEMU {results['qemu']}, "
        f"{results['memory_mib']} MiB of RAM, an area of {results['cma_mib']} MiB, one kernel "
        f"image for all configurations. {times} The load is {load}; "
        f"{card}. Under load all is measured after {WARM_S} s. "
        f"Seed {results['seed']}."
    )


def _tables(data: Measured) -> list[Table]:
    found = (
        statement_table(data), target_table(data), configurations(data),
        fig4_table(data, "idle"), fig4_table(data, "loaded"), table3(data), *beyond(data),
    )  # fmt: skip
    return [table for table in found if table and table.rows]


def draw(directory: Path) -> Path:
    """Figures and page of a board; gives the page."""
    results = samples.load(directory)
    data = Measured(results)
    drawn = figures(data, directory)
    report.page(
        directory / "index.html",
        f"The GCMA paper's evaluation, on {results['runs'][0]['board']}",
        [
            report.paragraph(how(results)),
            *(report.html_table(table) for table in _tables(data)),
            "<h2>Figures</h2>\n",
            *(report.html_figure(directory, figure) for figure in drawn),
            report.paragraph("All samples and jobs: results.json next to this page.", small=True),
        ],
    )
    return directory / "index.html"


_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*\.?\d*")
APART: Final = 0.05  # of a figure, from which on two kernels are said to differ


def _apart(one: str, other: str) -> bool:
    """Do two texts have other words, or figures that differ by more than APART?"""
    pairs = [
        (float(a.replace(",", "")), float(b.replace(",", "")))
        for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=False)
    ]
    return _NUMBER.sub("", one) != _NUMBER.sub("", other) or any(
        abs(a - b) > APART * max(abs(a), abs(b)) for a, b in pairs
    )


def side_by_side(older: Measured, newer: Measured, versions: tuple[str, str]) -> Table:
    """Statements and targets whose figures differ on two kernels."""
    rows = []
    for table in (statement_table, target_table):
        before = {tuple(row[:-2]): row for row in table(older).rows}
        for row in table(newer).rows:
            same = before.get(tuple(row[:-2]))
            if same and _apart(same[-2], row[-2]):
                rows.append([*row[-4:-2], same[-2], *row[-2:]])
    return Table(
        f"What differs by more than {APART:.0%}", ("", "", *versions, f"on {versions[1]}"), rows
    )


# What two kernels differ by comes from these, as far as it is known.
WHY: Final = (
    "Plain CMA of 7.3 takes pages of an area that is idle, or full of clean cache, much faster "
    "than that of 6.12, with the lists of active and inactive pages as well, so GCMA is ahead by "
    "less. "
    "Under load its largest allocations still fail. Shots take less in every configuration, also "
    "with reservation; why was not looked into. GCMA's own allocations take what they take on 6.12."
)


def write_docs(boards: Sequence[str], later: Sequence[str] = ()) -> Path:
    """docs/results/paper.md, with the figures and the numbers behind them beside it. Of a later
    kernel, on a board that has its name and a version, it has what differs."""
    text = [
        "# The GCMA paper's evaluation, run again\n\n"
        'S. Park, M. Kim, H. Y. Yeom, "GCMA: Guaranteed Contiguous Memory Allocator", EWiLi 2015: '
        "every statement of its sections 1 and 5, what we measured, and whether it holds. Repeat "
        "it with `make paper`; this page is made by it.\n"
    ]
    for board in boards:
        data = Measured(_kept(board))
        text.append(f"\n## {board}\n\n{how(data.results)}\n\n")
        text += [report.markdown_table(table) for table in _tables(data)]
        for figure in figures(data, HERE / board):
            text.append(_shown(board, figure))
        for name in later:
            if name.rpartition("-")[0] == board and _measured(name):
                newer = Measured(_kept(name))
                versions = (data.results["kernel"]["release"], newer.results["kernel"]["release"])
                text.append(
                    f"\n## {board}, Linux {versions[1]}\n\n{how(newer.results)}\n\n{WHY}\n\n"
                )
                text.append(report.markdown_table(side_by_side(data, newer, versions)))
                for figure in figures(newer, HERE / name):
                    if figure.name in LATER_FIGURES:
                        text.append(_shown(name, figure))
    path = DOCS / "paper.md"
    path.write_text("".join(text).rstrip("\n") + "\n")
    return path


LATER_FIGURES: Final = ("fig1", "fig4-loaded", "fig7")


def _measured(board: str) -> bool:
    own = HERE / board
    return (own / "results.json").is_file() or samples.stored(own) is not None


def _kept(board: str) -> dict[str, Any]:
    """The results of a board; what was measured here is stored."""
    target = DOCS / "paper" / board
    target.mkdir(parents=True, exist_ok=True)
    if (own := HERE / board / "results.json").is_file():
        (target / "results.json.gz").write_bytes(gzip.compress(own.read_bytes(), mtime=0))
    return samples.load(HERE / board)


def _shown(board: str, figure: Figure) -> str:
    origin = HERE / board / f"{figure.name}.png"
    shutil.copyfile(origin, DOCS / "paper" / board / origin.name)
    return f"![{figure.title}](paper/{board}/{figure.name}.png)\n\n{figure.caption}\n\n"


def show(directory: Path) -> None:
    """The tables, on the terminal."""
    report.show(200, _tables(Measured(samples.load(directory))))
