# SPDX-License-Identifier: MIT OR Apache-2.0
# Files so small that a node of shadow entries leads to two pages: thousands of them for a cgroup
# that has hardly any pages left itself.
. /lib/reclaimed.sh

need /bin/mke2fs -q -F -t ext4 -N 4096 /dev/vda
need mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
for i in $(seq 1500); do printf %8192d $i >/mnt/files/$i; done
again "files of two pages" /mnt/files "$(sum /mnt/files)"
report "files of two pages"
umount /mnt
