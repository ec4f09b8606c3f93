# SPDX-License-Identifier: MIT OR Apache-2.0
# Streams that promise, until the power is cut. `meanwhile` is a command.

# What was promised has to be kept also on a full disk: then there is no more to copy.
copy() {
	n=0
	while [ $n -lt 200 ]; do
		pdio dd if=/source of=/mnt/dd.$n bs=7777 conv=fsync status=none 2>/failed || {
			cat /failed >&2
			grep -q 'No space left on device' /failed && break
			return 1
		}
		echo "{\"type\": \"promise\", \"kind\": \"dd\", \"file\": \"/mnt/dd.$n\"}"
		n=$((n + 1))
	done
	wait
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
