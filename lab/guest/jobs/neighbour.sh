# SPDX-License-Identifier: MIT OR Apache-2.0
# What copies of files in tree/ do to somebody who reads a set of pages that fits: each `beside` is one
# measurement. In a memory cgroup of `limit` bytes below `group`; the set takes three quarters of it.
group=$group/neighbour.$$
export preload="env LD_PRELOAD=$library" pdio
cd "$where" || exit 1
mkdir "$group" tree && trap 'rmdir $group' EXIT || exit 1
# dash runs nothing on EXIT when a signal ends it
trap 'exit 143' TERM INT
limited=
for file in memory.max memory.limit_in_bytes; do
	[ ! -f "$group/$file" ] || { echo $limit >"$group/$file" && limited=yes; } || exit 1
done
[ -n "$limited" ] || { echo "a cgroup in ${group%/*} limits no memory" >&2; exit 1; }
for file in set tree/1 tree/2; do
	size=$limit
	[ $file != set ] || size=$((limit / 4 * 3))
	dd if=/dev/zero of=$file bs=1M count=$((size >> 20)) 2>/dev/null || exit 1
done
# beside NAME [COMMAND]
beside() {
	rm -rf copy
	sync
	for file in set tree/1 tree/2; do
		$pdio dd if=/dev/null of=$file oflag=nocache conv=notrunc status=none || exit 1
	done
	set -- --name "$1" ${2:+--beside "$2 && sync"}
	# shellcheck disable=SC2016 # for that shell
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" $neighbour --file set "$@" || exit 1
}
