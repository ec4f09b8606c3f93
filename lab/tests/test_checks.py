# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

from nocopy_lab.checks.guest import kcsan_reports
from nocopy_lab.checks.kinds import GuestCheck

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
