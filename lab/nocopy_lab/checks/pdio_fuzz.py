# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random sequences of file operations, with and without libpdio.so.

The sequences, the comparison, and what makes a failing sequence short are a test of the crate,
crates/pdio-preload/tests/fuzz.rs. Here it gets a new seed, and more time than `cargo test` takes.
"""

from __future__ import annotations

import re
from typing import Final

from nocopy_lab import crates, progress
from nocopy_lab.checks.storage import fresh_seed
from nocopy_lab.paths import LOGS, LabError

CHECK_MINUTES: Final = 1.0
# For building, and for making a sequence that differs short.
BESIDE_S: Final = 1200.0


def run(minutes: float, seed: int | None = None) -> str:
    """Run sequences for so long; returns what was run. Raises with the shortest that differs."""
    seed = fresh_seed() if seed is None else seed
    words = ["test", "--locked", "-p", "pdio-preload", "--test", "fuzz", "random"]
    seconds = max(1, round(60 * minutes))
    env = {"PDIO_FUZZ_SEED": str(seed), "PDIO_FUZZ_SECONDS": str(seconds)}
    log = LOGS / "cargo-fuzz-pdio.log"
    with progress.meter(f"random sequences for {minutes:g} min, from seed {seed}"):
        try:
            crates.toolchain().run(
                "fuzz-pdio", [*words, "--", "--nocapture"], limit_s=seconds + BESIDE_S, env=env
            )
        except LabError as error:
            said = crates.panics(log.read_text(errors="replace"))
            again = f"to repeat it: lab/lab fuzz-pdio --minutes {minutes:g} --seed {seed}"
            raise LabError(f"{error}\n{said}\n{again}") from error
    ran = re.search(r"^seeds .*", log.read_text(errors="replace"), re.M)
    if ran is None:
        raise LabError(f"the test says nothing of what it ran; see {log}")
    return ran[0]


def check() -> None:
    """A minute, with a seed that nobody has seen; NOCOPY_SEED repeats one."""
    run(CHECK_MINUTES)
