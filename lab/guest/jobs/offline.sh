# SPDX-License-Identifier: MIT OR Apache-2.0
# A block of memory with an area in ZONE_MOVABLE, from which all else could be moved away.

base=$(cat /sys/kernel/debug/cma/reserved/base_pfn)
start=$(awk '/zone +Movable/ { here = 1 } here && /start_pfn:/ { print $2; exit }' /proc/zoneinfo)
if [ -z "$start" ] || [ $base -lt $start ]; then
	echo '{"type": "broken", "why": "the area is not in ZONE_MOVABLE"}'
fi
block=$((base * 4096 / 0x$(cat /sys/devices/system/memory/block_size_bytes)))
answer=$(timeout 60 sh -c "echo offline >/sys/devices/system/memory/memory$block/state" 2>&1)
case $answer in
*"resource busy"*) ;;
*) echo "{\"type\": \"broken\", \"why\": \"offlining said: $answer\"}" ;;
esac
need sweep --sizes 16384 --reps 1 --fill
