# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernel's source: patches, what goes upstream, and builds."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache as once
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import child, kernel, progress, series, trees, venv
from nocopy_lab.checks import kinds
from nocopy_lab.checks.judges import DEVICE_TREES
from nocopy_lab.checks.kinds import FAILED_IMAGES, KERNELS, Skip, command, log_of, our_files
from nocopy_lab.experiments import bench_gcma
from nocopy_lab.paths import (
    KERNEL,
    REPO,
    LabError,
    require_tool,
    sha256_tree,
)

check = partial(kinds.check, lane=KERNELS)

# -------------------------------------------------------------------------- the kernel's text


@check("kernel: checkpatch --strict")
def _checkpatch() -> None:
    tree = trees.patched_tree(series.VERSION)
    script = tree / "scripts/checkpatch.pl"
    words: list[str | Path] = ["perl", script, f"--root={tree}", "--strict", "--terse"]
    # CamelCase is what page flag functions are called; the rest is how TRACE_EVENT() looks.
    words += ["--no-summary", "--show-types", "--ignore"]
    ours = [*(KERNEL / name for name in our_files()), *sorted(trees.ADDITIONS.rglob("*.[ch]"))]
    trace = [p for p in ours if "trace" in p.parts]
    tracing = "CAMELCASE,OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"
    # A patch of the documentation, in the series the next to last, has gcma=.
    style = "CAMELCASE,MACRO_ARG_REUSE,UNDOCUMENTED_SETUP"
    jobs: list[tuple[str, list[str | Path]]] = [
        # Linux 6.12 has no kzalloc_obj() yet.
        ("files", [f"{style},ALLOC_WITH_SIZEOF", "--file", *(p for p in ours if p not in trace)]),
        ("trace", [tracing, "--file", *trace]),
        # The last patch has the entry in MAINTAINERS that the others are asked for, and what the
        # options of a choice mean is said by their prompts.
        (
            "series",
            [f"{tracing},{style},FILE_PATH_CHANGES,CONFIG_DESCRIPTION", *series.mails()],
        ),
    ]
    for version in trees.SERIES:
        patches = sorted((KERNEL / f"patches/{version}").rglob("*.patch"))
        jobs.append((f"patches-{version}", ["CAMELCASE", *patches]))
    found: list[str] = []
    for what, files in jobs:
        log = log_of(f"checkpatch-{what}")
        child.run([*words, *files], log=log, limit_s=600, what="checkpatch", ok=(0, 1), cwd=tree)
        found += [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if found:
        raise LabError(f"checkpatch: {len(found)} remarks; the first:\n" + "\n".join(found[:15]))


def _little_tree(version: str, tree: Path) -> Path:
    """Those files of the source that kernel/apply looks at."""
    pristine = trees.source(version).path
    for name in {*trees.patched_files(version), "Makefile", "mm/cma.c"}:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pristine / name, tree / name)
    return tree


def _refused(name: str, tree: Path) -> str:
    """What kernel/apply says of a tree that it refuses, and leaves as it is."""
    before = sha256_tree(tree)
    log = log_of(f"apply-{name}")
    child.run([KERNEL / "apply", tree], log=log, limit_s=60, what="apply", ok=(1,))
    if sha256_tree(tree) != before:
        raise LabError(f"kernel/apply changed a tree that it refused; see {log}")
    return log.read_text(errors="replace").strip()


def _refused_in_one_line(name: str, tree: Path, says: str) -> None:
    said = _refused(name, tree)
    if len(said.splitlines()) != 1 or says not in said:
        raise LabError(f"kernel/apply does not refuse {name} with '{says}' in one line: {said}")


