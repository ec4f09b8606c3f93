# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings under a load, each by a program that people use or by ours.
. /lib/record.sh

prepare_recorders
phase load
begin_load
eval "$loaded"
phase hogs
begin_hogs
eval "$beside_hogs"
phase end
end_load
