# SPDX-License-Identifier: MIT OR Apache-2.0
"""What bench_pdio measured: against pdio's targets, against what its paper says, in figures.

Everything here comes from results.json alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import report, samples
from nocopy_lab.experiments import pdio_tools
from nocopy_lab.experiments.bench_pdio import (
    ALLOCATED,
    BOARD_MIB,
    BOARD_NEIGHBOUR_MIB,
    CORES,
    ELSEWHERE,
    ELSEWHERE_MIB,
    ELSEWHERE_WAYS,
    FILESYSTEMS,
    FIO_DEPTHS,
    FIO_MEMORY,
    FIRST_MAKE,
    FRAMES,
    FRESH,
    HDD_BYTES_PER_S,
    HDD_SEEKS_PER_S,
    HOGS,
    HOST_NEIGHBOUR_MIB,
    HOST_SIZES,
    KIB,
    MIB,
    MODES,
    NEIGHBOUR,
    NVME_BYTES_PER_S,
    SHIFT_SIZES,
    SHIFTS,
    START_PROGRAM,
    WAYS_MIB,
    fio_command,
)
from nocopy_lab.experiments.pdio_results import (
    Measured,
    Record,
    fio_speed,
    runs_of,
    speeds_of,
    system_ms_of,
)
from nocopy_lab.experiments.pdio_statements import DEVICES, rate_text, statements
from nocopy_lab.report import Figure, Style, Table, Target
from nocopy_lab.units import binary_size

COLOURS: Final = {"NVMe": "#0072B2", "hard disk": "#D55E00", "RAM disk": "#009E73"}
LINES: Final = {"buffered": ("--", "o"), "direct": (":", "s"), "pdio": ("-", "D")}


# ---------------------------------------------------------------------- against the targets

# Block size, other way, minimum ratio of speeds, maximum ratio of system kernel time.
WRITES: Final[tuple[tuple[int, str, float, float | None], ...]] = (
    (512, "buffered", 1.8, 1 / 4),
    (512, "direct", 100, None),
    (512, "dontcache", 3, None),
    (4 * KIB, "buffered", 1.15, 1 / 3),
    (4 * KIB, "direct", 15, None),
    (4 * KIB, "dontcache", 2.5, 1 / 8),
    (64 * KIB, "buffered", 1.1, 1 / 2),
    (64 * KIB, "direct", 2, None),
    (64 * KIB, "dontcache", 0.95, None),
    *(
        line
        for size in (MIB, 16 * MIB)
        for line in (
            (size, "buffered", 1.2, 1 / 3),
            (size, "direct", 1.0, None),
            (size, "dontcache", 0.95, None),
        )
    ),
)


def _ratios(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(one, other, strict=False) if b]


def _versus(
    cells: Mapping[tuple[str, str, int], Record], what: str, direction: str, block: int,
    other: str, speed: float | None, cpu: float | None,
) -> Iterator[Target]:  # fmt: skip
    ours, theirs = cells.get((direction, "pdio", block)), cells.get((direction, other, block))
    place = f"{what} {binary_size(block)} / {other}"
    if speed is not None:
        values = _ratios(speeds_of(ours), speeds_of(theirs)) if ours and theirs else []
        yield Target(place, speed, values, at_least=True)
    if cpu is not None:
        values = _ratios(system_ms_of(ours), system_ms_of(theirs)) if ours and theirs else []
        yield Target(f"{place}, system kernel time", cpu, values)


def _random(data: Measured) -> Iterator[Target]:
    cells = data.on_host("host-random")
    for direction in ("write", "read"):
        ours, *others = (
            cells.get((direction, mode, 4 * KIB)) for mode in ("pdio", "buffered", "direct")
        )
        there = [one for one in others if one]
        values: list[float] = []
        better = ""
        if ours and there:
            best = max(there, key=lambda one: statistics.median(speeds_of(one)))
            values, better = _ratios(speeds_of(ours), speeds_of(best)), f", {best['mode']}"
        yield Target(f"random {direction} 4 KiB / better mode{better}", 0.95, values, at_least=True)


def _fio(data: Measured) -> Iterator[Target]:
    rows = data.host.get("host-fio", {"data": {"rows": []}})["data"]["rows"]
    for direction in ("write", "read"):
        by: dict[str, list[float]] = {}
        for row in rows:
            if row["direction"] == direction:
                by.setdefault(row["setting"], []).append(row["bytes"] / row["seconds"] / MIB)
        ours = by.pop("pdio", [])
        values: list[float] = []
        note = ""
        if ours and by:
            best = max(by, key=lambda name: statistics.median(by[name]))
            values, note = (
                _ratios(ours, by[best]),
                f"{best}: {rate_text(statistics.median(by[best]))}",
            )
        yield Target(f"{direction} 1 MiB / fio's best", 0.9, values, at_least=True, note=note)


def _beside(data: Measured, run: str, what: str, most: float) -> Target:
    """What something takes with the library, of what it takes without."""
    by: dict[str, list[float]] = {"with": [], "without": []}
    for row in data.host.get(run, {"data": {}})["data"].get("rows", []):
        by[row["name"]].append(row["seconds"])
    return Target(f"libpdio.so: {what}", most, _ratios(by["with"], by["without"]))


def _left_alone(data: Measured) -> Iterator[Target]:
    """Who gains nothing pays next to nothing."""
    yield _beside(data, "host-preload", "time of 4 KiB writes it leaves alone", 1.02)
    yield _beside(data, "host-start", f"processor time of {START_PROGRAM}", 1.15)


def _announced(data: Measured) -> dict[tuple[int, int], dict[str, list[Record]]]:
    """The runs of programs that tell others, by calls and bytes between, then by setting."""
    found: dict[tuple[int, int], dict[str, list[Record]]] = {}
    for row in data.host.get("host-announce", {"data": {"rows": []}})["data"]["rows"]:
        by = found.setdefault((row["block"], row["every"]), {})
        by.setdefault(row["case"], []).append(row)
    return found


def _told(data: Measured) -> Iterator[Target]:
    """By default, a program that tells others of its stream is no slower than without."""
    for (block, every), by in _announced(data).items():
        ours, plain = ([row["seconds"] for row in by[case]] for case in ("default", "plain"))
        words = f"{binary_size(block)} writes, others told each {binary_size(every)}"
        yield Target(f"libpdio.so: time of {words}", 1.05, _ratios(ours, plain))


def _announce_table(data: Measured) -> Table:
    rows = []
    cases = ("plain", "default", "PDIO_PROMPT=0")
    for (block, every), by in _announced(data).items():
        row = [f"{binary_size(block)}, told each {binary_size(every)}"]
        for case in cases:
            seconds, cpu = (
                statistics.median(run[key] for run in by[case]) for key in ("seconds", "processor")
            )
            row.append(f"{seconds:.3f} ({cpu:.3f})")
        rows.append(row)
    title = "libpdio.so while others are told: 256 MiB, seconds (of processor time)"
    return Table(title, ("", *cases), rows)


def _tools(data: Measured) -> dict[str, dict[str, list[Record]]]:
    """The runs of programs that people use, by work and way."""
    found: dict[str, dict[str, list[Record]]] = {}
    for row in data.host.get("host-tools", {"data": {"rows": []}})["data"]["rows"]:
        found.setdefault(row["work"], {}).setdefault(row["way"], []).append(row)
    return found


def _seconds_of(rows: Sequence[Record]) -> list[float]:
    return [float(row["seconds"]) for row in rows]


def _tool_targets(data: Measured) -> Iterator[Target]:
    tools = _tools(data)
    for work, way, most in pdio_tools.TARGETS if tools else ():
        by = tools[work]
        words = f"{way}: time of {work} / plain"
        yield Target(words, most, _ratios(_seconds_of(by[way]), _seconds_of(by[pdio_tools.PLAIN])))


def _tool_table(data: Measured) -> Table | None:
    rows = []
    for work, by in _tools(data).items():
        plain = _seconds_of(by[pdio_tools.PLAIN])
        row = [work, f"{statistics.median(plain):.3f} s"]
        for way in (pdio_tools.LIBRARY, pdio_tools.COMMAND):
            for key in ("seconds", "processor"):
                ours, other = (
                    [float(one[key]) for one in by.get(name, [])]
                    for name in (way, pdio_tools.PLAIN)
                )
                low, middle, high = report.quartiles(_ratios(ours, other) or [float("nan")])
                row.append(f"{middle:.2f} ({low:.2f}–{high:.2f})" if ours else "–")
        rows.append(row)
    head = ("", "plain", "libpdio.so", "processor time", "pdio", "processor time")
    title = "Programs people use: time and processor time of plain ones, medians and quartiles"
    return Table(title, head, rows) if rows else None


def _memory(data: Measured) -> Target:
    """What a process uses more when it streams with pdio instead of plain calls."""
    more = []
    for name in ("host-write", "host-read"):
        cells = data.on_host(name)
        for (direction, mode, block), one in cells.items():
            plain = cells.get((direction, "buffered", block))
            if mode == "pdio" and plain:
                own = min(run["memory_bytes"] for run in runs_of(plain))
                more += [(run["memory_bytes"] - own) / MIB for run in runs_of(one)]
    return Target("memory a stream, most of all runs", 8, [max(more)] if more else [], "MiB")


def targets(data: Measured) -> list[Target]:
    writes, reads = data.on_host("host-write"), data.on_host("host-read")
    made: list[Target] = []
    for block, other, speed, cpu in WRITES:
        made += _versus(writes, "write", "write", block, other, speed, cpu)
    for block in HOST_SIZES:
        cpu = 1 / 2 if block >= 4 * KIB else None
        made += _versus(reads, "read", "read", block, "buffered", 1.0, cpu)
    made += [*_first_targets(data, board=False), *_random(data), *_fio(data)]
    made += [*_neighbour_targets(data, board=False), *_tool_targets(data)]
    return [*made, *_left_alone(data), *_told(data), _memory(data)]


def board_targets(data: Measured) -> list[Target]:
    """Twice the speed of buffered writes on the slow board, what a process begins with, and no loss
    where there is nothing to win."""
    made: list[Target] = []
    for run, words in (("plain-ext4", "NVMe, ext4"), ("plain-xfs", "NVMe, XFS")):
        cells = data.on_board(run)
        for direction, mode, block in cells:
            if mode == "pdio":
                made += _versus(cells, f"{words}: write", direction, block, "buffered", 2.0, None)
    made += [*_first_targets(data, board=True), *_elsewhere_targets(data)]
    return [*made, *_neighbour_targets(data, board=True), *_exact_targets(data)]


HEAD: Final = ("pdio against", "target", "measured (quartiles)", "")


def _target_table(title: str, found: Sequence[Target]) -> Table:
    return Table(title, HEAD, report.measured(found))


# ------------------------------------------------------------------------ beyond the paper


def _speed_row(
    cells: Mapping[tuple[str, str, int], Record], direction: str, block: int
) -> list[str]:
    found = {m: cells.get((direction, m, block)) for m in MODES}
    said = [rate_text(one["mib_per_s"]) if one else "–" for one in found.values()]
    ours = found["pdio"]
    for other in ("buffered", "dontcache"):
        theirs = found[other]
        said.append(f"{ours['mib_per_s'] / theirs['mib_per_s']:.2f} ×" if ours and theirs else "–")
    return said


EXACT: Final = {
    **{f"ways-{name}": name for name in FILESYSTEMS},
    **{f"sizes-{name}": name for name in FILESYSTEMS},
    "ways-6.12": "ext4, Linux 6.12",
}
CALLS: Final = tuple(mode for mode in MODES if mode != "pdio")


def _exact_rows(data: Measured) -> Iterator[tuple[str, str, str, int]]:
    """What was measured on the exact board: the run, its name here, direction and block size."""
    for label in dict.fromkeys(EXACT.values()):
        runs = [run for run, name in EXACT.items() if name == label]
        for direction in ("write", "read"):
            blocks = {
                (block, run) for run in runs for d, _, block in data.on_board(run) if d == direction
            }
            for block, run in sorted(blocks):
                yield run, label, direction, block


def _best_calls(cells: Mapping[tuple[str, str, int], Record], direction: str, block: int) -> Record:
    """Those of a program that makes its calls itself: the fastest."""
    there = [cells[direction, mode, block] for mode in CALLS if (direction, mode, block) in cells]
    return max(there, key=lambda one: float(one["mib_per_s"]))


def _said_of_fio(row: Record | None) -> str:
    return f"{rate_text(fio_speed(row))} (depth {row['depth']})" if row else "–"


def _exact_targets(data: Measured) -> Iterator[Target]:
    """pdio loses little to the best that a program gets by plain calls. fio, which has many
    requests in flight and copies nothing, is named beside it."""
    for run, label, direction, block in _exact_rows(data):
        cells = data.on_board(run)
        best = _best_calls(cells, direction, block)
        values = _ratios(speeds_of(cells[direction, "pdio", block]), speeds_of(best))
        what = f"{label}: {direction} {binary_size(block)} / best plain calls, {best['mode']}"
        fio = _said_of_fio(data.fio(run, direction, block, FRESH))
        note = f"{rate_text(best['mib_per_s'])}; fio: {fio}"
        yield Target(what, 0.95, values, at_least=True, note=note)


def _exact_table(data: Measured) -> Table | None:
    """All ways on each filesystem, and fio at its best."""
    rows = []
    for run, label, direction, block in _exact_rows(data):
        cells = data.on_board(run)
        ours = cells[direction, "pdio", block]["mib_per_s"]
        best = _best_calls(cells, direction, block)["mib_per_s"]
        fresh, allocated = (
            data.fio(run, direction, block, fallocate) for fallocate in (FRESH, ALLOCATED)
        )
        fio = f"{ours / fio_speed(fresh):.2f} ×" if fresh else "–"
        rows.append(
            [
                f"{label}, {direction} {binary_size(block)}",
                *_speed_row(cells, direction, block),
                f"{ours / best:.2f} ×",
                _said_of_fio(fresh),
                _said_of_fio(allocated),
                fio,
            ]
        )
    title = f"Filesystems on the exact board, disk of {NVME_BYTES_PER_S / 1e6:,.0f} MB/s"
    ratios = ("pdio / buffered", "pdio / dontcache", "pdio / best plain calls")
    head = ("", *MODES, *ratios, "fio", "fio, file allocated before", "pdio / fio")
    return Table(title, head, rows) if rows else None


def _speed_table(
    data: Measured, title: str, runs: Mapping[str, str], directions: Sequence[str]
) -> Table | None:
    rows = []
    for run, label in runs.items():
        cells = data.on_board(run)
        for direction in directions:
            for block in sorted({b for d, _, b in cells if d == direction}):
                what = f"{label}, {direction} {binary_size(block)}"
                rows.append([what, *_speed_row(cells, direction, block)])
    if not rows:
        return None
    head = ("", *MODES, "pdio / buffered", "pdio / dontcache")
    # Older kernels have no DONTCACHE.
    columns = [c for c in zip(head, *rows, strict=True) if set(c[1:]) != {"–"}]
    head, *rest = zip(*columns, strict=True)
    return Table(title, head, rest)


WAYS: Final = dict(
    zip(ELSEWHERE_WAYS, ("dd", "dd, O_DIRECT", "dd, libpdio.so", "pdio dd"), strict=True)
)


def _copies(data: Measured) -> dict[str, dict[str, list[float]]]:
    """Milliseconds that copies took where libpdio.so takes no files, by what and by which way."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in data.board.get(ELSEWHERE, {"rows": []})["rows"]:
        if row.get("type") == "timed":
            place, direction, size, way = row["name"].split()
            what = f"{place.upper()}, {direction} {binary_size(int(size))}"
            found.setdefault(what, {}).setdefault(way, []).append(row["ns"] / 1e6)
    return found


