# SPDX-License-Identifier: MIT OR Apache-2.0
# A file that is cut and grows again, beside readahead, on ext4 with blocks smaller than a page; and
# one in which a hole is punched, beside reads, on btrfs.
need scratch /dev/vda -b 1024
need gone --file /mnt/file
umount /mnt
need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null
need mount -t btrfs /dev/vda /mnt
need gone --file /mnt/file --punch --turns 1000
umount /mnt
