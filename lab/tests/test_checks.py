# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from nocopy_lab import child, website
from nocopy_lab.checks import hooks, host, kunit, runner
from nocopy_lab.checks.guest import GUEST_CHECKS
from nocopy_lab.checks.kinds import BOTH, OLDER, GuestCheck, HostCheck, Skip
from nocopy_lab.checks.kunit import judge_kunit_small
from nocopy_lab.checks.oracle import kcsan_reports
from nocopy_lab.paths import REPO, LabError
from nocopy_lab.run import Job, Outcome

REPORT = """\
[    3.1] ==================================================================
[    3.2] BUG: KCSAN: data-race in dmem_revoke / shrink_folio_list
[    3.3]
[    3.4] write to 0xffff888003d3 of 8 bytes by task 92 on cpu 1:
[    3.5]  clear_live_range.isra.0+0x57/0x90
[    3.6]  cma_alloc+0x57/0x90
[    3.7]
[    3.8] ==================================================================
[    4.2] BUG: KCSAN: data-race in tick / tock
[    4.5]  tick+0x57/0x90
[    4.8] ==================================================================
"""


def test_reports_of_kcsan_that_are_ours() -> None:
    assert len(kcsan_reports(REPORT, {"clear_live_range"})) == 1
    assert len(kcsan_reports(REPORT, {"tick", "clear_live_range"})) == 2
    assert kcsan_reports(REPORT, {"live_range"}) == []


def test_some_checks_run_only_if_asked_for() -> None:
    long = GuestCheck("kcsan: all", "kcsan", asked=True)
    assert long.asked_for("kcsan")
    assert not long.asked_for("")
    assert not long.asked_for("all")
    assert GuestCheck("guest: all", "gcma").asked_for("")


def test_the_quick_ones_are_lint_unit_tests_and_kunit() -> None:
    assert {one.name for one in runner.all_checks() if one.quick} == {
        *("lab: ruff", "lab: mypy --strict", "lab: shellcheck", "lab: unit tests"),
        *("crates: fmt", "crates: clippy", "crates: unit tests"),
        "guest: KUnit in User Mode Linux",
    }


def test_what_runs_on_which_kernel() -> None:
    checks = {check.name: check for check in GUEST_CHECKS}
    assert len(checks) == len(GUEST_CHECKS)
    names = [job.name for check in GUEST_CHECKS for job in check.jobs]
    assert len(names) == len(set(names))  # they name logs
    both = [check for check in GUEST_CHECKS if check.on == BOTH and check.image == "gcma-7.3"]
    assert len(both) > 20
    for newer in both:
        assert checks[f"{newer.name}, Linux 6.12"].image == "gcma"
    assert {check.image for check in GUEST_CHECKS if check.on == OLDER} == {"gcma"}


SUITES = {
    "place": "\tKUNIT_CASE(place_test_one),\n",
    "dmem": "\tKUNIT_CASE(dmem_test_one),\n\tKUNIT_CASE_SLOW(dmem_test_two),\n"
    "#ifdef CONFIG_MEMORY_FAILURE\n\tKUNIT_CASE(dmem_test_broken),\n#endif\n",
    "clients": "\tKUNIT_CASE(clients_test_one),\n",
}
KUNIT = """\
[1.2] KTAP version 1
[1.2]     ok 1 place_test_one
[1.2] ok 1 gcma-place
[1.2]     ok 1 dmem_test_one
[1.2]     ok 2 dmem_test_two
[1.2] ok 2 gcma-dmem
[1.2]     ok 1 clients_test_one
[1.2] ok 3 gcma-clients
"""


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        (KUNIT, ""),
        (KUNIT.replace("ok 2 dmem", "not ok 2 dmem"), "KUnit: dmem_test_two failed"),
        (KUNIT.replace("two", "two # SKIP no area"), "KUnit: dmem_test_two did not run"),
        (KUNIT.replace("two", "two # SKIP no large folios"), ""),
        ("[1.2] KTAP version 1\n", "KUnit: place_test_one, .* did not run"),
        (KUNIT.replace("[1.2]     ok 2 dmem_test_two\n", ""), "KUnit: dmem_test_two did not run"),
        (KUNIT.replace("clients", "list"), "KUnit: clients_test_one did not run"),
    ],
)
def test_kunit_in_user_mode_linux_leaves_no_test_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, verdict: str
) -> None:
    monkeypatch.setattr(kunit, "KERNEL", tmp_path)
    for suite, text in SUITES.items():
        source = tmp_path / f"mm/gcma/{suite}_test.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
    outcome = Outcome(Job("kunit", "true\n", tmp_path), [], tmp_path / "console", said=says)
    if not verdict:
        judge_kunit_small([outcome])
        return
    with pytest.raises(LabError, match=verdict):
        judge_kunit_small([outcome])