@check("kernel: apply is idempotent and refuses what is no kernel tree")
def _apply() -> None:
    apply = KERNEL / "apply"
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        for version in trees.SERIES:
            tree = _little_tree(version, Path(temp) / version)
            command(f"apply-first-{version}", [apply, tree])
            once_applied = sha256_tree(tree)
            command(f"apply-again-{version}", [apply, tree])
            if sha256_tree(tree) != once_applied:
                raise LabError(f"kernel/apply changed a {version} tree on which it had run already")
            # Not where the outermost line around a change is another: it may not be the place.
            other = _little_tree(version, Path(temp) / f"other-{version}")
            header = other / "include/linux/pagemap.h"
            text = header.read_text().replace("FOLIO_ORDER_MIN = ", "FOLIO_ORDER_MIN =  ")
            header.write_text(text)
            _refused(f"fuzz-{version}", other)
            dos = Path(temp) / f"dos-{version}"
            (dos / "mm").mkdir(parents=True)
            (dos / "mm/cma.c").touch()
            (dos / "Makefile").write_bytes(
                trees.source(version).path.joinpath("Makefile").read_bytes().replace(b"\n", b"\r\n")
            )
            _refused_in_one_line(f"dos-{version}", dos, f"complete Linux {version} tree?")
        empty = Path(temp) / "empty"
        empty.mkdir()
        _refused_in_one_line("empty", empty, "is not the top of a Linux source tree")


@check("kernel: apply leaves a tree as it is where a file cannot be replaced")
def _apply_immutable() -> None:
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        tree = _little_tree(series.VERSION, Path(temp) / "tree")
        # The last one that is put in place: those before it are taken back.
        last = tree / max(trees.patched_files(series.VERSION))
        try:
            command("apply-chattr", ["chattr", "+i", last])
        except LabError as error:
            raise Skip(f"no file can be made immutable here: {error}") from error
        try:
            _refused_in_one_line("immutable", tree, "cannot be replaced")
        finally:
            command("apply-chattr", ["chattr", "-i", last])


def _git_tree(tree: Path) -> None:
    """A repository with those files of the source that the series changes."""
    tree.mkdir()
    what = series.plan(series.VERSION, trees.new_files())
    series.start(tree, trees.source(series.VERSION).path, what.touched())


@check("kernel: git am takes the series, which gives what apply gives")
def _series() -> None:
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        mailed, applied, directory = (Path(temp) / name for name in ("am", "apply", "mails"))
        command("series", [KERNEL / "series", series.VERSION, directory])
        for tree in (mailed, applied):
            _git_tree(tree)
        series.git(mailed, "am", "-q", "--empty=drop", *sorted(directory.glob("*/*")))
        command("series-apply", [KERNEL / "apply", applied])
        for patch in sorted((series.UPSTREAM / series.VERSION).glob("*.patch")):
            series.git(applied, "apply", patch)
        for name in trees.new_files():
            (applied / name).write_text(series.for_mainline(applied / name))
        for tree in (mailed, applied):
            shutil.rmtree(tree / ".git")
        log = log_of("series-differs")
        words: list[str | Path] = ["diff", "-r", "-u", applied, mailed]
        child.run(words, log=log, limit_s=60, what="diff", ok=(0, 1))
        if said := log.read_text(errors="replace"):
            raise LabError(f"kernel/series and kernel/apply differ; see {log}\n{said[:400]}")
        unowned = _without_maintainer(mailed)
        if unowned:
            raise LabError(f"the entry in MAINTAINERS does not name: {', '.join(unowned)}")


def figures(text: str) -> list[str]:
    """Times, shares and counts of instructions in a text."""
    return re.findall(r"\d[\d.,]*(?: [nuµm]?s\b|%)|\+\d+(?:\.\d+)?", text)


# Of the table in the letter: "64 pages, area idle     5.99 ms / 6 ms     561 ns / 561 ns".
_SPAN: Final = r"(\S+ \S+ / \S+ \S+)"
_LETTER_ROW: Final = re.compile(rf"^ {{2,4}}(\S.*?) {{2,}}{_SPAN} {{2,}}{_SPAN}$", re.MULTILINE)


