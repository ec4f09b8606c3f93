# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a user meets who asks for what cannot be."""

from __future__ import annotations

import sys

import pytest

from nocopy_lab import child, cli


def lab(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit status of a command."""
    monkeypatch.setattr(sys, "argv", ["lab", *words])
    monkeypatch.setattr(child, "end_children_with_us", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(
    "words",
    [("--minutes", "0"), ("--minutes", "-1"), ("--minutes", "nan"), ("--rounds", "-1")],
)
def test_no_rounds_of_a_soak_are_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    from nocopy_lab.checks import soak

    monkeypatch.setattr(soak, "run", lambda *_: None)
    assert lab(monkeypatch, "soak", *words) == 2
    assert "Error: Invalid value" in capsys.readouterr().err
