# SPDX-License-Identifier: MIT OR Apache-2.0
# Random sequences with and without libpdio.so on NFS and FUSE, so many seconds on each.
. /lib/nfs.sh

need scratch /dev/vda
# Sequences end processes by a fault of their own; the kernel's line about one is no complaint.
echo 0 >/proc/sys/debug/exception-trace
mkdir -p /mnt/export /var/tmp
nfs /mnt/export /nfs
export PDIO_TEST_BUILT=/built PDIO_TEST_MOUNTED=NFS=/nfs PDIO_FUZZ_SEED=$seed
export PDIO_FUZZ_SECONDS=$seconds RUST_BACKTRACE=1
for place in NFS FUSE; do
	PDIO_FUZZ_ON=$place fuzz random_sequences --nocapture >/tmp/said 2>&1
	status=$?
	cat /tmp/said >&2
	[ $status = 0 ] || exit $status
	ran=$(sed -n 's/^seeds .*: \([0-9]*\) sequences.*/\1/p' /tmp/said)
	echo "{\"type\": \"untaken\", \"filesystem\": \"$place\", \"sequences\": $ran}"
done
