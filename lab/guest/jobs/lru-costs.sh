# SPDX-License-Identifier: MIT OR Apache-2.0
# Pages that are evicted and come back by a copy at once, under the multi-generational LRU: it counts
# what comes back early, and weighs its tiers by that.
mglru
need zram_swap 64
need scratch /dev/vda
event() { sed -n "s/^$1 //p" /proc/vmstat; }
events() { echo $(($(event $1_file) + $(event $1_$2))); }
# Linux 7.3 counts what comes back by a fault alone among those that come back early.
case $(uname -r) in 6.*) early=workingset_activate ;; *) early=workingset_refault ;; esac
loads=$(events gcma_load swap)
recent=$(events $early anon)
need cost --file /mnt/file --batches 64
printf '{"type": "lru", "loads": %d, "recent": %d, "weighed": %d}\n' \
	$(($(events gcma_load swap) - loads)) $(($(events $early anon) - recent)) \
	"$(grep -o ' [0-9]*r' /sys/kernel/debug/lru_gen_full | awk '{ n += $1 } END { print n + 0 }')"
umount /mnt
