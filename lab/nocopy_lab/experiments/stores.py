# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the area should keep: stores compared on the same sequences of accesses.

Traces are recorded in a guest, once for each kernel and QEMU, and played to models of several
stores (lab/replay/replay.cpp), as are sequences that are made there. What counts is how many
reads of the disk a store saves, and how many pages are copied into the area for that.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, initramfs, kernel, progress, samples, traces
from nocopy_lab.arch import X86
from nocopy_lab.board import qemu_version
from nocopy_lab.paths import LAB, OUT

HERE: Final = OUT / "stores"
SOURCE: Final = LAB / "replay/replay.cpp"
FLAGS: Final = ("-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror")

# Of the store -> what people call it and its colour; "none" is what all are compared with.
NONE: Final = "none"
BEFORE: Final = "adaptive"
STORES: Final = {
    "adaptive": ("FIFO, adaptive", "#999999"),
    "fifo": ("FIFO", "#CCCCCC"),
    "workingset": ("FIFO, working set only", "#E69F00"),
    "2x8-fifo": ("2 × 8, FIFO in the set, all", "#D55E00"),
    "2x8-pages": ("2 × 8, by page", "#56B4E9"),
    "2x8": ("2 × 8, by piece", "#009E73"),
    "1x16": ("1 × 16, by piece", "#CC79A7"),
    "1x32-any": ("1 × 32, near by any read", "#F0E442"),
    "1x32": ("1 × 32, by piece", "#000000"),
    "guests": ("1 × 32, with guests", "#882255"),
    "1x64": ("1 × 64, by piece: mm/gcma", "#0072B2"),
}

# Whose accesses are judged, where somebody streams beside them: only theirs can be helped.
JUDGED: Final = {
    "zipf-stream": "0", "uniform-stream": "0", "cgroups-uniform-stream": "0",
    "cgroups-uniform-fast-stream": "0", "cgroups-zipf-stream": "0",
}  # fmt: skip
# Of a trace, by the file: the first that was seen. Of one with cgroups, by name.
BY_FILE: Final = {"zipf-stream": "2"}
BY_CGROUP: Final = {"cgroups": "/reader"}

# What else happens: the owner has three eighths all the time, from an odd place; or takes a
# quarter in the middle for a while.
OWNERS: Final = {
    "": (),
    "owned in part": ("--owned", "{third}:{three_eighths}"),
    "a quarter taken": ("--take", "{three_eighths}:{quarter}"),
}
OWNED_TOO: Final = ("zipf-1536", "loop-864", "cgroups-uniform-stream", "zipf", "cgroups")
MADE_FRAMES: Final = 16384


def program() -> Path:
    """The replay, compiled once for each content and compiler."""
    return initramfs.compiled("replay", X86, FLAGS, [SOURCE], rest=("-lstdc++", "-lm"))


def play(words: Sequence[str], records: str = "") -> dict[str, Any]:
    """Counters by store and by whose accesses they are."""
    with tempfile.NamedTemporaryFile("w", suffix=".trace") as file:
        file.write(records)
        file.flush()
        trace = ("--trace", file.name) if records else ()
        out = child.output([program(), *trace, *words], limit_s=600)
    rows = [json.loads(line) for line in out.splitlines()]
    return {row["store"]: row["who"] for row in rows}


def _owner_words(frames: int, words: Sequence[str]) -> list[str]:
    parts = {"third": frames // 3, "three_eighths": frames * 3 // 8, "quarter": frames // 4}
    return [word.format(**parts) for word in words]


def _each_owner(name: str, frames: int) -> list[tuple[str, list[str]]]:
    return [
        (f"{name}, {how}" if how else name, _owner_words(frames, words))
        for how, words in OWNERS.items()
        if not how or name in OWNED_TOO
    ]


def _traced(trace: traces.Trace) -> list[dict[str, Any]]:
    head, records = traces.load(trace.path())
    frames = head["area_frames"]
    words = ["--frames", str(frames)]
    for number, pages in head["held"].items():
        words += ["--ram", f"{number}={pages}"]
    judged = ""
    if trace.name in BY_FILE:
        words += ["--by", "file"]
        judged = BY_FILE[trace.name]
    for number, name in head["cgroups"].items():
        if name == BY_CGROUP.get(trace.name):
            judged = number
    rows: list[dict[str, Any]] = [
        {
            "name": name, "kind": "recorded", "about": trace.about, "judged": judged,
            "trace": {key: head[key] for key in ("seed", "kernel", "qemu", "records", "held")},
            "stores": play([*words, *owner], records),
        }
        for name, owner in _each_owner(trace.name, frames)
    ]  # fmt: skip
    # The guest's own store kept every page. Successive reads sleep less often than they miss.
    for said in head.get("said", ()):
        if said["type"] == "reread" and said["order"] != "cyclic" and said["by"] == "pread":
            rows[0]["guest"] = {key: said[key] for key in ("reads", "waits")}
            rows[0]["whole"] = play([*words, "--from", "0"], records)
    return rows


def replay(recorded: bool = True) -> None:
    """Play all recorded traces and all sequences that are made; keeps what came of it."""
    made = child.output([program(), "--loads"]).split()
    kept = [trace for trace in traces.TRACES.values() if recorded and trace.path().is_file()]
    rows: list[dict[str, Any]] = []
    with progress.meter("playing") as meter:
        for number, trace in enumerate(kept):
            meter.at(number / (len(kept) + len(made)), trace.name)
            rows += _traced(trace)
        for number, load in enumerate(made):
            meter.at((len(kept) + number) / (len(kept) + len(made)), load)
            for name, owner in _each_owner(load, MADE_FRAMES):
                words = ["--load", load, "--frames", str(MADE_FRAMES), *owner]
                judged = JUDGED.get(load, "")
                rows.append({"name": name, "kind": "made", "judged": judged, "stores": play(words)})
    about: dict[str, Any] = {"experiment": "stores", "seed": traces.SEED}
    if recorded:
        about |= {"kernel": kernel.image("gcma").about(), "qemu": qemu_version()}
    samples.save(HERE, about | {"rows": rows})