def _elsewhere_targets(data: Measured) -> Iterator[Target]:
    """No copy takes longer than a plain one."""
    for what, by in _copies(data).items():
        for way in ("preload", "pdio"):
            ratios = _ratios(by[way], by["plain"])
            yield Target(f"{what}: time of {WAYS[way]} / dd", 1.02, ratios)


def _elsewhere_table(data: Measured) -> Table | None:
    rows = []
    for what, by in _copies(data).items():
        middles = {way: statistics.median(values) for way, values in by.items()}
        said = [f"{middles[way]:.1f} ms" if way in middles else "–" for way in ELSEWHERE_WAYS]
        for way in ELSEWHERE_WAYS[1:]:
            if ratios := _ratios(by.get(way, []), by["plain"]):
                said.append(f"{statistics.median(ratios):.3f} ×")
            else:
                said.append("–")
        rows.append([what, *said])
    title = f"Copies of {ELSEWHERE_MIB} MiB where libpdio.so takes no files, on the exact board"
    heads = [f"{WAYS[way]} / dd" for way in ELSEWHERE_WAYS[1:]]
    return Table(title, ("", *WAYS.values(), *heads), rows) if rows else None


def _stream_table(data: Measured) -> Table | None:
    rows = []
    for label, words in FRAMES:
        for hogs in HOGS:
            cells = data.on_board("stream", f"{label}-{hogs}")
            for mode in ("buffered", "direct", "pdio"):
                found = [one for (_, m, _), one in cells.items() if m == mode]
                for one in found:
                    paced = runs_of(one)[0]["paced"]
                    rows.append(
                        [
                            f"{label} ({words.rpartition(' --')[0].replace('--', '')}), "
                            f"{hogs} other programs, {mode}",
                            f"{paced['missed']} of {paced['calls']}",
                            f"{paced['median_ms']:.2f} ms",
                            f"{paced['p999_ms']:.2f} ms",
                            f"{paced['worst_ms']:.2f} ms",
                        ]
                    )
    head = ("a stream whose frames have their times", "missed", "median", "99.9 %", "worst")
    return Table("Paced streams on the slow board, NVMe", head, rows) if rows else None


