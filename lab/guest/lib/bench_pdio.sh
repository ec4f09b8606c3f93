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
	echo "+memory +io" >/cg/cgroup.subtree_control
	mkdir -p /cg/all
	echo $$ >/cg/all/cgroup.procs
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
