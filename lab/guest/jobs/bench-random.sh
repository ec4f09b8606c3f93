# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocations of random sizes, held for random times, `rounds` times `count` of them. With `give_up`
# each round is ended after so many seconds, and none begins after `end`.
need zram_swap 512
need scratch /dev/nullb0 -J size=16
need load --dir /mnt --file-mib $mib --prepare --seed $seed
load --dir /mnt --file-mib $mib --anon-mib $mib --seconds 3600 --nice 10 --seed $seed &
load=$!
sleep 2
say "allocating at random"
if [ -z "$give_up" ]; then
	need sweep --random --count $count --seed $seed
else
	. /lib/in_time.sh
	for round in $(seq $rounds); do
		in_time || break
		timeout -s KILL $give_up sweep --random --count $count --seed $round || {
			given_up
			echo '{"type": "gave_up"}'
		}
	done
fi
kill -TERM $load
wait $load
status=$?
statdump --label end
exit $status
