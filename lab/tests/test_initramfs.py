# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

from nocopy_lab.initramfs import Archive, job_archive


def test_cpio_unpacks_to_what_was_packed(tmp_path: Path) -> None:
    archive = Archive()
    archive.add("bin/tool", b"#!/bin/sh\n", 0o755)
    archive.add("a/b/c/file", b"x" * 1001)
    archive.link("bin/alias", "tool")
    subprocess.run(
        ["cpio", "-i", "-d", "--quiet"], input=archive.pack(), cwd=tmp_path, check=True, timeout=20
    )
    assert (tmp_path / "bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a/b/c/file").read_bytes() == b"x" * 1001
    assert (tmp_path / "bin/alias").readlink() == Path("tool")


def test_the_same_contents_give_the_same_archive() -> None:
    one, two = Archive(), Archive()
    one.add("a", b"1")
    one.add("b", b"2")
    two.add("b", b"2")
    two.add("a", b"1")
    assert one.pack() == two.pack()


def test_a_job_brings_its_library() -> None:
    assert b". /lib/lab.sh\ntrue\n" in job_archive("true\n")
