# SPDX-License-Identifier: MIT OR Apache-2.0
# A camera whose frames have a header in front of them. vivid has one only if none of its cameras
# has the interface without; what read() gives then is the frame alone.
. /lib/recorder.sh

need scratch /dev/vda
need pattern --device $camera --set --still
begin header $camera $size /mnt --way copy --frames 3
end
# read() leaves out as many bytes at the end as it has left out of the header.
need dd if=$camera of=/tmp/seen bs=$frame_bytes count=1
bytes=$(stat -c %s /tmp/seen)
for n in 0 1 2; do
	dd if=/mnt/header.raw bs=$frame_bytes skip=$n count=1 | head -c "$bytes" >/tmp/frame
	need cmp /tmp/seen /tmp/frame
done
[ "$bytes" -gt $((frame_bytes - 512)) ] || exit 1
[ "$(stat -c %s /mnt/header.raw)" = $((3 * frame_bytes)) ] || exit 1
begin header-refused $camera $size /mnt --way mmap --frames 1
end
