# SPDX-License-Identifier: MIT OR Apache-2.0
"""No circle among the lab's files."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import nocopy_lab

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
