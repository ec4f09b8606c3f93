# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels: configurations of the trees of `trees`, builds, and the cache of finished ones.

    build     one object directory for each configuration, kept for the next time
    image     a finished kernel, named after a hash of everything that went into it

An image is used only if its name is the hash of what is on disk now: a stale one is never found.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any, Final

from nocopy_lab import child, progress, trees
from nocopy_lab.arch import ARM, ARM64, UM, X86, Arch
from nocopy_lab.paths import (
    KERNEL,
    LabError,
    cache,
    disk_full_is_one_line,
    locked,
    require_space,
    require_tool,
    sha256,
    sha256_tree,
    write_if_changed,
)

# Configurations: fragments of kernel/configs, and lines that come last.
STOCK: Final = ("lab", "board-x86", "camera", "filesystems")
GCMA: Final = (*STOCK, "gcma")
# The kernel that most tests and the demo boot has whatever one of them wants.
MOST: Final = (*GCMA, "disks", "faults")
DEBUG: Final = ("lab", "board-x86", "gcma", "debug")
LATER: Final = ("linux-7.3", "machine-7.3")
MOST_LATER: Final = (*MOST, *LATER)
COMPARED: Final = (*STOCK, "faults", "pnfs")

STORAGE: Final = ("storage", "disks", "board-x86")
# Checksums are computed by an instruction, as on most computers.
STORAGE_LATER: Final = ("CONFIG_CRC_OPTIMIZATIONS=y",)
# Of Linux 6.12 the same, and what 7.3 has no option for any more, as it is always so.
STORAGE_OLDER: Final = (
    "CONFIG_CRYPTO_CRC32C_INTEL=y", "CONFIG_PROC_SYSCTL=y", "CONFIG_SLUB_CPU_PARTIAL=y",
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    name: str
    fragments: tuple[str, ...]
    lines: tuple[str, ...] = ()
    # The configuration in whose object directory this one is built, because only few objects
    # differ. (A copy of it is no help: objtool knows where it lies, and all depends on objtool.)
    within: str | None = None
    pristine: bool = False  # built from the source without GCMA
    upto: str = ""  # the last patch of the series that it has, if not all
    arch: Arch = X86
    series: str = trees.SERIES[0]


JUMP_LABELS: Final = ("CONFIG_JUMP_LABEL=y",)
CONFIGS: Final[dict[str, Config]] = {
    config.name: config
    for config in (
        Config("gcma", MOST),
        # What instructions are counted in has jump labels, as everybody's kernel. QEMU's threads
        # may run into a breakpoint that was there while one was patched: the others are without.
        Config("measured", GCMA, JUMP_LABELS),
        Config("stock", STOCK, ("CONFIG_GCMA=n", *JUMP_LABELS)),
        Config("rpi2", ("lab", "board-rpi2", "gcma", "camera"), arch=ARM),
        Config("storage-6.12", STORAGE, STORAGE_OLDER, pristine=True),
        Config("uml", ("uml", "gcma"), arch=UM),
        Config("check-6.12", MOST, within="gcma"),
        Config("pristine-6.12", COMPARED, JUMP_LABELS, pristine=True),
        Config("without-6.12", COMPARED, ("CONFIG_GCMA=n", *JUMP_LABELS)),
        # Linux 7.3.
        Config("gcma-7.3", MOST_LATER, series="7.3"),
        Config("measured-7.3", (*GCMA, *LATER), JUMP_LABELS, series="7.3"),
        Config("stock-7.3", (*STOCK, *LATER), ("CONFIG_GCMA=n", *JUMP_LABELS), series="7.3"),
        Config("check", MOST_LATER, within="gcma-7.3", series="7.3"),
        Config(
            "storage", (*STORAGE, "network", "machine-7.3"), STORAGE_LATER, pristine=True,
            series="7.3",
        ),
        # Two that are compared, with all that the patches touch.
        Config("pristine", (*COMPARED, *LATER), JUMP_LABELS, pristine=True, series="7.3"),
        Config(
            "without", (*COMPARED, *LATER), ("CONFIG_GCMA=n", *JUMP_LABELS), series="7.3"
        ),
        Config("debug", (*DEBUG, "linux-7.3"), series="7.3"),
        Config("rt", (*DEBUG, "rt", "linux-7.3"), series="7.3"),
        Config("kcsan", ("lab", "board-x86", "gcma", "kcsan", *LATER), series="7.3"),
        # What interrupts take is told apart from what they interrupt.
        Config(
            "arm64", ("lab", "board-arm64", "camera", "gcma", *LATER),
            ("CONFIG_IRQ_TIME_ACCOUNTING=y",), arch=ARM64, series="7.3",
        ),
        # The old lists, which have a hook of their own and which nothing else of 7.3 has.
        Config(
            "uml-7.3", ("uml", "gcma", "linux-7.3"),
            ("CONFIG_LRU_GEN=y", "# CONFIG_LRU_GEN_ENABLED is not set"), arch=UM, series="7.3",
        ),
        # Areas and dmem, but no hooks that keep anything: the rest differs in a dozen objects.
        Config(
            "half", MOST_LATER, within="gcma-7.3", upto="mm/cma: let areas be guaranteed ones",
            series="7.3",
        ),
        Config("series", (*MOST_LATER, "pnfs"), series="7.3"),
    )
}  # fmt: skip
# Steps that make announces in a first build, for the progress bar; the next builds know.
STEPS_GUESS: Final = 2600
_STEP: Final = re.compile(rb"^  [A-Z][A-Z0-9_]* +(\[M\] )?(\S+)$", re.MULTILINE)
BUILD_LIMIT_S: Final = 3600.0
# How often a build is repeated because somebody edited kernel/ meanwhile.
EDITS_DURING_BUILDS: Final = 3


# -------------------------------------------------------------------------- configurations


def parse_config(text: str) -> dict[str, str]:
    """Symbols of a fragment or a .config; what is not set has the value n."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if unset := re.fullmatch(r"# (CONFIG_\w+) is not set", line.strip()):
            values[unset[1]] = "n"
        elif given := re.fullmatch(r"(CONFIG_\w+)=(.*)", line.strip()):
            values[given[1]] = given[2]
    return values


def merged_config(config: Config) -> dict[str, str]:
    """All fragments of a configuration; later ones win."""
    wanted: dict[str, str] = {}
    for fragment in config.fragments:
        path = KERNEL / f"configs/{fragment}.config"
        if not path.is_file():
            raise LabError(f"{path} is missing; restore it")
        wanted |= parse_config(path.read_text())
    return wanted | parse_config("\n".join(config.lines))


def untaken(wanted: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Wanted lines that kconfig did not follow."""
    return [
        f"{name}={value} (is {actual.get(name, 'n')})"
        for name, value in sorted(wanted.items())
        if actual.get(name, "n") != value
    ]


# ---------------------------------------------------------------------------------- builds


@dataclass(frozen=True)
class Image:
    name: str
    path: Path

    @property
    def bootable(self) -> Path:
        return self.path / CONFIGS[self.name].arch.image_name

    def _stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = json.loads((self.path / "build.json").read_text())
        return stored

    def about(self) -> dict[str, str]:
        return {key: value for key, value in self._stored().items() if key != "sizes"}

    def is_whole(self) -> bool:
        """False as well after a crash that cut off what had just been written."""
        try:
            sizes = self._stored().get("sizes", {})
            return all((self.path / name).stat().st_size == size for name, size in sizes.items())
        except (OSError, ValueError):
            return False


@once
def _compiler(arch: Arch) -> str:
    versions = (child.output([arch.tool(tool), "--version"]) for tool in ("gcc", "ld"))
    return "; ".join(version.splitlines()[0] for version in versions)


def key(config: Config) -> str:
    """Names the image: a hash of everything that goes into it."""
    merged = "\n".join(f"{k}={v}" for k, v in sorted(merged_config(config).items()))
    files = [] if config.pristine else trees.inputs(config.series)
    if config.upto:
        files.append(KERNEL / "upstream")
    ours = sha256_tree(*files)
    words = " ".join((*MAKE_WORDS, *config.arch.make_words()))
    ident = trees.source(config.series).ident
    return sha256(ident, merged, _compiler(config.arch), ours, words)[:20]


# The same inputs give the same kernel, whoever builds it when.
MAKE_WORDS: Final = (
    "KBUILD_BUILD_TIMESTAMP=1970-01-01",
    "KBUILD_BUILD_USER=nocopy",
    "KBUILD_BUILD_HOST=lab",
    "KBUILD_BUILD_VERSION=1",
)


def build_dir(name: str) -> Path:
    config = CONFIGS[name]
    return cache() / "build" / f"{trees.source(config.series).ident}-{config.within or name}"


def _make(arch: Arch, tree: Path, directory: Path, *words: str) -> list[str | Path]:
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    return ["make", f"O={directory}", "-C", tree, jobs, *MAKE_WORDS, *arch.make_words(), *words]


def make(name: str, tree: Path, *words: str) -> list[str | Path]:
    return _make(CONFIGS[name].arch, tree, build_dir(name), *words)


# Makes a tree the source with the series up to the patch of a title. `series`, which is above this
# file, says how.
sync_upto: Callable[[Path, str], None] | None = None


@contextlib.contextmanager
def configured(name: str, upto: str = "", given: Path | None = None) -> Iterator[tuple[Path, Path]]:
    """Hold a configured object directory, its tree up to date; gives (tree, directory).

    With `upto`, the tree has the series up to the patch of this title only. With a .config given,
    it is one for that, with GCMA. One at a time for all labs of this cache: they share the trees,
    and the processors.
    """
    config = CONFIGS[name]
    upto = upto or config.upto
    directory = build_dir(name)
    if given:
        directory = directory.with_name(f"{directory.name}-given")
    require_space(cache(), trees.BUILD_MIB if not directory.is_dir() else 512)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(cache() / "build/.lock"))
        stack.enter_context(disk_full_is_one_line(cache()))
        if not config.pristine and (config.within or not upto):
            stack.enter_context(trees.hold())
        if upto:
            tree = trees.tree_path(config.series)
            if not config.within:
                tree = tree.with_name(f"{tree.name}-{name}")
            if sync_upto is None:
                raise LabError(f"a kernel with the series up to '{upto}' needs nocopy_lab.series")
            sync_upto(tree, upto)
        elif config.pristine:
            tree = trees.source(config.series).path
        else:
            tree = trees.complete(config.series)
        directory.mkdir(parents=True, exist_ok=True)
        if given:
            _configure_given(config, given, tree, directory)
        else:
            _configure(config, tree, directory, partial=bool(upto))
        yield tree, directory


