# SPDX-License-Identifier: MIT OR Apache-2.0
# Frames in buffers of the heap, whose area is lent to others before and afterwards.
. /lib/recorder.sh

area=/sys/kernel/mm/gcma/reserved
# allocated WHEN: how much of the area is
allocated() {
	until [ "$(cat $area/quarantined)" = 0 ]; do sleep 0.1; done
	printf '{"type": "area", "when": "%s", "owned": %d}\n' "$1" "$(cat $area/owned)"
}

# Small pages of a memory file may lie in one piece, by luck: then that way would be taken.
need echo 0 >/sys/module/udmabuf/parameters/size_limit_mb
need scratch /dev/vda
for size in $small $hd; do learn $contiguous $size; done
learn $scattered $middle
allocated before
explain heap $contiguous $hd
record heap-taken $contiguous $hd /mnt --frames $recorded
record heap-scattered $scattered $middle /mnt --way heap --frames $recorded
record heap-synced $contiguous $small /mnt --way heap --durability sync --frames 5
begin heap-missing $contiguous $small /mnt --way heap --heap magic --frames 1
end

# bytes that the processor looks at
begin heap-photo $contiguous $hd /mnt --photo /mnt/now.raw
reached 5 "$FRAME"
kill -USR2 $recorder
until [ -e /mnt/now.raw ] || ! kill -0 $recorder; do sleep 0.1; done
reached 10 "$FRAME"
end TERM
look heap-photo $hd /mnt --photo /mnt/now.raw
begin heap-bell $contiguous $small /mnt --pre-roll 1s --trigger /tmp/bell --frames 30
given 10 $contiguous
echo >/tmp/bell
end
look heap-bell $small /mnt

begin heap-killed $contiguous $hd /mnt
reached 10 "$FRAME"
end KILL
look heap-killed $hd /mnt
allocated after
