# SPDX-License-Identifier: MIT OR Apache-2.0
# Refusals, and what runs under each: `rust` is a test of crates/brug/tests/process.rs, `c` a kind of
# tests/programs/faults.c under libbrug.so, `same` a program that says the same as without it,
# `limits` how much there is for objects of five sizes, for others after six uses of memory, and for one
# that `fork` has to promise again, compared with the C library. Before that, all of
# $tests and $sequences of the test of that name, under no refusal.
. /lib/tests.sh

export RUST_BACKTRACE=1 TMPDIR=/tmp
rust() { run "$condition: $1" passed 1 /brug/process --exact "$1" --test-threads=1 --show-output; }
c() {
	for settings in BRUG_ALLOC=auto "BRUG_ALLOC=mmap BRUG_RETAIN=0" \
		"BRUG_BASE=glibc BRUG_THP=always" "BRUG_BASE=mimalloc BRUG_SWITCH_POINT=4K"; do
		run "$condition: faults $1, $settings" \
			env $settings LD_PRELOAD=/brug/libbrug.so /brug/faults "$1"
	done
}
same() {
	what=$1; shift
	"$@" >/tmp/expected 2>&1 </dev/null
	expected=$?
	env LD_PRELOAD=/brug/libbrug.so "$@" >/tmp/got 2>&1 </dev/null
	got=$?
	run "$condition: $what as under the C library" sh -c \
		"[ $got = $expected ] && [ $expected = 0 ] && cmp /tmp/expected /tmp/got"
}
real() {
	[ -n "$programs" ] || return 0
	same sort /brug/sort -S 24M --parallel=2 -T /tmp /brug/lines
	same sqlite3 /brug/sqlite3 -batch :memory: "$SQL"
}
# The C library gets some, and brug the share of it.
enough() { [ "${theirs:-0}" -gt 0 ] && [ $((${ours:-0} * 100)) -ge $((theirs * least)) ]; }
limits() {
	for size in 200 20480 153600 1048576 5242880; do
		theirs=$(/brug/limits $size)
		for base in auto glibc mimalloc; do
			ours=$(env BRUG_BASE=$base LD_PRELOAD=/brug/libbrug.so /brug/limits $size)
			# mimalloc rounds 200 bytes up to 224, the C library to 208. Of 20480 it has 63 times
			# 25 objects in 32 MiB, which is 0.96 of that.
			case $base$size in
			mimalloc200) least=88 ;;
			mimalloc20480) least=93 ;;
			*) least=95 ;;
			esac
			echo "lab: $size bytes, base $base: $((${ours:-0} / (${theirs:-0} / 1000 + 1)))" \
				"thousandths of the C library's $theirs" >/dev/console
			run "$condition: enough of $size bytes, base $base" enough
		done
	done
	least=95
	for kind in freed large-freed many-freed shrunk many-shrunk grown; do
		theirs=$(/brug/elsewhere $kind map 400 never)
		ours=$(LD_PRELOAD=/brug/libbrug.so /brug/elsewhere $kind map 400 never)
		echo "lab: beside $kind memory: $((${ours:-0} / (${theirs:-0} / 1000 + 1)))" \
			"thousandths of the C library's $theirs" >/dev/console
		run "$condition: enough is left beside $kind memory" enough
	done
	theirs=$(/brug/forks)
	ours=$(LD_PRELOAD=/brug/libbrug.so /brug/forks)
	echo "lab: fork beside $ours MiB, with the C library beside $theirs" >/dev/console
	run "$condition: fork beside as much" enough
}
SQL="create table t(w); with recursive n(i) as (select 1 union all select i + 1 from n
	where i < 20000) insert into t select printf('%08x', i * 2654435761 % 4294967296) from n;
	create index i on t(w); select count(*), min(w), max(w) from t;
	select length(group_concat(w, ',')) from t;
	with recursive s(x, n) as (select 'ab', 1 union all select x || x, n + 1 from s where n < 20)
	select n, length(x) from s; pragma integrity_check;"

for test in $tests; do run "$test" "/brug/$test" --test-threads=2 --show-output; done
# shellcheck disable=SC2086 # words
[ -z "$sequences" ] || run sequences passed "$(set -- $sequences; echo $#)" \
	/brug/sequences --exact $sequences --show-output

condition=swapless
rust an_idle_process_gives_its_memory_back_and_loses_the_thread
rust a_child_of_a_busy_process_can_use_everything

condition=mlockall
rust locked_memory_is_what_is_used_and_not_what_is_reserved
c locked

condition="strict overcommit"
echo 2 >/proc/sys/vm/overcommit_memory
echo 393216 >/proc/sys/vm/overcommit_kbytes
before=$(cat /proc/sys/vm/user_reserve_kbytes)
echo 0 >/proc/sys/vm/user_reserve_kbytes
rust strict_overcommit_is_lived_with
c overcommit
limits
real
echo $before >/proc/sys/vm/user_reserve_kbytes
condition="strict overcommit on a small machine"
limits
echo 0 >/proc/sys/vm/overcommit_memory

condition="few mappings"
before=$(cat /proc/sys/vm/max_map_count)
echo 1500 >/proc/sys/vm/max_map_count
rust used_up_mappings_are_lived_with
c few-mappings
c mappings
real
echo $before >/proc/sys/vm/max_map_count

condition="no huge pages"
echo never >/sys/kernel/mm/transparent_hugepage/enabled
rust huge_pages_that_the_machine_denies_are_not_asked_for
real
condition="huge pages unasked"
echo always >/sys/kernel/mm/transparent_hugepage/enabled
rust huge_pages_that_nobody_asked_for_do_not_swell_small_objects
rust a_vector_gets_huge_pages_where_the_machine_has_them
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
condition="huge pages when asked"
rust a_vector_gets_huge_pages_where_the_machine_has_them

condition="memory cgroup"
mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 1
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/outer || exit 1
echo +memory >/sys/fs/cgroup/outer/cgroup.subtree_control
mkdir /sys/fs/cgroup/outer/inner
echo 96M >/sys/fs/cgroup/outer/inner/memory.max
echo $$ >/sys/fs/cgroup/outer/inner/cgroup.procs
c memory-cgroup
real
echo $$ >/sys/fs/cgroup/cgroup.procs
