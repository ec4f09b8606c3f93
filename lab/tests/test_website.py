# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gathering what a site needs."""

from pathlib import Path

import pytest

from nocopy_lab import website
from nocopy_lab.paths import REPO, LabError


def repository(root: Path, page: str) -> Path:
    (root / "docs/more").mkdir(parents=True)
    (root / "docs/page.md").write_text(page)
    (root / "code.c").write_text("int x;")
    return root


def test_what_is_linked_comes_along(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", "[c](../code.c#L1) [m](more) [w](https://a.b/c)")
    website.gather(root, ["docs/page.md"], tmp_path / "site")
    assert (tmp_path / "site/code.c").read_text() == "int x;"
    said = (tmp_path / "site/docs/page.md").read_text()
    assert said == "[c](../code.c#L1) m [w](https://a.b/c)"


def test_no_page_of_ours_links_to_what_is_not_there(tmp_path: Path) -> None:
    names = website.pages()
    assert {"README.md", "docs/gcma.md", "docs/results/README.md"} < set(names)
    website.gather(REPO, names, tmp_path)


@pytest.mark.parametrize("target", ["none.md", "../../outside"])
def test_a_dead_link_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text("")
    root = repository(tmp_path / "root", f"[x]({target})")
    with pytest.raises(LabError, match=target):
        website.gather(root, ["docs/page.md"], tmp_path / "site")
