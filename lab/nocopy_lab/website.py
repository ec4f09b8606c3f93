# SPDX-License-Identifier: MIT OR Apache-2.0
"""README, documents, results and figures as a site of static pages, for any host to serve."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nocopy_lab import child, progress, venv
from nocopy_lab.experiments import everything
from nocopy_lab.paths import LOGS, OUT, REPO, LabError

SITE: Final = OUT / "site"
REQUIREMENTS: Final = ("sphinx>=8,<9", "myst-parser>=4,<5", "furo>=2024.8")
# The page with every figure, as `make report` draws it.
FIGURES: Final = "FIGURES.html"
# Beside everything in docs/.
PAGES: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")

CONFIGURATION: Final = """
project = "nocopy"
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = "nocopy"
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"
"""
# The list beside each page.
CONTENTS: Final = """
```{{toctree}}
:hidden:

{pages}
Every figure <FIGURES>
```
"""
_LINK: Final = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")


def gather(root: Path, names: Sequence[str], into: Path) -> None:
    """Copy pages of a repository and all files that they link to.

    A link to a directory, of which there is no page, becomes its text.
    """
    for name in names:
        page = root / name

        def linked(found: re.Match[str], page: Path = page) -> str:
            text, target, _ = found.groups()
            if "://" in target or target.startswith("mailto:"):
                return found[0]
            file = (page.parent / target).resolve()
            if not file.exists() or not file.is_relative_to(root):
                raise LabError(f"{page} links to {target}, which the repository does not have")
            if file.is_dir():
                return str(text)
            copy = into / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                shutil.copy(file, copy)
            return found[0]

        text = _LINK.sub(linked, page.read_text())
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text(text)


def pages() -> list[str]:
    """All pages, by their paths in the repository, in the order of the list beside them."""
    documents = sorted((REPO / "docs").rglob("*.md"))
    front, *others = PAGES
    return [front, *(str(page.relative_to(REPO)) for page in documents), *others]


def sphinx() -> Path:
    """A Python that has sphinx; see venv.of()."""
    return venv.of("site", REQUIREMENTS) / "bin/python"


def write() -> Path:
    """Make the site anew; where its first page is."""
    python = sphinx()
    figures = everything.write()
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        source = Path(temp)
        names = pages()
        gather(REPO, names, source)
        (source / "conf.py").write_text(CONFIGURATION)
        # A page of its own in the list, which the one with the figures takes the place of.
        (source / FIGURES).with_suffix(".md").write_text("# Every figure\n")
        front = source / "README.md"
        others = [name for name in names if name != "README.md"]
        titled = [name for name in others if (source / name).read_text().startswith("# ")]
        for name in set(others).difference(titled):
            # A table that others link to.
            table = source / name
            table.write_text(f"---\norphan: true\n---\n{table.read_text()}")
        rest = "\n".join(name.removesuffix(".md") for name in titled)
        front.write_text(front.read_text() + CONTENTS.format(pages=rest))
        shutil.rmtree(SITE, ignore_errors=True)
        with progress.meter("making the site"):
            child.run(
                [python, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", source, SITE],
                log=LOGS / "site.log",
                limit_s=300,
                what="sphinx",
            )
    shutil.copy(figures, SITE / FIGURES)
    shutil.copy(SITE / "README.html", SITE / "index.html")
    return SITE / "index.html"
