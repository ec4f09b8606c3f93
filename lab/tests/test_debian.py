# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from nocopy_lab import debian
from nocopy_lab.paths import LabError

# Writes down how it was called and with what sources; a package is a file with its name.
APT: str = """#!/bin/sh
echo "$*" >>"$HERE/calls"
for word; do
	case $word in Dir::Etc::sourcelist=*) cat "${word#*=}" >>"$HERE/sources" ;; esac
done
if [ -e "$HERE/broken" ]; then
	case "$*" in *update) echo "W: no such host"; exit 0 ;; esac
	echo "E: no such package" >&2
	exit 100
fi
case "$*" in
*" download "*) echo "${word##* }" >"$word.deb" ;;
*" install "*)
	mkdir -p archives
	echo >"archives/${word}_1%3a2_all.deb"
	echo >archives/libc6_3_all.deb
	;;
esac
"""
DPKG: str = """#!/bin/sh
mkdir -p "$3/usr" && cp "$2" "$3/usr/"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "keys").write_text("")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "keys")
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_package_of_another_suite_is_fetched_once(here: Path) -> None:
    root = here / "cache/root"
    for _ in range(2):
        debian.unpacked(root, ["linux-source"], suite="some-backports")
    assert (root / "usr/linux-source.deb").is_file()
    calls = (here / "calls").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == ["update", "linux-source"]
    # Of nothing but that suite, and with keys.
    assert all("Dir::Etc::sourceparts=/dev/null" in call for call in calls)
    assert set((here / "sources").read_text().splitlines()) == {
        f"deb [signed-by={here}/keys] {debian.MIRROR} some-backports main"
    }
    left = sorted(path.name for path in (here / "cache").iterdir())
    assert left == [".root.lock", "root", "root-update.log", "root.log"]


@pytest.mark.parametrize("places", [("usr/bin",), ("bin",), ("bin", "usr/bin")])
def test_a_program_is_found_whatever_its_release_had_in_usr(
    here: Path, places: tuple[str, ...]
) -> None:
    """Debian 13 has /bin in no package, Ubuntu 24.04 has links there and their files in /usr."""
    made = "".join(
        f'mkdir -p "$3/{place}"; touch "$3/{place}/{number}"\n'
        for number, place in enumerate(places)
    )
    (here / "dpkg-deb").write_text(f"#!/bin/sh\n{made}")
    root = here / "cache/root"
    debian.unpacked(root, ["busybox"])
    for number in range(len(places)):
        assert (root / f"bin/{number}").is_file()
        assert (root / f"usr/bin/{number}").is_file()
    assert not (root / "lib").is_symlink()


def test_a_disk_has_what_the_packages_depend_on(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mke2fs = here / "mke2fs"
    mke2fs.write_text(
        '#!/bin/sh\nfor word; do image=$last; last=$word; done\nls "$HERE"/cache/*root* >"$image"\n'
    )
    mke2fs.chmod(0o755)
    monkeypatch.setattr(debian, "require_space", lambda where, mib: None)
    image = debian.disk(["ffmpeg"])
    assert image.is_file()
    assert debian.disk(["ffmpeg"]) == image
    calls = (here / "calls").read_text().splitlines()
    assert [call.split()[-2:] for call in calls][1:] == [["install", "ffmpeg"]]
    # apt thinks that nothing is installed, and installs nothing.
    assert "Dir::State::status=/dev/null" in calls[1]
    assert "--download-only" in calls[1]
    assert debian.versions(["ffmpeg"]) == ["ffmpeg 1:2"]
    assert (image.with_suffix("") / "usr/libc6_3_all.deb").is_file()


def test_what_could_not_be_fetched_is_not_there(here: Path) -> None:
    (here / "broken").touch()
    with pytest.raises(LabError, match="fetching linux-source failed") as caught:
        debian.unpacked(here / "cache/root", ["linux-source"], suite="some-backports")
    assert "no such package" in str(caught.value)
    # Why apt knows none it has said before, and gone on.
    assert "W: no such host (apt-get update)" in str(caught.value)
    assert not (here / "cache/root").exists()
    (here / "broken").unlink()
    debian.unpacked(here / "cache/root", ["linux-source"], suite="some-backports")
    assert (here / "cache/root").is_dir()


def test_without_keys_nothing_is_fetched(here: Path) -> None:
    (here / "keys").unlink()
    with pytest.raises(LabError, match="apt-get install debian-archive-keyring"):
        debian.unpacked(here / "cache/root", ["linux-source"], suite="some-backports")
    assert not (here / "calls").exists()
