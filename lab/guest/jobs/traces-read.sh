# SPDX-License-Identifier: MIT OR Apache-2.0
# One reader of a file.
. /lib/traces.sh

need reread --file /mnt/file --mib $mib --prepare
begin
say "reading, $order"
need reread --file /mnt/file --mib $mib --order $order --warm 0 --reads $reads --seed $seed
end
