# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the demonstration measured, in tables and figures, from its results.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.table import Table as RichTable

from nocopy_lab import progress, report, samples
from nocopy_lab.experiments.demo import ANON_MIB, FILES_MIB, TOUCHES
from nocopy_lab.report import Figure, Summary, Table
from nocopy_lab.units import duration

TAKE: Final = Figure(
    "shots",
    "from opening the camera to the first frame",
    "Photo shots with the kernel's virtual camera (vivid, 6 buffers of 1920×1080 from contiguous "
    "memory) while the load runs. Further left is better; what counts is how far the top end of "
    "a line reaches to the right.",
)
ALLOC: Final = Figure(
    "alloc-cdf",
    "cma_alloc()",
    "All contiguous allocations of the sweep, 64 to 32,768 pages (256 KiB to 128 MiB).",
)
SIZE: Final = Figure(
    "alloc-size",
    "latency by size",
    "The same, by size. Thick: median. Dashed: worst.",
)
LOAD: Final = Figure(
    "load",
    "throughput of the load",
    "Requests that the load answers in a second while nobody allocates. Reservation pays for its "
    "guarantee here: the memory lies idle.",
)


def _rows(run: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in run["rows"] if row.get("type") == kind]


def _shots(run: dict[str, Any], field: str = "frame_ns") -> tuple[list[float], int]:
    shots = _rows(run, "shot")
    return [s[field] for s in shots if s["ok"]], sum(not s["ok"] for s in shots)


def _allocations(run: dict[str, Any]) -> dict[int, list[float]]:
    sizes: dict[int, list[float]] = {}
    for row in _rows(run, "alloc"):
        sizes.setdefault(row["pages"], [])
        if row["ok"]:
            sizes[row["pages"]].append(row["ns"])
    return sizes


def _quiet_rate(run: dict[str, Any], *fields: str) -> float:
    """Mean of counters of the load per second, warm and before the first shot."""
    rows = run["rows"]
    begin, end = (i for i, row in enumerate(rows) if row.get("name") in ("quiet", "shots"))
    ticks = [row for row in rows[begin:end] if row.get("type") == "load_tick"]
    if len(ticks) < 2:
        return 0.0
    seconds = ticks[-1]["seconds"] - ticks[0]["seconds"]
    return float(sum(ticks[-1][field] - ticks[0][field] for field in fields) / seconds)


# Pages and reads that the area had.
SERVED: Final = ("load_file", "load_swap", "read_file")


def _requests(run: dict[str, Any]) -> float:
    return _quiet_rate(run, "read_ops", "write_ops")


def _counter(run: dict[str, Any], name: str) -> float:
    end = _rows(run, "load")
    return float(end[-1].get("vmstat_delta", {}).get(name, 0)) if end else 0.0


def tables(results: dict[str, Any]) -> list[Table]:
    runs = results["runs"]
    heads = ("", "median", "p99", "worst", "failed")
    shots, buffers, sweep, big, load = [], [], [], [], []
    for one in runs:
        name = report.NAMES[one["config"]]
        shots.append([name, *Summary.of(*_shots(one)).cells()])
        buffers.append([name, *Summary.of(*_shots(one, "reqbufs_ns")).cells()])
        sizes = _allocations(one)
        failed = sum(not row["ok"] for row in _rows(one, "alloc"))
        everything = [ns for values in sizes.values() for ns in values]
        sweep.append([name, *Summary.of(everything, failed).cells()])
        big.append(
            [name, *(duration(max(sizes.get(n) or [float("nan")])) for n in (64, 2048, 32768))]
        )
        refaults = _counter(one, "workingset_refault_file")
        refaults_anon = _counter(one, "workingset_refault_anon")
        load.append(
            [
                name,
                f"{_requests(one):,.0f}/s",
                f"{_quiet_rate(one, 'read_mib'):.1f} MiB/s",
                f"{refaults:,.0f}",
                f"{refaults_anon:,.0f}",
                f"{sum(_counter(one, f'gcma_{what}') for what in SERVED):,.0f}",
            ]
        )
    return [
        Table("Photo: from opening the camera to the first frame", heads, shots),
        Table("Of that: getting its buffers", heads, buffers),
        Table("Contiguous allocation, 64 to 32,768 pages", heads, sweep),
        Table("Worst allocation by size", ("", "256 KiB", "8 MiB", "128 MiB"), big),
        Table(
            "The load, undisturbed",
            (
                "",
                "requests",
                "file reads",
                "refaults, files",
                "refaults, memory",
                "pages from the area",
            ),
            load,
        ),
    ]


