# SPDX-License-Identifier: MIT OR Apache-2.0
# Each way of a page alone; `taken` pages of the area are somebody's. The block layer begins its search
# for a free request of null_blk at a random place, and a miss can be ten instructions dearer in one
# boot than in another. The driver of zram has no such search.
echo 64M >/sys/block/zram1/disksize
need zram_swap 64
need scratch /dev/zram1
if [ -n "$taken" ]; then
	sweep --sizes $taken --reps 1 --hold-ms 3600000 &
	sleep 1
fi
say "timing all ways"
need cost --file /mnt/file