def _kconfig_of_ours(tree: Path) -> list[bytes]:
    """The Kconfig files that trees.sync_tree() writes; the others are the source's."""
    manifest = tree.with_name(tree.name + ".manifest")
    names: list[str] = json.loads(manifest.read_text()) if manifest.is_file() else []
    return [(tree / name).read_bytes() for name in names if "Kconfig" in name]


def _configure(config: Config, tree: Path, directory: Path, partial: bool = False) -> None:
    wanted = merged_config(config)
    lines = "".join(f"{name}={value}\n" for name, value in wanted.items())
    # What kconfig made of the same words last time it makes of them again, two seconds later.
    ident = sha256(lines, _compiler(config.arch), str(tree), str(partial), *_kconfig_of_ours(tree))
    done = directory / "configured"
    if (directory / ".config").is_file() and done.is_file() and done.read_text() == ident:
        return
    done.unlink(missing_ok=True)
    fragment = directory / "wanted.config"
    write_if_changed(fragment, lines)
    child.run(
        make(config.name, tree, f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"),
        log=cache() / f"build/{config.name}-config.log",
        limit_s=300,
        what=f"configuring the {config.name} kernel",
    )
    missed = untaken(wanted, parse_config((directory / ".config").read_text()))
    if partial:  # options that come with a later patch
        missed = [line for line in missed if not line.startswith("CONFIG_GCMA_")]
    if missed:
        raise LabError(
            f"kconfig did not take {len(missed)} lines of the {config.name} kernel "
            f"({'+'.join(config.fragments)}): {', '.join(missed)}"
        )
    done.write_text(ident)


# What GCMA adds to the configuration of a distribution, and keys that only its packagers have.
GIVEN_LINES: Final = {
    "CONFIG_SWAP": "y",
    "CONFIG_CMA": "y",
    "CONFIG_DMA_CMA": "y",
    "CONFIG_GCMA": "y",
    "CONFIG_SYSTEM_TRUSTED_KEYS": '""',
    "CONFIG_SYSTEM_REVOCATION_KEYS": '""',
}


def given_config(given: Path) -> dict[str, str]:
    """The symbols of a .config of somebody else's, in whose comments may be any bytes."""
    symbols = parse_config(given.read_text(errors="replace")) if given.is_file() else {}
    if not symbols:
        raise LabError(f"no configuration {given}; on Debian they are in /boot/config-*")
    return symbols


def _configure_given(config: Config, given: Path, tree: Path, directory: Path) -> None:
    wanted = given_config(given) | GIVEN_LINES
    lines = "".join(f"{name}={value}\n" for name, value in wanted.items())
    (directory / ".config").write_text(lines)
    child.run(
        _make(config.arch, tree, directory, "olddefconfig"),
        log=cache() / "build/given-config.log",
        limit_s=300,
        what=f"configuring with {given}",
    )
    actual = parse_config((directory / ".config").read_text())
    if actual.get("CONFIG_GCMA") != "y":
        raise LabError(
            f"{given} cannot be had with CONFIG_GCMA; it needs CONFIG_CMA and CONFIG_SWAP"
        )


class _Steps:
    """Counts what make announces in its log."""

    def __init__(self, log: Path, memory: Path, meter: progress.Meter) -> None:
        self.log, self.memory, self.meter = log, memory, meter
        self.count, self.offset = 0, 0
        self.expected = int(memory.read_text()) if memory.is_file() else STEPS_GUESS

    def poll(self) -> None:
        with self.log.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        steps = _STEP.findall(data)
        self.count += len(steps)
        if steps:
            self.meter.at(self.count / max(self.expected, 1), steps[-1][1].decode())

    def remember(self) -> None:
        self.poll()
        write_if_changed(self.memory, str(max(self.count, 1)))


def image(name: str) -> Image:
    """A finished kernel of a configuration, built when there is none from these very inputs."""
    config = CONFIGS[name]
    with locked(cache() / f"images/.{name}.lock"):
        for _ in range(EDITS_DURING_BUILDS):
            before = key(config)
            found = cache() / "images" / f"{name}-{before}"
            stored = Image(name, found)
            if stored.is_whole():
                os.utime(found)  # the latest use, for _forget_old()
                return stored
            shutil.rmtree(found, ignore_errors=True)
            with configured(name) as (tree, directory):
                _build(config, tree, directory)
                if key(config) == before:
                    _store(config, tree, directory, found)
                    _forget_old(name, keep=found)
                    return stored
    raise LabError(f"{KERNEL} changes faster than the {name} kernel builds; let it rest")


def _device_trees(arch: Arch, tree: Path) -> list[str]:
    """What make calls the device tree of the board, if that has one. Later kernels have folders."""
    if not arch.dtb:
        return []
    sources = tree / f"arch/{arch.name}/boot/dts"
    (found,) = sources.rglob(arch.dtb.replace(".dtb", ".dts"))
    return [str(found.relative_to(sources).with_suffix(".dtb"))]


def _build(config: Config, tree: Path, directory: Path) -> None:
    log = cache() / f"build/{config.name}.log"
    first = not (directory / "vmlinux").is_file()
    memory = directory / ("steps-first" if first else "steps-again")
    log.write_bytes(b"")
    with progress.meter(f"building the {config.name} kernel") as meter:
        steps = _Steps(log, memory, meter)
        child.run(
            make(config.name, tree, config.arch.image_name, *_device_trees(config.arch, tree)),
            log=log,
            limit_s=BUILD_LIMIT_S,
            what=f"building the {config.name} kernel",
            on_poll=steps.poll,
        )
        steps.remember()


def _store(config: Config, tree: Path, directory: Path, target: Path) -> None:
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    files = {
        config.arch.image: config.arch.image_name,
        "vmlinux": "vmlinux",
        ".config": "config",
        "System.map": "System.map",
    }
    for dtb in _device_trees(config.arch, tree):
        files[f"arch/{config.arch.name}/boot/dts/{dtb}"] = config.arch.dtb
    for origin, name in files.items():
        shutil.copy2(directory / origin, fresh / name)
    release = (directory / "include/config/kernel.release").read_text().strip()
    about = {
        "config": config.name,
        "release": release,
        "source": trees.source(config.series).ident,
        "compiler": _compiler(config.arch),
        "fragments": "+".join((*config.fragments, *config.lines)),
        "key": target.name,
        "sizes": {name: (fresh / name).stat().st_size for name in files.values()},
    }
    (fresh / "build.json").write_text(json.dumps(about, indent=1) + "\n")
    fresh.rename(target)


# Programs that make packages of a kernel, and what they are in.
DEB_TOOLS: Final = {
    "dpkg-buildpackage": "dpkg-dev",
    "dh_listpackages": "debhelper",
    "fakeroot": "fakeroot",
    "rsync": "rsync",
    "cpio": "cpio",
    "depmod": "kmod",
}
# A distribution's configuration has thousands of modules.
DEBS_LIMIT_S: Final = 6 * 3600.0


def debs(name: str, given: Path | None, into: Path) -> list[Path]:
    """Debian packages of a configuration, or of a .config with GCMA, in the directory `into`."""
    config = CONFIGS[name]
    if given:
        given_config(given)
    for tool, package in DEB_TOOLS.items():
        require_tool(tool, package)
    with configured(name, given=given) as (tree, directory):
        log = cache() / "build/debs.log"
        # They appear beside the object directory; what belongs together is in a file in it.
        words = ("KDEB_CHANGELOG_DIST=unstable", "DPKG_FLAGS=--no-check-builddeps", "bindeb-pkg")
        with progress.meter(f"building packages of the {name} kernel"):
            child.run(
                _make(config.arch, tree, directory, *words),
                log=log,
                limit_s=DEBS_LIMIT_S,
                what=f"building packages of the {name} kernel",
            )
        into.mkdir(parents=True, exist_ok=True)
        names = [line.split()[0] for line in (directory / "debian/files").read_text().splitlines()]
        for made in (*map(directory.parent.joinpath, names), *directory.parent.glob("*.changes")):
            shutil.move(made, into / made.name)
    return [into / name for name in names if name.endswith(".deb")]


# Images of one configuration that stay, so that going back and forth needs no build.
KEEP_IMAGES: Final = 4


def _forget_old(name: str, keep: Path) -> None:
    ours = re.compile(rf"{re.escape(name)}-[0-9a-f]{{20}}")
    images = (cache() / "images").iterdir()
    stored = [p for p in images if ours.fullmatch(p.name) and p.is_dir() and p != keep]
    stored.sort(key=lambda p: p.stat().st_mtime, reverse=True)
    for path in stored[KEEP_IMAGES - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