HOW_READ: Final = (
    "Reservation fences the memory off: fast, but nobody else can use it. CMA lends it to pages "
    "that must be migrated away when the camera wants it. GCMA lends it only to pages whose "
    "content exists elsewhere, so taking it back is forgetting. Look at the worst case of each "
    "table, and at what the load could do with the memory meanwhile."
)


def _how_measured(results: dict[str, Any]) -> str:
    about = results["kernel"]
    return (
        f"One Linux {about['release']} image, booted three times in QEMU {results['qemu']} with "
        f"{results['memory_mib']} MiB of RAM and cma={results['cma_mib']}M; only the gcma= word "
        "differs. QEMU counts instructions (-icount): times are virtual, one nanosecond for each "
        "instruction of one CPU, like a 1 GHz processor without caches. They do not depend on the "
        "machine you run this on or on what else it does, and a second run of the same kernel, "
        "programs and QEMU gives the same digits; a real board will show other numbers with the "
        "same order. Caches, memory bandwidth and contention between CPUs "
        "are not in them. The load shares the CPU with the camera at nice 10: three workers answer "
        f"requests (seed {results['seed']}), each of which touches {TOUCHES} of {ANON_MIB} MiB of "
        f"anonymous pages and reads or rewrites 16 to 64 KiB of {FILES_MIB} MiB of files. Its disk "
        "answers after 400 µs and gives 40 MB/s, like an SD card; its swap is zram."
    )


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    runs = results["runs"]
    report.draw_cdf(directory, TAKE, {r["config"]: _shots(r)[0] for r in runs})
    sizes = {r["config"]: _allocations(r) for r in runs}
    flat = {c: [ns for values in by.values() for ns in values] for c, by in sizes.items()}
    report.draw_cdf(directory, ALLOC, flat)
    report.draw_by_size(directory, SIZE, sizes)
    report.draw_bars(directory, LOAD, {r["config"]: _requests(r) for r in runs}, "requests/s")
    shots, buffers, sweep, big, load = map(report.html_table, tables(results))
    commands = "\n\n".join(" ".join(r["command"]) for r in runs)
    report.page(
        directory / "index.html",
        "Contiguous memory: reservation, CMA, GCMA",
        [
            report.paragraph(HOW_READ),
            shots,
            report.html_figure(directory, TAKE),
            buffers,
            sweep,
            report.html_figure(directory, ALLOC),
            big,
            report.html_figure(directory, SIZE),
            load,
            report.html_figure(directory, LOAD),
            "<h2>How it was measured</h2>\n",
            report.paragraph(_how_measured(results)),
            report.preformatted(commands),
            report.preformatted(runs[0]["job"]),
            report.paragraph("All samples: results.json next to this page.", small=True),
        ],
    )
    return directory / "index.html"


def show(directory: Path) -> None:
    """The comparison as one table on the terminal."""
    shots, buffers, sweep, big, load = tables(samples.load(directory))
    rich = RichTable(title="one kernel image, three boots", title_style="bold")
    rich.add_column("")
    for row in shots.rows:
        rich.add_column(row[0], justify="right")

    def line(label: str, table: Table, column: int) -> None:
        rich.add_row(label, *(row[column] for row in table.rows))

    for label, table in (("photo", shots), ("its buffers", buffers), ("allocation", sweep)):
        for column in range(1, len(table.head)):
            line(f"{label} {table.head[column]}", table, column)
        rich.add_section()
    for column in range(1, len(big.head)):
        line(f"worst {big.head[column]}", big, column)
    rich.add_section()
    for column in range(1, len(load.head)):
        line(f"load: {load.head[column]}", load, column)
    progress.console.print(rich)
