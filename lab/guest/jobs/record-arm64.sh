# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings while nobody else runs, and then under a load, each by a program that people use or by
# ours.
. /lib/record.sh

prepare_recorders
phase quiet
eval "$quiet"
phase load
begin_load
eval "$loaded"
phase end
end_load
