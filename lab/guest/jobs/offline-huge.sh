# SPDX-License-Identifier: MIT OR Apache-2.0
# A block of memory inside a gigantic page, which could be moved out of the area or given up.

area=/sys/kernel/mm/gcma/hugetlb0
large=/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
echo 1 >$large
base=$(cat /sys/kernel/debug/cma/hugetlb0/base_pfn)
block=$((base * 4096 / 0x$(cat /sys/devices/system/memory/block_size_bytes) + 1))
answer=$(timeout 60 sh -c "echo offline >/sys/devices/system/memory/memory$block/state" 2>&1)
case $answer in
*"resource busy"*) ;;
*) echo "{\"type\": \"broken\", \"why\": \"offlining said: $answer\"}" ;;
esac
[ "$(cat $large)" = 1 ] && [ "$(cat $area/owned)" = 262144 ] ||
	echo "{\"type\": \"broken\", \"why\": \"$(cat $large) gigantic pages, $(cat $area/owned) pages\"}"
need huge --kib 1048576
