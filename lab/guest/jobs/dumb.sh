# SPDX-License-Identifier: MIT OR Apache-2.0
# Buffers of a display, while programs fill the area.

need zram_swap 256
need scratch /dev/vda
area=/sys/kernel/mm/gcma/reserved
load --dir /mnt --file-mib 300 --anon-mib 300 --readers 2 --seconds 3600 --nice 10 >/tmp/load &
load=$!
until [ "$(cat $area/file/cached)" -gt 5000 ]; do sleep 0.2; done
need drm
statdump --label end
kill -TERM $load
wait $load || exit 1
grep '"type":"load"' /tmp/load
