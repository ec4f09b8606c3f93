# SPDX-License-Identifier: MIT OR Apache-2.0
"""The slow board, the disks that fail, and what is said about the paper's statements."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import kernel
from nocopy_lab.board import Disk, Machine
from nocopy_lab.checks import storage
from nocopy_lab.experiments import bench_pdio
from nocopy_lab.experiments import pdio_report as report
from nocopy_lab.experiments.bench_pdio import ELSEWHERE, KIB, MIB, PAPER_SIZES
from nocopy_lab.experiments.pdio_results import Measured
from nocopy_lab.experiments.pdio_statements import statements
from nocopy_lab.paths import LAB, LabError
from nocopy_lab.run import Job


def _command(machine: Machine) -> str:
    return " ".join(machine.command(Path("k"), Path("i"), Path("c"), Path("r")))


def test_the_slow_board_counts_instructions_and_waits_for_its_disks() -> None:
    disk = Disk(Path("d"), driver="ahci", bytes_per_s=110, io_per_s=5)
    said = _command(Machine("x86-slow", cma_mib=0, disks=(disk,)))
    assert "-icount shift=1,sleep=on" in said
    assert "ide-hd,bus=ahci.0" in said
    assert "x-bps-total=110,x-iops-total=5" in said
    assert "-icount shift=3," in _command(Machine("x86-slow", shift=3))
    assert "-icount" not in _command(Machine("x86-slow-smp", cores=2))


def test_an_exact_board_takes_no_disk_of_the_host() -> None:
    with pytest.raises(LabError, match="inexact"):
        Machine("x86", disks=(Disk(Path("d")),))


def test_only_a_volatile_disk_flushes() -> None:
    plain = _command(Machine("x86-fast", disks=(Disk(Path("d"), driver="nvme"),)))
    volatile = _command(Machine("x86-fast", disks=(Disk(Path("d"), volatile=True),)))
    assert "driver=raw,cache.no-flush=on" in plain
    assert "driver=qcow2" in volatile
    assert "no-flush" not in volatile


def test_the_last_promise_about_a_file_counts() -> None:
    rows: list[dict[str, Any]] = [
        {"type": "promise", "file": "a", "units": 1},
        {"type": "promise", "file": "b", "units": 7},
        {"type": "other", "file": "a", "units": 9},
        {"type": "promise", "file": "a", "units": 2},
    ]
    assert [(row["file"], row["units"]) for row in storage.promises(rows)] == [("a", 2), ("b", 7)]


def _row(direction: str, mode: str, block: int, speed: float, core: float, copy: float) -> Any:
    return {
        "direction": direction, "mode": mode, "block": block, "mib_per_s": speed,
        "core_kernel_percent": core, "spread_percent": 0.0,
        "profile": {"copy_percent": copy, "cache_percent": 0.0, "interrupt_percent": 0.0},
        "runs": [{"bytes": MIB, "seconds": 1 / speed, "system_kernel_ms": 1.0, "memory_bytes": 0}],
    }  # fmt: skip


def _board(direct_small: float) -> dict[str, Any]:
    """A board on which the paper's shapes show, but for the speed of small direct blocks."""
    rows: dict[str, list[Any]] = {"nvme-ext4": [], "ahci-ext4": [], "tmpfs": []}
    for direction in ("write", "read"):
        for block in PAPER_SIZES:
            slow = 0.5 if block == 512 else 1.0
            direct = direct_small if block <= 4 * KIB else min(60.0 + block / MIB * 20, 230)
            large = block >= MIB
            rows["nvme-ext4"] += [
                _row(direction, "buffered", block, 100 * slow, 100, 60),
                _row(direction, "direct", block, direct, 100 if block >= 16 * MIB else 60, 0),
            ]
            rows["ahci-ext4"] += [
                _row(direction, "buffered", block, 90 * slow, 100, 60),
                _row(direction, "direct", block, 85 if block >= 512 * KIB else 10, 10, 0),
            ]
            rows["tmpfs"].append(_row(direction, "buffered", block, 230 if large else 200, 100, 60))
    return {
        name: {"rows": [{"type": "bench", "name": "x", "data": {"targets": [{"results": made}]}}]}
        for name, made in rows.items()
    }


