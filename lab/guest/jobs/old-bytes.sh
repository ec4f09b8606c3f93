# SPDX-License-Identifier: MIT OR Apache-2.0
# What an allocation returns after the area held pages of files and of programs, and what drivers
# left there: marks, of which none may be seen.

# The multi-generational LRU would evict pages of the file alone.
no_mglru
# And the lists, on a busy host, hardly any of programs.
echo 150 >/proc/sys/vm/swappiness
need zram_swap 160
need scratch /dev/vda
marks() { tr '\0' Z </dev/zero 2>/dev/null | head -c "$1"; }
marks 180m >/mnt/marks
mkdir /shm && need mount -t tmpfs -o size=250M tmpfs /shm
marks 160m >/shm/marks
cat /mnt/marks >/dev/null
# Reclaim chooses between the two; it is asked until it has taken enough of both.
round=0
while [ "$(cat /sys/kernel/mm/gcma/reserved/swap/stored)" -lt 1000 ] && [ $((round += 1)) -lt 20 ]; do
	cat /shm/marks /mnt/marks >/dev/null
done
statdump --label full
need sweep --sizes 16384,8000,64,1,1024 --reps 2 --zeroed --fill
cat /mnt/marks /shm/marks >/dev/null
need sweep --sizes 1024,16384 --reps 2 --zeroed --fill
