# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocations that are cleared; `prepared` of them with memory that was cleared ahead.
phase unprepared
need sweep --sizes $largest --reps $reps --interval-ms 0 --seed $seed
[ -n "$prepared" ] || exit 0
phase prepared
for n in $(seq $prepared); do
	echo $largest >/sys/kernel/mm/gcma/reserved/prepare
	need sweep --sizes $largest --reps 1 --interval-ms 0 --seed $seed
done