def _verdicts(direct_small: float) -> dict[str, str]:
    data = Measured({"host": {}, "board": _board(direct_small)})
    return {one.where: one.verdict for one in statements(data)}


def test_statements_reproduce_on_a_board_like_the_papers() -> None:
    said = _verdicts(direct_small=20)
    for name in ("F2.1", "F2.2", "F2.3", "F2.5", "F2.6", "F3", "F3, knee", "F4, read"):
        assert said[name] == "reproduces", f"{name}: {said[name]}"


def test_a_statement_does_not_reproduce_where_direct_io_is_fast_in_small_blocks() -> None:
    assert _verdicts(direct_small=200)["F2.3"].startswith("does not")


def test_nothing_is_said_about_sweeps_that_did_not_run() -> None:
    data = Measured({"host": {}, "board": {}})
    assert statements(data) == []
    assert report.board_targets(data) == []
    assert not any(one.values for one in report.targets(data))


def test_a_copy_that_takes_longer_than_a_plain_one_is_a_target_missed() -> None:
    ms = {"plain": 100, "preload": 101, "pdio": 104}
    rows = [
        {"type": "timed", "name": f"nfs write 4096 {way}", "ns": took * 10**6}
        for way, took in ms.items()
    ]
    data = Measured({"host": {}, "board": {ELSEWHERE: {"rows": rows}}})
    said = {one.work: one.row()[-1] for one in report.board_targets(data)}
    assert said == {
        "NFS, write 4 KiB: time of dd, libpdio.so / dd": "met",
        "NFS, write 4 KiB: time of pdio dd / dd": "missed",
    }


def _ways_job(monkeypatch: pytest.MonkeyPatch, name: str) -> Job:
    for boot in ("_elsewhere", "_neighbour"):
        monkeypatch.setattr(bench_pdio, boot, lambda guest: Job("e", "", Path("storage")))
    (job,) = (job for job in bench_pdio.board_jobs({}) if job.name == f"bench-pdio-ways-{name}")
    return job


def test_fio_streams_are_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job = _ways_job(monkeypatch, "xfs")
    streams = [line.split() for line in job.script.splitlines() if line.startswith("stream_fio ")]
    assert bench_pdio._expected(job) == {"bench": 1.0, "fio": float(len(streams))}
    measured = set()
    for _, direction, block, depth, fallocate, *command in streams:
        measured.add((direction, int(block), fallocate))
        assert int(block) * int(depth) <= bench_pdio.FIO_MEMORY
        for word in (f"--rw={direction}", f"--bs={block}", f"--iodepth={depth}"):
            assert word in command
        for word in (f"--size={bench_pdio.WAYS_MIB}M", "--end_fsync=1", "--direct=1"):
            assert word in command
    kinds = (("write", "none"), ("write", "native"), ("read", "none"))
    sizes = bench_pdio.WAYS_SIZES
    assert measured == {(way, size, how) for way, how in kinds for size in sizes}
    subprocess.run(["sh", "-n"], input=job.script, text=True, check=True, timeout=60)


def _ways(pdio: float, **others: float) -> dict[str, Any]:
    cells = [
        _row("write", mode, MIB, speed, 0, 0) for mode, speed in {**others, "pdio": pdio}.items()
    ]
    fio = [
        {"type": "fio", "direction": "write", "block": MIB, "depth": depth, "fallocate": how,
         "bytes": speed * MIB, "ms": 1000}
        for depth, how, speed in ((1, "none", 800), (4, "none", 1500), (16, "native", 1600))
    ]  # fmt: skip
    bench = {"type": "bench", "name": "ways", "data": {"targets": [{"results": cells}]}}
    return {"ways-ext4": {"rows": [bench, *fio]}}


