# SPDX-License-Identifier: MIT OR Apache-2.0
# Reads, writes, a file that goes, an allocation: `pages` says how large the first file is.
. /lib/traces.sh

need reread --file /mnt/file --mib $((pages >> 8)) --prepare
dd if=/dev/zero of=/mnt/other bs=64k count=16 2>/dev/null
begin
need reread --file /mnt/file --mib $((pages >> 8)) --order cyclic --reads $((3 * pages))
dd if=/mnt/other of=/dev/null bs=1M 2>/dev/null
dd if=/dev/zero of=/mnt/other bs=4k count=10 seek=20 conv=notrunc 2>/dev/null
need sweep --sizes 64 --reps 1
rm /mnt/other
end
