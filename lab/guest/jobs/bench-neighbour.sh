# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes what neighbour.sh needs of a guest: a disk of `fill_mib` MiB whose memory is taken, and cgroups.
. /lib/bench_pdio.sh

need pdio dd if=/dev/zero of=/dev/nullb0 bs=1M count=$fill_mib oflag=direct 2>/dev/null
on_ext4 /dev/nullb0
memory_cgroups
