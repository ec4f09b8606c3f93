# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where things are: the repository, the cache that outlives it, and out/."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

REPO = Path(__file__).resolve().parents[2]
KERNEL = REPO / "kernel"
LAB = REPO / "lab"
GUEST = LAB / "guest"
OUT = REPO / "out"
LOGS = OUT / "logs"


class LabError(Exception):
    """Something a user can act on. The message is one line that says what to do."""


def cache() -> Path:
    """The directory that keeps sources, builds and images between runs."""
    if given := os.environ.get("NOCOPY_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nocopy"


def tool(name: str) -> str | None:
    """Full path of a program, also where only root looks for programs."""
    search = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return shutil.which(name, path=search)


def require_tool(name: str, package: str) -> str:
    """Full path of a program, or one line that says which package has it."""
    found = tool(name)
    if found is None:
        raise LabError(f"{name} is not installed; run: apt-get install {package}")
    return found


def free_mib(where: Path) -> int:
    while not where.exists():
        where = where.parent
    return shutil.disk_usage(where).free >> 20


def _remedy(where: Path) -> str:
    """What to do where a disk is full."""
    for variable, place in (("NOCOPY_CACHE", cache()), ("TMPDIR", Path(tempfile.gettempdir()))):
        if where.is_relative_to(place):
            return f"free some or set {variable} to a larger disk"
    return "free some"


def require_space(where: Path, mib: int) -> None:
    """Refuse to start what would fill the disk half way."""
    free = free_mib(where)
    if free < mib:
        raise LabError(f"only {free} MiB free for {where}, {mib} MiB needed; {_remedy(where)}")


@contextlib.contextmanager
def disk_full_is_one_line(where: Path) -> Iterator[None]:
    """Turn ENOSPC from whatever happens inside into a LabError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LabError(f"no space left for {where}; {_remedy(where)}") from error
        raise


# Set when this lab has been told to end: from then on it does not wait for another one.
CLOSING: Final = threading.Event()
# How often it looks whether that one is done.
_LOOK_S: Final = 0.1

# Threads of this lab wait for each other here, and only one of them for another lab.
_mine: Final[dict[Path, threading.Lock]] = {}
_held = threading.local()


def held() -> tuple[int, ...]:
    """The locks of this thread, by descriptor. Its children get them: what outlives a lab that was
    killed keeps others from its directory until it has ended."""
    locks: tuple[int, ...] = getattr(_held, "locks", ())
    return locks


def _taken(file: IO[str]) -> bool:
    """True if the exclusive lock on a file could be had at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, so that two labs do not share a directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _mine.setdefault(path, threading.Lock()), path.open("w") as file:
        if not _taken(file):
            print(f"  waiting for another lab (it holds {path})", flush=True)
            # A signal does not end a thread's wait in flock().
            while not _taken(file):
                if CLOSING.wait(_LOOK_S):
                    raise LabError("interrupted")
        before = held()
        _held.locks = (*before, file.fileno())
        try:
            yield
        finally:
            _held.locks = before
            fcntl.flock(file, fcntl.LOCK_UN)  # whoever else has the descriptor


def sha256(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def sha256_tree(*roots: Path) -> str:
    """Hash of names, modes and contents of files, and of files below directories."""
    digest = hashlib.sha256()
    for root in roots:
        if root.is_dir():
            files = sorted(p for p in root.rglob("*") if p.is_file())
        else:
            files = [root] if root.is_file() else []
        for file in files:
            executable = file.stat().st_mode & 0o111 != 0
            name = file.relative_to(root.parent)
            digest.update(f"{name}\0{executable}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write a file unless it already says this, so that make sees only true changes."""
    data = content.encode() if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)
    return True


def tail(path: Path, lines: int = 15) -> str:
    """Last lines of a log, or nothing."""
    if not path.is_file():
        return ""
    text = path.read_bytes().decode(errors="replace").replace("\r", "")
    return "\n".join(text.splitlines()[-lines:])
