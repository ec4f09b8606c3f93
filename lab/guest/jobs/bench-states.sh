# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocations from an area that is idle, full of clean pages, held in part, full of what programs use.
# `dmem` is how often the store itself is timed, `held` how often somebody holds some of the area,
# which can then not be taken to be free; plain CMA has neither.
allocate() { need sweep --sizes "$1" --reps "$2" --interval-ms "$3" --seed $seed; }
read_all() { cat /mnt/load.* >/dev/null; }

need zram_swap 1024
need scratch /dev/nullb0 -J size=16
phase idle
say "allocating from an idle area"
statdump --label idle
allocate $all_sizes $idle 1
[ -z "$dmem" ] || need sweep --dmem $dmem --reps $dmem_reps
say "writing files"
need load --dir /mnt --file-mib $files --prepare --seed $seed
phase clean
read_all
for n in $(seq $clean); do
	say "reading files, $n"
	read_all
	statdump --label clean
	allocate $all_sizes 1 0
done
if [ -n "$held" ]; then
	phase held
	sweep --sizes 64 --reps 1 --hold-ms 3600000 &
	holder=$!
	sleep 1
	for n in $(seq $held); do
		read_all
		allocate $sizes 1 0
	done
	kill $holder
	wait $holder
fi
phase anon
rm /mnt/load.*
say "letting programs use memory"
for n in $(seq $anon); do
	load --anon-mib $anon_mib --anon-workers 2 --seconds 3600 --seed $n &
	load=$!
	sleep 5
	killall -STOP load
	statdump --label anon
	allocate $all_sizes 1 0
	kill -TERM $load
	killall -CONT load
	need wait $load
done
phase end
statdump --label end
