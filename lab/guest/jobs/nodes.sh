# SPDX-License-Identifier: MIT OR Apache-2.0
# Many more nodes of shadow entries than the memory of the cgroup has room for, each with an inode,
# beside an area that has room for the pages of all of them.
. /lib/reclaimed.sh

need /bin/mke2fs -q -F -t ext4 -N 50000 /dev/vda
need mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
for i in $(seq 40000); do printf %8192d $i >/mnt/files/$i; done
want=$(sum /mnt/files)
umount /mnt
need mount -t ext4 /dev/vda /mnt
echo 16M >/cgroup/job/memory.max
kernel_kib() { awk '/^slab / { print int($2 / 1024) }' /cgroup/job/memory.stat; }
for n in 1 2; do
	check "files of two pages" "$(sum /mnt/files)" "$want"
done
printf '{"type": "nodes", "slab_kib": %d, ' "$(kernel_kib)"
# Inodes and nodes yield to a program that wants most of the memory.
dd if=/dev/zero of=/dev/null bs=12M count=1 2>/dev/null
printf '"slab_kib_after": %d, "stored": %d, "oom_kill": %d}\n' "$(kernel_kib)" \
	"$(count store_file)" "$(sed -n 's/^oom_kill //p' /cgroup/job/memory.events)"
umount /mnt
