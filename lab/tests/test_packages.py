# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packages, of a program that does nothing."""

import http.client
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nocopy_lab import child, crates, packages
from nocopy_lab.paths import LabError

PROGRAM = '#include <stdio.h>\nint main(void) { return puts("brug 1.2.3") < 0; }\n'


@pytest.fixture
def hidden() -> Iterator[None]:
    """What is made is for its owner alone."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("hidden")
def test_everybody_may_read_what_is_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("cc", "dpkg-deb", "dpkg-shlibdeps"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")

    def make(words: list[str], **_: Any) -> None:
        if words[1] != "install":
            return
        root = Path(words[3].removeprefix("DESTDIR=")) / "usr"
        for directory in ("bin", "share/man/man1", "share/zsh/site-functions"):
            (root / directory).mkdir(parents=True, mode=0o755)
        program = ["cc", "-x", "c", "-", "-o", str(root / "bin/brug")]
        subprocess.run(program, input=PROGRAM, text=True, check=True)
        (root / "share/man/man1/brug.1").write_text("page")

    monkeypatch.setattr(crates, "toolchain", lambda: type("Tools", (), {"env": {}}))
    monkeypatch.setattr(crates, "linked", lambda _: {})
    monkeypatch.setattr(child, "run", make)
    made = packages.deb("brug", tmp_path / "debs")
    listed = subprocess.run(["dpkg-deb", "-c", made], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        assert line[1:10] in ("rwxr-xr-x", "rw-r--r--"), line


def test_each_licence_of_what_is_linked_is_there_once(tmp_path: Path) -> None:
    texts = {
        "one 1.0/LICENSE-MIT": "Copyright one\n\nPermission\n",
        "two 0.2/LICENCE.md": "Copyright one\nPermission",
        "two 0.2/licenses/COPYING": "Copyright three",
        "two 0.2/src/lib.rs": "Copyright nobody",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sources = {name: tmp_path / name for name in ("one 1.0", "two 0.2")}
    said = packages.notices(sources)
    assert "one 1.0, two 0.2:\n\nCopyright one\n\nPermission\n\n" in said
    assert said.endswith("two 0.2:\n\nCopyright three")
    assert said.count("Permission") == 1 and "nobody" not in said
    (tmp_path / "four").mkdir()
    with pytest.raises(LabError, match="four has no text of its licence"):
        packages.notices({**sources, "four": tmp_path / "four"})


def test_a_download_that_is_cut_off_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_words: object, **_more: object) -> None:
        raise http.client.IncompleteRead(b"")

    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path))
    monkeypatch.setattr(crates, "require_space", lambda where, mib: None)
    monkeypatch.setattr(urllib.request, "urlopen", cut)
    with pytest.raises(LabError, match="cannot be had"):
        crates._install()
