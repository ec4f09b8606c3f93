# SPDX-License-Identifier: MIT OR Apache-2.0
# read() of several sizes; `words` are for the program.
echo 64M >/sys/block/zram1/disksize
need scratch /dev/zram1
say "reading in calls of several sizes"
need cost --file /mnt/file --calls $words
