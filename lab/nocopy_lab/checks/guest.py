# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is booted, and what must be true of it then."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from nocopy_lab import brug, kernel, soak, storage, traces
from nocopy_lab.board import Machine
from nocopy_lab.checks.kinds import GuestCheck, all_well, command, our_files
from nocopy_lab.experiments import bench_gcma, demo
from nocopy_lab.paths import KERNEL, LabError
from nocopy_lab.run import Job, Outcome, ktap

NO_IMAGE: Final = Path("/nonexistent")


def _kunit_job(name: str, board: str, *words: str) -> Job:
    machine = Machine(board, words=("kunit.enable=1", *words))
    return Job(name, "true\n", NO_IMAGE, machine)


def _judge_kunit(outcomes: Sequence[Outcome]) -> None:
    (outcome,) = outcomes
    outcome.require()
    passed, failed = ktap(outcome.text())
    if failed:
        raise LabError(f"KUnit: {', '.join(failed)} failed; see {outcome.console}")
    if not any("gcma" in name or "dmem" in name for name in outcome.text().split()) or not passed:
        raise LabError(f"KUnit ran no test of ours; see {outcome.console}")


_SKIPPED: Final = re.compile(r"ok \d+ (\S+) # ?SKIP(?! no large folios)")


def _judge_kunit_uml(outcomes: Sequence[Outcome]) -> None:
    """As everywhere; nothing is skipped but what needs large folios, which `ARCH=um` has not."""
    _judge_kunit(outcomes)
    (outcome,) = outcomes
    if skipped := _SKIPPED.findall(outcome.text()):
        raise LabError(f"KUnit: {', '.join(skipped)} did not run; see {outcome.console}")


KSELFTEST: Final = """
need zram_swap 256
need scratch /dev/vda -b 1024
gcma_test /mnt >/tmp/ktap 2>&1
status=$?
sed 's/[\\"]/\\&/g; s/.*/{"type": "ktap", "line": "&"}/' /tmp/ktap
exit $status
"""


def _kselftest_job(name: str) -> Job:
    machine = Machine("x86-fast", cma_mib=64)
    programs = ("mke2fs",)
    return Job(name, KSELFTEST, NO_IMAGE, machine, programs=programs, scratch_mib=(300,))


def _kselftest() -> dict[str, bytes]:
    """The kernel's own test program, built the way the kernel builds it, for any libc."""
    with tempfile.TemporaryDirectory(prefix="nocopy-") as temp:
        tests = kernel.patched_tree(kernel.SERIES[0]) / "tools/testing/selftests/gcma"
        command("kselftest", ["make", "-C", tests, f"OUTPUT={temp}", "LDFLAGS=-static"])
        return {"bin/gcma_test": (Path(temp) / "gcma_test").read_bytes()}


TRACED_PAGES: Final = 1024
TRACED: Final = f"""{traces.BEGIN}
need reread --file /mnt/file --mib {TRACED_PAGES >> 8} --prepare
dd if=/dev/zero of=/mnt/other bs=64k count=16 2>/dev/null
begin
need reread --file /mnt/file --mib {TRACED_PAGES >> 8} --order cyclic --reads {3 * TRACED_PAGES}
dd if=/mnt/other of=/dev/null bs=1M 2>/dev/null
dd if=/dev/zero of=/mnt/other bs=4k count=10 seek=20 conv=notrunc 2>/dev/null
need sweep --sizes 64 --reps 1
rm /mnt/other
end
"""


def _judge_traced(outcomes: Sequence[Outcome]) -> None:
    (outcome,) = outcomes
    outcome.require()
    records = [
        record.split() for row in outcome.rows("trace") for record in str(row["r"]).split(";")
    ]
    pages: dict[tuple[str, str], int] = {}
    for kind, _, file, _, count in records:
        pages[kind, file] = pages.get((kind, file), 0) + int(count)
    read = {count: file for (kind, file), count in pages.items() if kind == "R"}
    other = read.get(256, "")
    found = {
        f"{3 * TRACED_PAGES} pages read again and again": 3 * TRACED_PAGES in read,
        "256 pages read in one call": bool(other),
        "10 pages written": pages.get(("W", other)) == 10,
        "a file deleted": ("D", other) in pages,
        "64 pages allocated": pages.get(("A", "0")) == 64,
        "and given back": pages.get(("F", "0")) == 64,
    }
    missing = [what for what, there in found.items() if not there]
    if missing:
        raise LabError(f"the trace does not have: {', '.join(missing)}; it has {pages}")


def kselftest(lines: Sequence[str]) -> tuple[int, list[str]]:
    """How many tests a kselftest program had planned, and those that did not pass or ran not."""
    plan = next((int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line)), 0)
    results = [line for line in lines if re.match(r"(not )?ok \d+ ", line)]
    bad = [line for line in results if line.startswith("not ") or "# SKIP" in line]
    if len(results) != plan:
        bad.append(f"{len(results)} results of {plan} tests")
    return plan, bad


