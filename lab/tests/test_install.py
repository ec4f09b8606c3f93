# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `make install` puts where, and what `make uninstall` and `make distclean` take away."""

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from nocopy_lab.paths import REPO

# Writes what the command of a part would, as far as the Makefile cares.
COMMAND = """#!/bin/sh
[ "$1" = --version ] && exec echo "${0##*/} 1.2.3"
mkdir -p "$2/man/man1" && echo page >"$2/man/man1/${0##*/}.1"
"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    release = tmp_path / "target/release"
    release.mkdir(parents=True)
    for name in ("brug", "pdio", "nocopy-record"):
        (release / name).write_text(COMMAND)
        (release / name).chmod(0o755)
    for name in ("libbrug.so", "libpdio.so"):
        (release / name).write_text("")
    return release.parent


def make(target: str, built: Path, *variables: str, umask: int = 0o022) -> None:
    subprocess.run(
        ["make", "--silent", target, *variables],
        cwd=REPO,
        env={**os.environ, "CARGO_TARGET_DIR": str(built)},
        umask=umask,
        check=True,
        capture_output=True,
    )


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_everybody_may_read_what_root_installs(built: Path, tmp_path: Path) -> None:
    root = tmp_path / "a root"
    make("install", built, f"DESTDIR={root}", "PREFIX=/opt/no copy", umask=0o077)
    assert {"lib/pkgconfig/pdio.pc", "share/man/man1/brug.1"} < files(root / "opt/no copy")
    for path in root.rglob("*"):
        wanted = 0o055 if path.is_dir() else 0o044
        assert stat.S_IMODE(path.stat().st_mode) & wanted == wanted, path


def test_pkg_config_names_one_directory(built: Path, tmp_path: Path) -> None:
    pkg_config = shutil.which("pkg-config")
    if pkg_config is None:
        pytest.skip("no pkg-config")
    prefix = tmp_path / "no copy"
    make("install", built, f"PREFIX={prefix}")
    said = subprocess.run(
        [pkg_config, "--libs", "pdio"],
        env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert shlex.split(said.stdout) == [f"-L{prefix}/lib", "-lpdio"]


def test_a_part_comes_and_goes_alone(built: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    make("install", built, f"PREFIX={prefix}")
    make("install", built, f"PREFIX={prefix}")
    make("uninstall", built, f"PREFIX={prefix}", "PARTS=pdio")
    assert files(prefix) == {
        "bin/brug",
        "bin/nocopy-record",
        "lib/libbrug.so",
        "lib/pkgconfig/brug.pc",
        "share/man/man1/brug.1",
        "share/man/man1/nocopy-record.1",
    }
    make("uninstall", built, f"PREFIX={prefix}")
    assert not files(prefix)


def test_what_cannot_be_removed_is_an_error_and_the_rest_goes(built: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    make("install", built, f"PREFIX={prefix}")
    (prefix / "lib/libbrug.so").unlink()
    (prefix / "lib/libbrug.so").mkdir()
    with pytest.raises(subprocess.CalledProcessError):
        make("uninstall", built, f"PREFIX={prefix}")
    assert not files(prefix)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("install", "PARTS="), 'PARTS="": give some of brug pdio nocopy-record'),
        (("install", "PARTS=nope"), 'PARTS="nope": give some of brug pdio nocopy-record'),
        (("install", "PREFIX=relative"), 'PREFIX="relative": give an absolute path'),
        (("install", "PREFIX=", "DESTDIR=ROOT"), 'PREFIX="": give an absolute path'),
        (("uninstall", "DESTDIR=/no/such"), "no /no/such/usr/local; give the PREFIX and DESTDIR"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    built: Path, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    root = tmp_path / "root"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make(words[0], built, *(word.replace("ROOT", str(root)) for word in words[1:]))
    said = failed.value.stderr.decode()
    assert says in said.splitlines()[0]
    assert not root.exists()


def test_what_distclean_would_do_is_only_said(built: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "CACHEDIR.TAG").write_text("")
    make("distclean", built, "--dry-run", f"NOCOPY_CACHE={cache}")
    assert files(cache) == {"CACHEDIR.TAG"}
