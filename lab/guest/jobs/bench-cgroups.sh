# SPDX-License-Identifier: MIT OR Apache-2.0
# One memory cgroup reads a set of pages; with `stream=true` another one reads a file from end to end.
need scratch /dev/nullb0 -J size=16
memory_cgroups reader stream
for who in reader stream; do echo ${limit}M >/cgroup/$who/memory.max || exit 1; done
say "writing the files"
need reread --file /mnt/set --mib $mib --prepare
need reread --file /mnt/stream --mib $stream_mib --prepare
echo 3 >/proc/sys/vm/drop_caches
if $stream; then
	within stream reread --file /mnt/stream --mib $stream_mib --order cyclic \
		--warm 1000000000 --reads 1 &
fi
say "reading the set"
need within reader reread --file /mnt/set --mib $mib --order $order --warm $warm --reads $reads --seed $seed
# it must not have ended before
if $stream; then need kill $!; fi
