# SPDX-License-Identifier: MIT OR Apache-2.0
# A round of everything at once. `swap`, `reclaim`, `before` and `after` are commands.
. /lib/oracle.sh

need $swap
need scratch /dev/vda -b $block
area=/sys/kernel/mm/gcma/reserved
eval "$reclaim"
eval "$before"
mib() { awk '/MemAvailable|SwapFree/ { n += $2 } END { print int(n / 1024) }' /proc/meminfo; }
statdump --label start
# some of it may be a driver's, as the pool for atomic allocations is on arm64
owned=$(cat $area/owned)

plug() {
	RANDOM=$seed
	stop=
	unplugged=0
	trap 'stop=1' TERM
	while [ -z "$stop" ]; do
		cpu=/sys/devices/system/cpu/cpu$((RANDOM % (cpus - 1) + 1))/online
		echo 0 >$cpu && unplugged=$((unplugged + 1))
		sleep 0.$((RANDOM % 10))
		echo 1 >$cpu
		sleep 0.$((RANDOM % 10))
	done
	echo "{\"type\": \"plug\", \"unplugged\": $unplugged}"
}
consume() {
	stop=
	trap 'stop=1' TERM
	while [ -z "$stop" ]; do
		[ ! -e /dev/video0 ] ||
			need camera --shots 1 --width 640 --height 480 --buffers $camera
		need heap --reps 1 --mib 1 --buffers $heap --seed $seed
	done
}

plug &
plug=$!
consume &
consume=$!
oracle --dir /mnt --file-mib $files --anon-mib $anon --shmem-mib 16 --races $races $words \
	--hog-mib $(($(mib) * hog / 100)) --alloc --alloc-pins --alloc-workers $workers \
	--alloc-pieces $pieces --alloc-max-pages $largest --alloc-live $live \
	--seconds $seconds --until $goals --seed $seed
status=$?
kill -TERM $plug $consume
wait $plug || exit 1
wait $consume || exit 1
eval "$after"
# The pages that were pinned last are looked at ten times a second, if the computer is fast enough.
for n in $(seq 3000); do
	[ "$(cat $area/owned)" = $owned ] && break
	sleep 0.1
done
umount /mnt || exit 1
statdump --label end
sweep --edge || exit 1
exit $status
