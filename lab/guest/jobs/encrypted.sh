# SPDX-License-Identifier: MIT OR Apache-2.0
# Encrypted files are kept like others, and when their key is removed no frame of the area has their
# content: that of copies that could be found, of copies that were dropped, of frames that a driver
# had meanwhile, and of a file that was open until later.
. /lib/reclaimed.sh

mark=PLAINTX
# find WHEN: how much of the area is marks
find() {
	printf '{"type": "when", "fs": "%s", "what": "%s"}\n' $fs "$1"
	need sweep --find $mark
}
for fs in ext4 f2fs; do
	case $fs in
	ext4) need /bin/mke2fs -q -F -t ext4 -O encrypt /dev/vda ;;
	f2fs) need /bin/mkfs.f2fs -q -f -t 0 -O encrypt /dev/vda >/dev/null ;;
	esac
	need mount -t $fs /dev/vda /mnt
	mkdir /mnt/files
	need fscrypt --encrypt
	for i in 1 2 3 4; do yes $mark | head -c 3m >/mnt/files/$i; done
	sum=$(sum /mnt/files)
	again $fs /mnt/files "$sum"
	report $fs
	evict
	rm /mnt/files/4
	sum=$(sum /mnt/files)
	find kept
	# A key that no file has drops nothing when it goes.
	need fscrypt --other --add
	need fscrypt --other --remove
	find kept
	need fscrypt --remove
	find removed
	cat /mnt/files/* 2>/dev/null && printf '{"type": "broken", "why": "%s read without key"}\n' $fs
	find "tried to read"

	# The same content with the key, and a driver has some of it when that goes.
	need fscrypt --add
	check "$fs with its key again" "$(sum /mnt/files)" "$sum"
	evict
	sweep --sizes 4096 --reps 1 --hold-ms 3000 >/dev/null &
	sleep 1
	need fscrypt --remove
	wait $!
	sleep 1
	find "given back"

	# A file that is open keeps the key, until that is removed once more.
	need fscrypt --add
	check "$fs once more" "$(sum /mnt/files)" "$sum"
	evict
	exec 4</mnt/files/1
	need fscrypt --remove
	exec 4<&-
	need fscrypt --remove
	find closed

	need fscrypt --add
	check "$fs for the last time" "$(sum /mnt/files)" "$sum"
	evict
	need umount /mnt
	find unmounted
done