def letter_rows(letter: str) -> dict[str, tuple[str, str]]:
    """What CMA and GCMA took, by the names that the rows have in the results."""
    rows: dict[str, tuple[str, str]] = {}
    allocate = ""
    for name, cma, gcma in _LETTER_ROW.findall(letter):
        if name.startswith("full"):
            name = f"{allocate}, area {name}"
        elif ", area " in name:
            name = f"allocate {name}"
            allocate = name.partition(", area ")[0]
        rows[name] = cma, gcma
    return rows


@check("kernel: the figures of the cover letters are those of the results")
def _figures() -> None:
    tables = (REPO / "docs/results").glob("bench-gcma*/table.md")
    results = "".join(table.read_text() for table in tables)
    plan = series.plan(series.VERSION, trees.new_files())
    letter = "\n".join(plan.covers.values())
    there = {figure.replace("µs", "us") for figure in figures(results)}
    there |= set(re.findall(r"\| (\+[\d.]+) \|", results))  # whose unit is in another column
    if strange := [figure for figure in figures(letter) if figure not in there]:
        raise LabError(f"the tables in docs/results do not have: {', '.join(strange)}")
    directory = bench_gcma.directory(series.VERSION).name
    table = (REPO / "docs/results" / directory / "table.md").read_text().replace("µs", "us")
    # Each letter says to what its series applies: there the figures were measured.
    source = re.escape(f"linux-source-{series.VERSION}, which is Linux ")
    named = [
        re.findall(rf"{source}([\d.]+\d)", " ".join(one.split())) for one in plan.covers.values()
    ]
    if any(version != re.findall(r"^Linux ([\d.]+) in QEMU", table, re.M) for version in named):
        raise LabError(f"the letters name {named}, {directory}/table.md another version of Linux")
    # And each figure in its place, where they stand in a table.
    cells = [line.split(" | ") for line in reversed(table.splitlines())]  # the first table wins
    measured = {row[0].removeprefix("| "): row[2:4] for row in cells if len(row) > 3}
    rows = letter_rows(letter)
    wrong = [
        name
        for name, took in rows.items()
        if [cell.partition(",")[0] for cell in measured.get(name, [])] != list(took)
    ]
    if wrong or len(rows) < 10:
        raise LabError(f"of {len(rows)} rows, docs/results have others of: {', '.join(wrong)}")


# Nodes that the schema must refuse, beside those in DEVICE_TREES that the kernel does.
WRONG_NODES: Final[tuple[str, ...]] = (
    "reusable; linux,gcma-clients = <1>;",
    'reusable; linux,gcma-clients = "file", "swap";',
    'linux,gcma-clients = "swap";',
)


# Not in requirements.txt: a part of it is compiled, and wants Python's headers.
DTSCHEMA: Final = "dtschema>=2025,<2027"


def _dtschema() -> tuple[Path, Path]:
    """A Python that has dtschema, and where that is; made when it is not there yet."""
    try:
        home = venv.of("dtschema", [DTSCHEMA])
    except LabError as error:
        raise Skip(f"{DTSCHEMA} cannot be had: {error}") from error
    (package,) = home.glob("lib/python*/site-packages/dtschema")
    return home / "bin/python", package


