# SPDX-License-Identifier: MIT OR Apache-2.0
# Images of a kernel whose area is lent to nobody: before it was used, and after a driver has filled it.

need disk_swap /dev/vdb
cat /sys/class/block/vdb/dev >/sys/power/resume
echo test_resume >/sys/power/disk
hibernate() { need sh -c 'echo disk >/sys/power/state'; }
hibernate
need sweep --sizes 16384 --reps 1 --fill
hibernate
