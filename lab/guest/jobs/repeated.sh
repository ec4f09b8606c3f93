# SPDX-License-Identifier: MIT OR Apache-2.0
# What the demonstration does, in short: a disk and swap in memory, programs that wait for both,
# photos.

need zram_swap 128
need scratch /dev/nullb0 -J size=16
need load --dir /mnt --file-mib 128 --prepare --seed 1
sync; echo 3 >/proc/sys/vm/drop_caches
load --dir /mnt --file-mib 128 --anon-mib 256 --seconds 3600 --nice 10 --seed 1 &
load=$!
sleep 1
need camera --width 640 --height 480 --buffers 4 --shots 5 --interval-ms 50 --jitter-ms 50 --seed 1
need sweep --sizes 64,4096,32768 --reps 3 --interval-ms 20 --seed 1
kill -TERM $load
wait $load || exit 1
statdump --label end
