# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lab itself, and the crates."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from nocopy_lab import crates, initramfs, packages, progress
from nocopy_lab.checks import brug, pdio_fuzz, pdio_programs, programs
from nocopy_lab.checks.kinds import SKIPPED_PARTS, Skip, check, command, crates_check, log_of
from nocopy_lab.experiments import bench_brug
from nocopy_lab.paths import GUEST, LOGS, REPO, LabError

# ---------------------------------------------------------------------------- the lab itself


def _module(name: str, *words: str | Path, limit_s: float = 300.0) -> None:
    command(name, [sys.executable, "-m", name, *words], limit_s)


@check("lab: ruff", quick=True)
def _ruff() -> None:
    _module("ruff", "check", ".")
    _module("ruff", "format", "--check", ".")


@check("lab: mypy --strict", quick=True)
def _mypy() -> None:
    _module("mypy")


@check("lab: shellcheck", quick=True)
def _shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        raise Skip("no shellcheck; run: apt-get install shellcheck")
    scripts = [REPO / name for name in (".ci/run", "lab/lab", "kernel/apply", "kernel/series")]
    command("shellcheck", ["shellcheck", *scripts])
    # Of guests: busybox's shell, in which variables come from outside and words are split at will.
    guest = [GUEST / "init", *sorted(GUEST.glob("*/*.sh"))]
    words = ["--shell=dash", "--severity=warning", "--exclude=SC2154,SC2034,SC3028"]
    command("shellcheck-guest", ["shellcheck", *words, *guest])


@check("lab: unit tests", quick=True)
def _pytest() -> None:
    _module("pytest", "-rs", limit_s=600)
    SKIPPED_PARTS.extend(without(log_of("pytest").read_text(errors="replace")))


def without(said: str) -> list[tuple[str, str]]:
    """Tests that pytest left out, by their place, and why."""
    return re.findall(r"^SKIPPED \[\d+\] (\S+): (.+)$", said, re.MULTILINE)


@check("lab: guest programs compile without a warning")
def _guest_programs() -> None:
    if not initramfs.guest_programs():
        raise LabError(f"no programs in {GUEST}")
    for source in sorted(initramfs.PRELOAD.glob("*.c")):
        initramfs.preload_library(source.stem)


@crates_check("lab: the site and the page with every figure, in a browser as on a telephone")
def _report() -> None:
    from nocopy_lab import website
    from nocopy_lab.experiments import everything

    try:
        website.sphinx()
    except LabError as error:
        raise Skip(f"no sphinx to make the site with: {error}") from error
    front = website.write()
    everything.require_drawn()
    seen = everything.browse(front)
    if seen["broken"] or seen["errors"] or not seen["figures"] or seen["needs"] > seen["width"]:
        raise LabError(f"{front} in a browser: {seen}")
    page = website.SITE / website.FIGURES
    text = page.read_text()
    everything.require_whole(page, text.count("<figure>"))
    # A figure that is damaged and a script that fails are seen, or the above says nothing.
    damaged = page.with_name("damaged.html")
    damaged.write_text(text.replace("base64,iVBOR", "base64,AAAAA", 1) + "<script>no()</script>")
    seen = everything.browse(damaged)
    if len(seen["broken"]) != 1 or not seen["errors"]:
        raise LabError(f"the browser takes {damaged} for a good page")


# ------------------------------------------------------------------------------- the crates


@crates_check("crates: fmt", quick=True)
def _crates_fmt() -> None:
    tools = crates.lints()
    if not tools.has("fmt"):
        raise Skip("this Rust has no rustfmt; run: rustup component add rustfmt")
    tools.run("fmt", ["fmt", "--all", "--check"])


@crates_check("crates: clippy", quick=True)
def _crates_clippy() -> None:
    tools = crates.lints()
    if not tools.has("clippy"):
        raise Skip("this Rust has no clippy; run: rustup component add clippy")
    words = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]
    tools.run("clippy", [*words, "--", "-D", "warnings"])


# brug by itself: in one build with brug-preload it would have the features of a malloc library.
_BUILDS = {
    "test": ["--workspace", "--exclude", "brug"],
    "test-brug": ["-p", "brug", "-F", "jemalloc,mimalloc,monitor,allocator-api2"],
}


def _cargo_test(*which: str) -> str:
    """What cargo's tests print, each build of them once."""
    said = ""
    for name, build in _BUILDS.items():
        words = ["test", *build, "--locked", "--no-fail-fast", *which, "--", "--show-output"]
        log = LOGS / f"cargo-{name}.log"
        try:
            crates.toolchain().run(name, words)
        except LabError as error:
            # The last lines of cargo name the program that failed, not the test.
            panics = crates.panics(log.read_text(errors="replace"))
            raise LabError(f"{error}\n{panics}") from error
        said += log.read_text(errors="replace")
    return said


# The next has these as well.
@crates_check("crates: unit tests", asked=True, quick=True)
def _crates_unit_tests() -> None:
    with progress.meter("building and running the unit tests of the crates"):
        said = _cargo_test("--lib", "--bins")
    SKIPPED_PARTS.extend(brug.skipped(said))


@crates_check("crates: test")
def _crates_test() -> None:
    with progress.meter("building and testing the crates"):
        said = _cargo_test()
    # A Rust test that returns early has passed for cargo.
    SKIPPED_PARTS.extend(brug.skipped(said))


@crates_check("crates: docs")
def _crates_docs() -> None:
    words = ["doc", "--workspace", "--no-deps", "--all-features", "--locked"]
    crates.lints().run("docs", words, env={"RUSTDOCFLAGS": "-D warnings"})


@crates_check("crates: what cargo would publish")
def _crates_package() -> None:
    # Without building it once more from there.
    words = ["package", "--workspace", "--locked", "--no-verify", "--allow-dirty"]
    crates.toolchain().run("package", words)


@crates_check("packages: installed, used and removed in a root that has nothing else")
def _packages() -> None:
    packages.try_in_a_new_root()


@crates_check("crates: aarch64")
def _crates_aarch64() -> None:
    # Without the allocators that are written in C, for which there may be no cross compiler.
    # Assembly, and how libraries are linked, guests try.
    words = ["check", "--workspace", "--no-default-features", "--locked"]
    crates.aarch64().run("aarch64", [*words, "--target", crates.AARCH64])


crates_check("crates: the oldest Rust that is promised")(brug.oldest_rust)


crates_check("brug: Miri")(brug.miri)
crates_check("brug: ThreadSanitizer")(brug.thread_sanitizer)
crates_check("brug: fuzzing under AddressSanitizer")(brug.fuzz)


def _compare(name: str, check_name: str, under: str, compare: Callable[[str], None]) -> None:
    def same() -> None:
        with progress.meter(f"{name} under {under}"):
            compare(name)

    crates_check(check_name)(same)


for _name in programs.SCENARIOS:
    _title = f"brug: {_name} does what it does under glibc"
    _compare(_name, _title, "brug", programs.compare)
for _name in pdio_programs.SCENARIOS:
    _title = f"pdio: programs: {_name} does what it does without libpdio.so"
    _compare(_name, _title, "libpdio.so", pdio_programs.compare)
crates_check("pdio: random sequences do what they do without libpdio.so")(pdio_fuzz.check)


@crates_check("brug: every allocator leaves the same data")
def _brug_smoke() -> None:
    for program in ("cmake", "c++"):
        if shutil.which(program) is None:
            raise Skip(f"no {program} to build the other allocators with")
    bench_brug.smoke()
