# SPDX-License-Identifier: MIT OR Apache-2.0
"""Does a test fail where a hook is missing? Each in `mm` is left out once, and KUnit runs in User
Mode Linux, of every series.

A hook is a hunk of what GCMA adds to an existing file of the core of memory management, if it has
something of GCMA's. A kernel without it may not compile, then nobody can forget it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import child, kernel, trees
from nocopy_lab.checks.kinds import check, log_of
from nocopy_lab.checks.kunit import judge_kunit_small, kunit_job
from nocopy_lab.paths import LabError
from nocopy_lab.run import Outcome, boot, ktap

IMAGES: Final = ("uml", "uml-7.3")
LINES_NEAR: Final = 9
# Hooks that need what User Mode Linux has not, by file and words near them; and whose they are.
_LARGE: Final = "KUnit on x86: large folios"
_SWAP: Final = "kselftest, and oracles: swap"
_DEBUG: Final = "KUnit on x86 with failing allocations"
_CPUS: Final = "KUnit on x86: several CPUs"
OTHERS: Final = (
    ("mm/cma.c", "Reset the tags to ignore", "none: where KASAN has tags, it costs time"),
    ("mm/filemap.c", "gcma_shadow", _LARGE),
    # A large folio finds a shadow, has no memory for a node, and others take the shadow away.
    ("mm/filemap.c", "xas_nomem", _DEBUG),
    ("mm/readahead.c", "gcma_loaded(folio) ?", _LARGE),
    ("mm/readahead.c", "gcma_ra_order", _LARGE),
    ("mm/memory.c", "", _SWAP),
    ("mm/page_io.c", "", _SWAP),
    ("mm/swap_state.c", "", _SWAP),
    ("mm/swapfile.c", "gcma_slots_freed", _SWAP),
    ("mm/swapfile.c", "inced_nr_rotate_swap", "files that are given other blocks"),
    ("mm/vmscan.c", "swp_entry_t", _SWAP),
    # Somebody takes hold of a page between its copy and its removal.
    ("mm/vmscan.c", "cannot_free", _CPUS),
    ("mm/vmstat.c", "", "oracles: they end when these counters say so"),
    ("mm/zswap.c", "", "oracle, multi-generational LRU and zswap"),
    ("mm/memory-failure.c", "", "broken memory is not filled, read or handed out"),
    ("mm/workingset.c", "lrugen", "a copy is not weighed by the multi-generational LRU"),
    ("mm/workingset.c", "gcma_shadow_pages", "nodes of shadow entries leave a cgroup its memory"),
)
# What the compiler or the linker says of a kernel that wants the hook.
_REFUSED: Final = re.compile(r"\.[ch]:\d+:\d+: error:|undefined reference to")
_OURS: Final = re.compile(
    r"^(?!#include|\s*\*).*(gcma_|GCMA|cma_guaranteed|_has_cached_data)", re.MULTILINE
)


@dataclass(frozen=True)
class Hook:
    name: str  # file:line in the tree with GCMA
    path: Path
    without: str  # the file without it
    near: str  # its lines, and those before it

    def others(self) -> str:
        """Who else has to notice, or nothing."""
        for name, words, who in OTHERS:
            if self.name.startswith(f"{name}:") and words in self.near:
                return who
        return ""


def hooks(tree: Path, pristine: Path, files: list[str]) -> Iterator[Hook]:
    for name in files:
        old = (pristine / name).read_text().splitlines(keepends=True)
        new = (tree / name).read_text().splitlines(keepends=True)
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for kind, i, j, first, last in matcher.get_opcodes():
            if kind == "equal" or not _OURS.search("".join(new[first:last])):
                continue
            without = "".join([*new[:first], *old[i:j], *new[last:]])
            near = "".join(new[max(first - LINES_NEAR, 0) : last])
            yield Hook(f"{name}:{first + 1}", tree / name, without, near)


def _build(image: str, tree: Path, what: str) -> None:
    words = kernel.make(image, tree, kernel.CONFIGS[image].arch.image_name)
    child.run(words, log=log_of("hooks"), limit_s=900, what=f"building {what}")


def _booted(image: str, directory: Path, name: str) -> Outcome:
    program = directory / kernel.CONFIGS[image].arch.image
    return boot(replace(kunit_job(f"{image}-{name}", "uml"), kernel=program))


def noticed(outcome: Outcome) -> bool:
    """True if a test failed or the kernel did. One that never started, or was ended because this
    machine is slow, raises: that says nothing of the hook."""
    try:
        judge_kunit_small([outcome])
    except LabError:
        _, failed = ktap(outcome.said)
        if failed or ("Linux version" in outcome.said and not outcome.timed_out):
            return True
        raise
    return False


def _missed(image: str, hook: Hook, tree: Path, directory: Path) -> bool:
    """True if KUnit passes without the hook."""
    whole = hook.path.read_text()
    try:
        # Never through a hard link.
        hook.path.unlink()
        hook.path.write_text(hook.without)
        try:
            _build(image, tree, f"without {hook.name}")
        except LabError:
            if _REFUSED.search(log_of("hooks").read_text()):
                return False
            raise
        name = "hook-" + re.sub(r"\W+", "-", hook.name)
        return not noticed(_booted(image, directory, name))
    finally:
        hook.path.unlink()
        hook.path.write_text(whole)


def _each(image: str) -> None:
    with kernel.configured(image) as (tree, directory):
        series = kernel.CONFIGS[image].series
        pristine = trees.source(series).path
        files = [n for n in trees.patched_files(series) if n.startswith("mm/") and n[-2:] == ".c"]
        found = list(hooks(tree, pristine, files))
        if not found:
            raise LabError(f"no hook found in {', '.join(files)}")
        # What is wrong with all of them would be taken for the lack of one.
        _build(image, tree, "with all hooks")
        judge_kunit_small([_booted(image, directory, "hooks-all")])
        missed: list[str] = []
        for hook in found:
            if who := hook.others():
                print(f"  {hook.name}: not here ({who})", flush=True)
            elif _missed(image, hook, tree, directory):
                missed.append(hook.name)
                print(f"  {hook.name}: no test fails", flush=True)
            else:
                print(f"  {hook.name}: noticed", flush=True)
    if missed:
        raise LabError(f"no test failed without {len(missed)} of {len(found)} hooks: {missed}")


for _image in IMAGES:
    _of = kernel.CONFIGS[_image].series
    check(f"hooks: a test fails where one in mm of {_of} is left out", asked=True)(
        partial(_each, _image)
    )
