# SPDX-License-Identifier: MIT OR Apache-2.0
# Gigantic pages from the area hugetlb0, while programs use the rest of memory and its copies are in
# the area; taken apart into pages of 2 MiB; and one page more than there is.

need zram_swap 512
need scratch /dev/vda
area=/sys/kernel/mm/gcma/hugetlb0
large=/sys/kernel/mm/hugepages/hugepages-1048576kB
small=/sys/kernel/mm/hugepages/hugepages-2048kB
has() { [ "$(cat $1)" = "$2" ] || { echo "lab: $1 is $(cat $1), not $2" >/dev/console; exit 1; }; }
full() { [ $(($(cat $area/file/cached) + $(cat $area/swap/cached))) -gt 20000 ]; }
load --dir /mnt --file-mib 600 --anon-mib 500 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
load=$!
for n in 1 2; do
	until full; do sleep 0.2; done
	echo 2 >$large/nr_hugepages
	has $large/nr_hugepages 1
	need huge --kib 1048576
	echo 1 >$large/demote
	has $small/nr_hugepages 512
	need huge --pages 512
	echo 0 >$small/nr_hugepages
	has $area/owned 0
done
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
