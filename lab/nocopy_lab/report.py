# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures, tables and pages, made from stored JSON alone."""

from __future__ import annotations

import base64
import html
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib
from rich.console import Console
from rich.table import Table as RichTable

from nocopy_lab import progress
from nocopy_lab.paths import cache
from nocopy_lab.units import binary_size, duration

os.environ.setdefault("MPLCONFIGDIR", str(cache() / "matplotlib"))
matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator

# Okabe and Ito's colours, told apart by everyone; one for each configuration everywhere.
COLOURS: Final = {
    "reservation": "#999999",
    "cma": "#D55E00",
    "file-only": "#56B4E9",
    "swap-only": "#CC79A7",
    "gcma": "#0072B2",
}
# Drawn last, where another line may be.
DASHED: Final = ("file-only",)
NAMES: Final = {
    "reservation": "Reservation",
    "cma": "CMA",
    "file-only": "File only",
    "swap-only": "Swap only",
    "gcma": "GCMA",
}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of all (nearest rank)."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


@dataclass(frozen=True)
class Summary:
    """What a table says about a set of latencies."""

    count: int
    failures: int
    median: float
    p99: float
    worst: float

    @classmethod
    def of(cls, good: Sequence[float], failures: int = 0) -> Summary:
        return cls(
            len(good) + failures,
            failures,
            percentile(good, 0.5),
            percentile(good, 0.99),
            max(good, default=math.nan),
        )

    def cells(self) -> list[str]:
        return [
            duration(self.median),
            duration(self.p99),
            duration(self.worst),
            f"{self.failures}/{self.count}",
        ]


@dataclass(frozen=True)
class Statement:
    """What a paper says, what was measured here, and how the two go together."""

    where: str
    says: str
    paper: str
    ours: str
    verdict: str

    def row(self) -> list[str]:
        return [self.where, self.says, self.paper, self.ours, self.verdict]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    return percentile(values, 0.25), statistics.median(values), percentile(values, 0.75)


def verdict(values: Sequence[float], limit: float, at_least: bool = False) -> str:
    """Says if the median of one value or more keeps a limit, and if the spread leaves doubt."""
    low, middle, high = quartiles(values)
    good = middle >= limit if at_least else middle <= limit
    doubt = low <= limit < high if not at_least else low < limit <= high
    return ("met" if good else "missed") + (", within the spread" if doubt else "")


@dataclass(frozen=True)
class Target:
    """One line of the table of targets; values are what counts, one for each round."""

    work: str
    limit: float
    values: list[float]
    unit: str = "×"
    at_least: bool = False
    note: str = ""

    def say(self, value: float) -> str:
        if self.unit == "×":
            return f"{value:.3g} ×" if value < 0.9 or value >= 1.2 else f"{value:.3f} ×"
        return f"{value:.1f} {self.unit}"

    def row(self) -> list[str]:
        target = f"{'≥' if self.at_least else '≤'} {self.say(self.limit)}"
        low, middle, high = quartiles(self.values)
        said = self.say(middle)
        if len(self.values) > 1:
            said += f" ({self.say(low)} to {self.say(high)})"
        if self.note:
            said += f", {self.note}"
        return [self.work, target, said, verdict(self.values, self.limit, self.at_least)]


def measured(targets: Sequence[Target]) -> list[list[str]]:
    """The rows of the targets that anything was measured for."""
    return [target.row() for target in targets if target.values]


def not_measured(targets: Sequence[Target]) -> list[str]:
    """A line that names what is missing where most of the targets were measured."""
    names = [target.work for target in targets if not target.values]
    if not 0 < len(names) < len(targets) / 2:
        return []
    return [f"Not measured, of what has a target: {'; '.join(names)}."]


@dataclass(frozen=True)
class Goal:
    """A target that is no limit of one quantity: what was wanted and measured, in words."""

    what: str
    wanted: str
    ours: str
    met: bool | None  # None if it was not measured

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]

    def row(self) -> list[str]:
        return [self.what, self.wanted, self.ours, self.verdict]


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str


def _style() -> Any:  # keys are a closed set of literals to type checkers
    return {
        "figure.figsize": (6.4, 4.0),
        "font.size": 11,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "nocopy",
        "svg.fonttype": "path",
    }


def _legend(axes: Any, columns: int = 4, title: str | None = None) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, frameon=False, title=title
    )


def _save(
    figure: Any, directory: Path, name: str, rect: tuple[float, float, float, float] | None = None
) -> None:
    """As two files; `rect` leaves room for what is outside of the axes."""
    figure.tight_layout(rect=rect)
    figure.savefig(directory / f"{name}.png", dpi=150, metadata={"Software": None})
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


@dataclass(frozen=True)
class Style:
    """How a line looks."""

    colour: str
    dashes: str = "-"
    marker: str = "o"


