# SPDX-License-Identifier: MIT OR Apache-2.0
"""Traces of what an area is asked for: recorded in a guest, kept in the cache.

A trace is text, packed with xz. Its first line is JSON and says of what it is: job, seed, kernel,
QEMU, cgroups, how many pages of files each held. Then comes a record a line, see
lab/guest/pagetrace.c.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nocopy_lab import initramfs, jobs, kernel, names, progress
from nocopy_lab.board import Machine, null_disk, qemu_version
from nocopy_lab.paths import LabError, cache, sha256
from nocopy_lab.run import MEASURING_S, Job, Outcome, Row, boot

SEED: Final = 1
# A quarter of the other experiments' board, so that a trace is recorded in a minute or two. The
# recorder's buffer and the kernel itself take some 90 MiB.
MEMORY_MIB: Final = 336
AREA_MIB: Final = 64

FITS_MIB: Final = 220  # more than memory without the area, less than all of it
LARGE_MIB: Final = 400  # more than both
GROUP_MIB: Final = 40  # limit of a memory cgroup
GROUP_SET_MIB: Final = 88
STREAM_MIB: Final = 512

DISK_WORDS: Final = null_disk(1, completion_ns=50_000)


@dataclass(frozen=True)
class Trace:
    """What is recorded: the guest's job, and how large its files are."""

    name: str
    about: str
    script: str
    disk_mib: int

    def job(self) -> Job:
        machine = Machine(
            "x86",
            "gcma",
            memory_mib=MEMORY_MIB,
            cma_mib=AREA_MIB,
            extra_mib=self.disk_mib + 48,
            words=("vivid.allocators=1", *DISK_WORDS),
            seed=SEED,
        )
        return Job(
            f"trace-{self.name}", self.script, kernel.image("gcma").bootable, machine,
            programs=("mke2fs",), allow=("allocation",), limit_s=MEASURING_S,
        )  # fmt: skip

    def path(self) -> Path:
        """Where it is kept: another one if kernel, QEMU, job or guest change."""
        job = self.job()
        programs = initramfs.base_archive(job.machine.arch, job.programs)
        words = [kernel.image("gcma").path.name, qemu_version(), job.script, repr(job.machine)]
        return cache() / "traces" / f"{self.name}-{sha256(*words, programs)[:16]}.xz"


def _read(name: str, about: str, mib: int, order: str, reads: int) -> Trace:
    script = jobs.script("traces-read", mib=mib, order=order, reads=reads, seed=SEED)
    return Trace(name, about, script, mib)


def _stream(name: str, about: str, mib: int, order: str, reads: int) -> Trace:
    script = jobs.script(
        "traces-stream", mib=mib, order=order, reads=reads, stream=STREAM_MIB, seed=SEED
    )
    return Trace(name, about, script, mib + STREAM_MIB)


TRACES: Final = {
    trace.name: trace
    for trace in (
        _read("uniform", f"pages of {FITS_MIB} MiB, which fit", FITS_MIB, "random", 350_000),
        _read("zipf", f"popular pages of {LARGE_MIB} MiB", LARGE_MIB, "zipf", 300_000),
        _read("loop-fits", f"{FITS_MIB} MiB in turn, which fit", FITS_MIB, "cyclic", 200_000),
        _read("loop-large", f"{LARGE_MIB} MiB in turn", LARGE_MIB, "cyclic", 320_000),
        _stream("zipf-stream", "popular pages beside a stream", LARGE_MIB, "zipf", 250_000),
        Trace(
            "cgroups",
            "random pages of a cgroup beside one that streams",
            jobs.script(
                "traces-cgroups", limit=GROUP_MIB, mib=GROUP_SET_MIB, stream=STREAM_MIB,
                order="random", reads=200_000, seed=SEED,
            ),
            GROUP_SET_MIB + STREAM_MIB,
        ),
        Trace(
            "blog", "a server of blogs", jobs.script("traces-blog", seconds=6, seed=SEED), 560
        ),
        Trace(
            "demo", "the demonstration's load", jobs.script("traces-demo", warm=3, seed=SEED), 160
        ),
    )
}  # fmt: skip


def store(trace: Trace, outcome: Outcome) -> Path:
    """Keep what a guest has recorded."""
    outcome.require()
    rows = outcome.results
    recorded = [row for row in rows if row["type"] == "recorded"]
    if not recorded or recorded[0]["lost"] or not recorded[0]["records"]:
        raise LabError(f"{outcome.job.name}: nothing was recorded; see {outcome.console}")
    head = {
        "name": trace.name,
        "about": trace.about,
        "seed": SEED,
        "kernel": kernel.image("gcma").about(),
        "qemu": qemu_version(),
        "machine": outcome.job.machine.kernel_words(),
        "memory_mib": MEMORY_MIB,
        "area_frames": AREA_MIB << 8,
        "job": outcome.job.script,
        "cgroups": {row["number"]: row["name"] for row in rows if row["type"] == "cgroup"},
        "held": {row["cgroup"]: row["pages"] for row in rows if row["type"] == "held"},
        "said": [row for row in rows if row["type"] in ("reread", "blog", "load", "camera")],
        "records": recorded[0]["records"],
        "host_seconds": round(outcome.host_s, 1),
    }
    path = trace.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with lzma.open(fresh, "wt", encoding="ascii") as file:
        file.write(json.dumps(head) + "\n")
        for row in rows:
            if row["type"] == "trace":
                file.write(row["r"].replace(";", "\n") + "\n")
    fresh.replace(path)
    return path


def load(path: Path) -> tuple[dict[str, Any], str]:
    """The head of a trace, and its records as text."""
    try:
        with lzma.open(path, "rt", encoding="ascii") as file:
            head: dict[str, Any] = json.loads(file.readline())
            return head, file.read()
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise LabError(f"{path} is damaged; remove it, and run: lab/lab traces") from error


def record(only: str = "", again: bool = False) -> None:
    """Record the traces that the cache lacks, one boot after the other."""
    for trace in map(TRACES.__getitem__, names.chosen(only, TRACES, "trace")):
        if trace.path().is_file() and not again:
            continue
        with progress.meter(f"recording {trace.name}") as meter:

            def watch(row: Row, meter: progress.Meter = meter) -> None:
                if row.get("type") == "progress":
                    meter.at(0.5, str(row["what"]))

            store(trace, boot(trace.job(), watch))
