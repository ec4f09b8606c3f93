# SPDX-License-Identifier: MIT OR Apache-2.0
"""What pdio's paper says, and whether it holds for what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Final

from nocopy_lab.experiments.bench_pdio import (
    HDD_BYTES_PER_S,
    KIB,
    MIB,
    NVME_BYTES_PER_S,
)
from nocopy_lab.experiments.pdio_results import Measured
from nocopy_lab.report import Statement
from nocopy_lab.units import binary_size

DEVICES: Final = {"nvme-ext4": "NVMe", "ahci-ext4": "hard disk", "tmpfs": "RAM disk"}


def rate_text(value: float) -> str:
    return f"{value:.0f} MiB/s" if value >= 10 else f"{value:.2g} MiB/s"


def _from(line: Mapping[int, float], least: int) -> list[float]:
    return [value for block, value in line.items() if block >= least]


def _f2_1(data: Measured) -> Statement:
    says = "buffered: the SSD only slightly above the hard disk; 512 B slower, flat from 4 KiB"
    ratios, flat, slow = [], [], []
    for direction in ("write", "read"):
        ssd = data.line("nvme-ext4", direction, "buffered")
        disk = data.line("ahci-ext4", direction, "buffered")
        ratios += [ssd[block] / disk[block] for block in ssd if block in disk]
        above = _from(ssd, 4 * KIB)
        flat.append(max(above) / min(above))
        slow.append(ssd[512] / ssd[4 * KIB])
    middle = statistics.median(ratios)
    shape = max(flat) <= 1.25 and max(slow) < 0.9
    near = middle <= 1.3
    words = (
        f"SSD / disk {min(ratios):.2f} to {max(ratios):.2f}, median {middle:.2f}; 512 B at "
        f"{min(slow):.2f} to {max(slow):.2f} of 4 KiB; from there within {max(flat):.2f} ×"
    )
    if near and shape:
        return Statement("F2.1", says, "", words, "reproduces")
    because = "the shape is another"
    if not near:
        limit = HDD_BYTES_PER_S / MIB
        because = f"this disk's {limit:.0f} MiB/s are less than what the processor copies"
    verdict = "the shape does, the distance does not" if shape else "does not"
    return Statement("F2.1", says, "", words, f"{verdict}, because {because}")


def _f2_2(data: Measured) -> Statement:
    says = "the RAM disk is far above both, buffered"
    ratios = []
    for direction in ("write", "read"):
        ram, ssd = (data.line(run, direction, "buffered") for run in ("tmpfs", "nvme-ext4"))
        ratios += [ram[block] / ssd[block] for block in ram if block in ssd]
    low = min(ratios)
    words = f"RAM disk / SSD {low:.2f} to {max(ratios):.2f}"
    if low >= 1.3:
        return Statement("F2.2", says, "", words, "reproduces")
    if statistics.median(ratios) >= 1.3:
        return Statement("F2.2", says, "", words, "reproduces for most block sizes")
    because = "beside the copy, the page cache and the device cost little here"
    return Statement("F2.2", says, "", words, f"does not, because {because}")


def _crossover(direct: Mapping[int, float], buffered: Mapping[int, float]) -> int | None:
    """The smallest block from which on direct I/O is ahead."""
    at = None
    for block in sorted(buffered, reverse=True):
        if direct[block] <= buffered[block]:
            break
        at = block
    return at


def _f2_3(data: Measured) -> Statement:
    says = "direct I/O below buffered at 512 B and 4 KiB, above it for larger blocks"
    crossed, below = {}, True
    for direction in ("write", "read"):
        direct, buffered = (data.line("nvme-ext4", direction, m) for m in ("direct", "buffered"))
        crossed[direction] = _crossover(direct, buffered)
        below &= all(direct[block] < buffered[block] for block in (512, 4 * KIB))
    words = ", ".join(
        f"{direction}s: ahead from {binary_size(at)}" if at else f"{direction}s: never ahead"
        for direction, at in crossed.items()
    )
    good = below and all(crossed.values())
    verdict = "reproduces" if good else "does not, because of the crossover"
    return Statement("F2.3", says, "", words, verdict)


def _f2_4(data: Measured) -> Statement:
    says = (
        "SSD: the fastest direct write is over twice the fastest buffered one, direct reads are "
        "clearly better; both far below the device's rating"
    )
    fastest = {
        (direction, mode): max(data.line("nvme-ext4", direction, mode).values())
        for direction in ("write", "read")
        for mode in ("direct", "buffered")
    }
    writes = fastest["write", "direct"] / fastest["write", "buffered"]
    reads = fastest["read", "direct"] / fastest["read", "buffered"]
    rating = NVME_BYTES_PER_S / MIB
    near = max(fastest["write", "direct"], fastest["read", "direct"]) / rating
    words = f"writes {writes:.2f} ×, reads {reads:.2f} ×, at most {near:.0%} of the device's limit"
    if writes <= 2 or reads < 1.2:
        verdict = "does not, because the processor spends its time elsewhere"
    elif near <= 0.75:
        verdict = "stronger" if min(writes, reads) > 3 else "reproduces"
    else:
        verdict = (
            "stronger; far below the rating does not, because this board keeps caches coherent in "
            "hardware: without maintenance, direct requests cost the processor almost nothing"
        )
    return Statement("F2.4", says, "", words, verdict)


def _f2_5(data: Measured) -> Statement:
    says = (
        "SSD direct writes reach their limit between 1 and 16 MiB, at what the RAM disk is "
        "written with from 512 KiB to 16 MiB"
    )
    direct = data.line("nvme-ext4", "write", "direct")
    ram = data.line("tmpfs", "write", "buffered")
    plateau = statistics.median(v for b, v in ram.items() if 512 * KIB <= b <= 16 * MIB)
    most = max(direct.values())
    knee = min(block for block, value in direct.items() if value >= 0.9 * most)
    words = (
        f"limit {rate_text(most)}, reached at {binary_size(knee)}; RAM disk {rate_text(plateau)} "
        f"(the paper's board: about 230 MiB/s)"
    )
    same, place = abs(most / plateau - 1) <= 0.2, MIB <= knee <= 16 * MIB
    if same and place:
        return Statement("F2.5", says, "", words, "reproduces")
    said = []
    if not place:
        said.append("a request costs less here, so that smaller ones reach it")
    if not same:
        said.append("direct writes touch no data here, where the paper's board flushes its caches")
    return Statement("F2.5", says, "", words, f"does not, because {' and '.join(said)}")


def _f2_6(data: Measured) -> Statement:
    says = "hard disk, direct: no gain from 512 KiB on; reads no faster than buffered"
    write, read = (data.line("ahci-ext4", d, "direct") for d in ("write", "read"))
    gain = max(max(line.values()) / line[512 * KIB] for line in (write, read))
    buffered = data.line("ahci-ext4", "read", "buffered")
    reads = max(read.values()) / max(buffered.values())
    words = f"the fastest is {gain:.2f} × of 512 KiB; direct reads {reads:.2f} × buffered ones"
    said = []
    if gain > 1.15:
        said.append("requests of 512 KiB still wait for the disk to turn")
    if reads > 1.1:
        said.append("the processor, not the disk, limits buffered reads")
    verdict = f"does not, because {' and '.join(said)}" if said else "reproduces"
    return Statement("F2.6", says, "", words, verdict)


def _f3(data: Measured) -> Iterator[Statement]:
    says = "a whole core in the kernel at large blocks for all but direct I/O to the hard disk"
    busy: dict[str, float] = {}
    for run, device in DEVICES.items():
        for direction in ("write", "read"):
            for mode in ("buffered", "direct"):
                line = data.line(run, direction, mode, "core_kernel_percent")
                if values := _from(line, 16 * MIB):
                    busy[f"{device} {mode} {direction}"] = statistics.median(values)
    disk = {name: value for name, value in busy.items() if name.startswith("hard disk direct")}
    others = {name: value for name, value in busy.items() if name not in disk}
    idle = {name: value for name, value in others.items() if value < 85}
    words = (
        f"hard disk direct at most {max(disk.values()):.0f} %; of the others at least 85 %: "
        f"{len(others) - len(idle)} of {len(others)}"
    )
    if idle:
        words += " (below: " + ", ".join(f"{n} {v:.0f} %" for n, v in idle.items()) + ")"
    low = max(disk.values()) <= 50
    buffered = [n for n in idle if "buffered" in n and "hard" not in n]
    if low and not idle:
        verdict = "reproduces"
    elif low and not buffered:
        because = []
        if any("hard" in name for name in idle):
            because.append("the disk is slower than the copies")
        if any("NVMe direct" in name for name in idle):
            because.append("direct requests need no cache maintenance on this board")
        verdict = (
            f"reproduces for buffered I/O to fast devices; else not, as {', and '.join(because)}"
        )
    else:
        verdict = "does not, because the processor waits for the devices"
    yield Statement("F3", says, "", words, verdict)
    says = "SSD direct writes take the whole core from 16 MiB on"
    line = data.line("nvme-ext4", "write", "direct", "core_kernel_percent")
    full = min((block for block, value in line.items() if value >= 95), default=None)
    words = f"at 16 MiB {line[16 * MIB]:.0f} %, at 1 MiB {line[MIB]:.0f} %"
    verdict = "reproduces" if full == 16 * MIB else "does not, because "
    if full is None:
        verdict += "the device's speed is reached before"
    elif full < 16 * MIB:
        verdict += "reading the source takes it from smaller blocks on"
    elif full > 16 * MIB:
        verdict += "it takes larger ones"
    yield Statement("F3, knee", says, "", words, verdict)


def _f4(data: Measured) -> Iterator[Statement]:
    copies = {
        (direction, mode): _from(data.share("nvme-ext4", direction, mode, "copy_percent"), 4 * KIB)
        for direction in ("write", "read")
        for mode in ("buffered", "direct")
    }
    for direction, function in (("read", "__copy_to_user"), ("write", "__copy_from_user")):
        says = f"buffered {direction}s spend much of their time in {function}"
        shares = copies[direction, "buffered"]
        low, high = min(shares), max(shares)
        words = f"{low:.0f} to {high:.0f} % of the time that is not idle in copies, from 4 KiB on"
        verdict = "reproduces" if low >= 20 else "does not, because other work outweighs the copies"
        yield Statement(f"F4, {direction}", says, "", words, verdict)
    says = "direct writes spend none there, but much in flushing the data cache"
    shares = copies["write", "direct"]
    flush = max(_from(data.share("nvme-ext4", "write", "direct", "cache_percent"), 512))
    words = f"copies at most {max(shares):.1f} %, cache maintenance at most {flush:.1f} %"
    verdict = "reproduces"
    if max(shares) > 5:
        verdict = "does not, because something copies"
    elif flush < 5:
        verdict = (
            "no copies: reproduces; no flushing: does not, because DMA is coherent on this board"
        )
    yield Statement("F4, direct", says, "", words, verdict)
    says = "reads and direct I/O also spend much in _raw_spin_unlock_irq"
    irq = {
        f"{mode} {direction}": max(
            data.share("nvme-ext4", direction, mode, "interrupt_percent").values()
        )
        for direction, mode in (("read", "buffered"), ("read", "direct"), ("write", "direct"))
    }
    words = ", ".join(f"{name} at most {value:.0f} %" for name, value in irq.items())
    words += " (where a profiler driven by interrupts books what ran without them)"
    verdict = "reproduces" if min(irq.values()) >= 5 else "does not for all, because of the driver"
    yield Statement("F4, locks", says, "", words, verdict)


def statements(data: Measured) -> list[Statement]:
    """What the paper says about its figures, in its order; nothing without the sweeps."""
    if not all(data.on_board(run) for run in DEVICES):
        return []
    single = (_f2_1, _f2_2, _f2_3, _f2_4, _f2_5, _f2_6)
    return [*(one(data) for one in single), *_f3(data), *_f4(data)]
