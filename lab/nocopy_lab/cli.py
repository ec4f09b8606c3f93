# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from nocopy_lab import board, child, initramfs, jobs, kernel, packages, run, samples, series, trees
from nocopy_lab.arch import UM
from nocopy_lab.paths import OUT, LabError, cache

Function = TypeVar("Function", bound=Callable[..., Any])


def _number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse NaN, which lies in every range."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number")
    return value


# Nobody waits longer, and clocks have no room for any number: with it, infinity lies in no range.
YEAR_MIN: Final = 366 * 24 * 60
# Seeds are numbers of 32 bits to QEMU and guests.
LAST_SEED: Final = 2**31 - 1


def _minutes(default: float, what: str) -> Callable[[Function], Function]:
    return click.option(
        "--minutes",
        type=click.FloatRange(0, YEAR_MIN, min_open=True),
        default=default,
        show_default=True,
        callback=_number,
        help=what,
    )


def _first_seed(of: str) -> Callable[[Function], Function]:
    return click.option(
        "--seed",
        type=click.IntRange(0, LAST_SEED),
        help=f"Seed of the first {of}; each later one adds one.",
    )


def _only(what: str, more: str = "") -> Callable[[Function], Function]:
    return click.option(
        "--only",
        default="",
        help=f"Only {what} whose name contains this, or one of several, with commas between{more}.",
    )


boards = click.Choice(list(board.BOARDS))
draw_only = click.option(
    "--draw-only",
    is_flag=True,
    help="Measure nothing; draw what was measured here last, or else the stored results.",
)
linux = click.option(
    "--linux",
    "version",
    type=click.Choice(trees.SERIES),
    default=trees.SERIES[0],
    show_default=True,
    help="Version of the kernel.",
)
memory_configs = click.Choice(list(board.CONFIGS))


class _Report(Protocol):
    """What draws the results of an experiment, and shows them on the terminal."""

    def draw(self, directory: Path) -> Path: ...

    def show(self, directory: Path) -> None: ...


def _drawn(drawing: _Report, directory: Path) -> Path:
    with samples.layout_of(directory):
        page = drawing.draw(directory)
        drawing.show(directory)
    return page


def _draw(drawing: _Report, directory: Path) -> None:
    print(f"page with figures: {_drawn(drawing, directory)}")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def lab() -> None:
    """Build the kernels, boot the boards, run the experiments, draw the figures."""


@lab.command()
@click.argument("names", nargs=-1, type=click.Choice(list(kernel.CONFIGS)))
def build(names: tuple[str, ...]) -> None:
    """Build kernels (default: gcma) and print where they are."""
    for name in names or ("gcma",):
        print(kernel.image(name).path)


@lab.command("run")
@click.option("--board", "board_name", type=boards, default="x86", show_default=True)
@click.option("--config", type=memory_configs, default="gcma", show_default=True)
@click.option("--kernel", "image", default="gcma", show_default=True, help="Name or file.")
@click.option(
    "--limit",
    type=click.FloatRange(0, 60 * YEAR_MIN, min_open=True),
    default=300.0,
    show_default=True,
    callback=_number,
    help="Seconds of host time.",
)
@click.option("--extra", type=click.IntRange(min=0), default=0, help="More RAM, MiB.")
@click.option(
    "--scratch", type=click.IntRange(min=0), default=0, help="Size of an empty disk /dev/vda, MiB."
)
@click.option("--word", "words", multiple=True, help="A kernel parameter.")
@click.argument("script")
def run_script(
    board_name: str, config: str, image: str, limit: float, extra: int, scratch: int,
    words: tuple[str, ...], script: str,
) -> None:  # fmt: skip
    """Boot a board, run SCRIPT (a file, or shell commands) in it, print what it says."""
    text = script + "\n"
    file = False
    with contextlib.suppress(OSError):  # commands may be longer than a name can be
        file = Path(script).is_file()
    try:
        text = Path(script).read_text() if file else text
        text.encode()
    except UnicodeError as error:
        raise LabError(f"{script!a} is no text in UTF-8") from error
    for word in words:
        if not word.isprintable():
            raise LabError(f"--word {word!a} is no kernel parameter")
    machine = board.Machine(board_name, config, extra_mib=extra, words=words)
    job = run.Job(
        "run",
        text,
        _bootable(image, board_name),
        machine,
        limit_s=limit,
        programs=("mke2fs",),
        scratch_mib=(scratch,) if scratch else (),
        prose=True,
    )
    outcome = run.boot(job, watch=lambda row: print(row, flush=True))
    outcome.require()
    print(f"ended well after {outcome.host_s:.1f} s; console in {outcome.console}")


