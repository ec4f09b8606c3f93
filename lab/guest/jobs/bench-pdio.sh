# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs of pdio bench (`benches`) on a filesystem.
. /lib/bench_pdio.sh

export GLIBC_TUNABLES=$tunables
$cgroups
# A disk in the guest's memory takes that for each place when it is first written, which is slower. All of
# it is taken here, or a way would be the slower the more new places it happens to get.
[ $fill_mib = 0 ] || need pdio dd if=/dev/zero of=$device bs=1M count=$fill_mib oflag=direct 2>/dev/null
on_$filesystem $device
eval "$benches"
