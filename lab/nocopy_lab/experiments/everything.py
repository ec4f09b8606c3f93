# SPDX-License-Identifier: MIT OR Apache-2.0
"""One page with every figure of every experiment, from what was measured here, or else from the
results that come with the repository.

The page is one file, and is meant for a telephone too. browse() opens it in a browser to see that
it is whole.
"""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, progress, report, samples
from nocopy_lab.experiments import (
    brug_report,
    demo_report,
    gcma_report,
    paper_report,
    pdio_report,
    record_report,
    stores_report,
)
from nocopy_lab.paths import LOGS, OUT, LabError, require_tool

HERE: Final = OUT / "report"


@dataclass(frozen=True)
class Section:
    name: str  # of its directory below out/ and docs/results/
    title: str
    draw: Callable[[Path], Path]  # writes the page of its own that is taken over


SECTIONS: Final = (
    Section("demo", "gcma: the demonstration", demo_report.draw),
    Section("demo-7.3", "gcma: the demonstration on Linux 7.3", demo_report.draw),
    Section("paper/x86", "gcma: the paper's evaluation", paper_report.draw),
    Section(
        "paper/x86-7.3", "gcma: the paper's evaluation on Linux 7.3", paper_report.draw
    ),
    Section(
        "paper/rpi2", "gcma: the paper's evaluation on a Raspberry Pi 2", paper_report.draw
    ),
    Section("bench-gcma", "gcma: in depth", gcma_report.draw),
    Section("bench-gcma-7.3", "gcma: in depth, on Linux 7.3", gcma_report.draw),
    Section("stores", "gcma: what the area should keep", stores_report.draw),
    Section("bench-brug", "brug", brug_report.draw),
    Section("bench-brug-start", "brug: short programs", brug_report.draw),
    Section("bench-brug-fragmented", "brug: fragmented memory", brug_report.draw),
    Section("bench-brug-suite", "brug: programs of mimalloc-bench", brug_report.draw),
    Section("bench-pdio", "pdio", pdio_report.draw),
    Section("bench-pdio-7.3", "pdio: beside Linux 7.3", pdio_report.draw),
    Section("bench-pdio-host", "pdio: programs people use, and neighbours", pdio_report.draw),
    Section("record", "nocopy-record beside other recorders", record_report.draw),
)  # fmt: skip


def _results(section: Section) -> tuple[bytes, str] | None:
    """The results of a section, and where they are from."""
    own, stored = OUT / section.name / "results.json", samples.stored(OUT / section.name)
    if own.is_file():
        return own.read_bytes(), "measured on this machine"
    return None if stored is None else (stored, "measured for this version of nocopy")


_BODY: Final = re.compile(r"</h1>\n(.*)</html>", re.DOTALL)


def _drawn() -> Iterator[tuple[Section, str]]:
    for section in SECTIONS:
        found = _results(section)
        if found is None:
            continue
        results, origin = found
        directory = HERE / section.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_bytes(results)
        with progress.meter(f"drawing {section.title}"), samples.layout_of(OUT / section.name):
            page = section.draw(directory).read_text()
        body = _BODY.search(page)
        if body is None:
            raise LabError(f"the page of {section.title} has no body; draw it alone to see why")
        yield section, report.paragraph(f"These results were {origin}.", small=True) + body[1]


STYLE: Final = """<style>
nav ul { padding-left: 1.2rem; } nav li { margin: .3rem 0; }
section { border-top: 3px solid #8886; margin-top: 3rem; } section > h2 { font-size: 1.4rem; }
</style>
"""


