# SPDX-License-Identifier: MIT OR Apache-2.0
# The same, each in a cgroup of its own.
. /lib/traces.sh

memory_cgroups reader stream
for who in reader stream; do echo ${limit}M >/cgroup/$who/memory.max || exit 1; done
need reread --file /mnt/set --mib $mib --prepare
need reread --file /mnt/stream --mib $stream --prepare
begin
say "reading beside a cgroup that streams"
within stream reread --file /mnt/stream --mib $stream --order cyclic --warm 1000000000 --reads 1 &
stream=$!
need within reader reread --file /mnt/set --mib $mib --order $order --warm 0 --reads $reads \
	--seed $seed
end
kill $stream
