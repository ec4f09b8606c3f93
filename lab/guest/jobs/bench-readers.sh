# SPDX-License-Identifier: MIT OR Apache-2.0
# Allocations of `sizes` while readers want more memory than there is. With `give_up` each is ended
# after so many seconds, and none begins after `end`.
need scratch /dev/nullb0 -J size=16
say "writing files"
need load --dir /mnt --file-mib $files --prepare --seed $seed
cat /mnt/load.* >/dev/null
load --dir /mnt --file-mib $files --readers 3 --writers 0 --hot 0 --seconds 3600 --seed $seed &
load=$!
sleep 1
say "allocating"
if [ -z "$give_up" ]; then
	for some in $sizes; do need sweep --sizes $some --reps 1 --interval-ms 2 --seed $seed; done
else
	. /lib/in_time.sh
	for pages in $sizes; do
		in_time || break
		timeout -s KILL $give_up sweep --sizes $pages --reps 1 --interval-ms 2 --seed $seed || {
			given_up
			printf '{"type": "alloc", "pages": %d, "ns": %d000000000, "ok": false, "gave_up": true}\n' \
				$pages $give_up
		}
	done
fi
kill -TERM $load
wait $load
status=$?
statdump --label end
exit $status
