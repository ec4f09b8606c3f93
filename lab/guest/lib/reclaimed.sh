# SPDX-License-Identifier: MIT OR Apache-2.0
# Files on /mnt, in a cgroup from which all that is cached can be reclaimed.
[ -f /etc/mtab ] || ln -sf /proc/mounts /etc/mtab
memory_cgroups job
echo $$ >/cgroup/job/cgroup.procs || exit 1
# The multi-generational LRU would keep some.
no_mglru
# Everything that is cached leaves memory, and is kept.
evict() {
	sync
	before=$(count store_file)
	for _ in 1 2 3; do echo 64M >/cgroup/job/memory.reclaim; done 2>/dev/null
	stored=$(($(count store_file) - before))
}
# Read /mnt/file, of /dev/vda, in folios of one page, for which there is always room, and evict it.
page_by_page() {
	ahead=/sys/class/block/vda/queue/read_ahead_kb
	usual=$(cat $ahead)
	echo 0 >$ahead
	cat /mnt/file >/dev/null
	echo $usual >$ahead
	evict
}
count() { sed -n "s/^gcma_$1 //p" /proc/vmstat; }
served() { echo $(($(count load_file) + $(count read_file))); }
report() {
	printf '{"type": "kept", "of": "%s", "stored": %d, "read": %d}\n' "$1" $kept $reads
}
sum() { (cd $1 && cat * | md5sum); }
check() {
	if [ "$2" != "$3" ]; then
		printf '{"type": "broken", "why": "%s: %s and not %s"}\n' "$1" "$2" "$3"
		exit 1
	fi
}
# again WHAT DIRECTORY SUM: out of memory with it, and back
again() {
	evict
	kept=$stored
	reads=$(served)
	check "$1 read again" "$(sum $2)" "$3"
	reads=$(($(served) - reads))
}
