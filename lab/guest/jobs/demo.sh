# SPDX-License-Identifier: MIT OR Apache-2.0
# A load that wants more memory than there is, photos beside it, and allocations of all sizes.
say "preparing files"
need zram_swap $swap
need scratch /dev/nullb0 -J size=16
need load --dir /mnt --file-mib $files --prepare --seed $seed
sync; echo 3 >/proc/sys/vm/drop_caches
statdump --label start
say "load alone"
load --dir /mnt --file-mib $files --anon-mib $anon --seconds 3600 \
	--touches $touches --hot $hot --nice 10 --seed $seed &
load=$!
sleep $warm
phase quiet
sleep $quiet
phase shots
say "taking photos"
need camera $camera --shots $shots --interval-ms 100 --jitter-ms 100 --seed $seed
phase sweep
say "allocating"
need sweep --sizes $sizes --reps $reps --interval-ms 40 --seed $seed
phase end
kill -TERM $load
wait $load
status=$?
statdump --label end
exit $status
