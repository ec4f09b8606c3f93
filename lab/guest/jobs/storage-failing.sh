# SPDX-License-Identifier: MIT OR Apache-2.0
# A part of the device fails, under a file that is there: nothing but its data is concerned.
. /lib/remap.sh

device=/dev/nvme0n1
sectors=$(cat /sys/block/nvme0n1/size)
good="0 $sectors linear $device 0"
printf '%s\n' "$good" | need dmsetup create disk || exit 1
need scratch /dev/mapper/disk
size=$((16 << 20))
head -c $size /dev/zero >/mnt/file && sync || exit 1
# Its first extent, in sectors:   0:        0..   32767:    34816..     67583:  32768: ...
# shellcheck disable=SC2046 # words are wanted
set -- $(/bin/filefrag -b512 -v /mnt/file | grep '^ *0:' | tr -s ':. ' ' ')
[ "$6" -ge 24576 ] || { echo "the file is in pieces: $*" >&2; exit 1; }
at=$(($4 + 16384)); end=$((at + 2048))
around() {
	printf '0 %d linear %s 0\n%d 2048 %s\n%d %d linear %s %d' \
		$at $device $at "$1" $end $((sectors - end)) $device $end
}
mkfifo /tmp/whole
for target in error "flakey $device $at 0 3600 1 error_writes"; do
	bad=$(around "$target")
	remap disk "$bad"
	# Commands fail with one line and status 1.
	for run in "dd if=/source of=/mnt/file bs=4k seek=2000 conv=notrunc,fsync status=none" \
		"dd if=/source of=/mnt/file bs=1M seek=8 oflag=direct conv=notrunc,fsync status=none"; do
		pdio $run 2>/tmp/said
		status=$?
		cat /tmp/said >&2
		if [ $status != 1 ] || [ "$(grep -c "Input/output error" /tmp/said)" != 1 ]; then
			echo "{\"type\": \"broken\", \"why\": \"status $status of pdio $run\"}"
			exit 1
		fi
	done
	# A stream reports it once, keeps the data, and writes it when the device is whole again.
	for linger in "" linger; do
		remap disk "$bad"
		rm -f /tmp/out
		promise heal /mnt/file 7 $linger </tmp/whole >/tmp/out &
		exec 4>/tmp/whole
		until grep -q . /tmp/out; do
			kill -0 $! || break
			sleep 0.1
		done
		[ -z "$linger" ] || sleep 0.5
		remap disk "$good"
		echo >&4
		exec 4>&-
		wait $!
		status=$?
		cat /tmp/out
		[ $status = 0 ] || exit 1
	done
done
pdio dd if=/source of=/mnt/file bs=4k seek=2000 conv=notrunc,fsync status=none || exit 1
umount /mnt || exit 1
need /bin/e2fsck -fn /dev/mapper/disk >&2
