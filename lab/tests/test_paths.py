# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nocopy_lab import cli, paths
from nocopy_lab.paths import LAB, LabError, locked


def test_a_program_is_found_where_only_root_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert paths.tool("chroot")
    assert not paths.tool("no-such-program")


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


def test_a_lab_that_ends_waits_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()
    monkeypatch.setattr(paths, "CLOSING", closing)
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.2, closing.set).start()
        with pytest.raises(LabError, match="interrupted"), locked(tmp_path / "lock"):
            pass


def started(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `lab where` says in a directory with the caches of these tests."""
    for name in ("cache", "with space"):
        (tmp_path / name).mkdir()
        key = f"Python {platform.python_version()}\n{(LAB / 'requirements.txt').read_text()}"
        venv = f"venv-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        (tmp_path / name / venv).symlink_to(sys.prefix)
    return subprocess.run(
        [LAB / "lab", "where"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip


def test_a_relative_cache_is_the_same_for_children_elsewhere(tmp_path: Path) -> None:
    ended = started(tmp_path, NOCOPY_CACHE="cache")
    assert ended.stdout == f"{tmp_path}/cache\n"
    assert ended.stderr == ""  # it has taken the environment that is there


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_what_the_caller_has_closed_is_not_missed(tmp_path: Path, closed: str) -> None:
    started(tmp_path)  # makes the caches
    command = f"exec {shlex.quote(str(LAB / 'lab'))} where {closed}"
    environment = {"PATH": os.environ["PATH"], "NOCOPY_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == ("" if closed == ">&-" else f"{tmp_path}/cache\n")


def test_output_that_nobody_takes_is_at_most_one_line(tmp_path: Path) -> None:
    started(tmp_path)  # makes the caches
    environment = {"PATH": os.environ["PATH"], "NOCOPY_CACHE": str(tmp_path / "cache")}
    gone, pipe = os.pipe()
    os.close(gone)
    for to, status, says in (
        (pipe, 141, ""),
        (os.open("/dev/full", os.O_WRONLY), 1, "lab: [Errno 28] No space left on device\n"),
    ):
        ended = subprocess.run(
            [LAB / "lab", "where"], env=environment, stdout=to, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
        os.close(to)
        assert (ended.returncode, ended.stderr) == (status, says)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"NOCOPY_CACHE": "with space"}, "has a space or a colon"),
        ({}, "neither HOME nor NOCOPY_CACHE is set"),
    ],
)
def test_where_no_cache_can_be_is_said_in_one_line(
    tmp_path: Path, environment: dict[str, str], says: str
) -> None:
    ended = started(tmp_path, **environment)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("lab: ") and says in line


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_where_no_library_can_be_preloaded_is_said_in_one_line(tmp_path: Path, name: str) -> None:
    copy = tmp_path / name / "lab/lab"
    copy.parent.mkdir(parents=True)
    shutil.copy(LAB / "lab", copy)
    ended = subprocess.run([copy, "where"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"lab: {tmp_path / name} has a space or a colon")


def without_rights(tmp_path: Path, *words: str, **others: str) -> subprocess.CompletedProcess[str]:
    """What the lab says to a user who may not install the packages that are not there.

    `others` are programs that do something else here than for such a user.
    """
    programs = {
        "id": "echo 1000",
        "dpkg-query": "",
        # Of what only others mention it says so.
        "apt-cache": "[ $2 = libpython3.13-testsuite ] && echo '  Candidate: (none)' "
        "|| echo '  Candidate: 1'",
        "apt-get": "echo called >&2",
        "sudo": "echo 'sudo: a password is required' >&2; exit 1",
        **others,
    }
    for name, does in programs.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    return subprocess.run(
        [LAB / "lab", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, env={"PATH": path, "NOCOPY_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip


@pytest.mark.parametrize("words", [("--help",), ("run", "-h"), ()])
def test_help_installs_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = without_rights(tmp_path, *words)
    assert (said.returncode, said.stderr) == (0, "")
    listed, last = said.stdout.splitlines()[:-1], said.stdout.splitlines()[-1]
    assert set(cli.lab.commands) >= {line.split()[1] for line in listed} >= {"demo", "run", "test"}
    assert last.endswith("--help says more.")
    assert not (tmp_path / "cache").exists()


def test_who_may_not_install_packages_is_told_what_root_has_to_run(tmp_path: Path) -> None:
    ended = without_rights(tmp_path, "test")
    assert ended.returncode == 1
    sudo, line = ended.stderr.splitlines()
    assert sudo == "sudo: a password is required"
    does = line.partition("; as root run: ")[2]
    # A command for a shell: one of the packages of which one will do.
    assert {"apt-get", "qemu-system-x86", "libpython3.11-testsuite"} < set(shlex.split(does))
    assert "|" not in does


def test_why_apt_knows_no_package_is_said(tmp_path: Path) -> None:
    """It goes on after an update that failed, and then names the package."""
    apt = "case $* in *update) echo W: no such host ;; *) echo E: Unable to locate; exit 100; esac"
    ended = without_rights(
        tmp_path, "test", **{"apt-get": apt, "sudo": 'shift; exec "$@"', "dpkg": ""}
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.endswith("E: Unable to locate W: no such host")


def test_to_draw_takes_no_more_packages_than_the_lab(tmp_path: Path) -> None:
    drawn, measured = (
        set(without_rights(tmp_path, "record", *words).stderr.split())
        for words in (("--draw-only",), ())
    )
    assert "qemu-system-x86" in drawn
    assert measured - drawn >= {"qemu-system-arm"}


def test_only_what_the_lab_has_made_is_removed(tmp_path: Path) -> None:
    # The lab ends once it has its cache, before it installs anything.
    ends = tmp_path / "bin/sha256sum"
    ends.parent.mkdir()
    ends.write_text("#!/bin/sh\nexit 1\n")
    ends.chmod(0o755)
    path = f"{ends.parent}:{os.environ['PATH']}"
    others = tmp_path / "others"
    others.mkdir()
    (others / "photo").touch()
    for cache in (tmp_path / "new", others):
        environment = {"PATH": path, "NOCOPY_CACHE": str(cache)}
        ended = subprocess.run([LAB / "lab", "where"], env=environment, check=False)
        assert ended.returncode == 1
    tag = (tmp_path / "new/CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    ended = subprocess.run(
        ["make", "--silent", "distclean"], cwd=LAB.parent, check=False,
        env={"PATH": path, "NOCOPY_CACHE": str(others)},
    )  # fmt: skip
    assert ended.returncode != 0
    assert [file.name for file in others.iterdir()] == ["photo"]
