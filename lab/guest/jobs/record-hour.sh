# SPDX-License-Identifier: MIT OR Apache-2.0
# A recording for an hour, while others take contiguous memory of all sizes. A server of blogs has
# filled memory before, and goes on with few readers.
. /lib/record.sh

prepare_recorders blog_files
phase hour
begin_blog
end_load
begin_blog --readers $readers --pause-ms $pause_ms --writers 0 --commenters 1
sweep --sizes $sizes --reps 100000 --hold-ms $hold_ms --interval-ms $interval_ms &
takers=$!
sweep --sizes $other_sizes --reps 100000 --hold-ms $other_hold_ms --interval-ms $other_interval_ms &
takers="$takers $!"
eval "$beside"
for taker in $takers; do need kill -TERM "$taker"; done
phase end
statdump --label end
end_load
