# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demonstration: one kernel, three ways to keep memory for a camera.

A 1 GiB board with 256 MiB of contiguous memory serves files and runs out of memory. Somebody
presses the button of its camera; then contiguous allocations of all sizes are timed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nocopy_lab import jobs, kernel, samples
from nocopy_lab.board import CMA_MIB, MEMORY_MIB, Machine, null_disk
from nocopy_lab.experiments import measure, of_version, provenance, stored
from nocopy_lab.paths import OUT
from nocopy_lab.run import MEASURING_S, Job

CONFIGS: Final = ("reservation", "cma", "gcma")
SIZES: Final = tuple(64 << n for n in range(10))  # 64 … 32,768 pages

# The load answers requests: each touches anonymous memory, then reads or writes a piece of a file.
FILES_MIB: Final = 384
ANON_MIB: Final = 600
TOUCHES: Final = 64  # pages of anonymous memory for each request
SWAP_MIB: Final = 512  # zram
WARM_S: Final = 5  # filling its memory
QUIET_S: Final = 6  # load alone, for its throughput
SHOTS: Final = 30
REPETITIONS: Final = 10
HOT_PERCENT: Final = 30  # of the files get 90 % of the reads
CAMERA: Final = "--width 1920 --height 1080 --buffers 6"
# The disk: 400 µs for each request, 40 MB/s in all, like an SD card or simple eMMC. It lives in
# extra RAM, all of which is filled before anything is measured.
DISK_WORDS: Final = null_disk(1, completion_ns=400_000, mbps=40)
DISK_MIB: Final = FILES_MIB + 48

HERE: Final = OUT / "demo"
# Versions of Linux, and their kernels.
KERNELS: Final = {"6.12": "gcma", "7.3": "gcma-7.3"}


def directory(version: str) -> Path:
    return of_version(HERE, version)


def job(config: str, image: kernel.Image, seed: int) -> Job:
    machine = Machine(
        "x86", config, extra_mib=DISK_MIB, words=("vivid.allocators=1", *DISK_WORDS), seed=seed
    )
    script = jobs.script(
        "demo", seed=seed, swap=SWAP_MIB, files=FILES_MIB, anon=ANON_MIB, touches=TOUCHES,
        hot=HOT_PERCENT, warm=WARM_S, quiet=QUIET_S, camera=CAMERA, shots=SHOTS,
        sizes=",".join(map(str, SIZES)), reps=REPETITIONS,
    )  # fmt: skip
    return Job(
        f"demo-{config}", script, image.bootable, machine, programs=("mke2fs",),
        allow=("allocation",), limit_s=MEASURING_S,
    )  # fmt: skip


def run(version: str, seed: int) -> None:
    image = kernel.image(KERNELS[version])
    boots = [job(config, image, seed) for config in ("cma", "gcma", "reservation")]
    rows = {"load_tick": WARM_S + QUIET_S, "shot": SHOTS, "alloc": len(SIZES) * REPETITIONS}
    outcomes = {outcome.job.machine.config: outcome for outcome in measure(boots, rows)}
    results = provenance(image, seed) | {
        "experiment": "demo",
        "memory_mib": MEMORY_MIB,
        "cma_mib": CMA_MIB,
        "runs": [stored(outcomes[config]) for config in CONFIGS],
    }
    samples.save(directory(version), results)
