# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian packages of the programs: what `make install` puts below /usr."""

from __future__ import annotations

import gzip
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nocopy_lab import child, crates, progress
from nocopy_lab.paths import LOGS, REPO, LabError, require_tool

# What each package says of itself.
DESCRIPTIONS: Final = {
    "brug": "allocator that grows objects in place\n"
    " The command brug runs programs as they are with libbrug.so preloaded, tells what\n"
    " they gain, and compares allocators.",
    "pdio": "storage streams at direct-I/O speed for every block size\n"
    " The command pdio copies, receives and explains; libpdio.so does the same for the\n"
    " streams of programs as they are.",
    "nocopy-record": "camera to file without a copy\n"
    " Frames go from where a V4L2 camera puts them to the disk, with an index of each.",
}
# The crates that make programs builds for each.
CRATES: Final = {
    "brug": ("brug-cli", "brug-preload"),
    "pdio": ("pdio-cli", "pdio-preload"),
    "nocopy-record": ("nocopy-record",),
}
MAINTAINER: Final = "nocopy developers <developers@nocopy.example>"


_LICENCE: Final = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)


def notices(sources: Mapping[str, Path]) -> str:
    """The licences that are in directories of sources, also of what these bring along: each text
    once, below the names of those that have it."""
    texts: dict[str, tuple[str, list[str]]] = {}
    for name, directory in sources.items():
        found = (path for path in sorted(directory.rglob("*")) if _LICENCE.match(path.name))
        files = [path for path in found if path.is_file()]
        if not files:
            raise LabError(f"{name} has no text of its licence in {directory}")
        for path in files:
            text = path.read_text(errors="replace").strip()
            _, names = texts.setdefault(" ".join(text.split()), (text, []))
            names += [name] if name not in names else []
    return "\n\n".join(f"{', '.join(names)}:\n\n{text}" for text, names in texts.values())


def copyright_of(part: str) -> str:
    """Under which terms a package may be given to others."""
    ours = [(REPO / f"LICENSES/{name}.txt").read_text() for name in ("MIT", "Apache-2.0")]
    return "\n\n".join([
        "MIT or Apache-2.0, at your choice.", *ours,
        "The programs contain Rust's standard library, of the Rust Project's contributors, under\n"
        "the same two, and what follows.", notices(crates.linked(CRATES[part])),
    ]) + "\n"  # fmt: skip


