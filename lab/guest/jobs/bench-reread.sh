# SPDX-License-Identifier: MIT OR Apache-2.0
# A file that memory without the area does not hold, read at random, by read() and by touching it.
need scratch /dev/nullb0 -J size=16
say "writing the file"
need reread --file /mnt/file --mib $mib --prepare
cat /mnt/file >/dev/null
say "reading it"
need reread --file /mnt/file --mib $mib --warm $warm --reads $reads --seed $seed
say "reading it where it is"
need reread --file /mnt/file --mib $mib --warm $warm --reads $reads --seed $((seed + 1)) --mmap
statdump --label end
