# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings while nobody else runs, with samples of what the processor does.
. /lib/record.sh

prepare_recorders
phase profile
eval "$profiled"
phase end