def deb(part: str, into: Path) -> Path:
    """Make the package of a part, in the directory `into`."""
    # A package is for everybody, and dpkg-deb refuses one that is not.
    os.umask(0o022)
    dpkg_deb = require_tool("dpkg-deb", "dpkg")
    shlibdeps = require_tool("dpkg-shlibdeps", "dpkg-dev")
    with (
        progress.meter(f"building the package of {part}"),
        tempfile.TemporaryDirectory(prefix="nocopy-") as temp,
    ):
        log = LOGS / f"package-{part}.log"
        environment = {**crates.toolchain().env, "CARGO_TARGET_DIR": str(crates.target())}
        root = Path(temp) / "root"
        for make in (["make", "programs"], ["make", "install", "PREFIX=/usr", f"DESTDIR={root}"]):
            words: list[str | Path] = [*make, f"PARTS={part}"]
            child.run(
                words, log=log, limit_s=900, what=" ".join(make[:2]), cwd=REPO, env=environment
            )
        programs = [*(root / "usr/bin").iterdir(), *(root / "usr").glob("lib/*.so")]
        child.output([require_tool("strip", "binutils"), "--strip-unneeded", *programs])
        for page in (root / "usr/share/man/man1").iterdir():
            page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
            page.unlink()
        # Where Debian's zsh looks for what packages bring.
        zsh = root / "usr/share/zsh"
        (zsh / "site-functions").rename(zsh / "vendor-completions")
        documents = root / f"usr/share/doc/{part}"
        documents.mkdir(parents=True)
        documents.joinpath("copyright").write_text(copyright_of(part))
        # It reads the names of sources and packages from such a file.
        (Path(temp) / "debian").mkdir()
        (Path(temp) / "debian/control").write_text(
            f"Source: {part}\n\nPackage: {part}\nArchitecture: any\n"
        )
        needs = child.output([shlibdeps, "-O", *programs], cwd=Path(temp))
        version = child.output([programs[0], "--version"]).split()[-1]
        sizes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        fields = {
            "Package": part,
            "Version": version,
            "Architecture": child.output(["dpkg", "--print-architecture"]).strip(),
            "Maintainer": MAINTAINER,
            "Installed-Size": str(sizes // 1024 + 1),
            "Depends": needs.strip().removeprefix("shlibs:Depends="),
            "Section": "utils",
            "Priority": "optional",
            "Description": DESCRIPTIONS[part],
        }
        (root / "DEBIAN").mkdir()
        control = "".join(f"{name}: {value}\n" for name, value in fields.items())
        (root / "DEBIAN/control").write_text(control)
        into.mkdir(parents=True, exist_ok=True)
        made = into / f"{part}_{version}_{fields['Architecture']}.deb"
        child.output([dpkg_deb, "--root-owner-group", "--build", root, made])
    return made


# What a new root runs: the package is used, and nothing of it is left when it goes.
USE: Final = """set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
there() { find / -xdev -not -path '/proc/*' -not -path '/var/*' -not -path /now | sort; }
there >/now
mv /now /var/before
dpkg -i /brug.deb /pdio.deb /nocopy-record.deb
brug --version
brug run --stats -- tee /allocated </brug.deb >/same 2>/said
cmp /brug.deb /allocated
grep -q '^brug: /usr/bin/tee ' /said
head -c 30000000 /dev/urandom >/stream
pdio cp /stream /copy
cmp /stream /copy
pdio run --stats -- dd if=/stream of=/copied bs=512 2>/said
cmp /stream /copied
grep -q ': 1 stream taken' /said
test -e /usr/share/man/man1/pdio-cp.1.gz
grep -q '^Copyright .* Microsoft Corporation, Daan Leijen' /usr/share/doc/brug/copyright
grep -q 'serde_json [0-9]' /usr/share/doc/nocopy-record/copyright
test -e /usr/share/zsh/vendor-completions/_pdio
rm /allocated /same /stream /copy /copied
if nocopy-record /record 2>/said; then exit 1; fi
grep -q /dev/video0 /said
rm /said
dpkg --purge brug pdio nocopy-record
there >/now
diff /var/before /now
"""


def try_in_a_new_root() -> None:
    """Install the packages in a Debian that has nothing else, use them, and remove them.

    Raises:
        crates.Unavailable: no such root can be made here; the text says why.
        LabError: something of it does not hold.
    """
    mmdebstrap = shutil.which("mmdebstrap")
    if mmdebstrap is None or os.geteuid() != 0:
        raise crates.Unavailable("a root of its own wants mmdebstrap, and root")
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        root = Path(temp) / "root"
        log = LOGS / "package-root.log"
        words: list[str | Path] = [mmdebstrap, "--variant=essential", "--include=libgcc-s1"]
        with progress.meter("making a root for the packages"):
            try:
                # What is built here wants this machine's C library.
                suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
                child.run([*words, suite, root], log=log, limit_s=600, what="mmdebstrap")
            except LabError as error:
                raise crates.Unavailable(f"no Debian root can be made here; see {log}") from error
        for part in DESCRIPTIONS:
            shutil.copy(deb(part, Path(temp)), root / f"{part}.deb")
        (root / "use").write_text(USE)
        used = LOGS / "package-used.log"
        # Commands find their own place, and with it their library, in /proc.
        mount = 'mount -t proc proc "$0/proc"'
        words = ["unshare", "--mount", "sh", "-c"]
        try:
            child.run([*words, mount, root], log=used, limit_s=60, what="mount")
        except LabError as error:
            raise crates.Unavailable(f"no /proc can be mounted here; see {used}") from error
        use = [*words, f'{mount} && exec chroot "$0" sh /use', root]
        child.run(use, log=used, limit_s=120, what="the packages")
