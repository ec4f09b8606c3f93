# SPDX-License-Identifier: MIT OR Apache-2.0
# A block of memory with an area in ZONE_MOVABLE, from which all else could be moved away.

area=reserved
. /lib/offline.sh
start=$(awk '/zone +Movable/ { here = 1 } here && /start_pfn:/ { print $2; exit }' /proc/zoneinfo)
if [ -z "$start" ] || [ $base -lt $start ]; then
	echo '{"type": "broken", "why": "the area is not in ZONE_MOVABLE"}'
fi
offline 0
need sweep --sizes 16384 --reps 1 --fill
