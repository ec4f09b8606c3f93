# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings, each by a program that people use or by ours: some alone, the others under a load.
. /lib/record.sh

prepare_recorders
phase quiet
eval "$quiet"
phase load
begin_load
eval "$loaded"
phase hogs
begin_hogs
eval "$beside_hogs"
phase end
end_load
