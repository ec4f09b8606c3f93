# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings under a load, each by a program that people use or by ours.
. /lib/record.sh

prepare_recorders load_files
phase load
begin_load
eval "$loaded"
if [ -n "$beside_hogs" ]; then
	phase hogs
	begin_hogs
	eval "$beside_hogs"
fi
phase end
end_load