@check("kernel: device tree binding")
def _binding() -> None:
    """The schema accepts its example and what the kernel accepts, and nothing else."""
    dtc = require_tool("dtc", "device-tree-compiler")
    python, package = _dtschema()
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        shutil.copytree(package, Path(temp) / "dtschema")
        for patch in sorted((series.UPSTREAM / "dt-schema").glob("*.patch")):
            command("binding-patch", ["patch", "-p1", "-s", "-d", temp, "-i", patch])
        schema = Path(temp) / "dtschema/schemas/reserved-memory/shared-dma-pool.yaml"

        def said(tool: str, *words: str | Path) -> str:
            log = log_of(f"binding-{tool}")
            main = f"from dtschema.{tool} import main; main()"
            command = [python, "-c", main, *words]
            child.run(command, log=log, limit_s=60, what=tool, env={"PYTHONPATH": temp})
            return log.read_text(errors="replace").strip()

        def complaints(source: str) -> str:
            dts, dtb = Path(temp) / "nodes.dts", Path(temp) / "nodes.dtb"
            dts.write_text(source)
            command("binding-dtc", [dtc, "-q", "-O", "dtb", "-o", dtb, dts])
            return said("dtb_validate", dtb)

        def nodes(properties: Sequence[str]) -> str:
            areas = "".join(
                f'area{number} {{ compatible = "shared-dma-pool"; size = <0 0x4000000>; {text} }};'
                for number, text in enumerate(properties)
            )
            cells = "#address-cells = <2>; #size-cells = <2>;"
            memory = f"reserved-memory {{ {cells} ranges; {areas} }};"
            return f'/dts-v1/; / {{ compatible = "a,b"; model = "c"; {cells} {memory} }};\n'

        if remarks := said("doc_validate", schema):
            raise LabError(f"the schema is wrong: {remarks}")
        example = said("extract_example", schema)
        if "linux,gcma-clients" not in example:
            raise LabError("the schema has no example with linux,gcma-clients")
        if remarks := complaints(example):
            raise LabError(f"the example does not fit the schema: {remarks}")
        words = re.findall(r'\[GCMA_.*\]\s+= "(\S+)"', (KERNEL / "mm/gcma/gcma.c").read_text())
        if len(words) < 5:
            raise LabError(f"gcma.c seems to know the words {words} only; the check is broken")
        right = [f'reusable; linux,gcma-clients = "{word}";' for word in words]
        right += [f"reusable; {case}" for case, _, says in DEVICE_TREES if "none of" not in says]
        wrong = [f"reusable; {case}" for case, _, says in DEVICE_TREES if "none of" in says]
        wrong += WRONG_NODES
        if remarks := complaints(nodes(right)):
            raise LabError(f"the schema refuses what the kernel accepts: {remarks}")
        remarks = complaints(nodes(wrong))
        for number, text in enumerate(wrong):
            if f": area{number} (" not in remarks:
                raise LabError(f"the schema accepts {text}")


def _without_maintainer(tree: Path) -> list[str]:
    """New files that the patterns of our entry do not match."""
    entry = (tree / "MAINTAINERS").read_text().partition("(GCMA)\n")[2].partition("\n\n")[0]
    patterns = tuple(re.findall(r"^F:\t(\S+)", entry, re.MULTILINE))
    return [name for name in trees.new_files() if not name.startswith(patterns)]


# ------------------------------------------------------------------------------- its builds


def build(name: str) -> None:
    try:
        kernel.image(name)
    except LabError:
        FAILED_IMAGES.add(name)
        raise


@once
def bootable(name: str) -> Path:
    return kernel.image(name).bootable


for _title, _image in {
    "gcma for Linux 6.12": "gcma",
    "gcma": "gcma-7.3",
    "half of the series": "half",
    "debug": "debug",
    "arm64": "arm64",
    "rpi2": "rpi2",
}.items():
    check(f"kernel: {_title} builds")(partial(build, _image))


@check("kernel: every patch of the series builds")
def _series_builds() -> None:
    series.build_each(log_of("series-builds"))


def _object_directory(words: Sequence[str], name: str) -> str:
    """Make mm/gcma of both kernels anew in object directories of its own; what make said."""
    said = ""
    for config in ("check", "check-6.12"):
        log = log_of(f"{name}-{config}")
        with kernel.configured(config) as (tree, directory):
            for stale in (directory / "mm/gcma").glob("*.o"):
                stale.unlink()
            child.run(
                kernel.make(config, tree, *words, "mm/gcma/"),
                log=log,
                limit_s=1800,
                what=f"make {' '.join(words)} mm/gcma/",
            )
        said += log.read_text(errors="replace")
    return said


def _complaints(text: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if re.search(r"(warning|error):", line) and ("gcma" in line or "mm/" in line)
    ]


