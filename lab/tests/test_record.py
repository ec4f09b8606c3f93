# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the comparison of recorders makes of what a guest told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import kernel, report
from nocopy_lab.board import Disk, Machine
from nocopy_lab.experiments import record, record_report
from nocopy_lab.experiments.record_report import ONE, STOCK, ZERO, Measured, Recording
from nocopy_lab.paths import LabError

RATE = 50
INTERVAL = 1_000_000 // RATE
SETTLED = 2_000_000
END = SETTLED + 3_000_000  # of which the last second is not looked at


def frame(number: int, left: int = 7, back: int = 5_000, flash: int = 8_000) -> list[int]:
    """A frame that is on time."""
    full = number * INTERVAL
    return [number, full, left, full + 100, full + back, full + flash if flash else 0]


def row(frames: list[list[int]], case: str = f"long:dmabuf:{RATE}", **more: Any) -> dict[str, Any]:
    cpu = {"user": 0, "nice": 0, "system": 0, "idle": 300, "iowait": 0, "irq": 0, "softirq": 0}
    return {
        "type": "recording", "case": case, "status": 130, "begin": 0, "settled": SETTLED,
        "end": END, "user_us": 0, "system_us": 0, "cpu": cpu, "ticks_per_s": 100,
        "bytes": 1_000, "frames": frames,
    } | more  # fmt: skip


