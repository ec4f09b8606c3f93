# SPDX-License-Identifier: MIT OR Apache-2.0
# What `pdio bench` needs on a board.

# bench NAME WORDS...: one pdio bench, in one line
bench() {
	name=$1; shift
	say "$name"
	data=$(pdio bench "$@" --json - /mnt 2>/tmp/said) || { cat /tmp/said >/dev/console; exit 1; }
	printf '{"type": "bench", "name": "%s", "data": %s}\n' "$name" "$data"
}

# Memory cgroups for pdio bench. Those of version 1: in a small one of version 2, whose writeback is
# its own, buffered writes now and then wait two seconds for nothing.
old_cgroups() { need mount -t cgroup -o memory none /sys/fs/cgroup; }
# The only ones that limit a disk for writeback too are of version 2. All processes are in one, so
# that pdio bench can make none below it.
limited_disk() {
	mkdir -p /cg
	need mount -t cgroup2 none /cg
	echo "+memory +io" >/cg/cgroup.subtree_control || exit 1
	mkdir -p /cg/all
	echo $$ >/cg/all/cgroup.procs || exit 1
	echo "8:0 $*" >/cg/all/io.max
	need grep -q 'bps=[0-9]' /cg/all/io.max
	need mount --bind /cg/all /sys/fs/cgroup
	need umount -l /cg
}

on_ext4() { need scratch "$1"; }
on_xfs() {
	need /bin/mkfs.xfs -q -f -K "$1"
	mkdir -p /mnt
	need mount -t xfs "$1" /mnt
}
on_btrfs() {
	need /bin/mkfs.btrfs -q -f -K "$1" >&2
	need mount -t btrfs "$1" /mnt
}
on_f2fs() {
	need /bin/mkfs.f2fs -q -f -t 0 "$1" >&2
	need mount -t f2fs "$1" /mnt
}
on_tmpfs() { need mount -t tmpfs -o size=512m none /mnt; }

# What fio finds is what the processes of pdio bench find.
fio_cgroup=/sys/fs/cgroup/fio

# begin_fio CACHE MIB: a cgroup with so many MiB, files to fill it and to read
begin_fio() {
	printf '{"type": "fio_version", "version": "%s"}\n' "$(fio --version)"
	need mkdir $fio_cgroup
	echo "$1M" >$fio_cgroup/memory.limit_in_bytes || exit 1
	need pdio dd if=/dev/zero of=/mnt/filler bs=1M count="$1" conv=fsync 2>/dev/null
	need pdio dd if=/dev/zero of=/mnt/old bs=1M count="$2" conv=fsync 2>/dev/null
}
# shellcheck disable=SC2016 # for that shell
in_fio_cgroup() { sh -c 'echo $$ >$0/cgroup.procs && exec "$@"' $fio_cgroup "$@"; }
# stream_fio DIRECTION BLOCK DEPTH FALLOCATE COMMAND...: passes until they took half a second
#
# Each is a process of its own, so that what a write leaves is removed between two of them, which
# is no part of either. fio tells milliseconds, rounded up.
stream_fio() {
	direction=$1 block=$2 depth=$3 fallocate=$4 kib=0 ms=0
	shift 4
	say "fio: $direction of $block, depth $depth, fallocate=$fallocate"
	case $direction in
	read) columns=6,9 ;;
	write) columns=47,50 ;;
	esac
	need in_fio_cgroup cat /mnt/filler >/dev/null
	while [ $ms -lt 500 ]; do
		rm -f /mnt/new
		# These kernels have no System V shared memory, which fio asks for.
		said=$(in_fio_cgroup env LD_PRELOAD=/lib/shm.so "$@" 2>/tmp/said) ||
			{ cat /tmp/said >/dev/console; exit 1; }
		moved=$(echo "$said" | cut -d';' -f$columns)
		kib=$((kib + ${moved%;*})) ms=$((ms + ${moved#*;}))
	done
	printf '{"type": "fio", "direction": "%s", "block": %d, "depth": %d, "fallocate": "%s", ' \
		$direction $block $depth $fallocate
	printf '"bytes": %d, "ms": %d}\n' $((kib * 1024)) $ms
}
