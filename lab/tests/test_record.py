# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the comparison of recorders makes of what a guest told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import board, child, debian, kernel, samples
from nocopy_lab.board import Disk, Machine
from nocopy_lab.experiments import record, record_report
from nocopy_lab.experiments.record_report import ONE, STOCK, ZERO, Measured, Recording
from nocopy_lab.paths import LabError
from nocopy_lab.units import duration

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
        "end": END, "cpu": cpu, "ticks_per_s": 100,
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
    assert (goal.ours, goal.met) == (f"0 of 3, 0 of {INSIDE} (0 late)", True)
    # Who died at once has not failed.
    kept["runs"][-1]["rows"] = [row([frame(n) for n in EVERY], f"hour:heap:{RATE}")]
    (goal,) = (one for one in record_report.targets(Measured(kept)) if "an hour" in one.what)
    assert goal.met is False
    rows[2:] = [rows[0] | {"ok": False}]
    kept["runs"][-1]["rows"][:0] = rows
    (goal,) = (one for one in record_report.targets(Measured(kept)) if "an hour" in one.what)
    assert (goal.ours, goal.met) == (f"1 of 3, 0 of {INSIDE} (0 late)", False)


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
        [f"{ours} ns", duration(10 * ours)],
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
    samples.save(tmp_path, results())
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
    ours: dict[str, Any] = {"way": "dmabuf", "photos": 3}
    record.require_taken(row([frame(1)], said=ours, photos=[1, 2]), console)
    with pytest.raises(LabError, match="0 of 0 photos"):
        record.require_taken(row([frame(1)], said=ours | {"photos": 0}, photos=[]), console)
    with pytest.raises(LabError, match="1 of 3 photos"):
        record.require_taken(row([frame(1)], said=ours, photos=[1]), console)
    with pytest.raises(LabError, match="status 1;"):
        record.require_taken(row([frame(1)], said=ours, status=1), console)


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


def others() -> dict[str, Any]:
    """What the other boards add: the same programs, and a disk that copies 100 µs a frame."""
    kept = results()
    arm64 = [dict(run, board=record.ARM64_BOARD) for run in results()["runs"]]
    about = {"type": "about", "kernel": {"release": "7.3"}, "packages": ["v4l-utils 1"]}
    for run in arm64:
        run["rows"] = [about, *run["rows"]]
    exact = []
    for run in results()["runs"]:
        rows = [row for row in run["rows"] if str(row.get("case")).startswith("quiet:")]
        for row in rows:
            # A tick and a half less than the ticks say; the disk has all frames but the camera's.
            row["idle_ns"] = 10_000_000 * row["cpu"]["idle"] + 15_000_000
            if "camera" in row["case"]:
                row["frames"] = [[*one[:-1], 0] for one in row["frames"]]
        took = {"disk:1": 1, "nothing:1": 1, "disk:2": 15_000_000, "nothing:2": 5_000_000}
        timed = [{"type": "timed", "name": name, "ns": ns} for name, ns in took.items()]
        exact.append(dict(run, board=record.EXACT_BOARD, rows=timed + rows))
    kept["runs"] += arm64 + exact
    return kept


def test_boards_are_not_mixed() -> None:
    for name in (record.SLOW_BOARD, record.ARM64_BOARD):
        data = Measured(others(), name)
        assert len(data.of(ZERO, "long")) == 1
        assert data.a_frame_ms(ZERO) == pytest.approx(100 / 150)
    assert not Measured(results(), record.ARM64_BOARD).all


def test_what_a_disk_in_memory_copies_is_left_out_for_each_frame_that_it_got() -> None:
    data = Measured(others(), record.EXACT_BOARD)
    assert data.disk_us == 100
    # Frames of the window are full in it, and on the disk in it but for the last.
    assert (data.of(ZERO, "quiet")[0].written, data.of(ZERO, "quiet")[0].filled) == (150, 150)
    assert data.a_frame_ms(ZERO) == pytest.approx(100 / 150 - 0.1)
    kept = others()
    rows = [
        row for run in kept["runs"] for row in run["rows"] if row.get("case", "")[-9:-3] == "dmabuf"
    ]
    for row in rows:
        row["frames"] = [[*one[:-1], 0] for one in row["frames"]]
    assert Measured(kept, record.EXACT_BOARD).a_frame_ms(ZERO) == pytest.approx(100 / 150)


def test_idle_time_in_nanoseconds_counts_before_ticks() -> None:
    cpu = row([])["cpu"]
    told = row([frame(n) for n in EVERY], cpu=cpu, idle_ns=1_234_567_000)
    assert Recording(told).busy_us == 3_000_000 - 1_234_567
    del told["idle_ns"]
    assert Recording(told).busy_us == 0


