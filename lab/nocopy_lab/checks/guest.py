# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which boots make a check, and who judges them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from nocopy_lab import jobs, traces
from nocopy_lab.arch import ARM64
from nocopy_lab.board import Disk, Machine, null_disk
from nocopy_lab.checks import brug, judges, pdio_arm64, recorder, soak, storage
from nocopy_lab.checks.kinds import BOTH, NO_IMAGE, OLDER, SMALL, GuestCheck
from nocopy_lab.checks.kunit import (
    DMEM,
    PLACE,
    judge_kselftest,
    judge_kunit,
    judge_kunit_debug,
    judge_kunit_rt,
    judge_kunit_small,
    kselftest_files,
    kunit_job,
)
from nocopy_lab.checks.oracle import (
    ENCRYPTED_MIB,
    FEW_HITS,
    HITS,
    LOW,
    SOME_HITS,
    hits,
    judge_both,
    judge_control,
    judge_high,
    judge_kcsan,
    judge_large,
    judge_mglru,
    judge_oracle,
    oracle_checked,
    oracle_job,
    oracle_rpi2,
    zswap_jobs,
)
from nocopy_lab.experiments import bench_gcma, demo
from nocopy_lab.run import Job


def _job(
    name: str,
    machine: Machine,
    *,
    programs: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    scratch_mib: tuple[int, ...] = (),
) -> Job:
    """The job whose script has this name."""
    return Job(
        name, jobs.script(name), NO_IMAGE, machine, programs=programs, allow=allow,
        scratch_mib=scratch_mib,
    )  # fmt: skip


BOUND_MACHINE: Final = Machine(
    "x86",
    memory_mib=384,
    cma_mib=128,
    extra_mib=224,
    words=null_disk(1),
)


# The area is the third gigabyte: QEMU puts the initramfs below the end of the second. Some of the
# others is left out, so that memory is short.
HUGE_MACHINE: Final = Machine(
    "x86-fast",
    memory_mib=3200,
    cma_mib=0,
    features="+pdpe1gb",
    words=("hugetlb_cma=1G", "gcma=file+swap", "memmap=640M$320M", "memmap=704M$1088M"),
)


def _pinned_jobs() -> list[Job]:
    words = HUGE_MACHINE.words
    plain = tuple("gcma=cma" if word.startswith("gcma=") else word for word in words)
    return [
        Job(f"pinned-{config}", jobs.script("pinned"), NO_IMAGE, replace(HUGE_MACHINE, words=given))
        for config, given in (("gcma", words), ("cma", plain))
    ]


# Plain CMA has pages that may not be pinned, and so has an area in ZONE_MOVABLE.
HOLD_BOOTS: Final = {
    "gcma": Machine("x86-fast", cma_mib=64),
    "cma": Machine("x86-fast", "cma", cma_mib=64),
    "movable": Machine(
        "x86-fast", cma_mib=0, words=("movablecore=512M", "cma=64M@768M", "gcma=file+swap")
    ),
}


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


# A reserved-memory node with the name that most boards give it, what it says beyond that, kernel
# parameters, and the answer.
RESERVED_MEMORY: Final = """/ {{
	reserved-memory {{
		#address-cells = <2>;
		#size-cells = <2>;
		ranges;
		linux,cma {{
			compatible = "shared-dma-pool";
			reusable;
			linux,cma-default;
			size = <0x0 {size:#x}>;
			{properties}
		}};
	}};
}};"""


def _tree_machine(properties: str, *words: str, memory_mib: int = 1024) -> Machine:
    """The board with an area of 64 MiB that its device tree describes."""
    text = RESERVED_MEMORY.format(size=64 << 20, properties=properties)
    return Machine("arm64", cma_mib=0, memory_mib=memory_mib, words=words, device_tree=text)


def _old_bytes_job(name: str, word: str) -> Job:
    return Job(
        name,
        jobs.script("old-bytes"),
        NO_IMAGE,
        Machine("x86-fast", memory_mib=320, cma_mib=64, words=(word,)),
        programs=("mke2fs",),
        allow=("allocation",),
        scratch_mib=(250,),
    )


def _repeated(number: int) -> Job:
    machine = Machine(memory_mib=576, extra_mib=192, words=("vivid.allocators=1", *demo.DISK_WORDS))
    return Job(
        f"identical-{number}", jobs.script("repeated"), NO_IMAGE, machine, programs=("mke2fs",),
        allow=("allocation",),
    )  # fmt: skip