@check("kernel: no warnings with W=1")
def _w1() -> None:
    found = _complaints(_object_directory(["W=1"], "w1"))
    if found:
        raise LabError(f"{len(found)} warnings with W=1; the first:\n" + "\n".join(found[:15]))


@check("kernel: sparse has nothing to say")
def _sparse() -> None:
    require_tool("sparse", "sparse")
    found = _complaints(_object_directory(["C=2"], "sparse"))
    found = [line for line in found if "gcma" in line]
    if found:
        raise LabError(f"{len(found)} remarks of sparse; the first:\n" + "\n".join(found[:15]))


REFERENCES: Final = " references"


def code_of(binary: Path, scratch: Path) -> dict[str, bytes]:
    """The bytes of all sections with instructions, and what they refer to by name."""
    readelf, objcopy = require_tool("readelf", "binutils"), require_tool("objcopy", "binutils")
    sections: dict[str, bytes] = {}
    listing = child.output([readelf, "-SW", binary])
    for name in re.findall(r"^ +\[ *\d+\] (\S+) +PROGBITS .* A?X?A?X[A-Zlo]* +\d", listing, re.M):
        target = scratch / "section"
        child.output([objcopy, "-O", "binary", f"--only-section={name}", binary, target])
        sections[name] = target.read_bytes()
    section = ""
    references: dict[str, list[str]] = {}
    for line in child.output([readelf, "-rW", binary]).splitlines():
        if begin := re.match(r"Relocation section '\.rela(\S+)'", line):
            section = begin[1]
        elif section in sections:
            words = line.split()
            # offset info type value name + addend; local data is named after its section
            if len(words) >= 7 and not words[4].startswith("."):
                name = re.sub(r"\.\d+$", "", words[4])
                references.setdefault(section, []).append(f"{words[0]} {words[2]} {name}")
    for name, lines in references.items():
        sections[name + REFERENCES] = "\n".join(lines).encode()
    return sections


def added_lines(patches: Path, name: str) -> int:
    """How far the patches can move a line of a file down."""
    total = 0
    for patch in patches.rglob("*.patch"):
        for part in re.split(r"^--- ", patch.read_text(), flags=re.MULTILINE)[1:]:
            if f"+++ b/{name}\n" in part:
                total += series.added(part)
    return total


def only_line_numbers(old: str, new: str, most: int) -> bool:
    """Whether two disassemblies differ in nothing but constants that grew by at most this.

    ext4 and others pass __LINE__ to the functions that report errors.
    """
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        return False
    constant = re.compile(r"\$0x([0-9a-f]+)")
    for one, other in zip(before, after, strict=True):
        if one == other:
            continue
        if constant.sub("$", one) != constant.sub("$", other):
            return False
        for a, b in zip(constant.findall(one), constant.findall(other), strict=True):
            if not 0 <= int(b, 16) - int(a, 16) <= most:
                return False
    return True


_PADDING: Final = re.compile(r"(data16|nop|cs nop|int3|xchg +%ax,%ax)")


