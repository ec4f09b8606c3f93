# SPDX-License-Identifier: MIT OR Apache-2.0
"""No circle among the lab's files, which need what is below them; and the files of crates in the
order that their pages list."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nocopy_lab
from nocopy_lab.paths import REPO

ROOT = Path(nocopy_lab.__file__).parent


def modules() -> dict[str, Path]:
    paths = {path.relative_to(ROOT.parent).with_suffix(""): path for path in ROOT.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def needed(path: Path, known: set[str]) -> set[str]:
    """The modules that a file imports, when it is loaded itself or later."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & known) or {node.module}
    return found & known


def test_no_module_needs_itself() -> None:
    files = modules()
    assert len(files) > 40
    graph = {name: needed(path, set(files)) - {name} for name, path in files.items()}
    assert graph["nocopy_lab.cli"] >= {"nocopy_lab.kernel", "nocopy_lab.run"}
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_no_module_needs_one_above_it() -> None:
    """The floors are those that the package itself lists, the highest first."""
    assert nocopy_lab.__doc__
    lines = re.findall(r"^    (\S+(?: {1,2}\S+)*) {3,}", nocopy_lab.__doc__, re.MULTILINE)
    floor = {name.strip("/"): at for at, line in enumerate(lines) for name in line.split()}
    files = modules()
    assert set(floor) == {name.split(".")[1] for name in files if "." in name} - {"__main__"}
    for name, path in files.items():
        own = floor.get(name.partition(".")[2].partition(".")[0], -1)
        for other in needed(path, set(files)) - {"nocopy_lab"}:
            assert own <= floor[other.split(".")[1]], f"{name} needs {other}"


def listed(page: str, kind: str) -> list[str]:
    """The files of a crate, from below."""
    text = " ".join((REPO / "docs" / page).read_text().split())
    beginning = f"Each file of the {kind} needs only those before it in this list:"
    return re.findall(r"`(\w+)`", text.split(beginning)[1].split(". ")[0])


def named(text: str) -> set[str]:
    """What a file in Rust names right below `crate::`; comments and tests apart."""
    code = re.sub(r"//.*", "", re.split(r"#\[cfg\(test\)\]\n(?:#.*\n)*(?:pub.*)?mod ", text)[0])
    found = set(re.findall(r"\bcrate::(\w+)", code))
    for group in re.findall(r"\bcrate::\{([^;]*)\};", code):
        inner = group
        while "{" in inner:
            inner = re.sub(r"\{[^{}]*\}", "", inner)
        found |= {word.split("::")[0].strip() for word in inner.split(",")}
    return found - {""}


def test_names_of_modules_are_found_however_they_are_written() -> None:
    text = (
        "use crate::{a, b::{self, c::{x, y}}, d::e,\n};\n// crate::no\nuse crate::f::g;\n"
        "fn h() { crate::i::j(k, l) }\n#[cfg(test)]\nmod tests { use crate::no; }\n"
    )
    assert named(text) == {"a", "b", "d", "f", "i"}


@pytest.mark.parametrize(
    ("page", "kind", "crate"),
    [
        ("brug.md", "crate", "brug"),
        ("brug.md", "library", "brug-preload"),
        ("pdio.md", "crate", "pdio"),
        ("pdio.md", "library", "pdio-preload"),
        ("architecture.md", "recorder", "record"),
    ],
)
def test_each_file_needs_only_those_before_it(page: str, kind: str, crate: str) -> None:
    order = listed(page, kind)
    files = {path.stem: path for path in (REPO / "crates" / crate / "src").glob("*.rs")}
    # What is above all, and what tests alone have.
    for apart in ("lib", "main", "alone", "made_up", "recorder_tests"):
        if apart not in order:
            files.pop(apart, None)
    assert sorted(files) == sorted(order)
    for place, name in enumerate(order):
        needs = named(files[name].read_text())
        assert needs <= set(order[: place + 1]), f"{name} needs what is not listed before it"
