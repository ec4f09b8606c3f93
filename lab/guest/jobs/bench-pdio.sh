# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs of pdio bench (`benches`) on a filesystem.
. /lib/bench_pdio.sh

export GLIBC_TUNABLES=$tunables
$cgroups
on_$filesystem $device
eval "$benches"