def beyond(data: Measured) -> list[Table]:
    both = ("write", "read")
    clocks = {
        f"clock-{shift}" if shift != 1 else "repeat": f"{1000 >> shift} million instructions/s"
        for shift in SHIFTS
    }
    cores = {f"cores-{n}": f"{n} core{'s' if n > 1 else ''}" for n in CORES}
    found = [
        _elsewhere_table(data),
        _stream_table(data),
        _speed_table(
            data,
            "Random I/O on the slow board, ext4",
            {"random": "NVMe", "random-ahci": "hard disk"},
            both,
        ),
        _exact_table(data),
        _speed_table(
            data,
            "Other filesystems on the slow board, from /dev/zero",
            {
                "nvme-xfs": "XFS",
                "btrfs": "btrfs",
                "f2fs": "f2fs",
                "ahci-xfs": "XFS, hard disk",
            },
            both,
        ),
        _speed_table(data, "Clock of the processor, NVMe, ext4", clocks, ("write",)),
        _speed_table(data, "Cores, as fast as they are emulated", cores, ("write",)),
    ]
    return [table for table in found if table]


def _versions(data: Measured) -> list[str]:
    rows = [row for one in data.board.values() for row in one["rows"]]
    return sorted({row["version"] for row in rows if row.get("type") == "fio_version"})