def _bootable(name: str, board_name: str) -> Path:
    if name in kernel.CONFIGS:
        arch = board.BOARDS[board_name].arch
        fitting = [one for one, config in kernel.CONFIGS.items() if config.arch is arch]
        if name not in fitting:
            raise LabError(
                f"the board {board_name} does not boot the {name} kernel; give it one with "
                f"--kernel: {', '.join(fitting)}"
            )
        return kernel.image(name).bootable
    if not Path(name).is_file():
        raise LabError(f"no kernel '{name}': no such file, and none of {', '.join(kernel.CONFIGS)}")
    return Path(name)


@lab.command()
@click.argument("what", nargs=-1, type=click.Choice(["kernel", *packages.DESCRIPTIONS]))
@click.option(
    "--kernel",
    "name",
    type=click.Choice([name for name, one in kernel.CONFIGS.items() if one.arch is not UM]),
    default="gcma",
    show_default=True,
    help="Kernel to package: which Linux, for which architecture.",
)
@click.option(
    "--config",
    "given",
    type=click.Path(path_type=Path),
    help="A .config to take instead, with GCMA added: /boot/config-VERSION",
)
def debs(what: tuple[str, ...], name: str, given: Path | None) -> None:
    """Make Debian packages of the programs and of a kernel, or of WHAT of them, in out/debs."""
    if given is not None:
        if what and "kernel" not in what:
            raise LabError("--config is for the kernel, which is not among what is to be packaged")
        kernel.given_config(given)
    for part in packages.DESCRIPTIONS:
        if not what or part in what:
            print(packages.deb(part, OUT / "debs"))
    if not what or "kernel" in what:
        for package in kernel.debs(name, given, OUT / "debs"):
            print(package)


@lab.command()
@click.option(
    "--board",
    "board_name",
    type=click.Choice([name for name, one in board.BOARDS.items() if one.arch is not UM]),
    default="x86-fast",
    show_default=True,
)
@click.option("--config", type=memory_configs, default="gcma", show_default=True)
@click.option("--kernel", "image", default="gcma", show_default=True)
def shell(board_name: str, config: str, image: str) -> None:
    """Boot a board with a shell on this terminal."""
    if not sys.stdin.isatty():  # the end of a file would not be its end
        raise LabError("standard input is no terminal; for a script: lab/lab run SCRIPT")
    kernel_file = _bootable(image, board_name)
    machine = run.on_this_host(
        board.Machine(board_name, config, words=("lab_shell", "quiet")), kernel_file
    )
    temp = Path(run.temporary())
    try:
        ramfs = temp / "initramfs.cpio"
        initramfs.write(ramfs, machine.arch, jobs.script("shell"), ("mke2fs",))
        if not machine.exact:
            machine = run.with_scratch(machine, temp, [512])
        machine = board.with_device_tree(machine, kernel_file, temp)
        command = machine.command(kernel_file, ramfs, None, None)
        print("booting; leave with Ctrl-A X", flush=True)
        status = subprocess.run(command, check=False).returncode
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    sys.exit(status if status >= 0 else 128 - status)


@lab.command("series")
@click.argument("version")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--boot-each", is_flag=True, help="Build and boot a kernel after every patch.")
def write_series(version: str, directory: Path | None, boot_each: bool) -> None:
    """Write the patches for upstream, as mails for `git am` (default: into out/series-VERSION)."""
    plan = series.plan(version, trees.new_files())
    if boot_each:
        series.boot_each()
        return
    directory = directory or OUT / f"series-{version}"
    series.write(directory, plan, trees.source(version).path)
    for part in sorted(plan.covers):
        count = sum(step.part == part for step in plan.steps)
        print(f"{count} patches and a cover letter in {directory / part}")
    print(f"next: git -C LINUX am --empty=drop {directory.resolve()}/*/*.patch")


