# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings under a load, while somebody takes contiguous memory of other sizes again and again.
. /lib/record.sh

prepare_recorders load_files
phase switches
begin_load
sweep --sizes $sizes --reps 100000 --hold-ms $hold_ms --interval-ms $interval_ms &
switching=$!
eval "$beside"
need kill -TERM $switching
phase end
end_load
