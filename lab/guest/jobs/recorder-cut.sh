# SPDX-License-Identifier: MIT OR Apache-2.0
# A recording, until the power is cut. What its index has is told as soon as it is there.
. /lib/recorder.sh

need /bin/mke2fs -q -F -t ext4 -E nodiscard /dev/vda
# shellcheck disable=SC2086 # words
need mount -t ext4 $options /dev/vda /mnt
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
learn $camera $size
need cp "/tmp/rest-$size-$format" /mnt/rest
sync
begin cut $camera $size /mnt --way $way --durability $durability
told=0
while kill -0 $recorder; do
	# the last line may be on its way to the disk
	frames=$(($(grep -c "$FRAME" /mnt/cut.raw.index) - 1))
	if [ $frames -gt $told ]; then
		told=$frames
		printf '{"type": "promised", "frames": %d}\n' $told
	fi
	sleep 0.02
done
cat /tmp/cut.err >&2
exit 1
