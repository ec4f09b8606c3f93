# SPDX-License-Identifier: MIT OR Apache-2.0
# What is cached of a device must not outlive its being mounted.
. /lib/reclaimed.sh

# fill STEP: files whose content depends on the step
fill() {
	seq 0 $1 9999999 | head -c 400000 >/tmp/block
	for i in $(seq 40); do (echo $i; cat /tmp/block) >/mnt/files/$i; done
}
for fs in ext4 xfs btrfs f2fs; do
	options=
	case $fs in
	ext4) need /bin/mke2fs -q -F -t ext4 /dev/vda ;;
	xfs) need /bin/mkfs.xfs -q -f -K /dev/vda ;;
	btrfs) need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null ;;
	f2fs)
		# All files are compressed.
		need /bin/mkfs.f2fs -q -f -t 0 -O extra_attr,compression /dev/vda >/dev/null
		options='-o compress_algorithm=lzo,compress_extension=*'
		;;
	esac
	need mount -t $fs $options /dev/vda /mnt
	mkdir /mnt/files
	fill 3
	old=$(sum /mnt/files)
	need umount /mnt
	need dd if=/dev/vda of=/dev/vdb bs=1M 2>/dev/null

	# The same inodes and blocks, other content, which is kept and read.
	need mount -t $fs $options /dev/vda /mnt
	fill 7
	new=$(sum /mnt/files)
	again $fs /mnt/files "$new"
	evict
	need umount /mnt
	need mount -t $fs $options /dev/vda /mnt
	check "$fs mounted again" "$(sum /mnt/files)" "$new"
	evict
	need umount /mnt

	# And now the device is written underneath.
	need dd if=/dev/vdb of=/dev/vda bs=1M 2>/dev/null
	need /bin/btrfs -q device scan --forget
	need mount -t $fs $options /dev/vda /mnt
	check "$fs on a device written underneath" "$(sum /mnt/files)" "$old"
	evict
	check "$fs on it, read again" "$(sum /mnt/files)" "$old"
	report $fs

	if [ $fs = ext4 ]; then
		need /bin/mkfs.erofs --quiet -zlz4 /dev/vdc /mnt >/dev/null
		mkdir /image
		need mount -t erofs -o ro /dev/vdc /image
		check "erofs" "$(sum /image/files)" "$old"
		again erofs /image/files "$old"
		need umount /image
		report erofs
	fi
	need umount /mnt
done
