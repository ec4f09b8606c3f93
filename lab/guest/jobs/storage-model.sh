# SPDX-License-Identifier: MIT OR Apache-2.0
# f2fs on the disk, an ext4 that is exported and mounted over NFS, and what the test makes of the
# rest: image files on the disk, tmpfs, overlayfs, FUSE.
. /lib/nfs.sh

need /bin/mkfs.f2fs -q -f -t 0 /dev/nvme0n1
mkdir -p /var/tmp
need mount -t f2fs /dev/nvme0n1 /var/tmp
need scratch /dev/vda
nfs /mnt /nfs
ln -s mke2fs /bin/mkfs.ext4
export PDIO_TEST_MOUNTED=NFS=/nfs PDIO_MODEL_SEEDS=1 PDIO_MODEL_FIRST=$seed RUST_BACKTRACE=1
model --nocapture >/tmp/said 2>&1
status=$?
grep -v ': case .*seed' /tmp/said >&2
sed -n 's/\(.*\): case .*/\1/p' /tmp/said | sort -u | while read -r name; do
	echo "{\"type\": \"model\", \"filesystem\": \"$name\"}"
done
umount -l /var/tmp
exit $status
