# SPDX-License-Identifier: MIT OR Apache-2.0
# After the power cut: is each frame of the index whole, and the filesystem? What was synced before the
# recording has to be there in any case.
need mount -t ext4 /dev/vda /mnt
need cat /mnt/rest >/dev/null
echo '{"type": "mounted"}'
need pattern --case cut --rest /mnt/rest --width "${size%x*}" --height "${size#*x}" \
	--check /mnt/cut.raw
need umount /mnt
need /bin/e2fsck -fn /dev/vda >&2
