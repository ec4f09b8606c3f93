# SPDX-License-Identifier: MIT OR Apache-2.0
"""What looks at recordings finds what is wrong with them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nocopy_lab.paths import GUEST

WIDTH, HEIGHT = 320, 24
LINE = 2 * WIDTH
FRAME = LINE * HEIGHT

Look = Callable[[Sequence[bytes], str], dict[str, object]]


def rest() -> bytes:
    """A picture that is the same as itself in no other place."""
    return random.Random(1).randbytes(FRAME)


def picture(tick: int) -> bytes:
    """What the camera shows then: two pixels and one line further each time."""
    still, shift = rest(), 4 * tick % LINE
    lines = [still[at : at + LINE] for at in range(0, FRAME, LINE)]
    turned = [line[shift:] + line[:shift] for line in lines]
    return b"".join(turned[(y + tick) % HEIGHT] for y in range(HEIGHT))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("pattern") / "pattern"
    subprocess.run(["gcc", "-O2", "-o", built, GUEST / "pattern.c"], check=True, timeout=60)
    return built


@pytest.fixture
def look(program: Path, tmp_path: Path) -> Look:
    def run(frames: Sequence[bytes], index: str) -> dict[str, object]:
        (tmp_path / "rest").write_bytes(rest())
        (tmp_path / "out").write_bytes(b"".join(frames))
        (tmp_path / "out.index").write_text("# nocopy-record 1: vivid\n" + index)
        words = ["--width", str(WIDTH), "--height", str(HEIGHT), "--rest", str(tmp_path / "rest")]
        words += ["--check", str(tmp_path / "out")]
        said = subprocess.run([program, *words], check=True, capture_output=True, timeout=60)
        row: dict[str, object] = json.loads(said.stdout)
        return row

    return run


def lines(*numbers: int) -> str:
    """The index of frames with these numbers, one behind the other."""
    return "".join(f"{n} 1.000000 {i * FRAME} {FRAME}\n" for i, n in enumerate(numbers))


@pytest.mark.parametrize("lead", [0, -1])
def test_a_recording_as_it_should_be(look: Look, lead: int) -> None:
    frames = [picture(n + lead) for n in (1, 2, 6, 8)]
    first, second, third, fourth = lines(1, 2, 6, 8).splitlines(keepends=True)
    row = look(frames, first + second + "# lost 3-5\n" + third + "# damaged 7\n" + fourth)
    assert row["wrong"] == ""
    assert (row["frames"], row["lost"], row["damaged"]) == (4, 3, 1)
    assert (row["first"], row["last"], row["indexed"]) == (1, 8, 4 * FRAME)


def test_a_number_that_came_twice(look: Look) -> None:
    row = look([picture(0), picture(1), picture(2), picture(3)], lines(0, 1, 1, 2))
    assert (row["wrong"], row["repeated"]) == ("", 1)


WRONG = {
    "torn": [picture(0), picture(1)[: FRAME // 2] + picture(2)[FRAME // 2 :], picture(2)],
    "one byte": [picture(0), picture(1)[:-1] + bytes([picture(1)[-1] ^ 1]), picture(2)],
    "of before": [picture(8), picture(1), picture(10)],
    "of later, the last": [picture(0), picture(1), picture(10)],
    "of later, and back": [picture(0), picture(2), picture(2)],
    "twice": [picture(0), picture(1), picture(1)],
    "empty": [picture(0), bytes(FRAME), picture(2)],
    "the first page again and again": [picture(0), 15 * picture(1)[:1024], picture(2)],
}


@pytest.mark.parametrize("what", WRONG)
def test_a_frame_that_is_not_what_was_given(look: Look, what: str) -> None:
    assert FRAME == 15 * 1024
    first = 8 if what == "of before" else 0
    assert look(WRONG[what], lines(first, first + 1, first + 2))["wrong"] != ""


@pytest.mark.parametrize(
    "index",
    [
        lines(0, 1, 3),  # one is missing, and not named
        lines(0, 1, 2) + "# lost 4\n",
        lines(0, 1, 2).replace(f" {FRAME}\n", f" {FRAME - 1}\n"),
        lines(0, 1, 2).replace(f" {2 * FRAME} ", f" {FRAME} "),
        lines(0, 1, 2, 3),  # ahead of the file
        lines(0, 1, 2)[:-1],  # half a line
        lines(0, 1) + "and so on\n",
    ],
)
def test_an_index_that_is_not_right(look: Look, index: str) -> None:
    numbers = [3 if line.startswith("3 ") else at for at, line in enumerate(index.splitlines()[:3])]
    assert look([picture(n) for n in numbers], index)["wrong"] != ""
