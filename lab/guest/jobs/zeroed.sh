# SPDX-License-Identifier: MIT OR Apache-2.0
# Memory that becomes zeros while zswap, in front of a disk, may have what was there before.
. /lib/reclaimed.sh

zswap
need disk_swap /dev/vda
need zeroed --reclaim /cgroup/job/memory.reclaim