@lab.command()
def where() -> None:
    """Say where the cache is and what it holds."""
    print(cache())
    for path in sorted((cache() / "images").glob("*/build.json")):
        print(f"  {path.parent.name}")


@lab.command()
@draw_only
@linux
@click.option(
    "--seed",
    type=click.IntRange(1, LAST_SEED),
    default=1,
    show_default=True,
    help="Seed of load and machine.",
)
def demo(draw_only: bool, version: str, seed: int) -> None:
    """Compare reservation, CMA and GCMA under load; writes out/demo/index.html, or
    out/demo-7.3/index.html."""
    from nocopy_lab.experiments import demo as experiment
    from nocopy_lab.experiments import demo_report

    directory = experiment.directory(version)
    if not draw_only:
        experiment.run(version, seed)
    _draw(demo_report, directory)


@lab.command("bench-gcma")
@draw_only
@_only("runs", "; stored ones of the same kernels stay")
@linux
def bench_gcma(draw_only: bool, only: str, version: str) -> None:
    """Measure all configurations in depth; writes out/bench-gcma/index.html, or
    out/bench-gcma-7.3/index.html."""
    from nocopy_lab.experiments import bench_gcma as experiment
    from nocopy_lab.experiments import gcma_report

    directory = experiment.directory(version)
    if not draw_only:
        experiment.run(version, only)
    _draw(gcma_report, directory)


@lab.command("traces")
@_only("traces")
@click.option("--again", is_flag=True, help="Record them again, although the cache has them.")
def record_traces(only: str, again: bool) -> None:
    """Record what is asked of an area under several loads, and print where the traces are."""
    from nocopy_lab import traces

    traces.record(only, again)
    for trace in traces.TRACES.values():
        if trace.path().is_file():
            print(trace.path())


@lab.command("stores")
@draw_only
@click.option("--made-only", is_flag=True, help="Play no recorded traces.")
def compare_stores(draw_only: bool, made_only: bool) -> None:
    """Compare what an area could keep, on recorded traces; writes out/stores/index.html."""
    from nocopy_lab.experiments import stores as experiment
    from nocopy_lab.experiments import stores_report

    if not draw_only:
        experiment.replay(not made_only)
    _draw(stores_report, experiment.HERE)


@lab.command()
@click.argument("parts", nargs=-1)
@click.option("--board", "board_name", default="x86", show_default=True)
@click.option(
    "--at-once", type=click.IntRange(min=1), default=2, show_default=True, help="Boots at a time."
)
@draw_only
@linux
def paper(
    parts: tuple[str, ...], board_name: str, at_once: int, draw_only: bool, version: str
) -> None:
    """Run the GCMA paper's evaluation, or PARTS of it (fig4 fig5 fig6 fig7 table3), and more
    (area use hour huge); writes out/paper/BOARD/ and docs/results/paper.md. With Linux 7.3, on
    x86 alone, it writes out/paper/x86-7.3/, and what differs into that document."""
    from nocopy_lab.experiments import paper as experiment
    from nocopy_lab.experiments import paper_report

    for given, known in ((parts, experiment.PARTS), ((board_name,), experiment.KERNELS)):
        for word in given:
            if word not in known:
                raise LabError(f"what is '{word}'? there are: {', '.join(known)}")
    directory = experiment.directory(board_name, version)
    if not draw_only:
        experiment.run(parts, board_name, at_once, version)
    page = _drawn(paper_report, directory)
    boards = list(experiment.KERNELS)
    later = [experiment.directory(one, trees.SERIES[1]).name for one in experiment.LATER]
    print(f"statements and figures: {paper_report.write_docs(boards, later)}")
    print(f"page with figures: {page}")


@lab.command("report")
def report_all() -> None:
    """Draw every figure of every experiment into one page, out/report/index.html."""
    from nocopy_lab.experiments import everything

    print(f"page: {everything.write()}")


@lab.command()
def site() -> None:
    """Make a site of README, documents, results and figures, in out/site."""
    from nocopy_lab import website

    print(f"first page: {website.write()}")


