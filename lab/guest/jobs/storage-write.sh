# SPDX-License-Identifier: MIT OR Apache-2.0
# Streams that promise, until the power is cut. `meanwhile` is a command.

copy() {
	n=0
	while [ $n -lt 200 ] && pdio dd if=/source of=/mnt/dd.$n bs=7777 conv=fsync status=none; do
		echo "{\"type\": \"promise\", \"kind\": \"dd\", \"file\": \"/mnt/dd.$n\"}"
		n=$((n + 1))
	done
	[ $n -eq 200 ] && wait
}

need $make $device
need mount -t $filesystem $options $device /mnt
need sync
for kind in $kinds; do
	{
		promise write $kind $seed /mnt/$kind
		echo "{\"type\": \"broken\", \"why\": \"$kind ended with $?, see the console\"}"
	} &
done
$meanwhile
exit 1
