# SPDX-License-Identifier: MIT OR Apache-2.0
# The default of most distributions: what is allocated is cleared, before or in the allocation.

area=/sys/kernel/mm/gcma/reserved
need sweep --sizes 32768 --reps 1 --zeroed --fill
need sweep --sizes 32768 --reps 1 --zeroed --fill
echo 32768 >$area/prepare
need sweep --sizes 32768 --reps 1 --zeroed --fill
need sweep --sizes 32768 --reps 1 --zeroed --fill
echo none >$area/clients
echo 32768 >$area/prepare
need sweep --sizes 32768 --reps 1 --zeroed --fill
