# SPDX-License-Identifier: MIT OR Apache-2.0
"""Guest programs have the options that jobs pass: a boot takes half an hour to say so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from nocopy_lab import initramfs, kernel, traces
from nocopy_lab.checks import recorder, soak
from nocopy_lab.checks.guest import GUEST_CHECKS
from nocopy_lab.experiments import bench_gcma, bench_pdio, demo, paper, record
from nocopy_lab.paths import GUEST

NOWHERE = Path("/image")
# Where a command of the shell ends and another may begin.
_END = re.compile(r"[;\n|&(){}`]|(?<![-\w])(?:do|then|else)\s")
_FUNCTION = re.compile(r"^(\w+)\(\) \{(?:([^\n]*)\}$|\n(.*?)^\})", re.MULTILINE | re.DOTALL)
_GIVEN = re.compile(r"(?:^|\s)(\w+)=((?:'[^']*'|\"[^\"]*\"|[^\s;'\"])*)")
# What may be before the program.
_BEFORE = re.compile(
    r"\s*(?:(?:need|if|while|until|!|env|exec|timeout -s KILL \S+|within \S+|\w+=\S*)\s+)*"
)


@cache
def options() -> Mapping[str, set[str]]:
    """Of each guest program that has any."""
    found = {}
    for name, sources in initramfs.guest_sources().items():
        for table in re.findall(
            r"struct setting settings\[\] = \{(.*?)\n\s*\{ 0 \}",
            "".join(source.read_text() for source in sources),
            re.DOTALL,
        ):
            found[name] = set(re.findall(r"\{ (?:\.name = )?\"([\w-]+)\"", table))
    return found


def functions(text: str) -> dict[str, str]:
    return {name: one_line or body for name, one_line, body in _FUNCTION.findall(text)}


def whole(script: str) -> str:
    """With what it reads of the library."""
    names = ["lab", *re.findall(r"^\. /lib/(\w+)\.sh$", script, re.MULTILINE)]
    return "\n".join([*((GUEST / f"lib/{name}.sh").read_text() for name in names), script])


def plain(text: str) -> str:
    """A script without comments and lines that go on; commands whose output is a word are at the
    end."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    inside: list[str] = []

    def moved(found: re.Match[str]) -> str:
        inside.append(found[1])
        return "0"

    text = re.sub(r"\$\(([^()]*)\)", moved, text)
    text = re.sub(r"\$\(\(.*?\)\)", "0", text)
    return "\n".join([re.sub(r"\$\{(\w+)[^{}]*\}", r"$\1", text), *inside])


def spelled(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each guest program that a command runs, itself or by a function, and the words behind it.
    Variables are replaced by all that they are set to."""
    text = whole(text)
    every = functions(text)
    values: dict[str, list[str]] = {}
    # A value that is a list of commands is run as such.
    evaluated = [" ".join(shlex.split(value)) for _, value in _GIVEN.findall(text) if "\n" in value]
    text = plain("\n".join([text, *evaluated]))
    for name, value in _GIVEN.findall(text):
        values.setdefault(name, []).append(value.replace("'", "").replace('"', ""))
    for command in _END.split(text):
        command = re.sub(
            r"\$(\w+)", lambda found: " ".join(values.get(found[1], [found[0]])), command
        )
        words = _BEFORE.sub("", command, count=1).split()
        for at, word in enumerate(words):
            program = word.rpartition("/")[2]
            if program in every:
                program = passed_on(every[program], every)
            if program in options() and (at == 0 or word.startswith("/bin/")):
                yield program, words[at + 1 :]


def passed_on(body: str, every: Mapping[str, str]) -> str:
    """The guest program that a function gives its own words to, if it does."""
    if "set -- " in body:
        return ""
    for command in _END.split(plain(body)):
        program, *words = _BEFORE.sub("", command, count=1).split() or [""]
        given = any(word == '"$@"' or re.fullmatch(r"\$\d", word) for word in words)
        if given and program in options() and program not in every:
            return program
    return ""


def unknown(script: str) -> list[str]:
    """Options that a script passes to a guest program which has none of the name."""
    return [
        f"{program} --{option}"
        for program, words in spelled(script)
        for option in re.findall(r"(?:^|[\s'\"])--([a-z][\w-]*)", " ".join(words))
        if option not in options()[program]
    ]


def scripts() -> Iterator[tuple[str, str]]:
    """Every job, by a name: as it boots where that is to be had, and each file by itself."""
    for file in sorted(GUEST.glob("*/*.sh")):
        yield file.name, file.read_text()
    image = kernel.Image("gcma", NOWHERE)
    loads = [*paper.boots(paper.PARTS), *paper.boots(paper.PARTS, blogbench=True)]
    for job in (
        *(job for check in GUEST_CHECKS for job in check.jobs),
        *recorder.boots(NOWHERE),
        *(soak.job(seed, NOWHERE) for seed in range(20)),
        *bench_gcma.boots(NOWHERE, NOWHERE, NOWHERE),
        *bench_gcma.real_jobs(NOWHERE),
        *bench_pdio.board_jobs({}),
        *(demo.job(config, image, 1) for config in demo.CONFIGS),
        *(paper.job(boot, board, image) for board in paper.KERNELS for boot in loads),
        *record.Boots(image, {}, NOWHERE).every(),
        *record.exact_boots(image, {}, {}),
        *record.arm64_boots(kernel.Image("arm64", NOWHERE), {}, NOWHERE),
    ):
        yield job.name, job.script
    for trace in traces.TRACES.values():
        yield trace.name, trace.script


def test_programs_have_the_options_that_jobs_pass() -> None:
    wrong = {name: found for name, script in scripts() if (found := unknown(script))}
    assert not wrong


def test_options_are_found_where_jobs_have_them() -> None:
    """In the variables of a job, and through functions of the library."""
    seen: set[tuple[str, str]] = set()
    for _, script in scripts():
        for program, words in spelled(script):
            seen |= {(program, option) for option in re.findall(r"--([\w-]+)", " ".join(words))}
    assert seen >= {
        ("launch", "code-mib"), ("launch", "data-mib"), ("oracle", "until"), ("reread", "heap"),
        ("camera", "pieces"), ("blog", "pause-ms"), ("fragment", "keep"), ("huge", "demote"),
        ("recording", "late-us"), ("recording", "profile"), ("pattern", "photo"),
        ("sweep", "find"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "need launch --nothing 1\n",
        "timeout -s KILL 3 sweep --sizes 1 \\\n\t--nothing || exit 1\n",
        "sizes='--apps 2 --nothing 3'\nneed launch $sizes\n",
        "beside='counting=\"--nothing\"\ntake one\n'\ntake() { recording $counting; }",
        ". /lib/paper.sh\nserve --nothing\n",
        "within reader reread --nothing &\n",
    ],
)
def test_an_option_that_is_not_there(script: str) -> None:
    assert [found.rpartition(" ")[2] for found in unknown(script)] == ["--nothing"]


def test_results_say_which_programs_ran() -> None:
    every = [*bench_gcma.boots(NOWHERE, NOWHERE, NOWHERE), *bench_gcma.real_jobs(NOWHERE)]
    ran = {program for job in every for program, _ in spelled(job.script)}
    assert ran == set(bench_gcma.PROGRAMS)
