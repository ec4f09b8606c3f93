# SPDX-License-Identifier: MIT OR Apache-2.0
# In real time: the same work in the same order.
allocate() { need sweep --sizes $sizes --reps "$1" --interval-ms 0 --seed $seed; }
read_all() { cat /mnt/load.* >/dev/null; }

echo 64M >/sys/block/zram1/disksize
need scratch /dev/zram1
for n in $(seq $calls); do need cost --file /mnt/file --calls $words; done
umount /mnt
# What its RAM is in gets its own memory when it is written for the first time.
sweep --sizes $whole --reps 1 --fill >/dev/null
need scratch /dev/nullb0 -J size=16
phase idle
allocate $idle
[ -z "$dmem" ] || need sweep --dmem $dmem --reps $dmem_reps
say "writing files"
need load --dir /mnt --file-mib $files --prepare --seed $seed
phase clean
for n in $(seq $clean); do
	read_all
	allocate 1
done
