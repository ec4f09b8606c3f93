# SPDX-License-Identifier: MIT OR Apache-2.0
# The heap's area is plain CMA: the way is refused, at once, and the next one is taken.
. /lib/recorder.sh

need scratch /dev/vda
learn $contiguous $hd
explain plain $contiguous $hd
begin plain-refused $contiguous $hd /mnt --way heap --frames 1
end
[ ! -e /mnt/plain-refused.raw ] || exit 1
record plain-copy $contiguous $hd /mnt --frames $recorded