def facts(data: Measured) -> list[str]:
    """What a reader needs to trust the figures."""
    said = []
    spreads = [one["spread_percent"] for one in data.on_board("repeat").values()]
    if spreads:
        said.append(
            f"Repeated three times, writes of {', '.join(map(binary_size, SHIFT_SIZES))} on the "
            f"board spread by ±{max(spreads):.1f} % at most, ±{statistics.median(spreads):.1f} % "
            "in the middle."
        )
    wanted = [*targets(data), *board_targets(data)] if data.host else board_targets(data)
    said += report.not_measured(wanted)
    about = data.results
    machine = about["machine"]
    others = sorted({one["linux"] for one in data.board.values() if "linux" in one})
    others = [name for name in others if name != about["storage_kernel"]["release"]]
    older = f"; rows that say so, Linux {' and '.join(others)}" if others else ""
    said.append(
        f"This machine: {machine['cpu']}, Linux {machine['kernel'].partition('-')[0]}. The board: "
        f"Linux {about['storage_kernel']['release']} in QEMU {about['qemu']}{older}."
    )
    if versions := _versions(data):
        command = fio_command("write", MIB, 4, FRESH)
        batches = " ".join(FIO_DEPTHS[max(FIO_DEPTHS)])
        depths = ", ".join(map(str, FIO_DEPTHS))
        said.append(
            f"fio is Debian's {', '.join(versions)}, with the fastest of {depths} requests in "
            f"flight, as far as they take at most {FIO_MEMORY // MIB} MiB; {max(FIO_DEPTHS)} go in "
            f"batches ({batches}). Of the others pdio alone has several requests in flight: up to "
            "four where it reads, one where a file grows. fio makes as many passes of "
            f"{WAYS_MIB} MiB as take half a second, each a process of its own. Such a pass, writes "
            f"of 1 MiB at depth 4: {command}. With --fallocate={ALLOCATED} fio allocates the file "
            "before it starts its clock; pdio / fio is to fio without that. fio tells whole "
            "milliseconds, rounded up: at most 1.5 % of its fastest passes."
        )
    builds: dict[str, list[str]] = {}
    for name, one in [*data.host.items(), *data.board.items()]:
        builds.setdefault(str(one["pdio"]), []).append(name)
    if len(builds) > 1:
        said += [f"Build {build} of pdio: {', '.join(names)}." for build, names in builds.items()]
    return said


