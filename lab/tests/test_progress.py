# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a log says of long work."""

from __future__ import annotations

import io
import re
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from nocopy_lab import child, progress


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.4)
    monkeypatch.setattr(progress, "WORTH_A_LINE_S", 0.1)


def _says(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a log has as soon as it has all these, in this order."""
    said = ""
    while not re.search(".*".join(words), said, re.DOTALL):
        time.sleep(0.05)
        said += capsys.readouterr().out
    return said


def test_work_that_says_nothing_shows_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("thinking"):
        _says(capsys, r"  thinking \.\.\.", r"  thinking: \d+ s\n", r"  thinking: \d+ s\n")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_share_and_time_are_on_a_terminal_however_narrow(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(progress, "console", Console(width=width, file=io.StringIO()))
    live = progress._live()
    live.add_task("a check with a name that is " + "long " * 20, total=10, completed=4, words="w")
    with progress.console.capture() as capture:
        progress.console.print(live.get_renderable())
    (line,) = capture.get().splitlines()
    assert re.search(r"a check with.* 40% 0:00:00", line)
    assert len(line) <= width


def test_the_share_is_said_if_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("counting") as meter:
        meter.at(0.25, "sheep")
        _says(capsys, r"counting: 25% after \d+ s sheep\n")


def test_a_log_that_nobody_reads_any_more_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    meter = progress.Meter("counting", None)
    with monkeypatch.context() as patched:
        patched.setattr("builtins.print", broken)
        meter.tick(time.monotonic() + 1)
    meter.tick(time.monotonic() + 100)
    assert "counting: " in capsys.readouterr().out


def test_only_the_innermost_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("outside"):
        with progress.meter("inside"):
            assert "outside" not in _says(capsys, "inside:", "inside:")
        _says(capsys, "outside")


def test_last_words_of_the_command_that_the_meter_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"

    def work(what: str) -> None:
        script = f"echo {what}; printf 'all but \\033done\\n\\n'; "
        script += f"until [ -e {go} ]; do sleep 0.05; done"
        if what == "first":
            script = script.replace("all but", "hardly")
        with progress.meter(what):
            child.run(["sh", "-c", script], log=tmp_path / what, limit_s=60, what=what)

    workers = [threading.Thread(target=work, args=(what,)) for what in ("first", "second")]
    for worker in workers:
        worker.start()
    said = _says(capsys, r"(first|second): \d+ s", r"(first|second): \d+ s")
    go.touch()
    for worker in workers:
        worker.join()
    said += capsys.readouterr().out
    assert re.search(r"first: \d+ s hardly done\n", said)
    assert re.search(r"second: \d+ s all but done\n", said)
    assert child.last_words(threading.get_ident()) == ""