def test_pdio_has_the_best_plain_calls_as_its_target_and_fio_beside() -> None:
    for pdio, verdict in ((1000.0, "met"), (900.0, "missed")):
        board = _ways(pdio, buffered=500.0, direct=1000.0, dontcache=400.0)
        data = Measured({"host": {}, "board": board})
        (target,) = report.board_targets(data)
        assert target.work == "ext4: write 1 MiB / best plain calls, direct"
        assert target.note == "1000 MiB/s; fio: 1500 MiB/s (depth 4)"
        assert target.row()[-1] == verdict


def test_fio_is_in_the_table_and_the_figure(tmp_path: Path) -> None:
    board = _ways(900.0, buffered=500.0, direct=1000.0)
    data = Measured({"host": {}, "board": board})
    (table,) = report.beyond(data)
    (row,) = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert row["pdio / best plain calls"] == "0.90 ×"
    assert row["fio"] == "1500 MiB/s (depth 4)"
    assert row["fio, file allocated before"] == "1600 MiB/s (depth 16)"
    assert row["pdio / fio"] == "0.60 ×"
    assert report._exact_panels(data)["ext4, write"]["fio"] == {MIB: 1500.0}
    assert [one.name for one in report._draw_figures(tmp_path, data)] == ["exact"]


def test_results_without_fio_are_still_drawn() -> None:
    board = _ways(900.0, buffered=500.0)
    board["ways-ext4"]["rows"] = board["ways-ext4"]["rows"][:1]
    data = Measured({"host": {}, "board": board})
    (table,) = report.beyond(data)
    assert table.rows[0][-3:] == ["–", "–", "–"]
    assert report.board_targets(data)[0].note == "500 MiB/s; fio: –"


def test_one_boot_is_of_the_older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for boot in ("_elsewhere", "_neighbour"):
        monkeypatch.setattr(bench_pdio, boot, lambda guest: Job("e", "", Path("storage")))
    series = [kernel.CONFIGS[str(job.kernel)].series for job in bench_pdio.board_jobs({})]
    assert sorted(set(series)) == ["6.12", "7.3"]
    assert series.count("6.12") == 1


def test_the_power_goes_after_promises_and_not_after_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "_files", dict)
    machine = Machine("x86-fast")
    for how, kinds in ((storage.power_cut, storage.KINDS), (storage.hasty_cut, ("hasty",))):
        job = how(storage.ROUNDS[0], 7, machine, Path("bzImage"))
        assert job.cut_s > 0
        empty = [{"type": "promise", "kind": kind, "units": 0} for kind in kinds]
        full = [row | {"units": 7} for row in empty]
        copied = [{"type": "promise", "kind": "dd", "file": "/mnt/dd.0"}] * 9
        assert not job.cut_when([*empty, *copied, *full[1:]])
        assert job.cut_when([*empty, *full])
        subprocess.run(["sh", "-n"], input=job.script, text=True, check=True, timeout=60)
        assert "{{" not in job.script


def test_nothing_syncs_for_a_stream_that_promises_too_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "_files", dict)
    script = storage.hasty_cut(storage.ROUNDS[0], 7, Machine("x86-fast"), Path("bzImage")).script
    assert "commit=3600" in script
    assert "sync" not in script.split("promise write")[1]


def test_a_neighbour_is_measured_only_where_memory_can_be_limited(tmp_path: Path) -> None:
    assert not bench_pdio.limits_memory(tmp_path)
    controllers = tmp_path / "cgroup.subtree_control"
    for said, can in (("", False), ("cpu pids\n", False), ("cpu memory pids\n", True)):
        controllers.write_text(said)
        assert bench_pdio.limits_memory(tmp_path) == can
    controllers.unlink()
    (tmp_path / "memory.limit_in_bytes").touch()
    assert bench_pdio.limits_memory(tmp_path)
    # Nothing is run without it.
    job = (LAB / "guest/jobs/neighbour.sh").read_text()
    words = [
        "sh",
        "-c",
        f"group={tmp_path / 'group'} where={tmp_path} library=x pdio=x limit=1\n{job}",
    ]
    (tmp_path / "group").mkdir()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "limits no memory" in done.stderr
