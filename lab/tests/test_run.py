# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots with small fakes in QEMU's place."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nocopy_lab import board, child, initramfs, paths, run
from nocopy_lab.paths import LAB, LabError
from nocopy_lab.run import Job


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(initramfs, "write", lambda path, *_: path.write_bytes(b"ramfs"))
    return tmp_path / "logs"


def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A QEMU that finds the files of both serial ports in $console and $results."""
    directory = tmp_path / "bin"
    directory.mkdir()
    qemu = directory / "qemu-system-x86_64"
    qemu.write_text(
        "#!/bin/bash\n"
        "for word; do case $word in *id=con,path=*) console=${word##*path=};; "
        "*id=results,path=*) results=${word##*path=}; echo X >$results;; esac; done\n"
        + re.sub(r">+\$results", ">>$results", body)
        + "\n"
    )
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def boot(limit_s: float = 300.0, allow: tuple[str, ...] = (), prose: bool = False) -> run.Outcome:
    job = Job("fake", "true\n", Path("bzImage"), limit_s=limit_s, allow=allow, prose=prose)
    return run.boot(job)


def test_results_arrive_and_the_exit_status_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    fake_qemu(
        tmp_path,
        monkeypatch,
        """echo '{"type": "alloc", "ns": 5}' >$results; echo '{"exit": 0}' >>$results""",
    )
    outcome = boot().require()
    assert outcome.results == [{"type": "alloc", "ns": 5}]


def test_a_guest_that_hangs_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    pid = tmp_path / "pid"
    hangs = f"echo booting >$console; echo QEMU >&2; echo $$ >{pid}; sleep 1000 & wait"
    fake_qemu(tmp_path, monkeypatch, hangs)
    begin = time.monotonic()
    outcome = boot(limit_s=1.0)
    assert time.monotonic() - begin < 500  # and not the 1,000 s of the guest
    assert outcome.failure == "fake: the guest was not done after 1 s"
    with pytest.raises(LabError, match=r"booting$"):
        outcome.require()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("""echo '{"exit": 3}' >$results""", "failed with exit status 3"),
        ("true", "without telling how its job went: QEMU ended with status 0$"),
        (
            "echo 'reboot: Power down' >$console",
            "without telling how its job went: it powered off$",
        ),
        ("echo no memory >&2; exit 1", "QEMU ended with status 1: no memory$"),
        ("kill -KILL $$", "QEMU was ended by signal 9, Killed: no message$"),
        ("""echo hello >$results; echo '{"exit": 0}' >>$results""", "no JSON object: 'hello'"),
        (
            """echo '{"exit": "all"}' >$results; echo '{"exit": 0}' >>$results""",
            "no JSON object: .*all",
        ),
        (
            """printf '%099999d\\n' 0 | tr 0 '[' >$results; echo '{"exit": 0}' >>$results""",
            r"no JSON object: '\[\[",
        ),
        (
            "echo '[ 1.0] WARNING: CPU: 0 PID: 1 at mm/cma.c:1' >$console;"
            """echo '{"exit": 0}' >$results""",
            "the kernel complains: .*mm/cma.c",
        ),
    ],
)
def test_what_goes_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path, body: str, says: str
) -> None:
    fake_qemu(tmp_path, monkeypatch, body)
    failure = boot().failure
    assert failure is not None
    assert "\n" not in failure
    assert re.search(says, failure)


def test_what_a_program_found_wrong_is_told_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    found = '{"type": "wrong", "where": "' + "x" * 500 + '", "got_is": "zeros"}'
    rows = [found, *(f'{{"type": "gone", "round": {n}}}' for n in range(5)), '{"exit": 1}']
    fake_qemu(tmp_path, monkeypatch, "; ".join(f"echo '{row}' >>$results" for row in rows))
    with pytest.raises(LabError) as told:
        boot().require()
    assert found in str(told.value)
    assert '"round": 4' in str(told.value)
    assert '"round": 1' not in str(told.value)


def test_what_people_type_may_say_what_it_likes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = """printf '\\nhello\\n{"a": 1}\\n[2]\\n{"exit": 0}\\n' >$results"""
    fake_qemu(tmp_path, monkeypatch, said)
    outcome = boot(prose=True)
    assert outcome.failure is None
    assert outcome.results == [{"a": 1}]
    assert capsys.readouterr().out == "hello\n[2]\n"


@pytest.mark.parametrize(
    "line",
    [
        "BUG: kernel NULL pointer dereference, address: 0",
        "BUG: KASAN: slab-use-after-free in gcma_load+0x1/0x2",
        "WARNING: possible circular locking dependency detected",
        "WARNING: inconsistent lock state",
        "WARNING: suspicious RCU usage",
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "INFO: task sweep:77 blocked for more than 120 seconds.",
        "Oops: general protection fault, 0000 [#1] SMP",
        "Kernel panic - not syncing: Fatal exception",
        "UBSAN: array-index-out-of-bounds in mm/cma.c:1",
        "DEBUG_LOCKS_WARN_ON(1)",
        "BUG: sleeping function called from invalid context at mm/cma.c:1",
        "BUG: Bad page state in process sweep  pfn:12345",
        "sweep: page allocation failure: order:0, mode:0x1",
        "load invoked oom-killer: gfp_mask=0x1",
    ],
)
def test_every_kind_of_complaint_is_seen(line: str) -> None:
    assert run.splats(f"[    1.0] {line}")


def test_harmless_lines_are_not() -> None:
    assert not run.splats("kasan: KernelAddressSanitizer initialized\nx86/fpu: no\nwarning: none")


def test_stopping_the_cpus_at_the_end_is_not_judged() -> None:
    warning = "[  9.3] WARNING: CPU: 2 PID: 0 at native_smp_send_reschedule+0x2a/0x30"
    goodbye = "[  9.2] reboot: Power down"
    assert not run.splats(f"{goodbye}\n{warning}\n")
    assert run.splats(f"{warning}\n{goodbye}\n")
    assert run.splats(f"note: will reboot: Power down\n{warning}\n")
    assert run.splats(f"{goodbye}\n[  9.3] WARNING: CPU: 2 PID: 0 at mm/page_alloc.c:1\n")


def test_what_qemu_said_last_is_told_when_it_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    fake_qemu(tmp_path, monkeypatch, "printf '[ 1.0] half a' >$console; echo one two >&2; exit 0")
    with pytest.raises(LabError, match=r"status 0; see .*\n.*half a\none two$"):
        boot().require()


REGISTERS = """\
CPU Reset (CPU 0)
EAX=00000000 EBX=00000000 ECX=00000000 EDX=00000000
ES =0000 00000000 00000000 00000000
 PC=0000000040000000 X00=0000000000000000