HOW: Final = (
    "The slow board is QEMU with -icount: a processor of 500 million instructions a second, for "
    f"which a byte copied is an instruction, 1 GiB of memory, {BOARD_MIB} MiB of page cache, full "
    "when a measurement begins, or as much as it likes with the hard disk. Its NVMe disk does "
    f"{NVME_BYTES_PER_S / 1e6:,.0f} MB/s in the host's time, its hard disk "
    f"{HDD_BYTES_PER_S / 1e6:.0f} MB/s in the guest's, and {HDD_SEEKS_PER_S} requests a second "
    "where places are random. The exact board has nothing of the host: its disk is in its memory, "
    f"moves {NVME_BYTES_PER_S / 1e6:,.0f} MB/s and answers after 50 µs at 500 million instructions "
    "a second, and at once, at 1,000 million, for NFS and FUSE. Writes of the paper's sweep read "
    "their data from /dev/zero first, as "
    "its dd does; all others do not. Writes end with an fsync, which is in the time."
)


# ------------------------------------------------------------------------------ the figures

FIGURES: Final = {
    "mib_per_s": Figure(
        "fig2",
        "MiB/s",
        "The paper's figure 2: speed, on a processor of 500 million instructions/s.",
    ),
    "core_kernel_percent": Figure(
        "fig3",
        "core in the kernel, %",
        "The paper's figure 3: time of the busiest core in the kernel.",
    ),
    "copy_percent": Figure(
        "fig4",
        "share of time in copies, %",
        "The paper's figure 4: share of the time that is not idle in functions that copy between "
        "kernel and user. pdio's own copies are made in user space and are not in it.",
    ),
}


