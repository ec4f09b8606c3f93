# SPDX-License-Identifier: MIT OR Apache-2.0
# Images are written and read back by the same kernel: one before anything was in the area, and one
# with copies of random content in it.
. /lib/reclaimed.sh

need scratch /dev/vda
need disk_swap /dev/vdb
area=/sys/kernel/mm/gcma/reserved
cat /sys/class/block/vdb/dev >/sys/power/resume
echo test_resume >/sys/power/disk
hibernate() { need sh -c 'echo disk >/sys/power/state'; }
full() {
	page_by_page
	number=$(cat $area/file/cached)
	check "area full, $number" $((number > 16300)) 1
}
hibernate
need dd if=/dev/urandom of=/mnt/file bs=1M count=150 2>/dev/null
sum=$(md5sum </mnt/file)
evict
full
hibernate
check "file" "$(md5sum </mnt/file)" "$sum"
evict
full