XMM06=0000000000000000 0000000000000000
"""


def test_registers_are_shown_where_a_processor_gave_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{REGISTERS}qemu: no memory\n")
    assert run.qemu_said(log) == "qemu: no memory"
    log.write_text(REGISTERS)
    assert run.qemu_said(log) == ""
    log.write_text(f"{REGISTERS}Triple fault\n{REGISTERS.replace('40000000', '80000000')}")
    assert run.qemu_said(log).startswith("Triple fault\nCPU Reset (CPU 0)\nEAX=")
    assert "PC=0000000080000000" in run.qemu_said(log)


def test_what_a_job_tolerates_is_not_a_complaint() -> None:
    text = "load invoked oom-killer: gfp_mask=0x1"
    assert not run.splats(text, allow=("oom",))


def test_missing_qemu_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_a, **_k: None)
    with pytest.raises(LabError, match="apt-get install qemu-system-x86") as caught:
        boot()
    assert "\n" not in str(caught.value)


def test_no_disk_space_is_said_before_it_hurts(monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    monkeypatch.setattr(paths, "free_mib", lambda _: 3)
    with pytest.raises(LabError, match="only 3 MiB free") as caught:
        boot()
    assert "\n" not in str(caught.value)


def test_a_disk_that_fills_up_is_one_line() -> None:
    with pytest.raises(LabError, match="no space left"), paths.disk_full_is_one_line(Path("/x")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_unknown_boards_and_configurations_are_named() -> None:
    with pytest.raises(LabError, match="there are: x86"):
        board.Machine("vax")
    with pytest.raises(LabError, match="reservation, cma"):
        board.Machine("x86", "swapless")


def test_exact_boards_take_no_disk_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="inexact"):
        run.with_scratch(board.Machine("x86"), tmp_path, [1])
    fast = run.with_scratch(board.Machine("x86-fast"), tmp_path, [1])
    assert any("scratch0.img" in word for word in fast.command(Path("k"), Path("i"), None, None))


def test_kvm_is_tried_once_for_each_kernel_and_boot_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def boots(job: Job, _watch: None) -> run.Outcome:
        tried.append(job.kernel.name)
        return run.Outcome(job, [], tmp_path, failure=None if job.kernel.name == "good" else "no")

    monkeypatch.setenv("NOCOPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "_boot", boots)
    monkeypatch.setattr(run, "qemu_version", lambda: "9.9")
    for name in ("KVM", "BOOT_ID"):
        monkeypatch.setattr(run, name, tmp_path / name)
    assert not run.kvm_works(tmp_path / "good")
    (tmp_path / "KVM").touch()
    for boot_of_the_host in ("one", "two"):
        (tmp_path / "BOOT_ID").write_text(f"{boot_of_the_host}\n")
        for _ in range(2):
            assert run.kvm_works(tmp_path / "good")
            assert not run.kvm_works(tmp_path / "bad")
    (tmp_path / "cache/kvm.json").write_text("{")
    assert run.kvm_works(tmp_path / "good")
    assert tried == ["good", "bad", "good", "bad", "good"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["kvm.json", "kvm.lock"]


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGQUIT])
def test_children_end_with_the_lab(tmp_path: Path, first: signal.Signals) -> None:
    pid = tmp_path / "pid"
    program = (
        "from nocopy_lab import child\n"
        "from pathlib import Path\n"
        "child.end_children_with_us()\n"
        f"child.run(['sh', '-c', 'trap \"\" TERM; echo $$ >{pid}; sleep 1000 & wait; wait'],"
        f" log=Path('{tmp_path}/log'), limit_s=1000, what='sleep')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(3000):
            if pid.is_file() and pid.read_text().strip():
                break
            time.sleep(0.1)
        process.send_signal(first)
        for _ in range(5):  # somebody is impatient
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert "atexit" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_under_nohup_it_goes_on_when_the_terminal_goes(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from nocopy_lab import child\n"
        "child.end_children_with_us()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('goes on')\n"
    )
    words = ["nohup", sys.executable, "-c", program]
    ended = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(LAB)}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "goes on\n")


def test_what_is_cleaned_up_at_the_end_is_waited_for(tmp_path: Path) -> None:
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    program = (
        "import time\n"
        "from nocopy_lab import child\n"
        "from pathlib import Path\n"
        "child.end_children_with_us()\n"
        "try:\n"
        f"    Path('{ready}').touch()\n"
        "    time.sleep(1000)\n"
        "finally:\n"
        f"    child.output(['sh', '-c', 'sleep 1; touch {cleaned}'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as process:
        for _ in range(3000):
            if ready.is_file():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert cleaned.is_file()


def test_a_child_ends_with_the_lab_that_is_ended_while_it_starts(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "import os, signal\n"
        "from nocopy_lab import child\n"
        "from pathlib import Path\n"
        "child.end_children_with_us()\n"
        "class Leader(child.Leader):\n"
        "    def __init__(self, *words, **more):\n"
        "        super().__init__(*words, **more)\n"
        f"        Path('{pid}').write_text(str(self.pid))\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "child.Leader = Leader\n"
        f"child.run(['sleep', '1000'], log=Path('{tmp_path}/log'), limit_s=1000, what='sleep')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    words = [sys.executable, "-c", program]
    assert subprocess.run(words, env=environment, timeout=300).returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_children_that_outlive_a_killed_lab_keep_its_lock(tmp_path: Path) -> None:
    lock, pid = tmp_path / "lock", tmp_path / "pid"
    program = (
        "import os, signal\n"
        "from nocopy_lab import child\n"
        "from nocopy_lab.paths import locked\n"
        "from pathlib import Path\n"
        f"with locked(Path('{lock}')), child.started(['sleep', '1000']) as process:\n"
        f"    Path('{pid}').write_text(str(process.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(LAB)}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, check=False)
    with lock.open("w") as file:
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.kill(int(pid.read_text()), signal.SIGKILL)
        fcntl.flock(file, fcntl.LOCK_EX)


def test_a_lock_ends_although_a_child_has_it(tmp_path: Path) -> None:
    with paths.locked(tmp_path / "lock"):
        ended = subprocess.Popen(["sleep", "1000"], pass_fds=paths.held())
    with ended, (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ended.kill()


def test_what_a_child_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    script = "sleep 1000 >/dev/null & echo $! >pid"
    child.run(["sh", "-c", script], log=tmp_path / "log", limit_s=20, what="sh", cwd=tmp_path)
    state = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")

    # Its parent is now another process of this machine, which may leave it a zombie.
    def ended() -> bool:
        return not state.is_file() or state.read_text().rpartition(")")[2].split()[0] == "Z"

    child.until(ended, limit_s=20, what="the end of what was left")


def test_what_is_waited_for_comes_or_hangs() -> None:
    looks = iter([False, False, True])
    child.until(lambda: next(looks), limit_s=1000, what="the third look")
    with pytest.raises(child.TimedOut, match="the end of days: still not so after 0 s"):
        child.until(lambda: False, limit_s=0, what="the end of days")


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(child.TimedOut, match="still not done after"):
        child.run(["sleep", "1000"], log=tmp_path / "log", limit_s=0.5, what="sleeping")


def test_no_program_fails_because_the_machine_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 10**9)
    words = ["/bin/sh", "-c", "sleep 0.1; echo out; echo said >&2"]
    assert child.communicate(words, limit_s=1e-6) == ("out\n", "said\n")
    child.spent_by(words, {}, 1, 1e-6)
    monkeypatch.setattr(child, "PATIENCE", 0)
    with pytest.raises(child.TimedOut, match=r"^sleep: not done after 0 s"):
        child.communicate(["/bin/sleep", "1000"])


def test_a_program_reads_what_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with (tmp_path / "file").open() as file:
        assert child.communicate(["cat"], stdin=file.fileno()) == ("text", "")
    assert child.output(["cat"]) == ""


def test_what_changes_a_kernel_or_its_configuration_unseen_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (
        "LLVM", "LOCALVERSION", "KCONFIG_CONFIG", "KBUILD_OUTPUT", "MAKEFILES", "CPATH",
        "RUSTFLAGS",
        # What programs say is looked through: it has to be in one language.
        "LANG", "LANGUAGE", "LC_MESSAGES",
    )  # fmt: skip
    for name in names:
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("http_proxy", "http://proxy")
    env = child.clean_environment()
    assert not env.keys() & set(names)
    assert env["http_proxy"] == "http://proxy"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no-such-program is not installed"):
        child.run(["no-such-program"], log=tmp_path / "log", limit_s=20, what="nothing")
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        child.output(["true"], cwd=tmp_path / "elsewhere")


def test_a_failing_command_shows_its_last_lines(tmp_path: Path) -> None:
    words = ["sh", "-c", "for i in $(seq 40); do echo line $i; done; exit 7"]
    with pytest.raises(LabError, match=r"exit status 7") as caught:
        child.run(words, log=tmp_path / "log", limit_s=20, what="counting")
    assert "line 40" in str(caught.value)
    assert "line 20" not in str(caught.value)


def test_the_next_boot_of_a_name_does_not_take_what_the_first_one_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    fake_qemu(tmp_path, monkeypatch, """echo "boot $$" >$console; echo '{"exit": 0}' >>$results""")
    first, second = boot(), boot()
    assert first.said.startswith("boot ")
    assert first.said != second.said


def test_the_power_goes_after_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    """However long the guest takes for them."""
    fake_qemu(
        tmp_path,
        monkeypatch,
        """for n in 1 2 3; do sleep 0.6; echo '{"type": "promise"}' >$results; done; sleep 1000""",
    )
    job = Job(
        "fake", "true\n", Path("bzImage"), limit_s=300.0, cut_s=0.1, cut_when=lambda r: len(r) > 2
    )
    assert len(run.boot(job).require().results) == 3


def test_a_guest_need_not_find_out_how_fast_its_clock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would measure that beside all that the host does."""
    monkeypatch.setattr(board, "require_tool", lambda name, package: name)
    khz = run.tsc_khz()
    assert khz == 0 or 100_000 < khz < 10_000_000
    for name, told in (("x86-fast", True), ("x86", False), ("arm64", False)):
        machine = replace(board.Machine(name), tsc_khz=khz)
        words = " ".join(machine.command(Path("k"), Path("i"), None, None))
        assert ("tsc_early_khz=" in words) == (told and khz > 0)


