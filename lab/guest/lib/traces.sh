# SPDX-License-Identifier: MIT OR Apache-2.0
# Recording which pages are wanted, between begin and end. /mnt is on a disk in memory.
base=$(dmesg | sed -n 's/.*cma: Reserved.* at \(0x[0-9a-f]*\).*/\1/p' | head -n1)
begin() {
	sync; echo 3 >/proc/sys/vm/drop_caches
	pagetrace --base $(($base >> 12)) &
	recorder=$!
	sleep 1
}
end() { kill -TERM $recorder; need wait $recorder; }
need scratch /dev/nullb0 -J size=16