EXACT_FIGURE: Final = Figure(
    "exact",
    "MiB/s",
    "Streams on the exact board by the size of the calls. fio has the same size for its requests, "
    "and the number of them in flight with which it is fastest.",
)
HOST: Final = Figure("host", "MiB/s", "Streams by the size of the calls, on this machine.")
HOST_STYLES: Final = {
    "buffered": Style("#999999", "--", "o"),
    "direct": Style("#0072B2", ":", "s"),
    "dontcache": Style("#E69F00", "-.", "^"),
    "pdio": Style("#000000", "-", "D"),
}
EXACT_STYLES: Final = {**HOST_STYLES, "fio": Style("#CC79A7", "-", "v")}
HOST_RUNS: Final = {"write": "host-write", "read": "host-read"}


def _on_this_machine(data: Measured) -> Table:
    """What the targets are ratios of."""
    rows = []
    for direction, run in HOST_RUNS.items():
        cells = data.on_host(run)
        for block in sorted({block for d, _, block in cells if d == direction}):
            row = [f"{direction} {binary_size(block)}"]
            for mode in HOST_STYLES:
                if cell := cells.get((direction, mode, block)):
                    cpu = statistics.median(system_ms_of(cell))
                    row.append(f"{statistics.median(speeds_of(cell)):,.0f} ({cpu:,.0f})")
                else:
                    row.append("–")
            rows.append(row)
    title = "This machine, MiB/s (the system's kernel time, ms/GiB)"
    return Table(title, ("", *HOST_STYLES), rows)