def _functions(text: str) -> dict[str, list[str]]:
    """The functions of a disassembly with relocations, without what is between them. Clones that
    the compiler made have the name of the function; local data has that of its section."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in re.sub(r"\.(isra|constprop)\.\d+", "", text).splitlines():
        words = line.split()
        if begin := re.match(r"<([^>]+)>:", line):
            name = begin[1]
            found.setdefault(name, [])
        elif name and words:
            if words[0].startswith("R_"):
                words[1] = re.sub(r"^(\.\S+)[-+]0x[0-9a-f]+$|\.\d+(?=[-+])", r"\1", words[1])
            found[name].append(" ".join(words))
    for lines in found.values():
        while lines and _PADDING.match(lines[-1]):
            lines.pop()
    return found


def _done(lines: Sequence[str]) -> Counter[str]:
    """What a function does, whatever the order and the registers: instructions but for jumps, and
    what they refer to."""
    words = (line if line.startswith("R_") else line.split()[0] for line in lines)
    return Counter(word for word in words if not word.startswith("j"))


def changed_functions(old: str, new: str, most: int, anew: Collection[str] = ()) -> list[str]:
    """Functions in which two disassemblies differ in more than line numbers, those of `anew` in
    more than how they are laid out."""
    before, after = _functions(old), _functions(new)
    return [
        name
        for name in sorted(before.keys() | after.keys())
        if name not in before
        or name not in after
        or not (
            only_line_numbers("\n".join(before[name]), "\n".join(after[name]), most)
            or (name in anew and _done(before[name]) == _done(after[name]))
        )
    ]


def _disassembly(binary: Path, section: str) -> str:
    words = ["-dr", "--no-show-raw-insn", "--no-addresses", f"--section={section}"]
    text = child.output([require_tool("objdump", "binutils"), *words, binary])
    return text.partition("Disassembly of section")[2]


# Those in which a patch mends an error that is not GCMA's.
MENDED_OBJECTS: Final = {"drivers/dma-buf/udmabuf.o"}


# Functions that the compiler lays out anew, by the series of Linux, and why.
LAID_OUT_ANEW: Final[dict[str, Collection[str]]] = {
    "6.12": (),
    # It has a variable whose end does nothing.
    "7.3": ("truncate_inode_pages_range",),
}


@check("kernel: without CONFIG_GCMA the patches leave nothing behind")
def _same_text() -> None:
    differing: list[str] = []
    for names in (("pristine-6.12", "without-6.12"), ("pristine", "without")):
        patched = trees.patched_files(kernel.CONFIGS[names[0]].series)
        objects = {name[:-2] + ".o" for name in patched if name.endswith(".c")} - MENDED_OBJECTS
        differing += _differing(names, sorted(objects))
    if differing:
        raise LabError("instructions differ with CONFIG_GCMA=n: " + ", ".join(differing))


def _differing(names: Sequence[str], objects: Sequence[str]) -> list[str]:
    """Functions of objects in which two kernels have different instructions."""
    version = kernel.CONFIGS[names[0]].series
    directories: dict[str, Path] = {}
    for name in names:
        with kernel.configured(name) as (tree, directory):
            directories[name] = directory
            with progress.meter(f"building {len(objects)} objects of the {name} kernel"):
                child.run(
                    kernel.make(name, tree, *objects),
                    log=log_of(f"objects-{name}"),
                    limit_s=1800,
                    what=f"building objects of the {name} kernel",
                )
    differing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        for name in objects:
            old, new = (code_of(directories[d] / name, Path(temp)) for d in directories)
            if not old:
                raise LabError(f"{name} has no instructions; the comparison is broken")
            # What the lab itself adds there is for the compiler nothing as well, and moves lines.
            patches = (KERNEL / f"patches/{version}", trees.ADDITIONS / version)
            most = sum(added_lines(where, name[:-2] + ".c") for where in patches)
            changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            for section in sorted({key.removesuffix(REFERENCES) for key in changed}):
                before, after = (_disassembly(directories[d] / name, section) for d in directories)
                functions = changed_functions(before, after, most, LAID_OUT_ANEW[version])
                if not _functions(before):
                    functions = [section]
                differing += [f"{version} {name}: {function}" for function in functions]
    return differing


@check("debs: the packages have the kernel that the guests boot", asked=True)
def _debs() -> None:
    try:
        for tool, package in kernel.DEB_TOOLS.items():
            require_tool(tool, package)
    except LabError as missing:
        raise Skip(str(missing)) from missing
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        made = kernel.debs("gcma", None, Path(temp))
        (deb,) = (path for path in made if path.name.startswith("linux-image-"))
        command("debs", ["dpkg-deb", "-x", deb, Path(temp) / "root"])
        (vmlinuz,) = Path(temp).glob("root/boot/vmlinuz-*")
        if vmlinuz.read_bytes() != bootable("gcma").read_bytes():
            raise LabError(f"the kernel in {deb.name} is not the one that was tested")
