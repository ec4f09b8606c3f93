# SPDX-License-Identifier: MIT OR Apache-2.0
# Reads of pages in the area, into one piece of memory, into many, and into the memory of a device.
. /lib/reclaimed.sh

need scratch /dev/vda
need reread --file /mnt/file --mib 8 --prepare
cat /mnt/file >/dev/null
evict
cd /sys/kernel/tracing || exit
read_to() {
	echo >trace
	echo 1 >events/gcma/gcma_read/enable
	need reread --file /mnt/file --mib 8 --reads 500 $2
	echo 0 >events/gcma/gcma_read/enable
	printf '{"type": "destination", "to": "%s", "all": %d, "buffered": %d}\n' "$1" \
		"$(grep -c 'gcma_read: ' trace)" "$(grep -c 'gcma_read: .* buffered' trace)"
}
read_to one ""
read_to many "--pieces 1024"
read_to two "--pieces 2"
read_to device "--heap /dev/dma_heap/reserved"
