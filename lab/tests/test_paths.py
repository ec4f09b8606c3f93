# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from nocopy_lab.paths import locked


def test_threads_of_this_lab_are_not_called_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside: list[int] = []

    def enter(number: int) -> None:
        with locked(tmp_path / "lock"):
            inside.append(number)
            assert inside[-1] == number

    threads = [threading.Thread(target=enter, args=(n,)) for n in range(8)]
    with locked(tmp_path / "lock"):
        for thread in threads:
            thread.start()
        assert not inside
    for thread in threads:
        thread.join()
    assert sorted(inside) == list(range(8))
    assert capsys.readouterr().out == ""


def test_another_lab_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lock"
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.2, fcntl.flock, (other, fcntl.LOCK_UN)).start()
        with locked(path):
            pass
    assert f"another lab (it holds {path})" in capsys.readouterr().out