def _firsts(data: Measured, board: bool) -> list[Record]:
    """The filesystems on which the first 64 MiB of a process were measured."""
    if not board:
        found = data.host.get("host-first", {"data": {"targets": []}})
        return list(found["data"]["targets"])
    runs = [data.board.get(f"first-{name}", {"rows": []}) for name in FIRST_MAKE]
    rows = [row for run in runs for row in run["rows"] if row.get("type") == "bench"]
    return [target for row in rows for target in row["data"]["targets"]]


def _first_targets(data: Measured, board: bool) -> Iterator[Target]:
    """A process that knows nothing gets what plain direct calls get."""
    for target in _firsts(data, board):
        cells = data.cells({"targets": [target]})
        for direction, block in sorted({(d, b) for d, _, b in cells}, reverse=True):
            what = f"first 64 MiB, {target['filesystem']}: {direction}"
            yield from _versus(cells, what, direction, block, "direct", 0.95, None)


def _first_table(data: Measured, board: bool) -> Table:
    """What a new process gets in its first 64 MiB, as parts of what plain calls get."""
    rows = []
    modes: tuple[str, ...] = ("buffered", "direct", "pdio")
    if not board:
        modes = (*modes, "remembered")
    for target in _firsts(data, board):
        cells = {(one["direction"], one["block"], one["mode"]): one for one in target["results"]}
        for direction, block in sorted({key[:2] for key in cells}, reverse=True):
            row = [f"{target['filesystem']}, {direction} {binary_size(block)}"]
            plain = [speeds_of(cells[direction, block, mode]) for mode in ("buffered", "direct")]
            best = max(plain, key=statistics.median)
            for mode in modes:
                speeds = speeds_of(cells[direction, block, mode])
                ratios = _ratios(speeds, best)
                row.append(
                    f"{statistics.median(speeds):,.0f}, {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f}–{max(ratios):.2f})"
                )
            rows.append(row)
    where = " on the exact board" if board else ""
    title = (
        f"The first 64 MiB of a process{where}: MiB/s, and of the better of buffered and direct "
        "(the least and the most of all rounds)"
    )
    return Table(title, ("", *modes), rows)


def _neighbours(data: Measured, *, board: bool) -> dict[str, list[Record]]:
    """What a reader got, by what was copied beside it."""
    if board:
        rows = data.board.get(NEIGHBOUR, {"rows": []})["rows"]
    else:
        rows = data.host.get("host-neighbour", {"data": {"rows": []}})["data"]["rows"]
    found: dict[str, list[Record]] = {}
    for row in rows:
        if row["type"] == "neighbour":
            found.setdefault(row["name"], []).append(row)
    return found


def _neighbour_targets(data: Measured, *, board: bool) -> Iterator[Target]:
    """A copy by pdio does not lengthen the reads of a program beside it."""
    ways = _neighbours(data, board=board)
    alone = [row["p99_ns"] for row in ways.pop("alone", [])]
    for name, rows in ways.items():
        if "pdio" in name:
            ratios = _ratios([row["p99_ns"] for row in rows], alone)
            yield Target(f"99 % of reads beside {name}, of alone", 1.2, ratios)


def _neighbour_table(data: Measured, *, board: bool) -> Table | None:
    rows = []
    for name, runs in _neighbours(data, board=board).items():

        def of(key: str, runs: list[Record] = runs) -> float:
            return statistics.median(float(run[key]) for run in runs)

        speed = statistics.median(run["reads"] / run["took_ns"] * 1e9 for run in runs)
        times = [
            f"{of(key) / 1e3:,.1f} µs" for key in ("median_ns", "p99_ns", "p999_ns", "worst_ns")
        ]
        copied = "–" if name == "alone" else f"{of('took_ns') / 1e9:.1f} s"
        rows.append([name, f"{speed:,.0f}", *times, copied])
    mib, where = HOST_NEIGHBOUR_MIB, "this machine"
    if board:
        mib, where = BOARD_NEIGHBOUR_MIB, "the exact board's one processor"
    title = (
        f"A reader of {mib * 3 // 4} MiB at random beside a long copy, in {mib} MiB of memory, "
        f"on {where}; dd copies one of the two files; medians of the rounds"
    )
    head = ("beside", "reads/s", "median", "99 %", "99.9 %", "worst", "the copy took")
    return Table(title, head, rows) if rows else None


