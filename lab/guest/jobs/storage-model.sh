# SPDX-License-Identifier: MIT OR Apache-2.0
# f2fs on the disk, and what the test makes of the rest: image files on it, tmpfs, overlayfs.

need /bin/mkfs.f2fs -q -f -t 0 /dev/nvme0n1
mkdir -p /var/tmp
need mount -t f2fs /dev/nvme0n1 /var/tmp
ln -s mke2fs /bin/mkfs.ext4
export PDIO_MODEL_SEEDS=1 PDIO_MODEL_FIRST=$seed RUST_BACKTRACE=1
model --nocapture >/tmp/said 2>&1
status=$?
grep -v ': case .*seed' /tmp/said >&2
sed -n 's/\(.*\): case .*/\1/p' /tmp/said | sort -u | while read -r name; do
	echo "{\"type\": \"model\", \"filesystem\": \"$name\"}"
done
umount -l /var/tmp
exit $status