def test_the_kernels_own_tests_are_found() -> None:
    for suite in (kunit.PLACE, kunit.DMEM, kunit.CLIENTS):
        assert len(kunit.cases(suite)) > 9
    assert "release_test_broken" not in kunit.cases(kunit.PLACE)  # CONFIG_MEMORY_FAILURE


def test_a_word_that_no_check_has_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    with pytest.raises(LabError, match="no check has 'no such thing' in its name"):
        runner.run_all("no such thing")
    long = HostCheck("all: long", lambda: None, asked=True)
    monkeypatch.setattr(runner, "HOST_CHECKS", [long])
    monkeypatch.setattr(runner, "GUEST_CHECKS", [])
    with pytest.raises(LabError, match="run only if asked for by the first word"):
        runner.run_all("long")


def test_documents_name_checks_that_there_are() -> None:
    command = re.compile(r"lab/lab test --only (?:'([^']+)'|\"([^\"]+)\"|([\w:]+))")
    text = "".join((REPO / page).read_text() for page in website.pages())
    words = {word for found in command.findall(text) for word in found if word}
    assert len(words) > 10
    for word in words:
        assert runner.named(word)


def test_nothing_but_skipped_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def skip() -> None:
        raise Skip("not here")

    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "GUEST_CHECKS", [])
    monkeypatch.setattr(runner, "HOST_CHECKS", [HostCheck("one", skip)])
    assert not runner.run_all()
    monkeypatch.setattr(
        runner, "HOST_CHECKS", [HostCheck("one", skip), HostCheck("two", lambda: None)]
    )
    assert runner.run_all()


def test_what_fails_because_the_lab_was_told_to_end_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        child.end_all()
        raise LabError("User Mode Linux does not start here")

    monkeypatch.setattr(child, "CLOSING", threading.Event())
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "GUEST_CHECKS", [])
    monkeypatch.setattr(runner, "HOST_CHECKS", [HostCheck("one", fail)])
    assert not runner.run_all()
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped\n"


def test_the_end_of_a_log_tells_what_did_not_pass_and_what_took_longest() -> None:
    tally = runner.Tally(12)
    for seconds in range(10):
        tally.count(f"check {seconds}", seconds, None)
    tally.count("one", 99.4, LabError("it is broken"))
    tally.count("two", 0.0, Skip("no camera"))
    *_, failed, skipped, longest, last = tally.summary()
    assert (failed, skipped) == ("failed: one", "skipped: two (no camera)")
    assert longest.startswith("longest: one 99 s; check 9 9 s; ")
    assert last == "10 passed, 1 failed, 1 skipped"


def test_what_pytest_leaves_out_is_told() -> None:
    said = "...s\nSKIPPED [2] tests/test_stores.py:14: no g++\n3 passed, 1 skipped\n"
    assert host.without(said) == [("tests/test_stores.py:14", "no g++")]


def test_a_kernel_that_does_not_build_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(name: str) -> None:
        raise LabError(f"{name}: error: expected ';'")

    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "FAILED_IMAGES", set())
    monkeypatch.setattr(runner, "HOST_CHECKS", [])
    monkeypatch.setattr(runner, "GUEST_CHECKS", [GuestCheck("guest: one", "uml")])
    monkeypatch.setattr(runner, "build", build)
    assert not runner.run_all()
    said = capsys.readouterr().out
    assert "uml: error: expected ';'" in said
    assert "0 passed, 1 failed, 1 skipped" in said


@pytest.mark.parametrize(
    ("said", "timed_out", "is_noticed"),
    [
        ("Linux version 7.3\n    not ok 1 a_test\n", False, True),
        ("Linux version 7.3\n    not ok 1 a_test\n", True, True),
        ("Linux version 7.3\nKernel panic\n", False, True),
        ("Linux version 7.3\n", True, False),
        ("", False, False),
    ],
)
def test_a_hook_is_not_noticed_by_what_never_ran(
    said: str, timed_out: bool, is_noticed: bool
) -> None:
    outcome = Outcome(
        Job("hook", "", Path("/kernel")), [], Path("console"),
        failure="it failed", said=said, timed_out=timed_out,
    )  # fmt: skip
    if is_noticed:
        assert hooks.noticed(outcome)
        return
    with pytest.raises(LabError, match="it failed"):
        hooks.noticed(outcome)
