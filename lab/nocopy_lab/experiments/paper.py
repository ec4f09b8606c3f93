# SPDX-License-Identifier: MIT OR Apache-2.0
"""The evaluation of the GCMA paper, run again (S. Park, M. Kim, H. Y. Yeom, EWiLi 2015).

fig4:   mean latency of allocations of 64 to 32,768 pages, idle and under load
fig5:   1,024 pages at a time, idle and under load
fig6:   photo shots under load, and the allocations they need (fig. 1 is its worst case)
fig7:   what the load gets done, without and with a photo every ten seconds
table3: context switch, file and memory bandwidth of an idle system

And what the paper has not:

area:   what the load gets from areas of different sizes
use:    the same, while part of the area is allocated
hour:   an allocation every second for an hour
huge:   huge pages under fragmentation: from the area, and by compaction

A boot serves several of these. The load is Blogbench where $BLOGBENCH names it, else `blog`, which
does the same things: see lab/guest/blog.c. What is drawn and said is in paper_report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nocopy_lab import initramfs, kernel
from nocopy_lab.arch import X86
from nocopy_lab.board import BOARDS, CMA_MIB, MEMORY_MIB, Disk, Machine
from nocopy_lab.board import CONFIGS as MODES
from nocopy_lab.experiments import keeper, measure, provenance
from nocopy_lab.paths import OUT, LabError, sha256
from nocopy_lab.run import Job

SEED: Final = 1
HERE: Final = OUT / "paper"
# The paper's three, and what DaaC and eCache keep in such an area.
CONFIGS: Final = ("cma", "gcma", "file-only", "reservation")
OF_PAPER: Final = ("fig4", "fig5", "fig6", "fig7", "table3")
BEYOND: Final = ("area", "use", "hour", "huge")
PARTS: Final = (*OF_PAPER, *BEYOND)
# Boards, and the kernels that they boot.
KERNELS: Final = {"x86": "measured", "rpi2": "rpi2"}

# An SD card: 20 MiB/s in all, 400 µs for each request, and room for all requests there are.
CARD_BYTES_PER_S: Final = 20 << 20
CARD_NS: Final = 400_000
CARD_QUEUE: Final = 256
CARD_MIB: Final = 2048
SWAP_MIB: Final = 100  # as the paper has; compressed memory where clients keep copies
ZRAM: Final = ("gcma", "file-only")
# What is left of the card beside blogs and swap, for the blogs' comings and goings.
SPARE_MIB: Final = 160
# null_blk keeps the card's content in memory, which must not be the board's.
CARD_MEMORY_MIB: Final = 1680
SMALL_CARD_MEMORY_MIB: Final = 256
# Of a file that fills the card so much must show as memory. Some of its blocks have been written
# before: it is 92.
FILLED_PERCENT: Final = 80

BLOGS: Final = 448  # 1.2 GiB
HEAP_MIB: Final = 160
NICE: Final = 19
CAMERA_NICE: Final = -20
WARM_S: Final = 75  # until the caches have what they will have

SIZES: Final = tuple(64 << n for n in range(10))  # 64 … 32,768 pages
FIG4_RUNS: Final = 30
FIG4_RUNS_LOADED: Final = 3
FIG4_PAUSE_S: Final = 2
FIG5_PAGES: Final = 1024
FIG5_RUNS: Final = 30
GIVE_UP_S: Final = 20
SHOTS: Final = 30
SCORES: Final = 3
SCORE_S: Final = 30
CAMERA_PAUSE_S: Final = 10
TABLE3_RUNS: Final = 3
LIMIT_S: Final = 12 * 3600.0
# What runs in the guest: results of other ones are not mixed with these.
PROGRAMS: Final = ("blog", "camera", "huge", "statdump", "sweep")

# As the camera of the Raspberry Pi: 25 pieces of 64 pages, and a preview. As vivid: its buffers.
PI_SHOT: Final = "--pieces 25 --width 640 --height 480"
VIVID_SHOT: Final = "--width 1920 --height 1080 --buffers 6"

LIBRARY: Final = """
# and what the card has done before it; at once, as others write as well
CARD_COUNTS='"sectors_read": %d, "sectors_written": %d'
phase() {
	printf '{"type": "phase", "name": "%s", "seconds": %s, '"$CARD_COUNTS"'}\\n' "$1" \\
		$(cut -d' ' -f1 /proc/uptime) \\
		$(awk -v card=${card##*/} '$3 == card { r = $6; w = $10 } END { print r + 0, w + 0 }' \\
			/proc/diskstats)
}
# what this boot has, for the tables of configurations
system() {
	printf '{"type": "system", "linux": "%s", "cpu": "%s", "cpus": %d, "memory_kib": %d, ' \\
		"$(uname -r)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" \\
		$(grep -c ^processor /proc/cpuinfo) $(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
	printf '"available_kib": %d, "swap": "%s", "swap_kib": %d, "area": "%s"}\\n' \\
		$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo) \\
		"$(awk 'NR == 2 { print $1 }' /proc/swaps)" $(awk 'NR == 2 { print $3 }' /proc/swaps) \\
		"$(tr ' ' '\\n' </proc/cmdline | grep -E '^g?cma=' | tr '\\n' ' ')"
}
# A sensor does not wait for a processor: vivid's threads, which stand for it, are born nice.
need renice -n NICE -p $(pidof kthreadd) >/dev/null
shot() { camera --nice NICE --shots 1 "$@"; }
""".replace("NICE", str(CAMERA_NICE))

# A card with nothing but the swap file.
CARD: Final = f"""
need scratch $card -J size=16 -m 0
dd if=/dev/zero of=/mnt/swap bs=1M count={SWAP_MIB} 2>/dev/null
mkswap /mnt/swap >/dev/null
if $zram; then need zram_swap {SWAP_MIB}; else need swapon /mnt/swap; fi
"""

BLOG_FILES: Final = f"""
say "writing blogs"
need blog --dir /mnt --blogs {BLOGS} --prepare --seed {SEED}
left=$(df -m /mnt | awk 'NR == 2 {{ print $4 }}')
need fallocate -l $((left - {SPARE_MIB}))M /mnt/rest
fill_card
sync
echo 3 >/proc/sys/vm/drop_caches
"""

# null_blk takes memory when a sector is written for the first time. All that the load can write
# later is written now, so that every configuration has the same memory while it is measured. A
# file that is removed before it was written back takes none: that memory was taken is looked at.
FILL_CARD: Final = """
fill_card() {
	say "filling the card"
	unused=$(free_kib)
	dd if=/dev/zero of=/mnt/fill bs=1M 2>/dev/null
	filled=$(($(stat -c %s /mnt/fill) / 1024))
	free=$(free_kib)
	taken=$((unused - free))
	rm /mnt/fill
	printf '{"type": "filled", "kib": %d, "taken_kib": %d, "free_kib": %d}\\n' \\
		$filled $taken $free
	need [ $((taken * 100)) -ge $((filled * FILLED_PERCENT)) ]
}
# With the pages that CPUs keep on lists of their own, which may be many and are no longer counted.
free_kib() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '$1 == "MemFree:" { kib += $2 } $1 == "count:" { kib += 4 * $2 } END { print kib }' \\
		/proc/meminfo /proc/zoneinfo
}
""".replace("FILLED_PERCENT", str(FILLED_PERCENT))
# Another disk takes none of the board's memory.
NO_FILL: Final = """
fill_card() { :; }
"""

OWN_LOAD: Final = f"""
serve() {{
	blog --dir /mnt --blogs {BLOGS} --heap-mib {HEAP_MIB} --seconds 36000 --nice {NICE} \\
		--seed {SEED} "$@" &
	server=$!
}}
retire() {{ kill -TERM $server; wait $server; }}
"""
# It begins with an empty directory, and says nothing until it ends.
BLOGBENCH_LOAD: Final = f"""
serve() {{
	mkdir -p /mnt/blogbench
	sh -c 'renice -n {NICE} -p $$; exec blogbench -d /mnt/blogbench -i 10000' >/tmp/load 2>&1 &
	server=$!
}}
retire() {{
	kill -KILL $server
	wait $server
	rm -rf /mnt/blogbench
	return 0
}}
"""


def _sweep(sizes: Sequence[int], runs: int, pause_s: int) -> str:
    return (
        f"sweep --sizes {','.join(map(str, sizes))} --reps {runs} "
        f"--interval-ms {pause_s * 1000} --seed {SEED}"
    )


IDLE: Final = {
    "fig4": f"""
