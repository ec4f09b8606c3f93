# SPDX-License-Identifier: MIT OR Apache-2.0
# Direct writes that end late, over pages that are read and evicted meanwhile, on ext4 and XFS; also
# some that fail when a part has been written.
. /lib/reclaimed.sh

try() {
	for fails in '' --fails; do
		need dd if=/dev/zero of=/mnt/file bs=4k count=64 conv=fsync 2>/dev/null
		need late --file /mnt/file --turns 64 --reclaim /cgroup/job/memory.reclaim $fails
	done
	need umount /mnt
}

need scratch /dev/vda
try
mkdir -p /mnt
need /bin/mkfs.xfs -q -f -K /dev/vdb
need mount -t xfs /dev/vdb /mnt
try
