# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocations that are as long as they can be, while programs fill the area.

need zram_swap 256
need scratch /dev/nullb0 -J size=16
load --dir /mnt --file-mib 160 --anon-mib 160 --seconds 3600 --nice 10 >/tmp/load &
load=$!
until [ "$(cat /sys/kernel/mm/gcma/reserved/file/cached)" -gt 5000 ]; do sleep 0.1; done
# No other task takes the processor from an allocation.
need sweep --fifo --random --count 600 --max-pages 2048
need sweep --fifo --sizes 1,64,1024,16384,32000 --reps 20 --interval-ms 2
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
