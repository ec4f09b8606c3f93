# SPDX-License-Identifier: MIT OR Apache-2.0
# Of plain CMA, memory is not to be had for so long.
. /lib/recorder.sh

need scratch /dev/vda
learn $contiguous $full_hd
need echo 1 >$hugepages/hugepages-1048576kB/nr_hugepages
explain plain $contiguous $full_hd
begin plain-dmabuf $contiguous $full_hd /mnt --way dmabuf --frames 1
end
