# SPDX-License-Identifier: MIT OR Apache-2.0
# Every trace event once.
. /lib/oracle.sh

need scratch /dev/vda
cd /sys/kernel/tracing || exit
echo 1 >events/gcma/enable
need oracle --dir /mnt --file-mib 32 --anon-workers 0 --races 1 --seconds 3 \
	--until gcma_store_file=1,gcma_load_file=1,gcma_read_file=1 $words
need sweep --reps 1 --sizes 64
for event in alloc free store load read; do
	echo "{\"type\": \"trace\", \"lines\": $(grep -c "gcma_$event: " trace)}"
done
