# SPDX-License-Identifier: MIT OR Apache-2.0
# The same beside another who reads once through a larger file, again and again.
. /lib/traces.sh

need reread --file /mnt/file --mib $mib --prepare
need reread --file /mnt/stream --mib $stream --prepare
begin
say "reading beside a stream"
reread --file /mnt/stream --mib $stream --order cyclic --warm 1000000000 --reads 1 &
stream=$!
need reread --file /mnt/file --mib $mib --order $order --warm 0 --reads $reads --seed $seed
kill $stream
end