GUEST_CHECKS: Final[list[GuestCheck]] = [
    GuestCheck(
        "guest: brug where the machine refuses memory, mappings and huge pages",
        "gcma",
        [
            Job(
                "brug-refused",
                brug.guest_script(),
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
        [kunit_job("kunit-uml", "uml")],
        judge_kunit_small,
        quick=True,
    ),
    GuestCheck(
        "guest: KUnit in User Mode Linux 7.3, with the old lists",
        "uml-7.3",
        [kunit_job("kunit-uml-7.3", "uml")],
        judge_kunit_small,
    ),
    GuestCheck(
        "guest: KUnit",
        "gcma",
        [kunit_job("kunit", "x86-fast")],
        judge_kunit,
        on=BOTH,
    ),
    GuestCheck(
        "guest: KUnit with half of the series",
        "half",
        [kunit_job("kunit-half", "x86-fast")],
        partial(judge_kunit, suites=(PLACE, DMEM)),
    ),
    GuestCheck(
        "guest: kselftest",
        "gcma",
        [
            _job(
                "kselftest",
                Machine("x86-fast", cma_mib=64),
                programs=("mke2fs",),
                scratch_mib=(300,),
            )
        ],
        judge_kselftest,
        kselftest_files,
        on=BOTH,
    ),
    GuestCheck(
        "guest: the driver refuses what it must, random allocations keep their contents",
        "gcma",
        [Job("edge", "need sweep --edge\nsweep --random\n", NO_IMAGE, Machine("x86-fast"))],
    ),
    GuestCheck(
        "guest: two runs on x86 are identical",
        "gcma",
        [_repeated(number) for number in (1, 2)],
        judges.identical,
        on=OLDER,
    ),
    GuestCheck(
        "guest: every trace event fires",
        "gcma",
        [
            Job(
                "trace",
                jobs.script("trace", words=""),
                NO_IMAGE,
                Machine("x86-fast"),
                programs=("mke2fs",),
                scratch_mib=(300,),
            )
        ],
        judges.trace,
    ),
    # Where a boot takes a second: what is read of them is the same code everywhere.
    *(
        GuestCheck(
            f"guest: kernel parameters, right and wrong, in User Mode Linux {version}",
            image,
            [
                Job(
                    f"words-{version}-{number}",
                    "true\n",
                    NO_IMAGE,
                    Machine("uml", cma_mib=0, words=tuple(words.split())),
                )
                for number, (words, _) in enumerate(judges.PARAMETERS)
            ],
            judges.parameters,
        )
        for version, image in (("6.12", "uml"), ("7.3", "uml-7.3"))
    ),
    GuestCheck(
        "guest: camera, dma-buf heap and random allocations under load",
        "gcma",
        [
            _job(
                "consumers",
                Machine("x86-fast", words=("vivid.allocators=1",)),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        judges.consumers,
        on=BOTH,
    ),
    GuestCheck(
        "guest: recorder, every way from three cameras and every end, byte by byte",
        "gcma",
        recorder.boots(NO_IMAGE),
        recorder.judge,
        recorder.files,
        prepare=recorder.build,
        on=BOTH,
    ),
    GuestCheck(
        "guest: no old byte in what an allocation returns",
        "gcma",
        [
            _old_bytes_job("old-bytes-free", "init_on_free=1"),
            _old_bytes_job("old-bytes-alloc", "init_on_alloc=1"),
        ],
        judges.old_bytes,
        on=BOTH,
    ),
    GuestCheck(
        "guest: a prepared allocation of 128 MiB under init_on_alloc",
        "gcma",
        [_job("cleared", Machine(words=("init_on_alloc=1",)))],
        judges.cleared,
    ),
    GuestCheck(
        "guest: what clients and drivers leave behind is cleared under init_on_free",
        "gcma",
        [
            _job(
                "wiped",
                Machine(extra_mib=64, words=("init_on_free=1", *null_disk(1))),
                programs=("mke2fs",),
            ),
            Job(
                "wiped-unlent",
                "need sweep --sizes 32768 --reps 1 --fill\nsleep 1\n"
                "need sweep --sizes 32768 --reps 1 --zeroed\n",
                NO_IMAGE,
                Machine("x86", "reservation", words=("init_on_free=1",)),
            ),
        ],
        judges.wiped,
    ),
    GuestCheck(
        "guest: no old byte under page_poison",
        "gcma",
        [_old_bytes_job("old-bytes-poison", "page_poison=1")],
        judges.old_bytes,
    ),
    GuestCheck(
        "guest: broken memory is not filled, read or handed out",
        "gcma",
        [_job("poison", SMALL, programs=("mke2fs",), scratch_mib=(400,))],
        judges.broken_rows,
        on=BOTH,
    ),
    GuestCheck(
        "guest: memory with an area is not taken offline",
        "gcma",
        [
            _job(
                "offline",
                # In a block of memory without holes.
                Machine(
                    "x86-fast",
                    cma_mib=0,
                    words=("movablecore=512M", "cma=64M@768M", "gcma=file+swap"),
                ),
            ),
            _job("offline-huge", HUGE_MACHINE),
        ],
        judges.broken_rows,
    ),
    GuestCheck(
        "guest: hibernation leaves out what the area holds",
        "gcma",
        [
            _job("hibernate", SMALL, programs=("mke2fs",), scratch_mib=(300, 700)),
            _job(
                "hibernate-unlent",
                replace(SMALL, config="reservation"),
                scratch_mib=(8, 700),
            ),
        ],
        judges.hibernate,
        on=BOTH,
    ),
    GuestCheck(
        "guest: memory tags stay with their owner on arm64",
        "arm64",
        [_job("tags", Machine("arm64", memory_mib=512, cma_mib=32))],
        judges.tags,
    ),
    GuestCheck(
        "guest: the longest allocation under load",
        "gcma",
        [_job("bound", BOUND_MACHINE, programs=("mke2fs",), allow=("allocation",))],
        judges.bound,
        on=BOTH,
    ),
    GuestCheck(
        "guest: hugetlb_cma, gigantic pages and those of 2 MiB under load",
        "gcma",
        [
            _job(
                "huge",
                HUGE_MACHINE,
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(900,),
            )
        ],
        judges.huge,
    ),
    GuestCheck(
        "guest: pages of an area are pinned for long and stay",
        "gcma",
        _pinned_jobs(),
        judges.pinned,
        on=BOTH,
    ),
    GuestCheck(
        "guest: buffers of the heap are held where an area is guaranteed, beyond their end",
        "gcma",
        [
            Job(
                f"hold-{name}",
                jobs.script("hold"),
                NO_IMAGE,
                machine,
                programs=("mke2fs",),
                scratch_mib=(64,),
            )
            for name, machine in HOLD_BOOTS.items()
        ],
        judges.hold,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, swap on zram",
        "gcma",
        [oracle_job("oracle", 30, until=HITS)],
        judge_oracle,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, swap on a disk, blocks of 1 KiB",
        "gcma",
        [oracle_job("oracle-disk", 30, until=HITS, swap="disk_swap /dev/vdb", block=1024)],
        judge_oracle,
    ),
    GuestCheck(
        "guest: oracle while an area's clients change",
        "gcma",
        [oracle_job("control", 30, enough=True, prepare="change_clients", after="keep_clients")],
        judge_control,
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
                mount="on_xfs",
                prepare="trace_large_folios; await_large_folios file",
                programs=("mkfs.xfs",),
            )
        ],
        judge_large("file"),
        on=BOTH,
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
                mount="on_btrfs",
                programs=("mkfs.btrfs",),
                files=240,
            )
        ],
        judge_oracle,
    ),
    GuestCheck(
        "guest: oracle on f2fs",
        "gcma",
        [
            oracle_job(
                "oracle-f2fs",
                20,
                "--lax-direct",
                until=SOME_HITS,
                mount="on_f2fs",
                programs=("mkfs.f2fs",),
            )
        ],
        judge_oracle,
    ),
    GuestCheck(
        "guest: files of f2fs, ext4 and btrfs that are given other blocks",
        "gcma",
        [
            _job(
                "blocks",
                SMALL,
                programs=("mkfs.f2fs", "mke2fs", "chattr", "mkfs.btrfs"),
                scratch_mib=(320, 64),
            )
        ],
        partial(judges.kept, pages=512, of=1),
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle on encrypted files, on ext4 and f2fs",
        "gcma",
        [
            oracle_job(
                "oracle-encrypted-ext4",
                20,
                until=FEW_HITS,
                mount="need scratch /dev/vda -O encrypt; encrypted",
                files=ENCRYPTED_MIB,
            ),
            oracle_job(
                "oracle-encrypted-f2fs",
                20,
                "--lax-direct",
                until=FEW_HITS,
                mount="on_f2fs -O encrypt; encrypted",
                files=ENCRYPTED_MIB,
                programs=("mkfs.f2fs",),
            ),
        ],
        judge_oracle,
        on=BOTH,
    ),
    GuestCheck(
        "guest: encrypted files are kept, and nothing of them without their key",
        "gcma",
        [_job("encrypted", SMALL, programs=("mke2fs", "mkfs.f2fs"), scratch_mib=(320,))],
        judges.encrypted,
        on=BOTH,
    ),
    GuestCheck(
        # With large folios of ext4, which 6.12 does not have.
        "guest: oracle on overlayfs on a loop device, large folios of ext4",
        "gcma",
        [
            oracle_job(
                "oracle-stacked",
                20,
                "--file-max-kib 2048",
                until=SOME_HITS,
                enough=True,
                mount="on_overlay",
                prepare="trace_large_folios; await_large_folios file",
            )
        ],
        judge_large("file"),
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
                prepare="swap_file_and_zram; trace_large_folios; change_swap; "
                "await_large_folios swap swap_changed",
                after="keep_swap",
                anon=192,
            )
        ],
        judge_large("swap"),
        on=BOTH,
    ),
    GuestCheck(
        "guest: file systems mounted again, devices written underneath",
        "gcma",
        [
            _job(
                "remount",
                SMALL,
                programs=("mke2fs", "mkfs.xfs", "mkfs.btrfs", "btrfs", "mkfs.f2fs", "mkfs.erofs"),
                scratch_mib=(320, 320, 64),
            )
        ],
        partial(judges.kept, pages=3920, of=5),
    ),
    GuestCheck(
        "guest: copies outlast the pages of their cgroup",
        "gcma",
        [_job("squeezed", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        partial(judges.kept, pages=3000, of=1),
    ),
    GuestCheck(
        "guest: nodes of shadow entries leave a cgroup its memory",
        "gcma",
        [
            _job(
                "nodes",
                Machine("x86-fast", memory_mib=1024, cma_mib=512),
                programs=("mke2fs",),
                # What may not wait may fail where memory is that short.
                allow=("allocation", "oom"),
                scratch_mib=(512,),
            )
        ],
        judges.nodes,
        on=BOTH,
    ),
    GuestCheck(
        "guest: only plain memory is written to while the owner of a frame waits",
        "gcma",
        [_job("destinations", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        judges.destinations,
    ),
    GuestCheck(
        "guest: a trace has every read, write and allocation",
        "gcma",
        [
            Job(
                "traced",
                jobs.script("traced", pages=judges.TRACED_PAGES),
                NO_IMAGE,
                Machine("x86", cma_mib=64, extra_mib=64, words=traces.DISK_WORDS),
                programs=("mke2fs",),
            )
        ],
        judges.traced,
        on=OLDER,
    ),
    GuestCheck(
        "guest: what was cut off or punched out of a file is not seen again",
        "gcma",
        [_job("gone", SMALL, programs=("mke2fs", "mkfs.btrfs"), scratch_mib=(128,))],
        judges.gone,
        on=BOTH,
    ),
    GuestCheck(
        "guest: what a direct write ends over is not seen again",
        "gcma",
        [
            _job(
                "late",
                Machine(
                    "x86-fast",
                    memory_mib=704,
                    cma_mib=64,
                    disks=(Disk(size_mib=64, writes_per_s=1), Disk(size_mib=320, writes_per_s=1)),
                ),
                programs=("mke2fs", "mkfs.xfs"),
            )
        ],
        judges.late,
        on=BOTH,
    ),
    GuestCheck(
        "guest: zswap writes back nothing that has been overwritten",
        "gcma",
        [_job("zeroed", SMALL, scratch_mib=(512,))],
        judges.zeroed,
    ),
    GuestCheck(
        "guest: a read costs in the area what it costs in the page cache",
        "gcma",
        [
            Job(
                "calls",
                jobs.script("bench-calls", words=bench_gcma.ALSO["gcma"]),
                NO_IMAGE,
                Machine("x86", words=("zram.num_devices=2", "norandmaps")),
                programs=("mke2fs",),
            )
        ],
        judges.calls,
        on=BOTH,
    ),
    GuestCheck(
        "guest: a copy is not weighed by the multi-generational LRU",
        "gcma",
        [_job("lru-costs", SMALL, programs=("mke2fs",), scratch_mib=(64,))],
        judges.lru_costs,
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, multi-generational LRU and zswap",
        "gcma",
        zswap_jobs("mglru"),
        judge_mglru(True),
        on=BOTH,
    ),
    GuestCheck(
        "guest: oracle, without the multi-generational LRU, and zswap",
        "gcma",
        zswap_jobs("no_mglru"),
        judge_mglru(False),
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
            kunit_job("kunit-debug", "x86-fast"),
            oracle_checked("oracle-debug", 1000),
        ],
        judge_both(judge_kunit_debug),
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
            for number, (properties, words, _) in enumerate(judges.DEVICE_TREES)
        ],
        judges.device_trees,
    ),
    GuestCheck(
        "guest: KUnit on arm64",
        "arm64",
        [kunit_job("kunit-arm64", "arm64")],
        judge_kunit,
    ),
    GuestCheck(
        "guest: brug on arm64, and where the machine refuses",
        "arm64",
        [
            Job(
                "brug-arm64",
                brug.guest_script(ARM64),
                NO_IMAGE,
                Machine("arm64", memory_mib=2048, cma_mib=0),
                programs=("mke2fs",),
            )
        ],
        brug.judge_guest,
        brug.arm64_files,
    ),
    GuestCheck(
        "guest: pdio and libpdio.so on arm64",
        "arm64",
        [
            Job(
                "pdio-arm64",
                pdio_arm64.script(),
                NO_IMAGE,
                Machine("arm64", memory_mib=2048, cma_mib=0),
                programs=("mke2fs",),
                scratch_mib=(1024,),
            )
        ],
        pdio_arm64.judge,
        pdio_arm64.files,
    ),
    GuestCheck(
        "guest: DRM dumb buffers under load on arm64",
        "arm64",
        [
            _job(
                "dumb",
                Machine("arm64", memory_mib=704, cma_mib=64, device_tree=DISPLAY),
                programs=("mke2fs",),
                allow=("allocation",),
                scratch_mib=(512,),
            )
        ],
        judges.dumb,
    ),
    GuestCheck(
        "guest: oracle on arm64, area from the device tree",
        "arm64",
        [
            oracle_job(
                "oracle-arm64",
                30,
                until=HITS,
                machine=_tree_machine('linux,gcma-clients = "file+swap";', memory_mib=704),
            )
        ],
        judge_oracle,
    ),
    GuestCheck(
        "rt: KUnit and oracle under PREEMPT_RT, lockdep and failing allocations",
        "rt",
        [
            kunit_job("kunit-rt", "x86-fast"),
            oracle_checked("oracle-rt", 300),
        ],
        judge_both(judge_kunit_rt),
        asked=True,
    ),
    GuestCheck(
        "kcsan: KUnit and oracle under KCSAN",
        "kcsan",
        [
            replace(job, allow=(*job.allow, "race"))
            for job in (
                replace(
                    kunit_job("kunit-kcsan", "x86-fast"), script=". /lib/oracle.sh\nkcsan_looked\n"
                ),
                oracle_job(
                    "oracle-kcsan",
                    60,
                    "--file-max-kib 1024 --alloc-workers 4 --alloc-pieces 4 --alloc-pins",
                    until=hits(100, discard=False),
                    after="kcsan_looked",
                    block=1024,
                    files=160,
                    anon=96,
                    hog=240,
                    largest=128,
                    machine=Machine("x86-fast", memory_mib=560, cma_mib=64),
                ),
            )
        ],
        judge_kcsan,
        asked=True,
    ),
    GuestCheck("guest: soak, a short round of a new seed", "gcma", run=soak.check),
    GuestCheck(
        "guest: KUnit on the Raspberry Pi 2 (rpi2), area in low memory",
        "rpi2",
        [kunit_job("kunit-rpi2", "rpi2", LOW)],
        judge_kunit_small,
    ),
    GuestCheck(
        "guest: oracle on the Raspberry Pi 2 (rpi2), area in high memory",
        "rpi2",
        [oracle_rpi2()],
        judge_high,
    ),
    *(
        GuestCheck(f"guest: recorder, {name}", "gcma", run=run, prepare=recorder.build)
        for name, run in recorder.CHECKS.items()
    ),
    *(
        GuestCheck(f"pdio: {name}", "storage", run=run, prepare=storage.build)
        for name, run in storage.CHECKS.items()
    ),
]


def _on_7_3(check: GuestCheck) -> GuestCheck:
    return replace(check, image=f"{check.image}-7.3")


def _on_6_12(check: GuestCheck) -> GuestCheck:
    jobs_there = [replace(job, name=f"{job.name}-6.12") for job in check.jobs]
    return replace(check, name=f"{check.name}, Linux 6.12", jobs=jobs_there)


# All on the kernel that they are for, then once more what is for both.
GUEST_CHECKS[:] = [
    *(
        _on_7_3(made) if made.image == "gcma" and made.on != OLDER else made
        for made in GUEST_CHECKS
    ),
    *(_on_6_12(made) for made in GUEST_CHECKS if made.on == BOTH),
]
