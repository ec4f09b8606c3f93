# SPDX-License-Identifier: MIT OR Apache-2.0
# Applications are started in turn, with the disk, swap and reclaim of a phone: encrypted files on f2fs,
# zram, the multi-generational LRU.
mglru
need zram_swap 512
need /bin/mkfs.f2fs -q -f -t 0 -O encrypt /dev/nullb0 >/dev/null
need mount -t f2fs /dev/nullb0 /mnt
mkdir /mnt/files
$encrypt && need fscrypt --encrypt
say "writing the applications"
need launch --dir /mnt/files $sizes --prepare
sync
echo 3 >/proc/sys/vm/drop_caches
say "starting them"
need launch --dir /mnt/files $sizes --warm $warm --rounds $rounds
statdump --label end
