# SPDX-License-Identifier: MIT OR Apache-2.0
# A block of memory inside a gigantic page, which could be moved out of the area or given up.

area=hugetlb0
. /lib/offline.sh
owned=/sys/kernel/mm/gcma/$area/owned
large=/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
echo 1 >$large
offline 1
[ "$(cat $large)" = 1 ] && [ "$(cat $owned)" = 262144 ] ||
	echo "{\"type\": \"broken\", \"why\": \"$(cat $large) gigantic pages, $(cat $owned) pages\"}"
need huge --kib 1048576
