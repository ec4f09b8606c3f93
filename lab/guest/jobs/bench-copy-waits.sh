# SPDX-License-Identifier: MIT OR Apache-2.0
# How often allocations look again for a copy that somebody is at, while every CPU copies pages in and
# out (`load`), also that of the program that allocates. `bins` are the least of each bin.
pages_in_and_out() {
	need zram_swap 512
	need scratch /dev/nullb0 -J size=16
	need load --dir /mnt --file-mib $mib --prepare --seed $seed
	load --dir /mnt --file-mib $mib --readers 2 --writers 0 --hot 0 --anon-mib $mib \
		--anon-workers 2 --seconds 3600 --seed $seed &
	loads=$!
	sleep 10
}
# Four readers of pages that stay in the area, each a page a call and 4 bytes a piece. An allocation
# discards what they read; their cgroup has no room for it, so it is back in the area soon.
pieces() {
	need scratch /dev/nullb0 -J size=16
	memory_cgroups job
	echo $$ >/cgroup/job/cgroup.procs || exit 1
	need reread --file /mnt/file --mib $mib --prepare
	cat /mnt/file >/dev/null
	echo 32M >/cgroup/job/memory.max || exit 1
	loads=
	for n in 1 2 3 4; do
		reread --file /mnt/file --mib $mib --pieces 1024 --warm 1000000000 --reads 1 --seed $n &
		loads="$loads $!"
	done
	sleep 2
}

$load
echo 8192 >/sys/kernel/tracing/buffer_size_kb
echo 1 >/sys/kernel/tracing/events/gcma/gcma_alloc/enable
say "allocating"
served() { cat /sys/kernel/mm/gcma/reserved/file/served; }
before=$(served)
need sweep --sizes $sizes --reps $reps --interval-ms $pause_ms --seed $seed
printf '{"type": "served", "reads": %d}\n' $(($(served) - before))
need kill -TERM $loads
status=0
if [ $load = pages_in_and_out ]; then
	wait $loads
	status=$?
fi
statdump --label end
sed -n 's/.* copy_waits=\([0-9]*\).*/\1/p' /sys/kernel/tracing/trace | awk -v bins="$bins" '
	BEGIN { count = split(bins, least, " ") }
	{ for (i = count; $1 < least[i]; i--); allocs[i]++; if ($1 > most) most = $1; all += $1 }
	END {
		for (i = 1; i <= count; i++)
			printf "{\"type\": \"copy_waits\", \"least\": %d, \"allocs\": %d}\n", least[i], allocs[i]
		printf "{\"type\": \"copy_waits_most\", \"most\": %d, \"all\": %d}\n", most, all
		exit !NR
	}' || exit 1
exit $status
