# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Rust crates: a toolchain for them, and how cargo is called.

A cargo on PATH or in ~/.cargo/bin is taken as it is when it is new enough. Where there is none,
rustup's minimal profile goes into the cache, and nowhere else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import re
import shutil
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Final

from nocopy_lab import child, progress
from nocopy_lab.arch import ARM64
from nocopy_lab.paths import LOGS, REPO, LabError, cache, locked, require_space

# What the crates need, and what everything here needs: brug-bench, for the allocators it compares.
OLDEST: Final = (1, 91)
NEEDED: Final = (1, 95)
# What is installed where there is no Rust, and what formats and lints: a later one has other ideas.
RELEASE: Final = f"{NEEDED[0]}.{NEEDED[1]}.0"
RUSTUP: Final = "https://static.rust-lang.org/rustup/dist/{target}/rustup-init"
TOOLCHAIN_MIB: Final = 2048
HOST: Final = f"{platform.machine()}-unknown-linux-gnu"
AARCH64: Final = "aarch64-unknown-linux-gnu"
# Miri and the sanitizers exist for this one only.
NIGHTLY: Final = "nightly-2026-10-30"


class Unavailable(LabError):  # noqa: N818  # the reason to skip a check
    """What is needed is not here and cannot be installed; the text says why. A check is skipped."""