def test_the_other_boards_have_tables_and_targets_of_their_own(tmp_path: Path) -> None:
    titles = [table.title for table in record_report.tables(Measured(results()))]
    assert not any("arm64" in title or "Exactly" in title for title in titles)
    made = record_report.tables(Measured(others()))
    (arm64,) = [table for table in made if "arm64" in table.title]
    assert [line[0] for line in arm64.rows] == [
        STOCK.label,
        ONE.label,
        ZERO.label,
        record_report.HEAP.label,
    ]
    assert arm64.rows[2][1:5] == ["0.67 ms", "0.12 ×", str(INSIDE), "0"]
    (exact,) = [table for table in made if "Exactly" in table.title]
    assert exact.rows[2] == [ZERO.label, "566.7 µs", "0.108 ×", "666.7 µs"]
    goals = {line[0]: line[3] for line in made[-1].rows}
    assert goals["arm64, heap: processor time a frame"] == "met"
    assert (
        goals["exactly, huge pages: frames lost or late, 40 frames/s, nobody else running"] == "met"
    )
    samples.save(tmp_path, others())
    page = record_report.draw(tmp_path).read_text()
    assert "Linux 7.3 on arm64-slow" in page
    assert "100.0 µs a frame" in page


def test_a_ratio_on_another_board_can_miss_its_target() -> None:
    kept = others()
    for run in kept["runs"]:
        for one in run["rows"]:
            if run.get("board") == record.ARM64_BOARD and one.get("case") == f"quiet:heap:{RATE}":
                one["cpu"] = one["cpu"] | {"idle": 190}
    lines = [line for table in record_report.tables(Measured(kept)) for line in table.rows]
    missed = [line[0] for line in lines if line[-1] == "missed"]
    assert missed == ["arm64, heap: processor time a frame"]


def test_the_other_boards_boot_what_is_compared_there() -> None:
    arm64 = record.arm64_boots(kernel.Image("arm64", Path("/image")), {}, Path("/root.ext4"))
    assert [job.name for job in arm64] == [f"record-arm64-{one}" for one in ("cma", "gcma", "heap")]
    exact = record.exact_boots(kernel.Image("gcma", Path("/image")), {}, {"usr/bin/v4l2-ctl": b"x"})
    assert [job.name for job in exact] == [f"record-exact-{one}" for one in ("cma", "gcma", "heap")]
    for job in (*arm64, *exact):
        huge = any(word.startswith("hugepages") for word in job.machine.words)
        assert huge == ("dmabuf" in job.script) == job.name.endswith("-gcma")
        assert job.machine.exact == (job in exact)
        assert job.files == ({"debian/usr/bin/v4l2-ctl": b"x"} if job in exact else {})
        assert record._expected(job)["recording"] >= 2
    assert all("take long:" in job.script for job in arm64)


def test_the_slow_arm_board_has_one_cpu_whose_time_is_its_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board, "require_tool", lambda name, package: name)
    command = Machine(record.ARM64_BOARD).command(Path("k"), Path("i"), None, None)
    assert command[command.index("-icount") + 1] == "shift=1,sleep=on"
    assert command[command.index("-smp") + 1] == "1"
    (words,) = [word for word in command if "lab_results" in word]
    assert "noapictimer" not in words
    assert "noapictimer" in Machine(record.SLOW_BOARD).kernel_words()


def test_a_program_of_debian_comes_with_what_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path))
    root = debian._root(("some",))
    for name in ("usr/bin/one", "lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/ld.so.2"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    two = root / "usr/lib/x86_64-linux-gnu/libtwo.so.0"
    two.parent.mkdir(parents=True)
    two.with_name("libtwo.so.0.1").write_text("two")
    two.symlink_to("libtwo.so.0.1")
    (root / "lib64").mkdir()
    (root / "lib64/ld.so.2").symlink_to("/lib/x86_64-linux-gnu/ld.so.2")
    said = {
        "one": "[Requesting program interpreter: /lib64/ld.so.2]\n"
        " 0x1 (NEEDED)  Shared library: [libtwo.so.0]\n"
        " 0x1 (NEEDED)  Shared library: [libc.so.6]\n",
        "libtwo.so.0.1": " 0x1 (NEEDED)  Shared library: [libc.so.6]\n",
    }
    monkeypatch.setattr(child, "output", lambda words: said.get(words[-1].name, ""))
    found = debian.program(("some",), "usr/bin/one")
    assert found == {
        "usr/bin/one": b"usr/bin/one",
        "usr/lib/x86_64-linux-gnu/libtwo.so.0": b"two",
        "lib/x86_64-linux-gnu/libc.so.6": b"lib/x86_64-linux-gnu/libc.so.6",
        "lib64/ld.so.2": b"lib/x86_64-linux-gnu/ld.so.2",
    }
    said["one"] = " 0x1 (NEEDED)  Shared library: [libgone.so.1]\n"
    with pytest.raises(LabError, match="no usr/lib/libgone"):
        debian.program(("some",), "usr/bin/one")


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
