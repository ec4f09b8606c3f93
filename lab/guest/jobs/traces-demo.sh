# SPDX-License-Identifier: MIT OR Apache-2.0
# The demonstration's load with photos, a quarter of its size.
. /lib/traces.sh

need zram_swap 128
need load --dir /mnt --file-mib 100 --prepare --seed $seed
begin
say "the demonstration's load"
load --dir /mnt --file-mib 100 --anon-mib 190 --seconds 3600 --touches 64 --hot 30 --nice 10 \
	--seed $seed &
load=$!
sleep $warm
say "taking photos"
need camera --width 1920 --height 1080 --buffers 6 --shots 10 --interval-ms 200 --jitter-ms 100 \
	--seed $seed
sleep $warm
kill -TERM $load
need wait $load
end
