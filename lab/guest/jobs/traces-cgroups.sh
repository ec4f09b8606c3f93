# SPDX-License-Identifier: MIT OR Apache-2.0
# The same, each in a cgroup of its own.
. /lib/traces.sh

mkdir /cgroup && need mount -t cgroup2 none /cgroup
echo +memory >/cgroup/cgroup.subtree_control
for who in reader stream; do
	mkdir /cgroup/$who && echo ${limit}M >/cgroup/$who/memory.max
done
within() { sh -c 'echo $$ >/cgroup/$0/cgroup.procs; exec "$@"' "$@"; }
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
