# SPDX-License-Identifier: MIT OR Apache-2.0
# A file that is cut and grows again, beside readahead, on ext4 with blocks smaller than a page.
need scratch /dev/vda -b 1024
need beyond --file /mnt/file
umount /mnt