def _host_panels(data: Measured) -> dict[str, dict[str, dict[int, float]]]:
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for direction, run in HOST_RUNS.items():
        for (_, mode, block), cell in data.on_host(run).items():
            if mode in HOST_STYLES:
                lines = panels.setdefault(direction, {}).setdefault(mode, {})
                lines[block] = statistics.median(speeds_of(cell))
    return panels


def _exact_panels(data: Measured) -> dict[str, dict[str, dict[int, float]]]:
    """One for each filesystem and direction; the older kernel has but one size."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for run, label, direction, block in _exact_rows(data):
        if not run.endswith(FILESYSTEMS):
            continue
        lines = panels.setdefault(f"{label}, {direction}", {})
        for mode in MODES:
            if cell := data.on_board(run).get((direction, mode, block)):
                lines.setdefault(mode, {})[block] = cell["mib_per_s"]
        if row := data.fio(run, direction, block, FRESH):
            lines.setdefault("fio", {})[block] = fio_speed(row)
    return panels


def _panels(data: Measured, key: str) -> dict[str, dict[str, dict[int, float]]]:
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for direction in ("write", "read"):
        lines = panels.setdefault(direction, {})
        for run, device in DEVICES.items():
            for mode in LINES:
                pick = data.share if key == "copy_percent" else data.line
                if points := pick(run, direction, mode, key):
                    lines[f"{device}, {mode}"] = points
    return panels


def _draw_figures(directory: Path, data: Measured) -> list[Figure]:
    styles = {
        f"{device}, {mode}": Style(colour, *LINES[mode])
        for device, colour in COLOURS.items()
        for mode in LINES
    }
    drawn = []
    if panels := _host_panels(data):
        report.draw_panels(directory, HOST, panels, HOST_STYLES, HOST.title, log=True)
        drawn.append(HOST)
    if panels := _exact_panels(data):
        title = EXACT_FIGURE.title
        report.draw_panels(
            directory, EXACT_FIGURE, panels, EXACT_STYLES, title, log=True, columns=2
        )
        drawn.append(EXACT_FIGURE)
    for key, figure in FIGURES.items():
        panels = _panels(data, key)
        if any(panels.values()):
            log = key == "mib_per_s"
            report.draw_panels(directory, figure, panels, styles, figure.title, log)
            drawn.append(figure)
    return drawn


def _tables(data: Measured) -> list[Table]:
    made = []
    if data.host:
        made.append(_target_table("pdio against its targets, on this machine", targets(data)))
        made.append(_on_this_machine(data))
        if _announced(data):
            made.append(_announce_table(data))
        if tools := _tool_table(data):
            made.append(tools)
        if _firsts(data, board=False):
            made.append(_first_table(data, board=False))
    if found := board_targets(data):
        made.append(_target_table("pdio against its targets on the boards", found))
    if _firsts(data, board=True):
        made.append(_first_table(data, board=True))
    beside = [_neighbour_table(data, board=board) for board in (False, True)]
    made += [table for table in beside if table]
    if found_statements := statements(data):
        rows = [[one.where, one.says, one.verdict, one.ours] for one in found_statements]
        made.append(Table("The paper's statements", ("", "says", "here", "measured"), rows))
    return [table for table in (*made, *beyond(data)) if table.rows]


def draw(directory: Path) -> Path:
    results = samples.load(directory)
    data = Measured(results)
    figures = _draw_figures(directory, data)
    tables = _tables(data)
    said = facts(data)
    report.page(
        directory / "index.html",
        "pdio and the bottlenecks of storage",
        [
            *(report.html_table(table) for table in tables[:4]),
            *(report.html_figure(directory, figure) for figure in figures),
            *(report.html_table(table) for table in tables[4:]),
            "<h2>How it was measured</h2>\n",
            report.paragraph(HOW),
            *(report.paragraph(fact, small=True) for fact in said),
            report.paragraph("All samples and jobs: results.json next to this page.", small=True),
        ],
    )
    (directory / "table.md").write_text(
        "".join(report.markdown_table(table) for table in tables)
        + f"{HOW}\n\n"
        + "".join(f"* {fact}\n" for fact in said)
    )
    return directory / "index.html"


def show(directory: Path) -> None:
    """The tables and what to know about them, on the terminal."""
    data = Measured(samples.load(directory))
    report.show(200, _tables(data), facts(data))
