# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings while nobody else runs, each by a program that people use or by ours.
. /lib/record.sh

prepare_recorders load_files
phase quiet
eval "$quiet"
phase end
