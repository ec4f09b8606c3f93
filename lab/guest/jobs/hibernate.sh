# SPDX-License-Identifier: MIT OR Apache-2.0
# An image is written and read back by the same kernel, with copies of random content in the area.
. /lib/reclaimed.sh

need scratch /dev/vda
need disk_swap /dev/vdb
area=/sys/kernel/mm/gcma/reserved
need dd if=/dev/urandom of=/mnt/file bs=1M count=150 2>/dev/null
sum=$(md5sum </mnt/file)
# Or nearly: large folios need room for all of their pages.
full() {
	number=$(cat $area/file/cached)
	check "area full, $number" $((number > 12000)) 1
}
evict; cat /mnt/file >/dev/null; evict
full
cat /sys/class/block/vdb/dev >/sys/power/resume
echo test_resume >/sys/power/disk
need sh -c 'echo disk >/sys/power/state'
check "file" "$(md5sum </mnt/file)" "$sum"
evict; cat /mnt/file >/dev/null; evict
full
