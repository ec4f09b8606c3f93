# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from nocopy_lab import traces
from nocopy_lab.paths import LabError

TRACE = b'{"name": "loop"}\n' + b"R 0 1 0 1\n" * 999


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "loop.xz"
    path.write_bytes(lzma.compress(TRACE))
    head, records = traces.load(path)
    assert head == {"name": "loop"}
    assert len(records.splitlines()) == 999


@pytest.mark.parametrize(
    "content",
    [b"", b"no trace", lzma.compress(TRACE)[:-30], lzma.compress(b"\xff"), lzma.compress(b"R\n")],
)
def test_a_damaged_trace_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "loop.xz"
    path.write_bytes(content)
    with pytest.raises(LabError, match=r"loop\.xz is damaged; remove it, and run: lab/lab traces"):
        traces.load(path)