def _judge_kselftest(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        plan, bad = kselftest([row["line"] for row in outcome.rows("ktap")])
        if bad:
            raise LabError(f"{outcome.job.name}: {bad[0]}; see {outcome.console}")
        outcome.require()
        if not plan:
            raise LabError(f"{outcome.job.name} planned no test; see {outcome.console}")


def _judge_debug(outcomes: Sequence[Outcome]) -> None:
    _judge_kunit(outcomes[:1])
    _judge_oracle(outcomes[1:])


# A definition at the beginning of a line; those of tests do not count.
_DEFINED: Final = re.compile(r"^[a-z][a-z_0-9 *]*?[ *](\w+)\(", re.MULTILINE)


def _our_functions() -> set[str]:
    texts = [(KERNEL / n).read_text() for n in our_files() if n.endswith(".c") and "_test" not in n]
    return {name for text in texts for name in _DEFINED.findall(text)}


def kcsan_reports(console: str, functions: set[str]) -> list[str]:
    """Reports of KCSAN in which one of the functions takes part."""
    reports: list[str] = []
    text = re.sub(r"^\[ *[\d.]+\]( \[ *[CT]\d+\])? ?", "", console, flags=re.MULTILINE)
    for part in re.split(r"^={20,}$", text, flags=re.MULTILINE):
        if "BUG: KCSAN:" in part:
            named = set(re.findall(r"^ (\w+)(?:\.\w+)*\+0x", part, re.MULTILINE))
            if named & functions:
                reports.append(part.strip())
    return reports


def _judge_kcsan(outcomes: Sequence[Outcome]) -> None:
    _judge_kunit(outcomes[:1])
    _judge_oracle(outcomes[1:])
    for outcome in outcomes:
        (row,) = outcome.rows("kcsan")
        if not row["looked"]:
            raise LabError(f"KCSAN was not at work; see {outcome.console}")
        if reports := kcsan_reports(outcome.text(), _our_functions()):
            raise LabError(
                f"KCSAN: {len(reports)} reports; the first, in {outcome.console}:\n{reports[0]}"
            )


def _judge_identical(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    first, second = outcomes
    if not first.rows("alloc") or not first.rows("shot"):
        raise LabError(f"nothing was measured; see {first.console}")
    if first.results != second.results:
        pairs = zip(first.results, second.results, strict=False)
        at = next((f"{a} and {b}" for a, b in pairs if a != b), "in their number")
        raise LabError(f"two runs on {first.job.machine.board} differ: {at}")


ORACLE: Final = """
need {swap}
{mount}
{prepare}statdump --label start
oracle --dir /mnt --file-mib {files} --anon-mib {anon} --shmem-mib 16 --hog-mib {hog} \\
	--alloc --alloc-max-pages {largest} --seconds {seconds} {words}
status=$?
statdump --label end
{after}umount /mnt || exit 1
exit $status
"""

# What an oracle must have gone through before it ends, however long that takes on this computer:
# counters, and by how much they have to grow.
Goals = Mapping[str, int]
STORES: Final = dict.fromkeys(("cma_allocs", "gcma_store_file", "gcma_store_swap"), 1)
LOADS: Final = ("gcma_load_file", "gcma_read_file", "gcma_load_swap")


def hits(count: int, *, discard: bool = True) -> Goals:
    """Stores, as many loads of each kind, and a copy that was discarded for an allocation."""
    return STORES | dict.fromkeys(LOADS, count) | ({"gcma_discard": 1} if discard else {})


ONE_HIT: Final = hits(1)
FEW_HITS: Final = hits(50, discard=False)
SOME_HITS: Final = hits(200)
HITS: Final = hits(1000)

# Large folios that were stored whole, and those that were filled whole.
LARGE_FOLIOS: Final = """
cd /sys/kernel/tracing
echo 64 >buffer_size_kb
for event in store load; do
	echo 'pages > 1' >events/gcma/gcma_$event/filter
	echo 1 >events/gcma/gcma_$event/enable
done
cd /
seen() { grep -q "gcma_$2: client=$1 .*$3" /sys/kernel/tracing/trace; }
"""
# The oracle goes on until there is ENOUGH.
ENOUGH: Final = "/tmp/enough"
# Until large folios of this client went whole, and whatever else is asked for.
LARGE_FOLIOS_WANTED: Final = """
{{
	until seen {client} store; do sleep 0.5; done
	until seen {client} load hit; do sleep 0.5; done
	echo '{{"type": "large", "client": "{client}", "stored": 1, "loaded": 1}}'
	until {more}; do sleep 0.5; done
	>{enough}
}} &
"""
# The same for one that is to be looked at afterwards.
LARGE_FOLIOS_SEEN: Final = """
for client in file swap; do
	stored=$(grep -c "gcma_store: client=$client" /sys/kernel/tracing/trace)
	loaded=$(grep -c "gcma_load: client=$client .* hit" /sys/kernel/tracing/trace)
	printf '{"type": "large", "client": "%s", ' $client
	printf '"stored": %d, "loaded": %d}\\n' $stored $loaded
done
"""

# How often KCSAN waited for somebody else to use what a CPU was about to use.
KCSAN: Final = """
looked=$(sed -n 's/^setup_watchpoints: //p' /sys/kernel/debug/kcsan)
echo "{\\"type\\": \\"kcsan\\", \\"looked\\": $looked}"
"""


def oracle_job(
    name: str,
    seconds: int,
    words: str = "",
    *,
    until: Goals = ONE_HIT,
    enough: bool = False,
    swap: str = "zram_swap 256",
    mount: str = "",
    prepare: str = "",
    after: str = "",
    programs: tuple[str, ...] = ("mke2fs",),
    disks: tuple[int, ...] = (),
    block: int = 4096,
    files: int = 320,
    anon: int = 128,
    hog: int = 400,
    largest: int = 4096,
    machine: Machine | None = None,
) -> Job:
    """Little memory and a small area, so that copies, allocations and loads meet all the time.

    It runs for so many seconds, until all that it must go through has happened, and if so wanted
    until something that `prepare` began has made the file ENOUGH. Blocks smaller than a page reach
    other code: truncation need not read the page.
    """
    if until:
        words += " --until " + ",".join(f"{name}={growth}" for name, growth in until.items())
    if enough:
        words += f" --until-exists {ENOUGH}"
    script = ORACLE.format(
        swap=swap, mount=mount or f"need scratch /dev/vda -b {block}", prepare=prepare,
        after=after, files=files, anon=anon, hog=hog, largest=largest, seconds=seconds,
        words=words,
    )  # fmt: skip
    return Job(
        name,
        script,
        NO_IMAGE,
        machine or Machine("x86-fast", memory_mib=704, cma_mib=64),
        programs=programs,
        allow=("allocation",),
        scratch_mib=disks or (2 * files + 128, 512),
    )


def _counters(outcome: Outcome, label: str) -> Mapping[str, int]:
    """The vmstat counters that statdump printed."""
    for row in outcome.rows("gcma_stats"):
        if row.get("label") == label:
            counters: dict[str, int] = row["vmstat"]
            return counters
    raise LabError(f"{outcome.job.name}: no counters '{label}'; see {outcome.console}")


def _judge_oracle(outcomes: Sequence[Outcome]) -> None:
    """Nothing wrong, and no allocation failed. It ended, so all that was wanted has happened."""
    for outcome in outcomes:
        outcome.require()
        (summary,) = outcome.rows("oracle")
        if summary["cma_failed"]:
            raise LabError(
                f"{outcome.job.name}: {summary['cma_failed']} of {summary['cma_allocs']} "
                f"contiguous allocations failed; see {outcome.console}"
            )
        (end,) = (row for row in outcome.rows("gcma_stats") if row["label"] == "end")
        for name, area in end["areas"].items():
            # What CMA itself says is available, where it does.
            have, idle = end["cma"][name].get("available_pages"), area["frames"] - area["owned"]
            if have not in (None, idle):
                raise LabError(f"{name}: {have} pages available, not {idle}; see {outcome.console}")


def _judge_large(client: str) -> Callable[[Sequence[Outcome]], None]:
    """And large folios of this client were stored and loaded whole."""

    def judge(outcomes: Sequence[Outcome]) -> None:
        _judge_oracle(outcomes)
        for outcome in outcomes:
            (seen,) = (row for row in outcome.rows("large") if row["client"] == client)
            if not seen["stored"] or not seen["loaded"]:
                raise LabError(f"no large folio went whole: {seen}; see {outcome.console}")

    return judge


# What distributions have on.
MGLRU: Final = "echo y >/sys/kernel/mm/lru_gen/enabled"
ZSWAP: Final = "echo y >/sys/module/zswap/parameters/enabled"
MGLRU_SEEN: Final = """
printf '{"type": "mglru", "enabled": "%s"}\\n' $(cat /sys/kernel/mm/lru_gen/enabled)
"""


def _judge_mglru(outcomes: Sequence[Outcome]) -> None:
    """As any other, and the multi-generational LRU was on."""
    _judge_oracle(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("mglru")
        if int(row["enabled"], 16) & 1 == 0:
            raise LabError(f"{outcome.job.name}: it was off: {row}; see {outcome.console}")


XFS: Final = """need /bin/mkfs.xfs -q -f -K /dev/vda
need mount -t xfs /dev/vda /mnt"""
BTRFS: Final = """need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null
need mount -t btrfs /dev/vda /mnt"""
# An overlay on a file system in a file: the pages of both file systems are kept.
STACKED: Final = """need scratch /dev/vda
mkdir -p /loop /lower
need mount --move /mnt /lower
need truncate -s 640M /lower/image
need /bin/mke2fs -q -F -t ext4 /lower/image
need mount -o loop /lower/image /loop
mkdir /lower/below /loop/above /loop/work
need mount -t overlay -o lowerdir=/lower/below,upperdir=/loop/above,workdir=/loop/work none /mnt"""

# Swap in a file and on zram, each of which comes and goes, and large folios in anonymous memory.
SWAP_CHANGES: Final = """
>/tmp/swapoffs
for size in 16 32 64; do
	echo always >/sys/kernel/mm/transparent_hugepage/hugepages-${size}kB/enabled
done
while true; do
	for device in /dev/zram0 /swap/file; do
		sleep 1
		swapoff $device && swapon $device && echo '{"type": "swapoff"}' | tee -a /tmp/swapoffs
	done
done 2>/dev/null &
changes=$!
""" + LARGE_FOLIOS_WANTED.format(
    client="swap", more="[ $(wc -l </tmp/swapoffs) -ge 2 ]", enough=ENOUGH
)
SWAP_FILE: Final = """need /bin/mke2fs -q -F -t ext4 /dev/vdb
mkdir /swap
need mount -t ext4 /dev/vdb /swap
need fallocate -l 400M /swap/file
need zram_swap 256
need disk_swap /swap/file"""

# Files on /mnt, in a cgroup from which all that is cached can be reclaimed.
RECLAIMED: Final = """
[ -f /etc/mtab ] || ln -sf /proc/mounts /etc/mtab
mkdir /cgroup && need mount -t cgroup2 none /cgroup
echo +memory >/cgroup/cgroup.subtree_control
mkdir /cgroup/job && echo $$ >/cgroup/job/cgroup.procs
# Everything that is cached leaves memory, and is kept.
evict() {
	sync
	before=$(count store_file)
	for _ in 1 2 3; do echo 64M >/cgroup/job/memory.reclaim; done 2>/dev/null
	stored=$(($(count store_file) - before))
}
count() { sed -n "s/^gcma_$1 //p" /proc/vmstat; }
served() { echo $(($(count load_file) + $(count read_file))); }
report() {
	printf '{"type": "kept", "of": "%s", "stored": %d, "read": %d}\\n' "$1" $kept $reads
}
sum() { (cd $1 && cat * | md5sum); }
check() {
	if [ "$2" != "$3" ]; then
		printf '{"type": "broken", "why": "%s: %s and not %s"}\\n' "$1" "$2" "$3"
		exit 1
	fi
}
# again WHAT DIRECTORY SUM: out of memory with it, and back
again() {
	evict
	kept=$stored
	reads=$(served)
	check "$1 read again" "$(sum $2)" "$3"
	reads=$(($(served) - reads))
}
"""

# What is cached of a device must not outlive its being mounted.
REMOUNT: Final = f"""
{RECLAIMED}
# fill STEP: files whose content depends on the step
fill() {{
	seq 0 $1 9999999 | head -c 400000 >/tmp/block
	for i in $(seq 40); do (echo $i; cat /tmp/block) >/mnt/files/$i; done
}}
for fs in ext4 xfs btrfs; do
	case $fs in
	ext4) need /bin/mke2fs -q -F -t ext4 /dev/vda ;;
	xfs) need /bin/mkfs.xfs -q -f -K /dev/vda ;;
	btrfs) need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null ;;
	esac
	need mount -t $fs /dev/vda /mnt
	mkdir /mnt/files
	fill 3
	old=$(sum /mnt/files)
	need umount /mnt
	need dd if=/dev/vda of=/dev/vdb bs=1M 2>/dev/null

	# The same inodes and blocks, other content, which is kept and read.
	need mount -t $fs /dev/vda /mnt
	fill 7
	new=$(sum /mnt/files)
	again $fs /mnt/files "$new"
	evict
	need umount /mnt
	need mount -t $fs /dev/vda /mnt
	check "$fs mounted again" "$(sum /mnt/files)" "$new"
	evict
	need umount /mnt

	# And now the device is written underneath.
	need dd if=/dev/vdb of=/dev/vda bs=1M 2>/dev/null
	need /bin/btrfs -q device scan --forget
	need mount -t $fs /dev/vda /mnt
	check "$fs on a device written underneath" "$(sum /mnt/files)" "$old"
	evict
	check "$fs on it, read again" "$(sum /mnt/files)" "$old"
	report $fs

	if [ $fs = ext4 ]; then
		need /bin/mkfs.erofs --quiet -zlz4 /dev/vdc /mnt >/dev/null
		mkdir /image
		need mount -t erofs -o ro /dev/vdc /image
		check "erofs" "$(sum /image/files)" "$old"
		again erofs /image/files "$old"
		need umount /image
		report erofs
	fi
	need umount /mnt
done
"""


# Files so small that a node of shadow entries leads to two pages: thousands of
# them for a cgroup that has hardly any pages left itself.
SQUEEZED: Final = f"""
{RECLAIMED}
need /bin/mke2fs -q -F -t ext4 -N 4096 /dev/vda
need mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
for i in $(seq 1500); do printf %8192d $i >/mnt/files/$i; done
again "files of two pages" /mnt/files "$(sum /mnt/files)"
report "files of two pages"
umount /mnt
"""


# Many more nodes of shadow entries than the memory of the cgroup has room for, each with an inode,
# beside an area that has room for the pages of all of them.
NODES: Final = f"""
{RECLAIMED}
need /bin/mke2fs -q -F -t ext4 -N 50000 /dev/vda
need mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
for i in $(seq 40000); do printf %8192d $i >/mnt/files/$i; done
want=$(sum /mnt/files)
umount /mnt
need mount -t ext4 /dev/vda /mnt
echo 16M >/cgroup/job/memory.max
kernel_kib() {{ awk '/^slab / {{ print int($2 / 1024) }}' /cgroup/job/memory.stat; }}
for n in 1 2; do
	check "files of two pages" "$(sum /mnt/files)" "$want"
done
printf '{{"type": "nodes", "slab_kib": %d, ' $(kernel_kib)
# Inodes and nodes yield to a program that wants most of the memory.
dd if=/dev/zero of=/dev/null bs=12M count=1 2>/dev/null
printf '"slab_kib_after": %d, "stored": %d, "oom_kill": %d}}\\n' $(kernel_kib) \\
	$(count store_file) $(sed -n 's/^oom_kill //p' /cgroup/job/memory.events)
umount /mnt
"""


def _judge_nodes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := outcome.rows("broken"):
            raise LabError(f"{broken[0]['why']}; see {outcome.console}")
        rows = outcome.rows("nodes")
        if not rows or rows[0]["oom_kill"]:
            raise LabError(f"the cgroup ran out of memory: {rows[:1]}; see {outcome.console}")
        outcome.require()
        if rows[0]["stored"] < 60_000 or rows[0]["slab_kib_after"] > 4096:
            raise LabError(f"not squeezed, or nothing yielded: {rows[0]}; see {outcome.console}")


def _judge_calls(outcomes: Sequence[Outcome]) -> None:
    """Reads in calls of several sizes, in instructions, from the area and from the page cache."""
    all_well(outcomes)
    most = bench_gcma.CALLS
    for outcome in outcomes:
        rows = outcome.rows("calls")
        times = {int(row["size"]): row["evicted_ns"] / row["cached_ns"] for row in rows}
        if times.keys() != most.keys() or any(times[size] > most[size] for size in most):
            raise LabError(f"times what the page cache takes: {times}; see {outcome.console}")


# Pages that are evicted and come back by a copy at once, under the multi-generational LRU: it has
# statistics of refaults, and weighs its tiers by what else it counts.
LRU_COSTS: Final = f"""
{MGLRU}
need zram_swap 64
need scratch /dev/vda
event() {{ sed -n "s/^$1 //p" /proc/vmstat; }}
events() {{ echo $(($(event $1_file) + $(event $1_$2))); }}
loads=$(events gcma_load swap)
recent=$(events workingset_activate anon)
need cost --file /mnt/file --batches 64
printf '{{"type": "lru", "loads": %d, "recent": %d, "weighed": %d}}\\n' \\
	$(($(events gcma_load swap) - loads)) $(($(events workingset_activate anon) - recent)) \\
	$(grep -o ' [0-9]*r' /sys/kernel/debug/lru_gen_full | awk '{{ n += $1 }} END {{ print n + 0 }}')
umount /mnt
"""


def _judge_lru_costs(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        (row,) = outcome.rows("lru")
        if min(row["loads"], row["recent"]) < 3000:
            raise LabError(f"pages hardly came back: {row}; see {outcome.console}")
        if row["weighed"]:
            raise LabError(f"copies are weighed like I/O: {row}; see {outcome.console}")


# Reads of pages in the area, into one piece of memory, into many, and into the memory of a device.
DESTINATIONS: Final = f"""
{RECLAIMED}
need scratch /dev/vda
need reread --file /mnt/file --mib 8 --prepare
cat /mnt/file >/dev/null
evict
cd /sys/kernel/tracing
read_to() {{
	echo >trace
	echo 1 >events/gcma/gcma_read/enable
	need reread --file /mnt/file --mib 8 --reads 500 $2
	echo 0 >events/gcma/gcma_read/enable
	printf '{{"type": "destination", "to": "%s", "all": %d, "buffered": %d}}\\n' "$1" \\
		$(grep -c 'gcma_read: ' trace) $(grep -c 'gcma_read: .* buffered' trace)
}}
read_to one ""
read_to many "--pieces 1024"
read_to two "--pieces 2"
read_to device "--heap /dev/dma_heap/reserved"
"""


def _judge_destinations(outcomes: Sequence[Outcome]) -> None:
    """All were served from the area, but only plain memory is written to while the owner waits."""
    all_well(outcomes)
    for outcome in outcomes:
        rows = {str(row["to"]): row for row in outcome.rows("destination")}
        direct = {to: row["all"] - row["buffered"] for to, row in rows.items()}
        if (
            len(rows) != 4
            or min(row["all"] for row in rows.values()) < 490
            or direct.pop("one") < 490
            or any(direct.values())
        ):
            raise LabError(f"{outcome.job.name}: {list(rows.values())}; see {outcome.console}")


def _judge_kept(outcomes: Sequence[Outcome], pages: int, of: int) -> None:
    """Nothing is wrong, and of each of the sets of files nearly all pages were kept and found."""
    for outcome in outcomes:
        broken = [str(row["why"]) for row in outcome.rows("broken")]
        if broken:
            raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
        outcome.require()
        rows = outcome.rows("kept")
        lost = [
            f"{row['of']}: {row['stored']} stored, {row['read']} found"
            for row in rows
            if min(row["stored"], row["read"]) < 0.98 * pages
        ]
        if lost or len(rows) != of:
            why = "; ".join(lost) or f"{len(rows)} reports"
            raise LabError(f"of {pages} pages: {why}; see {outcome.console}")


def _judge_high(outcomes: Sequence[Outcome]) -> None:
    """As everywhere, and the frames were pages that the kernel has to map."""
    for outcome in outcomes:
        high = re.search(r"HighMem +\[mem 0x([0-9a-f]+)-", outcome.text())
        area = re.search(r"cma: Reserved \d+ MiB at 0x([0-9a-f]+)", outcome.text())
        if not high or not area or int(area[1], 16) < int(high[1], 16):
            raise LabError(f"{outcome.job.name}: no area in high memory; see {outcome.console}")
    _judge_oracle(outcomes)


# Where KUnit's own area does not lie in high memory.
LOW: Final = "cma=64M@0-512M"


def _oracle_rpi2() -> Job:
    return oracle_job(
        "oracle-rpi2",
        120,
        until=hits(50),
        # The emulated controller of the SD card loses interrupts, and with them parts of sectors,
        # when the host is busy: what the oracle looks at is a disk in memory.
        mount="echo 128M >/sys/block/zram1/disksize; need scratch /dev/zram1",
        disks=(1,),
        files=48,
        anon=128,
        hog=280,
        largest=1024,
        # What QEMU loads lies below 144 MiB, which has to be low memory; the area is in the high
        # rest.
        machine=Machine(
            "rpi2",
            cma_mib=16,
            words=("mem=320M", "vmalloc=848M", "zram.num_devices=2"),
        ),
    )  # fmt: skip


CONSUMERS: Final = """
need zram_swap 256
need scratch /dev/vda
load --dir /mnt --file-mib 300 --anon-mib 300 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
sleep 5
need camera --shots 5
need heap --reps 5
need sweep --random --count 500 --max-pages 8192
need sweep --random --count 300 --max-pages 8192 --dma
statdump --label end
kill -TERM $!
wait $! || exit 1
grep '"type":"load"' /tmp/load
"""


def _judge_consumers(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        bad = [row for kind in ("shot", "heap") for row in outcome.rows(kind) if not row["ok"]]
        bad += [row for row in outcome.rows("random_summary") if row["failed"] or row["wrong"]]
        if bad or not outcome.rows("shot") or not outcome.rows("heap"):
            raise LabError(f"{outcome.job.name}: {bad[:1] or 'no shot'}; see {outcome.console}")


# While programs run and allocations are made, an area changes what it is lent for.
CONTROL: Final = """
cd /sys/kernel/mm/gcma/reserved
wrong() { echo '{"type": "wrong", "what": "'"$*"'"}' >>/tmp/wrong; }
for word in cma tape file,swap '' ' file'; do
	echo "$word" >clients && wrong "clients took $word"
done
for count in 0 -1 x 16385; do
	echo $count >prepare && wrong "prepare took $count"
done
while sleep 2; do
	echo 8192 >prepare
	sleep 1
	for word in none file swap file+swap; do
		echo $word >clients && [ "$(cat clients)" = $word ] || wrong "clients is not $word"
		case $word in file | none) [ $(cat swap/cached) = 0 ] || wrong "swap left in $word" ;; esac
		case $word in swap | none) [ $(cat file/cached) = 0 ] || wrong "file left in $word" ;; esac
		sleep 0.1
	done
	echo . >>/tmp/rounds
	[ $(wc -l </tmp/rounds) -lt 5 ] || >/tmp/enough
done &
control=$!
cd /
"""
CONTROLLED: Final = """
kill $control
cat /tmp/wrong
"""


def _judge_control(outcomes: Sequence[Outcome]) -> None:
    _judge_oracle(outcomes)
    for outcome in outcomes:
        if wrong := outcome.rows("wrong"):
            raise LabError(f"{outcome.job.name}: {wrong[0]}; see {outcome.console}")


BOUND: Final = """
need zram_swap 256
need scratch /dev/nullb0 -J size=16
load --dir /mnt --file-mib 160 --anon-mib 160 --seconds 3600 --nice 10 >/tmp/load &
load=$!
until [ "$(cat /sys/kernel/mm/gcma/reserved/file/cached)" -gt 5000 ]; do sleep 0.1; done
need sweep --random --count 600 --max-pages 2048
need sweep --sizes 1,64,1024,16384,32000 --reps 20 --interval-ms 2
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
"""
BOUND_MACHINE: Final = Machine(
    "x86",
    memory_mib=384,
    cma_mib=128,
    extra_mib=224,
    words=(
        *("null_blk.nr_devices=1", "null_blk.memory_backed=1", "null_blk.gb=1"),
        *("null_blk.bs=4096", "null_blk.irqmode=0"),
    ),
)
# Instructions that an allocation from an area of 128 MiB may take, seen from outside: some for each
# word of the bitmaps of its range, and one interrupt.
BOUND_NS: Final = 16384


def _judge_bound(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        took = [row["ns"] for row in outcome.rows("alloc")]
        took += [row["worst_ns"] for row in outcome.rows("random_summary")]
        if max(took) > BOUND_NS:
            raise LabError(
                f"of {area['allocs']} allocations the longest took {max(took)} ns, more than "
                f"{BOUND_NS}; see {outcome.console}"
            )
        # One CPU cannot find itself copying.
        if area["copy_waits"] or area["alloc_fails"] or area["file/discarded"] < 10_000:
            raise LabError(f"{outcome.job.name}: {area}; see {outcome.console}")


# Gigantic pages from the area hugetlb0, while programs use the rest of memory and its copies are in
# the area; taken apart into pages of 2 MiB; and one page more than there is.
HUGE: Final = """
need zram_swap 512
need scratch /dev/vda
area=/sys/kernel/mm/gcma/hugetlb0
large=/sys/kernel/mm/hugepages/hugepages-1048576kB
small=/sys/kernel/mm/hugepages/hugepages-2048kB
has() { [ "$(cat $1)" = "$2" ] || { echo "lab: $1 is $(cat $1), not $2" >/dev/console; exit 1; }; }
full() { [ $(($(cat $area/file/cached) + $(cat $area/swap/cached))) -gt 20000 ]; }
load --dir /mnt --file-mib 600 --anon-mib 500 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
load=$!
for n in 1 2; do
	until full; do sleep 0.2; done
	echo 2 >$large/nr_hugepages
	has $large/nr_hugepages 1
	need huge --kib 1048576
	echo 1 >$large/demote
	has $small/nr_hugepages 512
	need huge --pages 512
	echo 0 >$small/nr_hugepages
	has $area/owned 0
done
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
"""
# The area is the third gigabyte: QEMU puts the initramfs below the end of the second. Some of the
# others is left out, so that memory is short.
HUGE_MACHINE: Final = Machine(
    "x86-fast",
    memory_mib=3200,
    cma_mib=0,
    features="+pdpe1gb",
    words=("hugetlb_cma=1G", "gcma=file+swap", "memmap=640M$320M", "memmap=704M$1088M"),
)


def _judge_huge(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        # gigantic pages, and 512 smaller ones made of each
        if [row["pages"] for row in outcome.rows("huge") if row["ok"]] != [1, 512, 1, 512]:
            raise LabError(f"{outcome.job.name}: not all huge pages; see {outcome.console}")
        if not _counters(outcome, "end")["gcma_discard"]:
            raise LabError(f"{outcome.job.name}: nothing was discarded; see {outcome.console}")


# A huge page of the area is pinned for long: a buffer of io_uring, a dma-buf of a file.
PINNED: Final = """
echo 1 >/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
need pin
"""


def _pinned_jobs(name: str) -> list[Job]:
    words = HUGE_MACHINE.words
    plain = tuple("gcma=cma" if word.startswith("gcma=") else word for word in words)
    return [
        Job(f"{name}-{config}", PINNED, NO_IMAGE, replace(HUGE_MACHINE, words=given))
        for config, given in (("gcma", words), ("cma", plain))
    ]


def _judge_pinned(outcomes: Sequence[Outcome]) -> None:
    """A guaranteed area allows it, and nothing moves. Plain CMA does not, or it would move."""
    all_well(outcomes)
    for outcome, allowed in zip(outcomes, (True, False), strict=True):
        rows = outcome.rows("pin")
        if [row["how"] for row in rows] != ["udmabuf", "io_uring"]:
            raise LabError(f"{outcome.job.name}: not both ways; see {outcome.console}")
        for row in rows:
            if row["wrong"] or (not row["error"] and not row["moved"]) != allowed:
                raise LabError(f"{outcome.job.name}: {row}; see {outcome.console}")


# A display behind GPIO lines of the board, with nobody at their other end. Its driver is one of
# those whose buffers are contiguous (drm_gem_dma).
DISPLAY: Final = """/ {
	spi {
		compatible = "spi-gpio";
		#address-cells = <1>;
		#size-cells = <0>;
		sck-gpios = <&{/pl061@9030000} 0 0>;
		mosi-gpios = <&{/pl061@9030000} 1 0>;
		cs-gpios = <&{/pl061@9030000} 2 0>;
		num-chipselects = <1>;
		display@0 {
			compatible = "jianda,jd-t18003-t01", "sitronix,st7735r";
			reg = <0>;
			spi-max-frequency = <1000000>;
			dc-gpios = <&{/pl061@9030000} 4 0>;
			reset-gpios = <&{/pl061@9030000} 5 0>;
		};
	};
};"""
DUMB: Final = """
need zram_swap 256
need scratch /dev/vda
area=/sys/kernel/mm/gcma/reserved
load --dir /mnt --file-mib 300 --anon-mib 300 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
load=$!
until [ "$(cat $area/file/cached)" -gt 5000 ]; do sleep 0.2; done
need drm --reps 10
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
"""


def _judge_dumb(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        rows = outcome.rows("drm")
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        if not rows or area["allocs"] < sum(row["buffers"] for row in rows):
            raise LabError(
                f"{outcome.job.name}: dumb buffers did not come from the area; "
                f"see {outcome.console}"
            )


TRACE: Final = """
need scratch /dev/vda
cd /sys/kernel/tracing
echo 1 >events/gcma/enable
need oracle --dir /mnt --file-mib 32 --anon-workers 0 --races 1 --seconds 3 \\
	--until gcma_store_file=1,gcma_load_file=1,gcma_read_file=1
need sweep --reps 1 --sizes 64
for event in alloc free store load read; do
	echo "{\\"type\\": \\"trace\\", \\"lines\\": $(grep -c "gcma_$event: " trace)}"
done
"""


def _judge_trace(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        lines = [row["lines"] for row in outcome.rows("trace")]
        if len(lines) != 5 or not all(lines):
            raise LabError(f"a trace event never fired: {lines}; see {outcome.console}")


# Boot words, and what the kernel must say about them.
BOOT_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("cma=64M gcma=file+swap", "area reserved: 64 MiB, clients: file+swap"),
    ("cma=64M gcma=swap,reserved:file", "area reserved: 64 MiB, clients: file"),
    ("cma=64M gcma=file,none", "given both 'file' and 'none', using the latter"),
    ("cma=64M gcma=file gcma=swap", "given more than once, using 'swap'"),
    ("cma=64M gcma=bogus", "no mode 'bogus'"),
    ("cma=64M gcma=file+none", "no mode 'file+none'"),
    ("cma=64M gcma=camera:file", "no area 'camera'"),
    ("cma=64M gcma=", "gcma= wants"),
    ("gcma=file", "there is no CMA area"),
    ("cma=4G gcma=file", "Failed to reserve 4096 MiB"),
    ("cma=64M@0x10001000 gcma=file", "must be aligned"),
)


def _judge_boot_words(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (words, answer) in zip(outcomes, BOOT_WORDS, strict=True):
        if answer not in outcome.text():
            raise LabError(f"booted with {words}, the kernel does not say: {answer}")


# A reserved-memory node for cameras, what it says beyond that, boot words, and the answer.
RESERVED_MEMORY: Final = """/ {{
	reserved-memory {{
		#address-cells = <2>;
		#size-cells = <2>;
		ranges;
		camera {{
			compatible = "shared-dma-pool";
			reusable;
			linux,cma-default;
			size = <0x0 {size:#x}>;
			{properties}
		}};
	}};
}};"""
DEVICE_TREES: Final[tuple[tuple[str, str, str], ...]] = (
    ('linux,gcma-clients = "file+swap";', "", "area camera: 64 MiB, clients: file+swap"),
    ('linux,gcma-clients = "none";', "", "area camera: 64 MiB, clients: none"),
    ('linux,gcma-clients = "swap";', "gcma=camera:file", "area camera: 64 MiB, clients: file"),
    ('linux,gcma-clients = "tape";', "gcma=swap", "no mode 'tape' in linux,gcma-clients"),
)


def _tree_machine(properties: str, *words: str, memory_mib: int = 1024) -> Machine:
    """The board with an area of 64 MiB that its device tree describes."""
    text = RESERVED_MEMORY.format(size=64 << 20, properties=properties)
    return Machine("arm64", cma_mib=0, memory_mib=memory_mib, words=words, device_tree=text)


def _judge_device_trees(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome, (properties, words, answer) in zip(outcomes, DEVICE_TREES, strict=True):
        if answer not in outcome.text():
            said = f"{properties} {words}".strip()
            raise LabError(f"with {said} the kernel does not say: {answer}; see {outcome.console}")


# What an allocation returns after the area held pages of files and of programs, and what drivers
# left there: marks, of which none may be seen.
OLD_BYTES: Final = """
need zram_swap 256
need scratch /dev/vda
marks() { tr '\\0' Z </dev/zero 2>/dev/null | head -c "$1"; }
marks 300m >/mnt/marks
mkdir /shm && need mount -t tmpfs -o size=400M tmpfs /shm
marks 280m >/shm/marks
cat /mnt/marks >/dev/null
statdump --label full
need sweep --sizes 16384,8000,64,1,1024 --reps 2 --zeroed --fill
cat /mnt/marks /shm/marks >/dev/null
need sweep --sizes 1024,16384 --reps 2 --zeroed --fill
"""


def _old_bytes_job(name: str, word: str) -> Job:
    return Job(
        name,
        OLD_BYTES,
        NO_IMAGE,
        Machine("x86-fast", memory_mib=512, cma_mib=64, words=(word,)),
        programs=("mke2fs",),
        allow=("allocation",),
        scratch_mib=(400,),
    )


def _judge_old_bytes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        dirty = [row for row in outcome.rows("alloc") if row["not_zeroed"]]
        if dirty:
            raise LabError(f"{outcome.job.name}: old content: {dirty[0]}; see {outcome.console}")
        outcome.require()
        (area,) = (row["areas"]["reserved"] for row in outcome.rows("gcma_stats"))
        held = area["file/cached"] + area["swap/cached"]
        if min(held, area["file/stored"], area["swap/stored"]) < 500:
            raise LabError(f"{outcome.job.name}: no marks in the area; see {outcome.console}")


# The default of most distributions: what is allocated is cleared, before or in the allocation.
CLEARED: Final = """
area=/sys/kernel/mm/gcma/reserved
need sweep --sizes 32768 --reps 1 --zeroed --fill
need sweep --sizes 32768 --reps 1 --zeroed --fill
echo 32768 >$area/prepare
need sweep --sizes 32768 --reps 1 --zeroed --fill
need sweep --sizes 32768 --reps 1 --zeroed --fill
echo none >$area/clients
echo 32768 >$area/prepare
need sweep --sizes 32768 --reps 1 --zeroed --fill
"""
# Instructions of an allocation of 128 MiB that was prepared.
PREPARED_NS: Final = 10_000


def _judge_cleared(outcomes: Sequence[Outcome]) -> None:
    all_well(outcomes)
    for outcome in outcomes:
        took = [row["ns"] for row in outcome.rows("alloc")]
        slow = [took[n] > 100 * PREPARED_NS for n in range(len(took))]
        if slow != [True, True, False, True, False] or max(took[2], took[4]) > PREPARED_NS:
            raise LabError(f"{outcome.job.name}: allocations took {took} ns")


# Memory that breaks: in a frame that is allocated, in one that is idle, in some that hold copies.
# The area has 16384 frames; 11368 are left behind the last broken one.
POISON: Final = f"""
{RECLAIMED}
need scratch /dev/vda
area=/sys/kernel/mm/gcma/reserved
base=$(cat /sys/kernel/debug/cma/reserved/base_pfn)
is() {{ check "$1" "$(cat $area/$1)" "$2"; }}
break_frame() {{ echo $((base + $1)) >/sys/kernel/debug/hwpoison/corrupt-pfn; }}
need dd if=/dev/urandom of=/mnt/file bs=1M count=200 2>/dev/null
sum=$(md5sum </mnt/file)

sweep --sizes 16384 --reps 1 --hold-ms 3600000 &
holder=$!
until [ $(cat $area/owned) = 16384 ]; do sleep 0.1; done
break_frame 7 2>/dev/null
is poisoned 0
kill $holder
wait $holder
is poisoned 1
is owned 1
break_frame 100
is poisoned 2

for n in 1 2; do evict; check "file, $n" "$(md5sum </mnt/file)" "$sum"; done
evict
check "room for copies" "$(cat $area/file/cached)" $((16384 - 2))
for n in $(seq 5000 5015); do break_frame $n; done
is poisoned 18
check "copies left" "$(cat $area/file/cached)" $((16384 - 18))
for n in 1 2; do check "file with broken copies" "$(md5sum </mnt/file)" "$sum"; evict; done
check "room left" "$(cat $area/file/cached)" $((16384 - 18))

need sweep --sizes 11368,8000,1,64 --reps 2 --fill
is alloc_fails 0
sweep --sizes 11369 --reps 1
is alloc_fails 1
is owned 18
"""


def _judge_broken_rows(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if broken := [str(row["why"]) for row in outcome.rows("broken")]:
            raise LabError(f"{'; '.join(broken)}; see {outcome.console}")
        outcome.require()


# A block of memory with an area in ZONE_MOVABLE, from which all else could be moved away.
OFFLINE: Final = """
base=$(cat /sys/kernel/debug/cma/reserved/base_pfn)
start=$(awk '/zone +Movable/ { here = 1 } here && /start_pfn:/ { print $2; exit }' /proc/zoneinfo)
if [ -z "$start" ] || [ $base -lt $start ]; then
	echo '{"type": "broken", "why": "the area is not in ZONE_MOVABLE"}'
fi
block=$((base * 4096 / 0x$(cat /sys/devices/system/memory/block_size_bytes)))
answer=$(timeout 60 sh -c "echo offline >/sys/devices/system/memory/memory$block/state" 2>&1)
case $answer in
*"resource busy"*) ;;
*) echo "{\\"type\\": \\"broken\\", \\"why\\": \\"offlining said: $answer\\"}" ;;
esac
need sweep --sizes 16384 --reps 1 --fill
"""

# An image is written and read back by the same kernel, with copies of random content in the area.
HIBERNATE: Final = f"""
{RECLAIMED}
need scratch /dev/vda
need disk_swap /dev/vdb
area=/sys/kernel/mm/gcma/reserved
need dd if=/dev/urandom of=/mnt/file bs=1M count=150 2>/dev/null
sum=$(md5sum </mnt/file)
full() {{ check "area full" $(($(cat $area/file/cached) > 15000)) 1; }}
evict; cat /mnt/file >/dev/null; evict
full
cat /sys/class/block/vdb/dev >/sys/power/resume
echo test_resume >/sys/power/disk
need sh -c 'echo disk >/sys/power/state'
check "file" "$(md5sum </mnt/file)" "$sum"
evict; cat /mnt/file >/dev/null; evict
full
"""


def _judge_hibernate(outcomes: Sequence[Outcome]) -> None:
    _judge_broken_rows(outcomes)
    for outcome in outcomes:
        image = re.search(r"Image created \((\d+) pages copied, (\d+) zero", outcome.text())
        if not image or int(image[2]) < 16384:
            said = image[0] if image else "no image"
            raise LabError(f"hibernation saved the area: {said}; see {outcome.console}")


# What is tagged is swapped out into the area, and back.
TAGS: Final = """
need zram_swap 256
need mte
"""


def _judge_tags(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        for row in outcome.rows("mte"):
            names = ("wrong_words", "wrong_tags", "leaked_tags", "tagged_frames")
            if wrong := [f"{row[name]} {name}" for name in names if row[name]]:
                raise LabError(f"{', '.join(wrong)}; see {outcome.console}")
            # The program needs 24,576 pages, the area has 8,192.
            if min(row["stored"], row["loaded"]) < 4000:
                raise LabError(f"hardly anything was in the area: {row}; see {outcome.console}")
        outcome.require()


# What `make demo` does, in short: a disk and swap in memory, programs that wait for both, photos.
REPEATED: Final = """
need zram_swap 128
need scratch /dev/nullb0 -J size=16
need load --dir /mnt --file-mib 128 --prepare --seed 1
sync; echo 3 >/proc/sys/vm/drop_caches
load --dir /mnt --file-mib 128 --anon-mib 256 --seconds 3600 --nice 10 --seed 1 &
load=$!
sleep 1
need camera --width 640 --height 480 --buffers 4 --shots 5 --interval-ms 50 --jitter-ms 50 --seed 1
need sweep --sizes 64,4096,32768 --reps 3 --interval-ms 20 --seed 1
kill -TERM $load
wait $load || exit 1
statdump --label end
"""


def _repeated(number: int) -> Job:
    machine = Machine(memory_mib=576, extra_mib=192, words=("vivid.allocators=1", *demo.DISK_WORDS))
    return Job(
        f"identical-{number}", REPEATED, NO_IMAGE, machine, programs=("mke2fs",),
        allow=("allocation",),
    )  # fmt: skip


GUEST_CHECKS: Final[list[GuestCheck]] = [
    GuestCheck(
        "guest: brug where the machine refuses memory, mappings and huge pages",
        "gcma",
        [
            Job(
                "brug-refused",
                brug.GUEST,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=2048, cma_mib=0),
            )
        ],
        brug.judge_guest,
        brug.guest_files,
    ),
    GuestCheck(
        "guest: KUnit in User Mode Linux",
        "uml",
        [_kunit_job("kunit-uml", "uml")],
        _judge_kunit_uml,
        quick=True,
    ),
    GuestCheck(
        "guest: KUnit",
        "gcma",
        [_kunit_job("kunit", "x86-fast")],
        _judge_kunit,
    ),
    GuestCheck(
        "guest: KUnit with half of the series",
        "half",
        [_kunit_job("kunit-half", "x86-fast")],
        _judge_kunit,
    ),
    GuestCheck(
        "guest: kselftest",
        "gcma",
        [_kselftest_job("kselftest")],
        _judge_kselftest,
        _kselftest,
    ),
    GuestCheck(
        "guest: the driver refuses what it must",
        "gcma",
        [Job("edge", "sweep --edge\n", NO_IMAGE, Machine("x86-fast"))],
    ),
    GuestCheck(
        "guest: random allocations keep their contents",
        "gcma",
        [Job("random", "sweep --random\n", NO_IMAGE, Machine("x86-fast"))],
    ),
    GuestCheck(
        "guest: two runs on x86 are identical",
        "gcma",
        [_repeated(number) for number in (1, 2)],
        _judge_identical,
    ),
    GuestCheck(
        "guest: every trace event fires",
        "gcma",
        [
            Job(
                "trace",
                TRACE,
                NO_IMAGE,
                Machine("x86-fast"),
                programs=("mke2fs",),
                scratch_mib=(300,),
            )
        ],
        _judge_trace,
    ),
    GuestCheck(
        "guest: boot words, right and wrong",
        "gcma",
        [
            Job(
                f"words-{number}",
                "true\n",
                NO_IMAGE,
                Machine("x86-fast", cma_mib=0, words=tuple(words.split())),
            )
            for number, (words, _) in enumerate(BOOT_WORDS)
        ],
        _judge_boot_words,
    ),
    GuestCheck(
        "guest: camera, dma-buf heap and random allocations under load",
        "gcma",
        [
            Job(
                "consumers",
                CONSUMERS,
                NO_IMAGE,
                Machine("x86-fast", words=("vivid.allocators=1",)),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        _judge_consumers,
    ),
    GuestCheck(
        "guest: no old byte in what an allocation returns",
        "gcma",
        [
            _old_bytes_job("old-bytes-free", "init_on_free=1"),
            _old_bytes_job("old-bytes-alloc", "init_on_alloc=1"),
        ],
        _judge_old_bytes,
    ),
    GuestCheck(
        "guest: a prepared allocation of 128 MiB under init_on_alloc",
        "gcma",
        [Job("cleared", CLEARED, NO_IMAGE, Machine(words=("init_on_alloc=1",)))],
        _judge_cleared,
    ),
    GuestCheck(
        "guest: no old byte under page_poison",
        "faults",
        [_old_bytes_job("old-bytes-poison", "page_poison=1")],
        _judge_old_bytes,
    ),
    GuestCheck(
        "guest: broken memory is not filled, read or handed out",
        "faults",
        [
            Job(
                "poison",
                POISON,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(400,),
            )
        ],
        _judge_broken_rows,
    ),
    GuestCheck(
        "guest: memory with an area is not taken offline",
        "faults",
        [
            Job(
                "offline",
                OFFLINE,
                NO_IMAGE,
                # In a block of memory without holes.
                Machine(
                    "x86-fast",
                    cma_mib=0,
                    words=("movablecore=512M", "cma=64M@768M", "gcma=file+swap"),
                ),
            )
        ],
        _judge_broken_rows,
    ),
    GuestCheck(
        "guest: hibernation leaves out what the area holds",
        "faults",
        [
            Job(
                "hibernate",
                HIBERNATE,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(300, 700),
            )
        ],
        _judge_hibernate,
    ),
    GuestCheck(
        "guest: memory tags stay with their owner on arm64",
        "arm64",
        [
            Job(
                "tags",
                TAGS,
                NO_IMAGE,
                Machine("arm64", memory_mib=512, cma_mib=32),
            )
        ],
        _judge_tags,
    ),
    GuestCheck(
        "guest: the longest allocation under load",
        "gcma",
        [
            Job(
                "bound",
                BOUND,
                NO_IMAGE,
                BOUND_MACHINE,
                programs=("mke2fs",),
                allow=("allocation",),
            )
        ],
        _judge_bound,
    ),
    GuestCheck(
        "guest: hugetlb_cma, gigantic pages and those of 2 MiB under load",
        "gcma",
        [
            Job(
                "huge",
                HUGE,
                NO_IMAGE,
                HUGE_MACHINE,
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(900,),
            )
        ],
        _judge_huge,
    ),
    GuestCheck(
        "guest: pages of an area are pinned for long and stay",
        "gcma",
        _pinned_jobs("pinned"),
        _judge_pinned,
    ),
    GuestCheck(
        "guest: oracle, swap on zram",
        "gcma",
        [oracle_job("oracle", 60, until=HITS)],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle, swap on a disk, blocks of 1 KiB",
        "gcma",
        [oracle_job("oracle-disk", 60, until=HITS, swap="disk_swap /dev/vdb", block=1024)],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle while an area's clients change",
        "gcma",
        [oracle_job("control", 30, enough=True, prepare=CONTROL, after=CONTROLLED)],
        _judge_control,
    ),
    GuestCheck(
        "guest: oracle on XFS, large folios",
        "gcma",
        [
            oracle_job(
                "oracle-xfs",
                20,
                "--file-max-kib 2048",
                until=SOME_HITS,
                enough=True,
                mount=XFS,
                prepare=LARGE_FOLIOS
                + LARGE_FOLIOS_WANTED.format(client="file", more="true", enough=ENOUGH),
                programs=("mkfs.xfs",),
            )
        ],
        _judge_large("file"),
    ),
    GuestCheck(
        "guest: oracle on btrfs",
        "gcma",
        [
            oracle_job(
                "oracle-btrfs",
                20,
                # Its checksums do not go with pages that a device changes under writeback.
                "--drop-caches --skip pinned_write",
                until=SOME_HITS,
                mount=BTRFS,
                programs=("mkfs.btrfs",),
                files=240,
            )
        ],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle on overlayfs on a loop device",
        "gcma",
        [oracle_job("oracle-stacked", 20, until=SOME_HITS, mount=STACKED)],
        _judge_oracle,
    ),
    GuestCheck(
        "guest: oracle, swap in a file, swap that comes and goes, large folios in it",
        "gcma",
        [
            oracle_job(
                "oracle-swap",
                20,
                until=SOME_HITS,
                enough=True,
                swap="true",
                prepare=f"{SWAP_FILE}\n{LARGE_FOLIOS}{SWAP_CHANGES}",
                after="kill $changes\nwait $changes\n",
                anon=192,
            )
        ],
        _judge_large("swap"),
    ),
    GuestCheck(
        "guest: file systems mounted again, devices written underneath",
        "gcma",
        [
            Job(
                "remount",
                REMOUNT,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs", "mkfs.xfs", "mkfs.btrfs", "btrfs", "mkfs.erofs"),
                scratch_mib=(320, 320, 64),
            )
        ],
        partial(_judge_kept, pages=3920, of=4),
    ),
    GuestCheck(
        "guest: copies outlast the pages of their cgroup",
        "gcma",
        [
            Job(
                "squeezed",
                SQUEEZED,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(64,),
            )
        ],
        partial(_judge_kept, pages=3000, of=1),
    ),
    GuestCheck(
        "guest: nodes of shadow entries leave a cgroup its memory",
        "gcma",
        [
            Job(
                "nodes",
                NODES,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=1024, cma_mib=512),
                programs=("mke2fs",),
                allow=("oom",),
                scratch_mib=(512,),
            )
        ],
        _judge_nodes,
    ),
    GuestCheck(
        "guest: only plain memory is written to while the owner of a frame waits",
        "gcma",
        [
            Job(
                "destinations",
                DESTINATIONS,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(64,),
            )
        ],
        _judge_destinations,
    ),
    GuestCheck(
        "guest: a trace has every read, write and allocation",
        "gcma",
        [
            Job(
                "traced",
                TRACED,
                NO_IMAGE,
                Machine("x86", cma_mib=64, extra_mib=64, words=traces.DISK_WORDS),
                programs=("mke2fs",),
            )
        ],
        _judge_traced,
    ),
    GuestCheck(
        "guest: a read costs in the area what it costs in the page cache",
        "gcma",
        [
            Job(
                "calls",
                bench_gcma.CALLS_JOB.format(also=bench_gcma.ALSO["gcma"]),
                NO_IMAGE,
                Machine("x86", words=("zram.num_devices=2", "norandmaps")),
                programs=("mke2fs",),
            )
        ],
        _judge_calls,
    ),
    GuestCheck(
        "guest: a copy is not weighed by the multi-generational LRU",
        "gcma",
        [
            Job(
                "lru-costs",
                LRU_COSTS,
                NO_IMAGE,
                Machine("x86-fast", memory_mib=704, cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(64,),
            )
        ],
        _judge_lru_costs,
    ),
    GuestCheck(
        "guest: oracle, multi-generational LRU and zswap",
        "gcma",
        [
            oracle_job(
                "oracle-mglru-zswap",
                30,
                until={**FEW_HITS, "zswpout": 1},
                swap="disk_swap /dev/vdb",
                prepare=f"{MGLRU}\n{ZSWAP}\n",
                after=MGLRU_SEEN,
            )
        ],
        _judge_mglru,
    ),
    GuestCheck(
        "guest: oracle, plain CMA on the same kernel",
        "gcma",
        [
            oracle_job(
                "oracle-cma",
                20,
                until={},
                machine=Machine("x86-fast", "cma", memory_mib=704, cma_mib=64),
            )
        ],
    ),
    GuestCheck(
        "guest: KUnit and oracle under KASAN, lockdep and failing allocations",
        "debug",
        [
            _kunit_job("kunit-debug", "x86-fast"),
            oracle_job(
                "oracle-debug",
                60,
                "--file-max-kib 1024",
                # So slow a kernel rarely fills the area; KUnit has seen revocation by then.
                until=hits(1000, discard=False),
                prepare=f"\n{soak.FAILING}\n",
                block=1024,
                files=160,
                anon=96,
                hog=240,
                largest=1024,
                machine=Machine("x86-fast", memory_mib=512, cma_mib=16),
            ),
        ],
        _judge_debug,
    ),
    GuestCheck(
        "guest: device tree properties on arm64, right and wrong",
        "arm64",
        [
            Job(
                f"device-tree-{number}",
                "true\n",
                NO_IMAGE,
                _tree_machine(properties, *words.split()),
            )
            for number, (properties, words, _) in enumerate(DEVICE_TREES)
        ],
        _judge_device_trees,
    ),
    GuestCheck(
        "guest: KUnit on arm64",
        "arm64",
        [_kunit_job("kunit-arm64", "arm64")],
        _judge_kunit,
    ),
    GuestCheck(
        "guest: DRM dumb buffers under load on arm64",
        "arm64",
        [
            Job(
                "dumb",
                DUMB,
                NO_IMAGE,
                Machine("arm64", memory_mib=704, cma_mib=64, device_tree=DISPLAY),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        _judge_dumb,
    ),
    GuestCheck(
        "guest: oracle on arm64, area from the device tree",
        "arm64",
        [
            oracle_job(
                "oracle-arm64",
                60,
                until=HITS,
                machine=_tree_machine('linux,gcma-clients = "file+swap";', memory_mib=704),
            )
        ],
        _judge_oracle,
    ),
    GuestCheck(
        "kcsan: KUnit and oracle under KCSAN",
        "kcsan",
        [
            replace(job, allow=(*job.allow, "bug", "sanitizer"))
            for job in (
                replace(_kunit_job("kunit-kcsan", "x86-fast"), script=KCSAN),
                oracle_job(
                    "oracle-kcsan",
                    60,
                    "--file-max-kib 1024 --alloc-workers 4 --alloc-pieces 4 --alloc-pins",
                    until=hits(100, discard=False),
                    after=KCSAN,
                    block=1024,
                    files=160,
                    anon=96,
                    hog=240,
                    largest=128,
                    machine=Machine("x86-fast", memory_mib=560, cma_mib=64),
                ),
            )
        ],
        _judge_kcsan,
        asked=True,
    ),
    GuestCheck("guest: soak, a short round of a new seed", "gcma", run=soak.check),
    GuestCheck(
        "guest: KUnit on the Raspberry Pi 2 (rpi2), area in low memory",
        "rpi2",
        [_kunit_job("kunit-rpi2", "rpi2", LOW)],
        _judge_kunit,
    ),
    GuestCheck(
        "guest: oracle on the Raspberry Pi 2 (rpi2), area in high memory",
        "rpi2",
        [_oracle_rpi2()],
        _judge_high,
    ),
    *(
        GuestCheck(f"pdio: {name}", "storage", run=run, prepare=storage.build)
        for name, run in storage.CHECKS.items()
    ),
]

# Those that are made of Linux 7.3 as well, and on which kernel.
ON_7_3: Final = {
    "guest: KUnit in User Mode Linux": "uml-7.3",
    "guest: KUnit": "core-7.3",
    "guest: pages of an area are pinned for long and stay": "core-7.3",
    "guest: oracle, swap on zram": "core-7.3",
}
GUEST_CHECKS.extend(
    [
        replace(
            made,
            name=f"{made.name}, Linux 7.3",
            image=ON_7_3[made.name],
            jobs=[replace(job, name=f"{job.name}-7.3") for job in made.jobs],
            quick=False,
        )
        for made in GUEST_CHECKS
        if made.name in ON_7_3
    ]
)