@dataclass(frozen=True)
class Toolchain:
    """A cargo and the environment to call it with."""

    cargo: Path
    env: dict[str, str]

    def run(
        self,
        name: str,
        words: Sequence[str | Path],
        *,
        limit_s: float = 1800.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Run cargo in the repository."""
        log = LOGS / f"cargo-{name}.log"
        child.run(
            [self.cargo, *words],
            log=log,
            limit_s=limit_s,
            what=f"cargo {' '.join(str(word) for word in words)}",
            cwd=REPO,
            # Where _built() looks, whatever a configuration of the user's says.
            env={**self.env, "CARGO_TARGET_DIR": str(target()), **(env or {})},
        )

    def has(self, command: str) -> bool:
        """True if there is such a subcommand (rustup leaves stubs for what is not installed)."""
        try:
            child.run(
                [self.cargo, command, "--version"],
                log=LOGS / f"cargo-{command}-version.log",
                limit_s=60,
                what=f"cargo {command}",
                env=self.env,
            )
        except LabError:
            return False
        return True


def _version(cargo: Path, env: dict[str, str]) -> tuple[int, int] | None:
    log = LOGS / "cargo-version.log"
    try:
        words: list[str | Path] = [cargo, "--version"]
        child.run(words, log=log, limit_s=60, what="cargo --version", env=env, cwd=REPO)
    except (LabError, OSError):
        return None
    found = re.search(r"cargo (\d+)\.(\d+)", log.read_text(errors="replace"))
    return (int(found[1]), int(found[2])) if found else None


def _candidates() -> Iterator[Toolchain]:
    """Every cargo that may be here, the user's first."""
    search = os.environ.get("PATH", os.defpath)
    with contextlib.suppress(RuntimeError):  # a user without a home
        search += os.pathsep + str(Path.home() / ".cargo/bin")
    for directory in search.split(os.pathsep):
        found = shutil.which("cargo", path=directory)
        if found:
            yield Toolchain(Path(found), {"PATH": f"{Path(found).parent}{os.pathsep}{search}"})
    ours = cache() / "rust"
    yield Toolchain(
        ours / "cargo/bin/cargo",
        {
            "PATH": f"{ours / 'cargo/bin'}{os.pathsep}{search}",
            "CARGO_HOME": str(ours / "cargo"),
            "RUSTUP_HOME": str(ours / "rustup"),
        },
    )


def _install() -> None:
    """rustup's minimal profile, into the cache."""
    ours = cache() / "rust"
    require_space(ours, TOOLCHAIN_MIB)
    ours.mkdir(parents=True, exist_ok=True)
    url = RUSTUP.format(target=HOST)
    init = ours / "rustup-init"
    hint = f"install cargo {NEEDED[0]}.{NEEDED[1]} or newer by hand, from https://rustup.rs"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            init.write_bytes(answer.read())
    except (OSError, http.client.HTTPException) as error:  # the latter if it is cut off
        raise LabError(f"no Rust here, and {url} cannot be had ({error}); {hint}") from error
    init.chmod(0o755)
    words: list[str | Path] = [init, "-y", "--no-modify-path", "--profile", "minimal"]
    words += ["--component", "clippy,rustfmt", "--default-toolchain", RELEASE]
    with progress.meter(f"installing Rust into {ours}"):
        child.run(
            words,
            log=LOGS / "rustup.log",
            limit_s=900,
            what=f"rustup-init ({hint})",
            env={"CARGO_HOME": str(ours / "cargo"), "RUSTUP_HOME": str(ours / "rustup")},
        )


@once
def toolchain() -> Toolchain:
    """A cargo that is new enough; installed if there is none."""

    def found() -> Toolchain | None:
        for one in _candidates():
            if one.cargo.is_file() and (_version(one.cargo, one.env) or (0, 0)) >= NEEDED:
                return one
        return None

    if there := found():
        return there
    with locked(cache() / "rust.lock"):
        if there := found():  # by another lab
            return there
        _install()
    if there := found():
        return there
    raise LabError(f"no cargo {NEEDED[0]}.{NEEDED[1]} or newer, even after installing one")


def panics(said: str) -> str:
    """What the tests that failed said as they did: each panic and the lines that explain it."""
    lines = said.splitlines()
    found: list[str] = []
    for number, line in enumerate(lines):
        if re.match(r"thread '.*panicked at ", line):
            found += [line, *(f"    {text}" for text in lines[number + 1 : number + 6])]
    return "\n".join(found[:60])


def test_executables(
    tools: Toolchain,
    name: str,
    words: Sequence[str | Path],
    *,
    limit_s: float = 1800.0,
    env: Mapping[str, str] | None = None,
) -> list[Path]:
    """Build tests without running them; where they are."""
    build = ["test", "--no-run", "--message-format=json-render-diagnostics", *words]
    tools.run(name, build, limit_s=limit_s, env=env)
    found: list[Path] = []
    for line in (LOGS / f"cargo-{name}.log").read_text(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            found.append(Path(message["executable"]))
    return found


def _rustup(tools: Toolchain, words: Sequence[str], what: str) -> None:
    """Have rustup install something, or say why there is none."""
    rustup = shutil.which("rustup", path=tools.env["PATH"])
    if rustup is None:
        raise Unavailable(f"no rustup to install {what} with")
    log = LOGS / f"rustup-{re.sub(r'[^a-z0-9]+', '-', what.lower())}.log"
    try:
        with locked(cache() / "rust.lock"):
            child.run([rustup, *words], log=log, limit_s=600, what=what, env=tools.env, cwd=REPO)
    except LabError as error:
        raise Unavailable(f"{what} cannot be had; see {log}") from error


def release(version: str, *components: str) -> Toolchain:
    """A toolchain of its own version, installed if it is not there."""
    tools = toolchain()
    words = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]
    for component in components:
        words += ["--component", component]
    _rustup(tools, words, f"Rust {version}")
    return Toolchain(tools.cargo, {**tools.env, "RUSTUP_TOOLCHAIN": version})


def lints() -> Toolchain:
    """The toolchain whose formatter, lints and documentation tool count."""
    tools = toolchain()
    if _version(tools.cargo, tools.env) == NEEDED:
        return tools
    return release(RELEASE, "clippy", "rustfmt")


def aarch64() -> Toolchain:
    """The toolchain, with the standard library for 64-bit Arm."""
    tools = toolchain()
    _rustup(tools, ["target", "add", AARCH64], "the standard library for aarch64")
    return tools


def aarch64_linker() -> dict[str, str]:
    """The environment in which cargo links programs for 64-bit Arm."""
    prefix = f"CARGO_TARGET_{AARCH64.upper().replace('-', '_')}"
    return {f"{prefix}_LINKER": ARM64.tool("gcc")}


def aarch64_runtime() -> dict[str, bytes]:
    """What programs for 64-bit Arm load that its Debian root has not, by guest path."""
    root = Path("/usr") / ARM64.prefix.rstrip("-")
    if not (root / "lib/ld-linux-aarch64.so.1").exists():
        raise Unavailable("no C library for aarch64; run: apt-get install libc6-arm64-cross")
    name = "lib/libgcc_s.so.1"
    return {name: (root / name).read_bytes()}


# What is built without Rust's standard library.
LIBBRUG: Final = ("-p", "brug-preload", "--", "-C", "panic=abort")


@dataclass(frozen=True)
class Brug:
    """The built command and library."""

    command: Path
    library: Path


@once
def _release(file: str, *words: str, command: str = "build") -> Path:
    """What cargo makes of these words, with optimisation."""
    name = Path(file).name
    with progress.meter(f"building {name}"):
        toolchain().run(f"build-{name}", [command, "--release", "--locked", *words])
    return _built(file)


def brug() -> Brug:
    """The `brug` command and libbrug.so."""
    return Brug(
        _release("brug", "-p", "brug-cli"), _release("libbrug.so", *LIBBRUG, command="rustc")
    )


def pdio() -> Path:
    """The `pdio` command."""
    return _release("pdio", "-p", "pdio-cli")


def libpdio() -> Path:
    """libpdio.so."""
    return _release("libpdio.so", "-p", "pdio-preload")


def announce() -> Path:
    """The example of crates/pdio-preload that tells others of its stream; beside libpdio.so."""
    libpdio()
    return _release("examples/announce", "-p", "pdio-preload", "--example", "announce")


def promise() -> Path:
    """The example of crates/pdio that says what must be there after a power cut."""
    return _release("examples/promise", "-p", "pdio", "--example", "promise")


def record() -> Path:
    """The `nocopy-record` command."""
    return _release("nocopy-record", "-p", "nocopy-record")


def linked(packages: Sequence[str]) -> dict[str, Path]:
    """The crates of others that are linked into packages of ours, and where their sources are."""
    tools = toolchain()

    def said(*words: str) -> str:
        command: list[str | Path] = [tools.cargo, *words, "--locked"]
        return child.output(command, limit_s=600, cwd=REPO, env=tools.env)

    described = json.loads(said("metadata", "--format-version", "1", "--filter-platform", HOST))
    others = {
        f"{one['name']} {one['version']}": Path(one["manifest_path"]).parent
        for one in described["packages"]
        if one["source"]
    }
    # It knows which features each has in a build of these alone.
    names = [word for package in packages for word in ("-p", package)]
    form = ("-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    tree = {line.replace(" v", " ", 1) for line in said("tree", *form, *names).splitlines()}
    return {name: others[name] for name in sorted(tree & set(others))}


def target() -> Path:
    """Where cargo puts what it builds."""
    return REPO / (os.environ.get("CARGO_TARGET_DIR") or "target")


def _built(name: str, triple: str = "") -> Path:
    path = target() / triple / "release" / name
    if not path.is_file():
        raise LabError(f"cargo built no {path}")
    return path


@once
def record_aarch64() -> Path:
    """nocopy-record for 64-bit Arm."""
    with progress.meter("building nocopy-record for aarch64"):
        words = ["build", "--release", "--locked", "-p", "nocopy-record", "--target", AARCH64]
        aarch64().run("build-record-aarch64", words, env=aarch64_linker())
    return _built("nocopy-record", AARCH64)


@once
def pdio_test(name: str) -> Path:
    """A test program of crates/pdio, with all assertions."""
    with progress.meter(f"building the test {name}"):
        words = ["--locked", "--workspace", "--exclude", "brug", "--test", name]
        (built,) = test_executables(toolchain(), f"build-{name}", words)
    return built
