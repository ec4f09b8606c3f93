# SPDX-License-Identifier: MIT OR Apache-2.0
# Functions that every job has.

# zram_swap MIB: swap on compressed memory
zram_swap() {
	echo "${1}M" >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
}
# disk_swap DEVICE: swap on a disk
disk_swap() { mkswap "$1" >/dev/null && swapon "$1"; }
# scratch DEVICE [mke2fs words]: an ext4 filesystem on /mnt
scratch() {
	dev=$1; shift
	[ -f /etc/mtab ] || ln -sf /proc/mounts /etc/mtab
	/bin/mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0,hash_seed=6e6f636f-7079-4c61-8b01-000000000001 \
		-U 6e6f636f-7079-4c61-8b01-000000000002 "$@" "$dev" >/dev/null || return
	mkdir -p /mnt && mount -t ext4 "$dev" /mnt
}
# say TEXT: a progress line for whoever watches
say() { printf '{"type": "progress", "what": "%s"}\n' "$*"; }
# need COMMAND...: end the job when it fails
need() { "$@" || { echo "lab: failed: $*" >/dev/console; exit 1; }; }
# given_up: what `timeout -s KILL` ran has just failed; end the job unless it was by that
given_up() { [ $? = 137 ] || exit 1; }

# What distributions have on.
mglru() { echo y >/sys/kernel/mm/lru_gen/enabled; }
no_mglru() { echo n >/sys/kernel/mm/lru_gen/enabled; }
zswap() { echo y >/sys/module/zswap/parameters/enabled; }
mglru_seen() {
	printf '{"type": "mglru", "enabled": "%s"}\n' "$(cat /sys/kernel/mm/lru_gen/enabled)"
}

# phase NAME: the results that follow belong to it
phase() { printf '{"type": "phase", "name": "%s"}\n' "$1"; }
# memory_cgroups NAME...: those below /cgroup
memory_cgroups() {
	need mkdir /cgroup
	need mount -t cgroup2 none /cgroup
	echo +memory >/cgroup/cgroup.subtree_control || exit 1
	for name; do need mkdir "/cgroup/$name"; done
}
# within CGROUP COMMAND...
within() { sh -c 'echo $$ >/cgroup/$0/cgroup.procs && exec "$@"' "$@"; }
