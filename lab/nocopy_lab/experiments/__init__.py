# SPDX-License-Identifier: MIT OR Apache-2.0
"""The experiments: one module each, and what they have in common.

An experiment has two halves. `run()` boots and writes results.json: rows as the guest sent them,
with everything needed to do it again. `draw()` reads nothing but results.json.
"""

from __future__ import annotations

import platform
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nocopy_lab import kernel, progress, samples, trees
from nocopy_lab.board import qemu_version
from nocopy_lab.paths import locked
from nocopy_lab.run import Job, Outcome, Row, boot_all


def measure(
    jobs: Sequence[Job],
    expected: Mapping[str, float] | Callable[[Job], Mapping[str, float]],
    at_once: int = 2,
    each: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Boot jobs two at a time with a progress bar each; every one must end well.

    `expected` says how many rows of which type a job sends; the bar follows their arrival. `each`
    gets every outcome, good or not, when it is there.
    """
    lock = threading.Lock()
    with progress.meters() as bars:
        shown: dict[str, tuple[progress.Meter, dict[str, int], Mapping[str, float]]] = {}

        def watch(job: Job, row: Row) -> None:
            with lock:
                if job.name not in shown:
                    rows = expected(job) if callable(expected) else expected
                    shown[job.name] = (bars.add(f"measuring {job.name}"), {}, rows)
                meter, counts, rows = shown[job.name]
                kind = str(row.get("type"))
                counts[kind] = counts.get(kind, 0) + 1
                total = sum(rows.values())
                done = sum(min(counts.get(k, 0), most) for k, most in rows.items())
                words = str(row["what"]) if kind == "progress" else ""
                meter.at(done / total if total else 0.0, words)
                if done >= total:
                    bars.done(meter)

        def ended(outcome: Outcome) -> None:
            with lock:  # it may have sent fewer rows, of allocations that were given up
                if outcome.job.name in shown:
                    bars.done(shown[outcome.job.name][0])
            if each is not None:
                each(outcome)

        return [outcome.require() for outcome in boot_all(jobs, watch, at_once, ended)]


def of_version(directory: Path, version: str) -> Path:
    """Where results of a version of Linux are, by where those of the first one are."""
    if version == trees.SERIES[0]:
        return directory
    return directory.with_name(f"{directory.name}-{version}")


def processor() -> str:
    """What the processor of this machine is called."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def provenance(image: kernel.Image, seed: int) -> dict[str, Any]:
    """What a reader needs to get the same figures."""
    return {"kernel": image.about(), "qemu": qemu_version(), "seed": seed}


# Where the files of a boot were here. Devices are the same everywhere.
_DIRECTORIES: Final = re.compile(r"/(?!dev/)(?:[^/,\s]+/)+")


def stored(outcome: Outcome) -> dict[str, Any]:
    """One boot as it is kept in results.json."""
    machine = outcome.job.machine
    return {
        "name": outcome.job.name,
        "board": machine.board,
        "config": machine.config,
        "cpus": machine.cpus,
        "command": [_DIRECTORIES.sub("", word) for word in outcome.command],
        "job": outcome.job.script,
        "host_seconds": round(outcome.host_s, 1),
        "rows": outcome.results,
    }


def are_of(results: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """True if results say the same about what they are of. What they do not say at all, as they are
    of a lab that did not ask, is taken for the same."""
    return all(results.get(key, value) == value for key, value in about.items())


def keeper(
    directory: Path, about: Mapping[str, Any], *, anew: bool = False
) -> Callable[[Outcome], None]:
    """Gives what puts each boot that ended well into results.json, as soon as it did.

    It takes the place of an earlier one of its name. What else there is stays if it is of the same,
    unless the results are to begin anew.
    """

    def earlier() -> list[dict[str, Any]] | None:
        """The runs that are there, if they are of the same."""
        if not (directory / "results.json").is_file():
            return []
        before = samples.load(directory)
        with samples.layout_of(directory):
            runs: list[dict[str, Any]] = before["runs"]
        return runs if are_of(before, about) else None

    begun = not anew
    if begun and earlier() is None:
        print("earlier results are of other kernels or programs: left out", flush=True)

    def keep(outcome: Outcome) -> None:
        nonlocal begun
        if outcome.failure is not None:
            return
        # Another lab may put some of its own there meanwhile.
        with locked(directory / ".lock"):
            others = (earlier() or []) if begun else []
            begun = True
            runs = [one for one in others if one["name"] != outcome.job.name]
            samples.save(directory, {**about, "runs": [*runs, stored(outcome)]})

    return keep
