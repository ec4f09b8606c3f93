# SPDX-License-Identifier: MIT OR Apache-2.0
# Many more nodes of shadow entries than the memory of the cgroup has room for, each with an inode,
# beside an area that has room for the pages of all of them. Inodes and nodes are freed a grace
# period after reclaim let them go, and a cgroup at its maximum does not wait for that: it runs out
# of memory here with plain CMA as well, in three boots of eight. So it is throttled at memory.high.
. /lib/reclaimed.sh

need /bin/mke2fs -q -F -t ext4 -N 50000 /dev/vda
need mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
for i in $(seq 40000); do printf %8192d $i >/mnt/files/$i; done
want=$(sum /mnt/files)
umount /mnt
need mount -t ext4 /dev/vda /mnt
echo 12M >/cgroup/job/memory.high
echo 16M >/cgroup/job/memory.max
kernel_kib() { awk '/^slab / { print int($2 / 1024) }' /cgroup/job/memory.stat; }
for n in 1 2; do
	check "files of two pages" "$(sum /mnt/files)" "$want"
done
printf '{"type": "nodes", "slab_kib": %d, ' "$(kernel_kib)"
# Inodes and nodes yield, and a program gets most of the memory.
for n in $(seq 50); do
	echo 16M >/cgroup/job/memory.reclaim
	sleep 0.1
	[ "$(cat /cgroup/job/memory.current)" -gt $((3 << 20)) ] || break
done 2>/dev/null
echo max >/cgroup/job/memory.high
dd if=/dev/zero of=/dev/null bs=12M count=1 2>/dev/null
printf '"slab_kib_after": %d, "stored": %d, "oom_kill": %d}\n' "$(kernel_kib)" \
	"$(count store_file)" "$(sed -n 's/^oom_kill //p' /cgroup/job/memory.events)"
umount /mnt