def test_the_exact_board_has_the_main_loop_take_turns_with_the_cpu() -> None:
    """Without the recording, two boots in a million idle moments differ; no boot shows that."""
    for name, one in board.BOARDS.items():
        command = " ".join(board.Machine(name).accelerator())
        assert ("sleep=off,rr=record,rrfile=/dev/null" in command) == one.exact


def user_mode(tmp_path: Path, body: str) -> run.Outcome:
    """A boot of a User Mode Linux that is a shell script; its standard input takes the results."""
    program = tmp_path / "linux"
    program.write_text(f"#!/bin/sh\necho X >&0\n{body}\n")
    program.chmod(0o755)
    return run.boot(Job("fake", "true\n", program, board.Machine("uml", memory_mib=64)))


STARTED: str = "echo '[ 0.0] Linux version 6.12'"


def test_user_mode_linux_sends_results_and_has_a_console(tmp_path: Path, logs: Path) -> None:
    row = """echo '{"type": "alloc", "ns": 5}' >&0; echo '{"exit": 0}' >&0"""
    outcome = user_mode(tmp_path, f'{STARTED}; echo "$*"; {row}').require()
    assert outcome.results == [{"type": "alloc", "ns": 5}]
    words = outcome.said.split()
    assert {"mem=64M", "gcma=file+swap", "con1=null,fd:0", "lab_results=tty1"} <= set(words)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("echo 'PROT_EXEC mmap in /x...failed'; exit 1", r"not start here \(PROT_EXEC.*TMPDIR"),
        (f"{STARTED}; exit 134", "the kernel ended with status 134"),
        (f"{STARTED}; echo 'Kernel panic - not syncing'", "complains: Kernel panic"),
        (STARTED, "without telling how its job went"),
    ],
)
def test_what_goes_wrong_in_user_mode_linux_is_one_line(
    tmp_path: Path, logs: Path, body: str, says: str
) -> None:
    failure = user_mode(tmp_path, body).failure
    assert failure is not None
    assert "\n" not in failure
    assert re.search(says, failure)


def test_what_qemu_said_in_an_earlier_boot_of_the_name_is_not_told(
    tmp_path: Path, logs: Path
) -> None:
    logs.mkdir()
    (logs / "fake.qemu").write_text("an earlier boot\n")
    outcome = user_mode(tmp_path, STARTED)
    with pytest.raises(LabError) as caught:
        outcome.require()
    assert "Linux version" in str(caught.value)
    assert "an earlier boot" not in str(caught.value)


def test_user_mode_linux_has_no_disks() -> None:
    with pytest.raises(LabError, match="the board 'uml' has no disks"):
        board.Machine("uml", disks=(board.Disk(),))


def test_a_program_that_runs_without_its_library_is_noticed(tmp_path: Path) -> None:
    env = {"LD_PRELOAD": str(tmp_path / "libnone.so")}
    with pytest.raises(LabError, match="cannot be preloaded"):
        child.output(["/bin/true"], env=env)
    with pytest.raises(LabError, match="cannot be preloaded"):
        child.spent_by(["/bin/true"], env, 2, 10)