def draw_cdf(
    directory: Path,
    figure: Figure,
    series: Mapping[str, Sequence[float]],
    styles: Mapping[str, Style] | None = None,
) -> None:
    """Cumulative distributions of latencies, one line for each configuration, or each style."""
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots()
        for name, values in series.items():
            if not values:
                continue
            style = styles[name] if styles else Style(COLOURS[name])
            x = sorted(values)
            y = [(i + 1) / len(x) for i in range(len(x))]
            axes.step(
                [x[0], *x], [0, *y], style.dashes, where="post", lw=2,
                color=style.colour, label=name if styles else NAMES[name],
            )  # fmt: skip
        axes.set(xscale="log", xlabel=figure.title, ylabel="share of samples")
        axes.xaxis.set_major_formatter(lambda ns, _: duration(ns))
        # Within a decade or two the axis needs labels between; beyond they would overlap.
        least, most = axes.get_xlim()
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5) if most / least < 100 else ()))
        axes.xaxis.set_minor_formatter(lambda ns, _: duration(ns))
        axes.set_ylim(0, 1.02)
        _legend(axes, 2 if styles else 4)
        _save(canvas, directory, figure.name)


def draw_by_size(
    directory: Path, figure: Figure, series: Mapping[str, Mapping[int, Sequence[float]]]
) -> None:
    """Median (line) and worst (thin line above) latency over the size of an allocation."""
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots()
        for config, sizes in series.items():
            x = [n for n in sorted(sizes) if sizes[n]]
            if not x:
                continue
            colour = COLOURS[config]
            middle = [percentile(sizes[n], 0.5) / 1e6 for n in x]
            worst = [max(sizes[n]) / 1e6 for n in x]
            axes.plot(x, middle, "o-", lw=2, ms=4, color=colour, label=NAMES[config])
            axes.plot(x, worst, "--", lw=1, color=colour)
            axes.fill_between(x, middle, worst, color=colour, alpha=0.12, lw=0)
        axes.set(xlabel="allocation [pages of 4 KiB]", ylabel="latency")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda ms, _: duration(ms * 1e6))
        axes.xaxis.set_major_formatter(lambda pages, _: f"{pages:,.0f}")
        _legend(axes, title=f"{figure.title}: median, and the worst (dashed)")
        _save(canvas, directory, figure.name)


def draw_bars(directory: Path, figure: Figure, values: Mapping[str, float], unit: str) -> None:
    """One bar for each configuration."""
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots(figsize=(6.4, 0.8 + 0.6 * len(values)))
        names = list(values)
        bars = axes.barh(
            [NAMES[n] for n in names], list(values.values()), color=[COLOURS[n] for n in names]
        )
        axes.bar_label(bars, fmt=lambda v: f"{v:,.0f}" if v >= 1000 else f"{v:.3g}", padding=4)
        axes.set(xlabel=f"{figure.title} [{unit}]")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
        _save(canvas, directory, figure.name)


def draw_lines(
    directory: Path,
    figure: Figure,
    series: Mapping[str, Mapping[int, float]],
    x: str,
    *,
    times: bool = False,
) -> None:
    """One line for each configuration: from zero, or of times, with both axes logarithmic."""
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots()
        for config, points in series.items():
            at = sorted(points)
            axes.plot(
                at, [points[n] for n in at], "o--" if config in DASHED else "o-", lw=2, ms=4,
                color=COLOURS[config], label=NAMES[config],
            )  # fmt: skip
        axes.set(xlabel=x, ylabel=figure.title)
        if times:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
            axes.yaxis.set_major_formatter(lambda ns, _: duration(ns))
        else:
            axes.set_ylim(bottom=0)
        _legend(axes)
        _save(canvas, directory, figure.name)


def draw_curves(
    directory: Path,
    figure: Figure,
    series: Mapping[str, Mapping[int, float]],
    colours: Mapping[str, str],
    x: str,
) -> None:
    """Seconds over bytes, both logarithmic, one line for each name."""
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots(figsize=(6.4, 4.4))
        for name, points in series.items():
            at = sorted(points)
            axes.plot(
                at, [points[n] * 1e9 for n in at], "o-", ms=3, color=colours[name], label=name
            )
        axes.set(xlabel=x, ylabel=figure.title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda n, _: binary_size(n))
        axes.yaxis.set_major_formatter(lambda ns, _: duration(ns))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
        _save(canvas, directory, figure.name)


