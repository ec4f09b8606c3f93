# SPDX-License-Identifier: MIT OR Apache-2.0
# Every way that three cameras have, and every end of a recording.
. /lib/recorder.sh
. /lib/remap.sh

need scratch /dev/vda
mkdir /little
need /bin/mke2fs -q -F -t ext4 -b 4096 -O ^has_journal /dev/vdb
need mount -t ext4 /dev/vdb /little
for size in $small $middle; do learn $scattered $size; done
for size in $small $hd $full_hd; do learn $contiguous $size; done

# no huge page is free
explain scattered $scattered $middle
explain contiguous-no-pages $contiguous $middle
for way in mmap userptr dmabuf copy buffered; do
	record scattered-$way $scattered $middle /mnt --way $way --frames $recorded
done
for way in mmap userptr dmabuf heap; do
	begin refused-$way $contiguous $middle /mnt --way $way --frames 1
	end
	[ ! -e /mnt/refused-$way.raw ] || exit 1
done
for way in copy buffered; do
	record contiguous-$way $contiguous $middle /mnt --way $way --frames $recorded
done

# pages of the area, large and less so
need echo 1 >$hugepages/hugepages-1048576kB/nr_hugepages
explain contiguous-1g $contiguous $full_hd
record contiguous-dmabuf-1g $contiguous $full_hd /mnt --buffers 4 --frames 8
need echo 1 >$hugepages/hugepages-1048576kB/demote
explain contiguous-2m $contiguous $hd
record contiguous-dmabuf-2m $contiguous $hd /mnt --frames $recorded
record scattered-dmabuf-2m $scattered $middle /mnt --way dmabuf --frames $recorded
record synced $contiguous $small /mnt --way dmabuf --durability sync --frames 5

# files that end where the next frame has no room
for way in dmabuf copy; do
	begin segments-$way $contiguous $small /mnt --way $way --segment 300K --frames 5
	end
	for n in 0 1 2; do look segments-$way-000$n $small /mnt; done
	[ ! -e /mnt/segments-$way-0003.raw ] || exit 1
done

# a format that the camera has not
format=ABCD
begin refused-format $scattered $small /mnt --frames 1
end
format=YUYV
[ ! -e /mnt/refused-format.raw ] || exit 1

# the camera drops frames, and flags some as broken
begin losses $scattered $small /mnt
reached 5 "$FRAME"
need pattern --device $scattered --drop 50
reached 3 "$LOST"
need pattern --device $scattered --drop 0
for n in 1 2 3; do
	need pattern --device $scattered --damage
	reached $n "$DAMAGED"
done
end TERM
look losses $small /mnt

# somebody wants a photo on a disk that takes none for a while, of more frames than there are buffers;
# somebody rings, though no bell is there; somebody else wants the camera
begin photo $contiguous $middle /mnt --photo /little/now.raw
reached 5 "$FRAME"
need fsfreeze --freeze /little
for n in 1 2; do
	kill -USR1 $recorder
	kill -USR2 $recorder
	reached $(($(grep -c "$FRAME" /mnt/photo.raw.index) + 20)) "$FRAME"
done
meanwhile busy $contiguous $middle /mnt
need fsfreeze --unfreeze /little
until [ -e /little/now.raw ] || ! kill -0 $recorder; do sleep 0.1; done
reached $(($(grep -c "$FRAME" /mnt/photo.raw.index) + 5)) "$FRAME"
end TERM
look photo $middle /mnt --photo /little/now.raw
need rm /little/now.raw

# a bell rings: by then there are more frames than buffers, which are so much later than the first
begin bell $contiguous $small /mnt --pre-roll 1s --trigger /tmp/bell --frames 60
given 1 $contiguous
sleep 3
given 20 $contiguous
printf '{"type": "rang", "before": %d}\n' "$(grep -c "$FRAME" /mnt/bell.raw.index)"
echo >/tmp/bell
end
look bell $small /mnt

# killed, and a disk that is full
for way in mmap copy buffered; do
	begin killed-$way $scattered $middle /mnt --way $way
	reached 10 "$FRAME"
	end KILL
	look killed-$way $middle /mnt
	record full-$way $scattered $middle /little --way $way
done
record full-dmabuf $scattered $middle /little --way dmabuf

# a disk of which the second half fails
need umount /little
half=$(($(cat /sys/block/vdb/size) / 2))
printf '0 %d linear /dev/vdb 0' $((2 * half)) | need dmsetup create little || exit 1
need /bin/mke2fs -q -F -t ext4 -b 4096 -O ^has_journal /dev/mapper/little >/dev/null
need mount -t ext4 /dev/mapper/little /little
remap little "$(printf '0 %d linear /dev/vdb 0\n%d %d error' $half $half $half)"
for way in mmap dmabuf copy; do record failing-$way $scattered $middle /little --way $way; done
# through the page cache the disk is heard only by those who wait for it
record failing-buffered $scattered $middle /little --way buffered --durability sync

# the other interface of drivers: a frame in two pieces, and in one
need pattern --device $planes --set
format=NM12
begin planes-two $planes $middle /mnt --frames 1
end
format=UYVY
learn $scattered $middle
for way in mmap userptr dmabuf copy; do
	record planes-$way $planes $middle /mnt --way $way --frames $recorded
done
format=YUYV

# somebody pulls out the plug
begin pulled $scattered $middle /mnt
reached 5 "$FRAME"
echo vivid.0 >/sys/bus/platform/drivers/vivid/unbind
end
look pulled $middle /mnt
explain gone $scattered $middle
