# SPDX-License-Identifier: MIT OR Apache-2.0
# Files of f2fs and btrfs that are given other blocks while their pages are not resident, and of ext4
# while they are; and files whose blocks are written to without their file system, by whoever had
# them pinned or by swapping. What is kept of them must not be found again.
. /lib/reclaimed.sh

# content STEP: 1 MiB that depend on it
content() { seq 0 $1 99999999 | head -c 1m; }
of() { md5sum </mnt/files/$1; }
reclaim='for i in 1 2 3; do echo 64M >/cgroup/job/memory.reclaim; done 2>/dev/null'
need /bin/mkfs.f2fs -q -f -t 0 /dev/vda >/dev/null
need mount -t f2fs /dev/vda /mnt
mkdir /mnt/files

# move WHEN: all of 1 becomes the content of 2
move() {
	from=$(of 1)
	eval "$reclaim"
	need blocks --from /mnt/files/1 --to /mnt/files/2
	check "blocks of another file, $1" "$(of 2)" "$from"
	eval "$reclaim"
	check "and read again, $1" "$(of 2)" "$from"
	check "blocks that went away, $1" "$(of 1)" "$(head -c 1m /dev/zero | md5sum)"
}
content 3 >/mnt/files/1
content 7 >/mnt/files/2
# A request that changes nothing costs no copies.
need blocks --refused /mnt/files/1
again "two files" /mnt/files "$(sum /mnt/files)"
report "two files"
move "from a checkpoint"
rm /mnt/files/*
# Blocks that no checkpoint has are moved as they are, others are copied.
content 9 | dd of=/mnt/files/1 bs=64k conv=fsync 2>/dev/null
content 5 | dd of=/mnt/files/2 bs=64k conv=fsync 2>/dev/null
move "since then"

# Pages that are evicted and read before the commit have the old content.
content 9 >/mnt/files/3
content 5 >/tmp/new
evict
need blocks --atomic /mnt/files/3 --run "sync; $reclaim; cat /mnt/files/3 >/dev/null" </tmp/new
evict
check "written atomically" "$(of 3)" "$(md5sum </tmp/new)"
evict
check "and read again" "$(of 3)" "$(md5sum </tmp/new)"

# What is pinned has its blocks from the beginning, and is written to without the file system.
direct() { dd if=/mnt/files/$1 iflag=direct bs=64k 2>/dev/null | md5sum; }
twice() { content $1 && content $1; }
# under WHEN STEP
under() {
	of pinned >/dev/null
	evict
	twice $2 | need blocks --under /mnt/files/pinned --disk /dev/vda || exit 1
	check "the blocks of a pinned file, $1" "$(direct pinned)" "$(twice $2 | md5sum)"
	check "a pinned file, $1" "$(of pinned)" "$(twice $2 | md5sum)"
}
: >/mnt/files/pinned
need blocks --pin /mnt/files/pinned
need fallocate -l 2M /mnt/files/pinned
twice 3 | dd of=/mnt/files/pinned bs=64k conv=notrunc 2>/dev/null
under "since it was pinned" 5
umount /mnt
need mount -t f2fs /dev/vda /mnt
under "mounted again" 7
umount /mnt

# The pages of a donor stay as they are when its blocks are exchanged.
need scratch /dev/vdb
mkdir /mnt/files
content 3 >/mnt/files/original
# exchange DONOR COMMAND: which is run between the exchange and the eviction
exchange() {
	content 7 >/mnt/files/$1
	# Resident, and not copies that are read where they are.
	sync
	echo 3 >/proc/sys/vm/drop_caches
	cat /mnt/files/* >/dev/null
	need blocks --from /mnt/files/original --donor /mnt/files/$1
	eval "$2"
	evict
	kept=$(of $1)
	check "original" "$(of original)" "$(content 3 | md5sum)"
	echo 3 >/proc/sys/vm/drop_caches
	check "$1" "$kept" "$(of $1)"
}
exchange donor true
exchange journalled "need chattr +j /mnt/files/journalled; need chattr -j /mnt/files/journalled"

# Memory that is swapped out goes to the blocks of the file, and not through its pages.
seq 0 3 99999999 | head -c 16m >/mnt/files/swap
need mkswap /mnt/files/swap >/dev/null
evict
written=$(of swap)
evict
need swapon /mnt/files/swap
mkdir /shm && need mount -t tmpfs none /shm
head -c 8m /dev/urandom >/shm/file
eval "$reclaim"
need swapoff /mnt/files/swap
umount /shm
now=$(direct swap)
swapped=$([ "$now" = "$written" ] || echo yes)
check "memory was swapped out to the file" "$swapped" yes
check "a file that was swapped to" "$(of swap)" "$now"
umount /mnt

# A clone that is killed has replaced a part. Each of so many extents takes it a while.
need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null
need mount -t btrfs /dev/vda /mnt
mkdir /mnt/files
fill() { seq 0 $1 99999999 | head -c 16m | dd of=/mnt/files/$2 bs=$3 iflag=fullblock oflag=direct 2>/dev/null; }
fill 3 original 4k
whole=$(of original)
for wait in 0.05 0.1 0.2 0.4 0.8 1.6; do
	fill 7 clone 64k
	old=$(of clone)
	evict
	blocks --from /mnt/files/original --clone /mnt/files/clone &
	sleep $wait
	kill -9 $!
	wait $!
	read=$(of clone)
	now=$(direct clone)
	check "a part of a clone" "$read" "$now"
	[ "$now" = "$old" ] || [ "$now" = "$whole" ] || break
	rm /mnt/files/clone
done 2>/dev/null
[ "$now" != "$old" ] && [ "$now" != "$whole" ]
check "the clone was killed in the middle" $? 0
umount /mnt
