# SPDX-License-Identifier: MIT OR Apache-2.0
# Little memory and a small area, so that copies, allocations and loads meet all the time. `swap`,
# `mount`, `prepare` and `after` are commands, of which lib/oracle.sh has many.
. /lib/oracle.sh

need $swap
eval "$mount"
eval "$prepare"
statdump --label start
oracle --dir /mnt --file-mib $files --anon-mib $anon --shmem-mib 16 --hog-mib $hog \
	--alloc --alloc-max-pages $largest --seconds $seconds $words
status=$?
statdump --label end
eval "$after"
umount /mnt || exit 1
exit $status