phase fig4-idle
say "allocating, all sizes"
need {_sweep(SIZES, FIG4_RUNS, FIG4_PAUSE_S)}
""",
    "fig5": f"""
phase fig5-idle
say "allocating {FIG5_PAGES} pages"
need {_sweep((FIG5_PAGES,), FIG5_RUNS, FIG4_PAUSE_S)}
""",
    "fig6": f"""
phase fig6-idle
say "photos"
for n in $(seq {SHOTS}); do shot {PI_SHOT}; sleep {CAMERA_PAUSE_S}; done
""",
}

# Sections of a boot with the load, in their order. An allocation that takes very long is ended,
# and counts as failed.
LOADED: Final = {
    "fig7": f"""
phase fig7-alone
say "load alone"
sleep {SCORES * SCORE_S + 1}
""",
    "fig6": f"""
phase fig6-loaded
say "photos"
for n in $(seq {SHOTS}); do
	shot {PI_SHOT}
	sleep {CAMERA_PAUSE_S // 2}
	shot {VIVID_SHOT}
	sleep {CAMERA_PAUSE_S // 2}
done
""",
    "fig5": f"""
phase fig5-loaded
say "allocating {FIG5_PAGES} pages"
for n in $(seq {FIG5_RUNS}); do give_up {FIG5_PAGES}; done
""",
    "fig4": f"""
phase fig4-loaded
say "allocating, all sizes"
for n in $(seq {FIG4_RUNS_LOADED}); do
	for size in {" ".join(map(str, SIZES))}; do give_up $size; done
done
""",
}
BEGIN_LOAD: Final = f"""
give_up() {{
	timeout -s KILL {GIVE_UP_S} sweep --sizes $1 --reps 1 --seed {SEED} ||
		printf '{{"type": "alloc", "pages": %d, "ns": {GIVE_UP_S}000000000, "ok": false}}\\n' $1
	sleep {FIG4_PAUSE_S}
}}
system
serve
say "warming up"
sleep {WARM_S}
"""
END_LOAD: Final = """
phase end
statdump --label end
retire
"""

# Blogbench tells its scores at its end, after five minutes.
BLOGBENCH_SCORES: Final = f"""
score() {{
	mkdir /mnt/blogbench
	blogbench -d /mnt/blogbench >/tmp/score || return
	awk '/Final score for writes/ {{ w = $NF }} /Final score for reads/ {{ r = $NF }}
		END {{ printf "{{\\"type\\": \\"score\\", \\"reads\\": %d, \\"writes\\": %d}}\\n", r, w }}' /tmp/score
	rm -rf /mnt/blogbench
}}
phase fig7-alone
for n in $(seq {SCORES}); do score; done
phase fig7-camera
while :; do shot {PI_SHOT}; sleep {CAMERA_PAUSE_S}; done &
shots=$!
for n in $(seq {SCORES}); do score; done
kill $shots
phase end
"""  # noqa: E501

# perf has the context switch, sysbench the rest: the same quantities as lmbench's.
TABLE3_JOB: Final = f"""
report() {{ printf '{{"type": "table3", "what": "%s", "value": %s}}\\n' $1 "$2"; }}
mibps() {{ sed -n 's/.*(\\([0-9.]*\\) MiB\\/sec).*/\\1/p'; }}
readps() {{ sed -n 's/.*read, MiB\\/s: *//p'; }}
cd /mnt
need sysbench fileio --file-num=1 --file-total-size=64M prepare >/dev/null
for n in $(seq {TABLE3_RUNS}); do
	say "run $n"
	report lat_ctx_us $(perf bench --format simple sched pipe --loop 20000 | awk '{{ print $1 / 40000 * 1e6 }}')
	report file_mibps $(sysbench fileio --file-num=1 --file-total-size=64M --file-test-mode=seqrd \\
		--file-block-size=64K --time=0 --events=4096 run | readps)
	for way in read write; do
		report mem_${{way}}_mibps $(sysbench memory --memory-block-size=8M --memory-total-size=512M \\
			--memory-oper=$way --time=0 run | mibps)
	done
done
"""  # noqa: E501

# An hour of the full load would take as long to emulate: memory is filled by it, then used by few.
HOUR_S: Final = 3600
HOUR_READERS: Final = 16
HOUR_PAUSE_MS: Final = 400
HOUR_JOB: Final = f"""
serve
say "warming up"
sleep {WARM_S}
retire
serve --readers {HOUR_READERS} --pause-ms {HOUR_PAUSE_MS} --writers 0 --commenters 1
say "an allocation every second"
need {_sweep(SIZES, HOUR_S // len(SIZES), 1)}
statdump --label end
retire
"""

AREAS_MIB: Final = (64, 128, 256, 512)
USES_PERCENT: Final = (0, 30, 60, 90)


def _area_job(use_percent: int) -> str:
    pages = (CMA_MIB << 8) * use_percent // 100
    hold = f"sweep --sizes {pages} --reps 1 --hold-ms 3600000 &\n\tholder=$!" if pages else ""
    free = "kill $holder" if pages else ""
    return f"""
{hold}
serve
sleep {WARM_S}
phase begin
statdump --label begin
sleep {SCORE_S + 1}
phase end
statdump --label end
{free}
retire
"""


# 512 pages of 2 MiB while the server's files and memory are everywhere: as one page of 1 GiB from
# an area that is then taken apart, or gathered by compaction.
HUGE_PAGES: Final = 512
HUGE_RUNS: Final = 5
HUGE_KINDS: Final = ("cma", "gcma", "compaction")
HUGE_GIVE_UP_S: Final = 60
HUGE_MIB: Final = 2048
HUGE_FEATURES: Final = "+pdpe1gb"


def _huge_job(kind: str) -> str:
    what = f"--kib 2048 --pool {HUGE_PAGES}"
    if kind != "compaction":
        what = "--kib 1048576 --pool 1 --demote"
    gave_up = f'{{"type": "pool", "got": 0, "small": 0, "ns": {HUGE_GIVE_UP_S}000000000, '
    return f"""
serve
say "warming up"
sleep {WARM_S}
for n in $(seq {HUGE_RUNS}); do
	say "huge pages, $n"
	timeout -s KILL {HUGE_GIVE_UP_S} huge {what} || echo '{gave_up}"ok": false}}'
	sleep {FIG4_PAUSE_S}
done
statdump --label end
retire
"""


@dataclass(frozen=True)
class Boot:
    """One boot: for which parts, of what, and what shows how far it is."""

    name: str
    parts: tuple[str, ...]
    config: str
    script: str
    rows: Mapping[str, float]
    card: bool = True
    area_mib: int = CMA_MIB
    programs: tuple[str, ...] = ()
    huge: bool = False


LOADED_ROWS: Final = {
    "fig7": {"blog_tick": float(SCORES * SCORE_S)},
    "fig6": {"shot": 2.0 * SHOTS, "blog_tick": float(SHOTS * CAMERA_PAUSE_S)},
    "fig5": {"alloc": float(FIG5_RUNS)},
    "fig4": {"alloc": float(FIG4_RUNS_LOADED * len(SIZES))},
}


def _loaded(config: str, parts: Sequence[str], blogbench: bool) -> Boot:
    """The sections that the parts need, one after the other."""
    rows = {"blog_tick": float(WARM_S)}
    for part in parts:
        for kind, count in LOADED_ROWS[part].items():
            rows[kind] = rows.get(kind, 0.0) + count
    sections = "".join(LOADED[part] for part in parts if not (blogbench and part == "fig7"))
    script = BLOG_FILES + BEGIN_LOAD + sections + END_LOAD
    if blogbench and "fig7" in parts:
        script += BLOGBENCH_SCORES
        rows["score"] = 2.0 * SCORES
    return Boot(f"loaded-{config}-{'+'.join(parts)}", tuple(parts), config, script, rows)


def boots(wanted: Iterable[str], blogbench: bool = False) -> list[Boot]:
    """What the parts need, the longest first."""
    wanted = set(wanted)
    loaded = [part for part in LOADED if part in wanted]
    idle = [part for part in IDLE if part in wanted]
    # With a camera every ten seconds, the load is measured while photos are taken.
    if "fig7" in loaded and "fig6" not in loaded and not blogbench:
        loaded = [part for part in LOADED if part in {*loaded, "fig6"}]
    made = [_loaded(config, loaded, blogbench) for config in CONFIGS if loaded]
    ticks = {"blog_tick": float(WARM_S + SCORE_S)}
    for mib in AREAS_MIB:
        parts = ("area", "use") if mib == CMA_MIB else ("area",)
        made.append(Boot(f"area-{mib}", parts, "gcma", BLOG_FILES + _area_job(0), ticks, True, mib))
    for percent in USES_PERCENT[1:]:
        script = BLOG_FILES + _area_job(percent)
        made.append(Boot(f"use-{percent}", ("use",), "gcma", script, ticks))
    made.append(Boot("hour", ("hour",), "gcma", BLOG_FILES + HOUR_JOB, {"alloc": float(HOUR_S)}))
    for kind in HUGE_KINDS:
        config = "cma" if kind == "cma" else "gcma"
        script = BLOG_FILES + _huge_job(kind)
        rows = {"blog_tick": float(WARM_S), "pool": float(HUGE_RUNS)}
        area = 0 if kind == "compaction" else HUGE_MIB // 2
        made.append(Boot(f"huge-{kind}", ("huge",), config, script, rows, True, area, huge=True))
    for config in CONFIGS:
        script = "".join(IDLE[part] for part in idle) + "phase end\nstatdump --label end\n"
        rows = {"alloc": float(len(SIZES) * FIG4_RUNS + FIG5_RUNS), "shot": float(SHOTS)}
        name = f"idle-{config}-{'+'.join(idle)}"
        made.append(Boot(name, tuple(idle), config, script, rows, card=False))
        rows = {"table3": 4.0 * TABLE3_RUNS}
        made.append(
            Boot(
                f"table3-{config}", ("table3",), config, TABLE3_JOB, rows,
                programs=("sysbench", "perf"),
            )
        )  # fmt: skip
    return [boot for boot in made if wanted.intersection(boot.parts)]


def card_words() -> tuple[str, ...]:
    """null_blk as a card; its data is in the guest's memory."""
    return (
        "null_blk.nr_devices=1",
        "null_blk.memory_backed=1",
        f"null_blk.gb={CARD_MIB >> 10}",
        "null_blk.bs=4096",
        "null_blk.irqmode=2",
        f"null_blk.completion_nsec={CARD_NS}",
        f"null_blk.mbps={CARD_BYTES_PER_S >> 20}",
        f"null_blk.hw_queue_depth={CARD_QUEUE}",
    )


def _with_huge_area(machine: Machine) -> Machine:
    """More memory, whose area is for huge pages."""
    words = machine.words
    if machine.cma_mib:
        words += (f"hugetlb_cma={machine.cma_mib}M", f"gcma={MODES[machine.config]}")
    return replace(machine, memory_mib=HUGE_MIB, cma_mib=0, words=words, features=HUGE_FEATURES)


def job(boot: Boot, board: str, image: kernel.Image, load: Path | None = None) -> Job:
    """What to boot on a board. The card is null_blk where the board is exact."""
    words: tuple[str, ...] = ("vivid.allocators=1",)
    extra = 0
    disks: tuple[Disk, ...] = ()
    device = "/dev/mmcblk0" if BOARDS[board].disk == "sd" else "/dev/vda"
    if boot.card and BOARDS[board].exact:
        words += card_words()
        device = "/dev/nullb0"
        extra = CARD_MEMORY_MIB if BLOG_FILES in boot.script else SMALL_CARD_MEMORY_MIB
    elif boot.card:
        driver = BOARDS[board].disk
        disks = (Disk(size_mib=CARD_MIB, driver=driver, bytes_per_s=CARD_BYTES_PER_S),)
    zram = "true" if boot.config in ZRAM else "false"
    script = f"card={device}\nzram={zram}\n{LIBRARY}"
    if boot.card:
        fill = FILL_CARD if BOARDS[board].exact else NO_FILL
        script += CARD + fill + (BLOGBENCH_LOAD if load else OWN_LOAD)
    machine = Machine(
        board, boot.config, cma_mib=boot.area_mib, extra_mib=extra, words=words, disks=disks,
        seed=SEED,
    )  # fmt: skip
    if boot.huge:
        machine = _with_huge_area(machine)
    return Job(
        f"paper-{board}-{boot.name}",
        script + boot.script,
        image.bootable,
        machine,
        limit_s=LIMIT_S,
        programs=("mke2fs", *boot.programs),
        files=initramfs.program_file(load, "blogbench") if load else {},
        allow=("allocation",),
    )  # fmt: skip


def blogbench() -> Path | None:
    """The binary that $BLOGBENCH names."""
    given = os.environ.get("BLOGBENCH")
    if not given:
        return None
    path = Path(given)
    if not path.is_file():
        raise LabError(f"BLOGBENCH={given} is not there; leave it out for the lab's own load")
    return path


def run(parts: Sequence[str] = (), board: str = "x86", at_once: int = 2) -> None:
    """Boot what the parts need, and store it beside what the same kernel gave before."""
    image = kernel.image(KERNELS[board])
    load = blogbench()
    arch = BOARDS[board].arch
    if load and arch is not X86:
        raise LabError(f"BLOGBENCH is a program of this machine, {board} needs the lab's own load")
    wanted = boots(parts or PARTS, load is not None)
    # The host's programs do not run there, and huge pages are x86's.
    wanted = [boot for boot in wanted if arch is X86 or not (boot.programs or boot.huge)]
    jobs = [job(boot, board, image, load) for boot in wanted]
    rows = {one.name: boot.rows for one, boot in zip(jobs, wanted, strict=True)}
    programs = initramfs.guest_programs(arch)
    about = provenance(image, SEED) | {
        "experiment": "paper",
        "programs": sha256(*(programs[name] for name in PROGRAMS)),
        "load": "Blogbench" if load else "blog",
        "memory_mib": MEMORY_MIB,
        "cma_mib": CMA_MIB,
    }
    measure(jobs, lambda one: rows[one.name], at_once, keeper(HERE / board, about))
