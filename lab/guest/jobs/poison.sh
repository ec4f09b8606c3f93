# SPDX-License-Identifier: MIT OR Apache-2.0
# Memory that breaks: in a frame that is allocated, in one that is idle, in some that hold copies.
# The area has 16384 frames; 11368 are left behind the last broken one.
. /lib/reclaimed.sh

need scratch /dev/vda
area=/sys/kernel/mm/gcma/reserved
base=$(cat /sys/kernel/debug/cma/reserved/base_pfn)
# full LESS: as many copies as fit beside LESS broken frames. Large folios would leave some room, as
# they are kept whole or not at all; and so do pages that one round of reclaim leaves in memory.
full() {
	for _ in 1 2 3 4 5; do
		page_by_page
		[ "$(cat $area/file/cached)" = $((16384 - $1)) ] && return
	done
	is file/cached $((16384 - $1))
}
is() { check "$1" "$(cat $area/$1)" "$2"; }
break_frame() { echo $((base + $1)) >/sys/kernel/debug/hwpoison/corrupt-pfn; }
need dd if=/dev/urandom of=/mnt/file bs=1M count=200 2>/dev/null
sum=$(md5sum </mnt/file)

sweep --sizes 16384 --reps 1 --hold-ms 3600000 &
holder=$!
until [ "$(cat $area/owned)" = 16384 ]; do sleep 0.1; done
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
# Copies of large folios, where there are some, and then of pages.
for n in $(seq 5000 5007); do break_frame $n; done
is poisoned 10
for n in 1 2; do check "file with broken copies, $n" "$(md5sum </mnt/file)" "$sum"; evict; done
full 10
for n in $(seq 5008 5015); do break_frame $n; done
is poisoned 18
is file/cached $((16384 - 18))
for n in 1 2; do check "file with more of them, $n" "$(md5sum </mnt/file)" "$sum"; evict; done
full 18

need sweep --sizes 11368,8000,1,64 --reps 2 --fill
is alloc_fails 0
sweep --sizes 11369 --reps 1
is alloc_fails 1
is owned 18
# Frames that are out of use have one reference more, as other broken pages have.
for frame in 7 100; do
	if echo $((base + frame)) 2>/dev/null >/sys/kernel/debug/hwpoison/unpoison-pfn; then
		check "frame $frame" "taken for a good one" "broken"
	fi
done
# Linux 6.12 does not count them.
available=/sys/kernel/mm/cma/reserved/available_pages
[ ! -f $available ] || check "available pages" "$(cat $available)" $((16384 - 18))