@lab.command("bench-brug")
@draw_only
@_only("benchmarks", "; stored ones of the same binaries stay")
@click.option(
    "--quick",
    is_flag=True,
    help="One round of a 64th of the work, into out/bench-brug-quick: does it all run?",
)
@click.option(
    "--mimalloc-bench",
    "suite",
    envvar="MIMALLOC_BENCH",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A copy of mimalloc-bench, whose programs are run as well; or MIMALLOC_BENCH=DIR.",
)
def bench_brug(draw_only: bool, only: str, quick: bool, suite: Path | None) -> None:
    """Compare brug with other allocators; writes out/bench-brug/index.html."""
    from nocopy_lab.experiments import bench_brug as experiment
    from nocopy_lab.experiments import brug_report

    directory = experiment.directory(quick)
    if not draw_only:
        experiment.run(only, quick, suite)
    _draw(brug_report, directory)


@lab.command("bench-pdio")
@draw_only
@_only("runs", "; other stored ones stay")
def bench_pdio(draw_only: bool, only: str) -> None:
    """Measure pdio here and on a slow board, as its paper did; writes out/bench-pdio/index.html."""
    from nocopy_lab.experiments import bench_pdio as experiment
    from nocopy_lab.experiments import pdio_report

    if not draw_only:
        experiment.run(only)
    _draw(pdio_report, experiment.HERE)


@lab.command("record")
@draw_only
@_only("boots", "; other stored ones stay")
def compare_recorders(draw_only: bool, only: str) -> None:
    """Compare nocopy-record with v4l2-ctl and ffmpeg; writes out/record/index.html."""
    from nocopy_lab.experiments import record as experiment
    from nocopy_lab.experiments import record_report

    if not draw_only:
        experiment.run(only)
    _draw(record_report, experiment.HERE)


@lab.command()
@_minutes(10.0, "Begin rounds for this long.")
@click.option(
    "--rounds", type=click.IntRange(min=0), default=0, help="Run this many rounds instead."
)
@_first_seed("round")
def soak(minutes: float, rounds: int, seed: int | None) -> None:
    """Run everything at once, at random, on several kernels and boards."""
    from nocopy_lab.checks import soak as soaking

    soaking.run(minutes, rounds, seed)


@lab.command("fuzz-pdio")
@_minutes(60.0, "Begin sequences for this long.")
@_first_seed("sequence")
def fuzz_pdio(minutes: float, seed: int | None) -> None:
    """Compare random sequences of file operations with and without libpdio.so."""
    from nocopy_lab.checks import pdio_fuzz

    print(pdio_fuzz.run(minutes, seed))


@lab.command()
@_only("checks", ", or the one of this name")
@click.option("--all", "asked", is_flag=True, help="Also those that run only if asked for.")
@click.option("--list", "list_only", is_flag=True, help="Name the checks and end.")
def test(only: str, asked: bool, list_only: bool) -> None:
    """Run the checks that this machine can run, without those that run only if asked for."""
    from nocopy_lab.checks import runner

    if list_only:
        for one in runner.named(only):
            print(f"{one.name}{' (only if asked for)' if one.asked else ''}")
        return
    sys.exit(0 if runner.run_all(only, asked) else 1)


@lab.command()
def check() -> None:
    """Run what takes a few minutes and catches most mistakes: lint, unit tests, KUnit."""
    from nocopy_lab.checks import runner

    sys.exit(0 if runner.run_all(quick=True) else 1)


def _flush() -> None:
    """Meet a reader that has gone, or a full disk, where they can be told of, and only once."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def main() -> None:
    child.end_children_with_us()
    try:
        try:
            lab(prog_name="lab", standalone_mode=False)
        except RuntimeError as error:
            # What Python 3.11 makes of a signal that comes while it makes a class, as in an import.
            if isinstance(error.__cause__, KeyboardInterrupt | SystemExit):
                raise error.__cause__ from None
            raise
        finally:
            _flush()
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        print("lab: interrupted", file=sys.stderr, flush=True)
        child.end_all()
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:  # a full disk, or a directory that is not ours to write
        print(f"lab: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