def draw_groups(
    directory: Path,
    figure: Figure,
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]],
    colours: Mapping[str, str],
    y: str,
    log: bool = False,
) -> None:
    """Groups of bars: median with its quartiles; a bar has its colour by its name."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    width = 0.84 / max(len(names), 1)
    with plt.rc_context(_style()):
        canvas, axes = plt.subplots(figsize=(max(9.0, 0.16 * len(groups) * len(names) + 1.6), 4.2))
        for place, name in enumerate(names):
            found = [(n, bars[name]) for n, bars in enumerate(groups.values()) if name in bars]
            at = [n - 0.42 + (place + 0.5) * width for n, _ in found]
            middle = [value[1] for _, value in found]
            spread = [
                [value[1] - value[0] for _, value in found],
                [value[2] - value[1] for _, value in found],
            ]
            axes.bar(
                at, middle, width, yerr=spread, color=colours[name], label=name,
                error_kw={"lw": 0.8},
            )  # fmt: skip
        axes.set_xticks(range(len(groups)), list(groups))
        axes.margins(x=0.01)
        axes.set(ylabel=y)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(axis="x", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
        _save(canvas, directory, figure.name)


def draw_panels(
    directory: Path,
    figure: Figure,
    panels: Mapping[str, Mapping[str, Mapping[int, float]]],
    styles: Mapping[str, Style],
    y: str,
    log: bool = False,
    columns: int = 0,
) -> None:
    """Panels with one legend, side by side or so many a row; in each, lines of a quantity over
    block sizes."""
    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    with plt.rc_context(_style()):
        canvas, all_axes = plt.subplots(
            rows, columns, figsize=(5.2 * columns, 4.6 * rows), sharey=True, squeeze=False
        )
        for axes in all_axes.flat[len(panels) :]:
            axes.set_visible(False)
        shown: dict[str, Any] = {}
        for axes, (name, series) in zip(all_axes.flat, panels.items(), strict=False):
            for label, points in series.items():
                at, style = sorted(points), styles[label]
                (shown[label],) = axes.plot(
                    at, [points[n] for n in at], style.dashes, marker=style.marker, ms=4, lw=1.8,
                    color=style.colour, label=label,
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1,), numticks=8))
            axes.xaxis.set_major_formatter(lambda n, _: binary_size(n))
            axes.tick_params(axis="x", labelrotation=30)
            axes.set(xlabel=f"{name}, block size")
            if log:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if not log:
            # They share it: set before all is drawn, it would end where the first panel does.
            all_axes.flat[0].set_ylim(bottom=0)
        for row in all_axes:
            row[0].set(ylabel=y)
        canvas.legend(
            shown.values(), shown.keys(), loc="upper center", ncols=4, frameon=False, fontsize=9
        )
        _save(canvas, directory, figure.name, (0, 0, 1, 1 - 0.1 / rows))


def draw_side_by_side(
    directory: Path,
    figure: Figure,
    panels: Mapping[str, Mapping[str, Mapping[int, float]]],
    styles: Mapping[str, Style],
    x: str,
) -> None:
    """Panels with one legend, each with lines of its own quantity, from zero, over the same x."""
    with plt.rc_context(_style()):
        canvas, all_axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 4.2))
        shown: dict[str, Any] = {}
        for axes, (quantity, series) in zip(all_axes, panels.items(), strict=True):
            for name, points in series.items():
                at, style = sorted(points), styles[name]
                (shown[name],) = axes.plot(
                    at, [points[n] for n in at], style.dashes, marker=style.marker, ms=5, lw=2,
                    color=style.colour, label=name, clip_on=False, zorder=3,
                )  # fmt: skip
                axes.set_xticks(at)
            axes.set(xlabel=x, ylabel=quantity)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        canvas.legend(shown.values(), shown.keys(), loc="upper center", ncols=3, frameon=False)
        _save(canvas, directory, figure.name, (0, 0, 1, 0.86))


@dataclass(frozen=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 17px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.2rem; font-size: 1.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #8884;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } img { width: 100%; height: auto; background: #fff; }
figcaption, .small { font-size: .9rem; opacity: .85; }
pre { overflow-x: auto; font-size: .8rem; padding: .6rem; background: #8882; }
"""


def console(width: int) -> Console:
    """Where tables are shown. A log has no width: lines are not broken for it."""
    if progress.console.is_terminal:
        return progress.console
    return Console(width=width, highlight=False, soft_wrap=True)


def rich_table(table: Table) -> RichTable:
    """A table for the terminal."""
    rich = RichTable(title=table.title, title_style="bold", title_justify="left")
    for number, cell in enumerate(table.head):
        rich.add_column(cell, justify="right" if number else "left")
    for row in table.rows:
        rich.add_row(*row)
    return rich


def show(width: int, tables: Iterable[Table], facts: Iterable[str] = ()) -> None:
    """Tables, and what to know about them, on the terminal."""
    shown = console(width)
    for table in tables:
        shown.print(rich_table(table))
    for fact in facts:
        shown.print(f"  {fact}", style="dim")


def markdown_table(table: Table) -> str:
    """The table below its title, for a file that is read as text too."""
    head = "| " + " | ".join(table.head) + " |\n" + "|---" * len(table.head) + "|\n"
    rows = "".join("| " + " | ".join(row) + " |\n" for row in table.rows)
    return f"{table.title}:\n\n{head}{rows}\n"


def html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in table.rows
    )
    return (
        f"<h2>{html.escape(table.title)}</h2>\n<div class=wide><table>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n"
    )


def html_figure(directory: Path, figure: Figure) -> str:
    data = base64.b64encode((directory / f"{figure.name}.png").read_bytes()).decode()
    return (
        f'<figure><img alt="{html.escape(figure.title)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>\n"
    )


def page(path: Path, title: str, parts: Iterable[str]) -> None:
    """One self-contained HTML page."""
    path.write_text(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n"
        f"<h1>{html.escape(title)}</h1>\n" + "".join(parts) + "</html>\n"
    )


def paragraph(text: str, small: bool = False) -> str:
    return f"<p{' class=small' if small else ''}>{html.escape(text)}</p>\n"


def preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>\n"
