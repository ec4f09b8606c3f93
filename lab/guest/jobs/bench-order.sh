# SPDX-License-Identifier: MIT OR Apache-2.0
# The same in another order, by read().
need scratch /dev/nullb0 -J size=16
say "writing the file"
need reread --file /mnt/file --mib $mib --prepare
cat /mnt/file >/dev/null
say "reading it, $order"
need reread --file /mnt/file --mib $mib --order $order --warm $warm --reads $reads --seed $seed
statdump --label end