def write() -> Path:
    """The page; the sections of what was never measured are left out."""
    sections = list(_drawn())
    anchors = [section.name.replace("/", "-") for section, _ in sections]
    links = "".join(
        f'<li><a href="#{anchor}">{html.escape(section.title)}</a></li>\n'
        for anchor, (section, _) in zip(anchors, sections, strict=True)
    )
    page = HERE / "index.html"
    report.page(
        page,
        "nocopy: everything that was measured",
        [
            STYLE,
            f"<nav><ul>\n{links}</ul></nav>\n",
            *(
                f'<section id="{anchor}"><h2>{html.escape(section.title)}</h2>\n{body}</section>\n'
                for anchor, (section, body) in zip(anchors, sections, strict=True)
            ),
        ],
    )
    return page


def require_drawn() -> None:
    """Raise LabError unless the repository has the tables that write() drew of its results."""
    for section in SECTIONS:
        drawn, table = (at / section.name / "table.md" for at in (HERE, samples.STORED))
        if not drawn.is_file():
            continue
        own = (drawn.parent / "results.json").read_bytes() != samples.stored(OUT / section.name)
        if not own and not (table.is_file() and table.read_bytes() == drawn.read_bytes()):
            raise LabError(f"{table} is not what is drawn of the results beside it, see {drawn}")


# ------------------------------------------------------------------------- in a browser

PHONE: Final = (390, 844)  # points
# The page in a frame of a phone's width, and what it looks like from outside when all is loaded.
PROBE: Final = """<!doctype html><meta charset=utf-8><pre id=found></pre>
<iframe id=page width=%d height=%d src="%s"></iframe>
<script>
window.addEventListener('load', () => {
  const page = document.getElementById('page').contentDocument, root = page.documentElement;
  const images = [...page.images], links = [...page.querySelectorAll('a[href^="#"]')];
  document.getElementById('found').textContent = JSON.stringify({
    figures: images.length,
    captions: page.querySelectorAll('figcaption').length,
    broken: images.filter(image => !image.complete || !image.naturalWidth).map(i => i.alt),
    outside: images.filter(image => !image.src.startsWith('data:')).map(image => image.src),
    dead: links.filter(link => !page.getElementById(link.hash.slice(1))).map(link => link.hash),
    width: root.clientWidth, needs: root.scrollWidth,
    text: parseFloat(getComputedStyle(page.body).fontSize),
  });
});
</script>
"""
BROWSE_LIMIT_S: Final = 180.0
SMALLEST_TEXT: Final = 16.0


def browse(page: Path) -> dict[str, Any]:
    """What a browser found when it showed the page as on a telephone, and what it complained of."""
    browser = require_tool("chromium", "chromium")
    log = LOGS / "browser.log"
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        probe = Path(temp) / "probe.html"
        probe.write_text(PROBE % (*PHONE, page.resolve().as_uri()))
        child.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--allow-file-access-from-files", "--enable-logging=stderr",
                f"--user-data-dir={temp}/profile", "--dump-dom", probe.as_uri(),
            ],
            log=log,
            limit_s=BROWSE_LIMIT_S,
            what=f"showing {page}",
        )  # fmt: skip
    said = log.read_text(errors="replace")
    found = re.search(r'<pre id="found">({.*?})</pre>', said, re.DOTALL)
    if found is None:
        raise LabError(f"the browser did not show {page}; see {log}")
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen | {"errors": re.findall(r"CONSOLE[^\n]*", said)}


def require_whole(page: Path, figures: int) -> None:
    """Raise LabError unless the browser shows all of so many figures, and no error."""
    seen = browse(page)
    wrong = [name for name in ("broken", "outside", "dead", "errors") if seen[name]]
    if seen["figures"] < figures or seen["captions"] != seen["figures"]:
        wrong.append(f"{seen['figures']} figures of {figures}")
    if seen["needs"] > seen["width"]:
        wrong.append(f"wider than a telephone: {seen['needs']} of {seen['width']}")
    if seen["text"] < SMALLEST_TEXT:
        wrong.append(f"text of {seen['text']} points")
    if wrong:
        raise LabError(f"{page} in a browser: {', '.join(wrong)}; it says {json.dumps(seen)}")
