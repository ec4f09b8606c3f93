# SPDX-License-Identifier: MIT OR Apache-2.0
# Drivers of all kinds, while programs want more memory than there is.

need zram_swap 256
need scratch /dev/vda
load --dir /mnt --file-mib 300 --anon-mib 300 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
sleep 5
need camera --shots 5
need heap --reps 5
need sweep --random --count 500 --max-pages 8192
need sweep --random --count 300 --max-pages 8192 --dma
statdump --label end
kill -TERM $!
wait $! || exit 1
grep '"type":"load"' /tmp/load