# From before the window to behind it.
EVERY = range(1, END // INTERVAL)
INSIDE = 2_000_000 // INTERVAL


def test_a_recording_that_takes_every_frame_loses_none() -> None:
    one = Recording(row([frame(n) for n in EVERY]))
    assert (len(one.frames), one.lost, one.dropped, one.late) == (INSIDE, 0, 0, 0)


def test_a_frame_is_lost_if_the_camera_had_no_buffer() -> None:
    numbers = [n for n in EVERY if n not in (120, 121, 150)]
    frames = [frame(n, left=0 if n == 119 else 3) for n in numbers]
    one = Recording(row(frames))
    assert (one.lost, one.dropped) == (2, 1)


def test_what_is_lost_before_and_behind_the_window_is_not_counted() -> None:
    frames = [frame(n, left=0) for n in EVERY if n not in (50, 230)]
    assert Recording(row(frames)).lost == 0


def test_a_number_that_comes_twice_is_no_loss() -> None:
    frames = [frame(n, left=0) for n in EVERY]
    frames.insert(120, frame(120, left=0))
    assert Recording(row(frames)).lost == 0


def test_a_recorder_that_stops_loses_the_rest() -> None:
    one = Recording(row([frame(n) for n in range(1, 150)]))
    assert one.lost == pytest.approx(50, abs=2)
    assert Recording(row([])).lost == INSIDE


def test_a_frame_is_late_after_two_frame_times() -> None:
    frames = [frame(n) for n in EVERY]
    frames[110] = frame(111, back=2 * INTERVAL + 1)
    frames[111] = frame(112, back=2 * INTERVAL)
    assert Recording(row(frames)).late == 1


def test_frames_that_are_only_counted_count_as_any() -> None:
    """A long recording lists what is early, what is not in time, and what has a gap beside it."""
    frames: list[Any] = [frame(n) for n in EVERY if n not in (130, 170)]
    at = {f[0]: i for i, f in enumerate(frames)}
    frames[at[129]] = frame(129, left=0)
    frames[at[150]] = frame(150, back=3 * INTERVAL)
    whole = Recording(row(frames))
    short: list[Any] = [
        *frames[: at[101]], 28, *frames[at[129] : at[131] + 1], 18, frames[at[150]], 18,
        *frames[at[169] : at[171] + 1], 26, *frames[at[198] :],
    ]  # fmt: skip
    brief = Recording(row(short))
    for one in (whole, brief):
        total = record_report.Sum.of([one])
        assert (total.frames, total.lost, total.dropped, total.late) == (INSIDE - 2, 1, 1, 1)
        assert one.filled == whole.filled


def test_photos_are_compared_with_those_of_a_board_whose_area_is_idle() -> None:
    kept = results()
    for config, took in (("gcma", 30_000), ("reservation", 20_000)):
        one = row([frame(n) for n in EVERY], f"photo:dmabuf:{RATE}", photos=[10_000, took])
        kept["runs"].append({"config": config, "rows": [one]})
    (goal,) = (one for one in record_report.targets(Measured(kept)) if "its own frames" in one.what)
    assert (goal.ours, goal.met) == ("1.50 × (30 ms and 20 ms)", False)
    assert [line[1:5] for line in record_report._own_photos(Measured(kept)).rows] == [
        ["2", "10 ms", "20 ms", "20 ms"],
        ["2", "10 ms", "30 ms", "30 ms"],
    ]


def test_an_hour_is_judged_by_frames_and_allocations() -> None:
    kept = results()
    rows: list[dict[str, Any]] = [{"type": "alloc", "pages": 450, "ns": 9, "ok": True}] * 3
    kept["runs"].append(
        {"config": "gcma", "rows": [*rows, row([frame(n) for n in EVERY], f"hour:heap:{RATE}")]}
    )
    (goal,) = (one for one in record_report.targets(Measured(kept)) if "an hour" in one.what)
    assert (goal.ours, goal.met) == (f"0 of {INSIDE}, 0 of 3", True)


def test_never_on_the_disk_is_told() -> None:
    frames = [frame(n, flash=0 if n == 120 else 8_000) for n in EVERY]
    one = record_report.Sum.of([Recording(row(frames))])
    assert one.never == 1
    assert max(one.flash) == 8e6


def test_who_takes_memory_meanwhile_is_told_beside_the_frames(tmp_path: Path) -> None:
    kept = results()
    rows = kept["runs"][1]["rows"]
    rows += [{"type": "alloc", "pages": 450, "ns": ns, "ok": ns > 0} for ns in (5, 7, 0)]
    rows.append(row([frame(n) for n in EVERY], f"switch:dmabuf:{RATE}"))
    table = record_report._switches(Measured(kept), *record_report.SWITCHES)
    assert table.rows == [
        [ZERO.label, str(INSIDE), "0", "0", "5 ns", "7 ns", "7 ns", "1/3"],
    ]
    missed = [one for one in record_report.targets(Measured(kept)) if one.met is False]
    assert [one.ours for one in missed] == ["0, 1 of 3"]


def results() -> dict[str, Any]:
    """A stock program that loses frames and takes four times the processor, and ours."""

    def tick(second: int, requests: int) -> dict[str, Any]:
        return {"type": "load_tick", "seconds": second, "read_ops": requests, "write_ops": 0}

    def run(config: str, names: dict[str, int], lost: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        cameras = {"camera": 250, "camera-scattered": 250}
        for name, idle in (cameras | names).items():
            cpu = row([])["cpu"] | {"idle": idle}
            rows.append(row([frame(n) for n in EVERY], f"quiet:{name}:{RATE}", cpu=cpu))
        for name in names:
            ours = name != "v4l2-ctl"
            said = {"copies_per_byte": float(name == "copy")} if ours else None
            cached = 0 if ours else 1_000
            rows.append(row([], f"cached:{name}:{RATE}", cached=cached, said=said))
            gone = range(120, 120 + (0 if ours else lost))
            frames = [frame(n, left=0) for n in EVERY if n not in gone]
            for kind in ("rate", "long", "hogs"):
                rows += [tick(second, 100 * second) for second in range(9)]
                rows.append(row(frames, f"{kind}:{name}:{RATE}"))
        return {"config": config, "rows": rows}

    return {
        "kernel": {"release": "6.12"},
        "qemu": "7",
        "packages": ["ffmpeg 5"],
        "runs": [
            run("cma", {"v4l2-ctl": 170}, 5),
            run("gcma", {"dmabuf": 240, "copy": 210}, 5),
            run("gcma", {"heap": 240}, 5),
        ],
    }


def test_each_program_is_compared_without_what_the_camera_takes() -> None:
    data = Measured(results())
    # 3 s with 50 frames/s: a tick is 10 ms, of 150 frame times
    assert data.camera_ms("gcma") == pytest.approx(500 / 150)
    assert data.a_frame_ms(STOCK) == pytest.approx(800 / 150)
    assert data.a_frame_ms(ZERO) == pytest.approx(100 / 150)
    assert data.a_frame_ms(ONE) == pytest.approx(400 / 150)
    assert math.isnan(data.a_frame_ms(record_report.RESERVED))
    assert (data.cached(STOCK), data.own_copies(ZERO), data.own_copies(ONE)) == (1.0, 0.0, 1.0)
    one = data.sum(ZERO, "long")
    assert one is not None
    assert one.requests == pytest.approx(100)


def test_frames_that_the_camera_skips_make_the_others_no_cheaper() -> None:
    cpu = row([])["cpu"] | {"idle": 240}
    every = row([frame(n) for n in EVERY], f"quiet:heap:{RATE}", cpu=cpu)
    half = row([frame(n) for n in EVERY if n % 2], f"quiet:heap:{RATE}", cpu=cpu | {"idle": 270})
    whole, skipped = (record_report._busy_ms([Recording(one)]) for one in (every, half))
    assert whole == pytest.approx(skipped) == pytest.approx(600 / 150)


def judged(kept: dict[str, Any]) -> dict[str, bool | None]:
    """Each target by its way and its first words."""
    return {one.what.split(",")[0]: one.met for one in record_report.targets(Measured(kept))}


@pytest.mark.parametrize(("way", "name"), [("huge pages", "dmabuf"), ("heap", "heap")])
def test_targets_are_met_and_missed(way: str, name: str) -> None:
    met = judged(results())
    assert met[f"{way}: frames lost or late"] is True
    assert met[f"{way}: processor time a frame"] is True
    assert met[f"{way}: memory for a photo (1"] is None
    worse = results()
    for run in worse["runs"]:
        for one in run["rows"]:
            if one.get("case") == f"long:{name}:{RATE}":
                one["frames"] = [f for f in one["frames"] if f[0] != 130]
    missed = [one.what for one in record_report.targets(Measured(worse)) if one.met is False]
    assert len(missed) == 1
    assert missed[0].startswith(f"{way}: frames lost or late")


def test_a_way_that_was_not_measured_has_no_targets() -> None:
    kept = results()
    del kept["runs"][2]
    ways = {name.split(":")[0] for name in judged(kept) if ":" in name}
    assert ways == {"huge pages"}


def test_the_load_has_to_be_one_that_others_suffer_from() -> None:
    kept = results()
    assert judged(kept)["frames that v4l2-ctl loses or is late with"] is True
    kept["runs"][0] = {
        "config": "cma",
        "rows": [row([frame(n) for n in EVERY], "long:v4l2-ctl:50")],
    }
    assert judged(kept)["frames that v4l2-ctl loses or is late with"] is False


@pytest.mark.parametrize(("ours", "met"), [(110, True), (111, False)])
def test_memory_for_a_photo_is_compared_with_reservation(ours: int, met: bool) -> None:
    kept = results()
    for config, name, ns in (("gcma", "heap", ours), ("reservation", "v4l2-ctl", 100)):
        rows = [
            {"type": "alloc", "pages": record.PHOTO_PAGES, "ns": ns, "ok": True},
            {"type": "alloc", "pages": 2 * record.PHOTO_PAGES, "ns": 10 * ns, "ok": True},
            row([frame(n) for n in EVERY], f"switch:{name}:{RATE}"),
        ]
        kept["runs"].append({"config": config, "rows": rows})
    assert judged(kept)["heap: memory for a photo (1"] is met
    table = record_report._photos(Measured(kept))
    assert [line[1:] for line in table.rows] == [
        ["100 ns", "1 µs"],
        [f"{ours} ns", report.duration(10 * ours)],
    ]


# No sample, one that counts as nothing, and as many as there are bytes to copy.
@pytest.mark.parametrize(("copying", "met"), [(0, True), (1, True), (INSIDE * 37, False)])
def test_what_copies_is_seen_by_samples(copying: int, met: bool) -> None:
    kept = results()
    profile = {"period_us": 100, "all": 9_000, "own": 8_000, "user": 37, "copying": copying}
    taken = [frame(n) for n in EVERY if SETTLED <= n * INTERVAL < SETTLED + 2_000_000]
    case = row(taken, f"profile:heap:{RATE}", profile=profile)
    kept["runs"].append({"config": "gcma", "rows": [case]})
    one = Measured(kept).profile(record_report.HEAP)
    assert one is not None
    assert one.frames == INSIDE
    if copying > 1:
        # 100 µs are 50,000 instructions, and a frame has 1,843,200 bytes.
        assert one.copies == pytest.approx(1, abs=0.01)
    assert one.copies_and_own > one.copies
    assert judged(kept)["heap: the same"] is met
    assert record_report._profiles(Measured(kept)).rows[0][:3] == [
        record_report.HEAP.label, str(INSIDE), "9,000",
    ]  # fmt: skip


def test_the_page_is_drawn_from_the_results_alone(tmp_path: Path) -> None:
    report.save_results(tmp_path, results())
    page = record_report.draw(tmp_path).read_text()
    assert page.count("<figure>") == 2
    assert record_report.RESERVED.label not in page
    assert "not measured" in (tmp_path / "table.md").read_text()
    record_report.show(tmp_path)


def test_a_recording_without_frames_or_by_another_way_is_no_measurement() -> None:
    console = Path("console")
    record.require_taken(row([frame(1)], said={"way": "dmabuf"}), console)
    record.require_taken(row([frame(1)], f"long:v4l2-ctl:{RATE}"), console)
    with pytest.raises(LabError, match="no frame"):
        record.require_taken(row([], f"long:v4l2-ctl:{RATE}"), console)
    for said in (None, {"way": "copy"}):
        with pytest.raises(LabError, match="the way was"):
            record.require_taken(row([frame(1)], said=said), console)


def test_the_heap_has_boots_without_huge_pages() -> None:
    image, root = kernel.Image("gcma", Path("/image")), Path("/root.ext4")
    every = {job.name: job for job in record.Boots(image, {}, root).every()}
    assert {f"record-{kind}-heap" for kind in ("quiet", "load", "switches")} <= set(every)
    for name, job in every.items():
        huge = any(word.startswith("hugepages") for word in job.machine.words)
        assert huge == ("dmabuf" in job.script)
        assert huge == (name.endswith("-gcma") or name == "record-photos-reservation")
        assert ("take rate:heap" in job.script) == (name == "record-load-heap")
        assert job.machine.config in name or name.endswith(("-heap", "-default"))


def test_recorders_run_in_turn_and_each_has_its_camera() -> None:
    lines = list(record._loaded(record.BOOTS["gcma"]))
    first = [line.split()[1] for line in lines[:4]]
    assert first == ["rate:dmabuf:30", "rate:copy:30", "rate:dmabuf:40", "rate:copy:40"]
    assert "/dev/video1" in record.WAYS["mmap"].words(30)
    assert "--stream-to" not in record.WAYS["camera"].words(30)


def test_a_disk_that_several_boots_have_is_only_read() -> None:
    disk = Disk(image=Path("/root.ext4"), read_only=True)
    words = Machine("x86-slow", disks=(disk,)).command(Path("k"), Path("i"), None, None)
    (drive,) = [word for word in words if "/root.ext4" in word]
    assert "read-only=on" in drive
    assert "file.read-only=on" in drive
