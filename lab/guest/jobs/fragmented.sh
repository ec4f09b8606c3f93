# SPDX-License-Identifier: MIT OR Apache-2.0
# $command under an allocator, where memory is as `memory` says: fresh, pinned (no free huge page, and
# none can be made), movable (half of each one in use) or merged (the same, with khugepaged at work).
# `ask` is who gets huge pages: those that ask for them (madvise), or all (always).
thp=/sys/kernel/mm/transparent_hugepage

echo $ask >$thp/enabled
echo $ask >$thp/defrag
spread=
case $memory in
pinned) spread="--pinned" ;;
movable | merged) spread="--keep 256" ;;
esac
if [ $memory = merged ]; then
	echo defer >$thp/defrag
	echo 4096 >$thp/khugepaged/pages_to_scan
	echo 10 >$thp/khugepaged/scan_sleep_millisecs
	echo 10 >$thp/khugepaged/alloc_sleep_millisecs
fi
events() { grep -E '^(thp_fault_alloc|thp_fault_fallback|thp_collapse_alloc|compact_stall) ' /proc/vmstat; }
events >/tmp/before
# shellcheck disable=SC2086 # words
if [ -n "$spread" ]; then
	need fragment $spread --then "$environment $command >/tmp/said"
else
	need sh -c "$environment $command >/tmp/said"
fi
events | while read -r name count; do
	before=$(sed -n "s/^$name //p" /tmp/before)
	printf '{"type": "event", "name": "%s", "count": %d}\n' "$name" $((count - before))
done
printf '{"type": "work", "data": %s}\n' "$(cat /tmp/said)"
