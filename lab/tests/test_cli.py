# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a user meets who asks for what cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nocopy_lab import child, cli, crates, kernel, samples
from nocopy_lab.checks import kinds


def lab(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit status of a command."""
    monkeypatch.setattr(sys, "argv", ["lab", *words])
    monkeypatch.setattr(child, "end_children_with_us", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("soak", ("--rounds", "-1")),
        *(
            (command, words)
            for command in ("soak", "fuzz-pdio")
            for words in (
                *(("--minutes", number) for number in ("0", "-1", "nan", "inf", "1e300")),
                *(("--seed", number) for number in ("-1", str(2**31))),
            )
        ),
    ],
)
def test_what_cannot_be_run_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str,
    words: tuple[str, str],
) -> None:  # fmt: skip
    from nocopy_lab.checks import pdio_fuzz, soak

    for one in (pdio_fuzz, soak):
        monkeypatch.setattr(one, "run", lambda *_: pytest.fail("it runs"))
    assert lab(monkeypatch, command, *words) == 2
    assert "Error: Invalid value" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--limit", "nan"),
        ("--limit", "inf"),
        ("--limit", "0"),
        ("--extra", "-1"),
        ("--scratch", "-1"),
    ],
)
def test_no_board_is_booted_with_a_number_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    monkeypatch.setattr(kernel, "image", lambda _: pytest.fail("it is built"))
    assert lab(monkeypatch, "run", *words, "true") == 2
    assert "Error: Invalid value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--kernel", "no-such", "true"), "no kernel 'no-such': no such file, and none of gcma, "),
        (("--kernel", "KERNEL", "SCRIPT"), "is no text in UTF-8"),
        (("--kernel", "KERNEL", "echo \udcff"), "is no text in UTF-8"),
    ],
)
def test_what_cannot_run_in_a_guest_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    words: tuple[str, ...], says: str,
) -> None:  # fmt: skip
    for name in ("KERNEL", "SCRIPT"):
        (tmp_path / name).write_bytes(b"\xff\n")
    monkeypatch.chdir(tmp_path)
    assert lab(monkeypatch, "run", *words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: ") and says in line


@pytest.mark.parametrize("command", [("run", "true"), ("shell",)])
def test_a_kernel_of_another_architecture_is_not_booted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(kernel, "image", lambda _: pytest.fail("it is built"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert lab(monkeypatch, *command, "--board", "arm64") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: the board arm64 does not boot the gcma kernel; ")
    assert line.endswith("--kernel: arm64")


def test_a_shell_without_a_terminal_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "image", lambda _: pytest.fail("it is built"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert lab(monkeypatch, "shell") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: standard input is no terminal; ")


@pytest.mark.parametrize("command", ["record", "traces"])
def test_what_no_name_has_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(kernel, "image", lambda _: pytest.fail("it is built"))
    assert lab(monkeypatch, command, "--only", "no-such") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: ") and "'no-such' in its name; there are: " in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("debs", "brug", "--config", "/boot/config-x"), "--config is for the kernel"),
        (("debs", "--config", "/no/such"), "no configuration /no/such; on Debian"),
        (("paper", "--board", "rpi2", "table3"), "nothing of table3 is measured on rpi2"),
        (("test", "--list", "--only", "no-such"), "no check has 'no-such' in its name"),
        (("run", "--word", "\udcff", "true"), "--word '\\udcff' is no kernel parameter"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...],
    says: str,
) -> None:  # fmt: skip
    from nocopy_lab import packages

    monkeypatch.setattr(kernel, "image", lambda _: pytest.fail("it is built"))
    monkeypatch.setattr(packages, "deb", lambda *_: pytest.fail("it is built"))
    assert lab(monkeypatch, *words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: ") and says in line


def test_a_toolchain_that_cannot_be_had_is_one_line_and_no_failure_of_a_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nocopy_lab.experiments import record

    monkeypatch.setattr(crates, "toolchain", lambda: crates.Toolchain(Path("cargo"), {"PATH": ""}))

    def needs(*_: object) -> None:
        crates.aarch64()

    monkeypatch.setattr(record, "run", needs)
    assert lab(monkeypatch, "record") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: no rustup to install ")
    monkeypatch.setattr(kinds, "HOST_CHECKS", [])
    kinds.crates_check("aarch64")(needs)
    with pytest.raises(kinds.Skip, match="no rustup"):
        kinds.HOST_CHECKS[0].run()


def test_a_quick_look_leaves_what_was_measured() -> None:
    from nocopy_lab.experiments import bench_brug

    assert bench_brug.directory(quick=True) != bench_brug.directory(quick=False)


_LAYOUT = "is not as this version writes it "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ""),
        ('{"runs": [', ""),
        ("[]", ""),
        ("{}", _LAYOUT),
        ('{"runs": [{"name": "demo-cma"}]}', _LAYOUT),
        ('{"runs": 5}', _LAYOUT),
    ],
)
def test_results_that_cannot_be_read_or_are_of_another_layout_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    why: str,
) -> None:
    from nocopy_lab.experiments import demo

    (tmp_path / "results.json").write_text(text)
    monkeypatch.setattr(demo, "directory", lambda _: tmp_path)
    assert lab(monkeypatch, "demo", "--draw-only") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lab: {tmp_path}/results.json {why}")
    assert (tmp_path / "results.json").read_text() == text


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("")  # a file, where a directory has to be
    monkeypatch.setattr(samples, "stored", lambda _: b"{}")
    from nocopy_lab.experiments import demo

    monkeypatch.setattr(demo, "directory", lambda _: tmp_path / "out/demo")
    assert lab(monkeypatch, "demo", "--draw-only") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: ") and f"{tmp_path}/out" in line


def test_an_interruption_while_a_class_is_made_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def __set_name__(self, _owner: type, _name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(kernel, "image", lambda _: type("Made", (), {"field": Interrupts()}))
    monkeypatch.setattr(child, "end_all", lambda: None)
    assert lab(monkeypatch, "build") == 130
    # From Python 3.12 on click sees it, and ends the line of the ^C first.
    assert capsys.readouterr().err.strip() == "lab: interrupted"
