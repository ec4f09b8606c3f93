# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where an experiment's samples lie: in out/ if measured here, or else in the repository."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nocopy_lab.paths import OUT, REPO, LabError

# What comes with the repository, by directories as below out/.
STORED: Final = REPO / "docs/results"


def save(directory: Path, results: Mapping[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(path)
    return path


def stored(directory: Path) -> bytes | None:
    """What the repository has of an experiment that writes into this directory below out/."""
    if not directory.is_relative_to(OUT):
        return None
    path = STORED / directory.relative_to(OUT) / "results.json.gz"
    if not path.is_file():
        return None
    try:
        text = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error):
        text = b""
    if not text:
        raise LabError(f"{path} is damaged; run: git checkout {path}")
    return text


@contextlib.contextmanager
def layout_of(directory: Path) -> Iterator[None]:
    """Say which file it was, if results that were measured here lack what is wanted of them."""
    try:
        yield
    except UnicodeError:
        raise  # of what is written
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        own = directory / "results.json"
        if not own.is_file():
            raise
        raise LabError(
            f"{own} is not as this version writes it ({error!r}); remove it, and measure again"
        ) from error


def load(directory: Path) -> dict[str, Any]:
    """What was measured here, or else for this version of nocopy.

    Raises:
        LabError: neither is there, or the file is damaged.
    """
    own = directory / "results.json"
    text = own.read_bytes() if own.is_file() else stored(directory)
    if text is None:
        raise LabError(f"no {own} to draw from: measure first, without --draw-only")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        results = json.loads(text)
    except ValueError:
        results = None
    if not isinstance(results, dict):
        raise LabError(f"{own} is damaged; remove it, and measure again")
    return results
