# SPDX-License-Identifier: MIT OR Apache-2.0
# The steps of the GCMA paper's evaluation; experiments/paper.py says which of them make a boot.

# and what the card has done before it; at once, as others write as well
CARD_COUNTS='"sectors_read": %d, "sectors_written": %d'
# shellcheck disable=SC2046 # two numbers
phase() {
	printf '{"type": "phase", "name": "%s", "seconds": %s, '"$CARD_COUNTS"'}\n' "$1" \
		"$(cut -d' ' -f1 /proc/uptime)" \
		$(awk -v card=${card##*/} '$3 == card { r = $6; w = $10 } END { print r + 0, w + 0 }' \
			/proc/diskstats)
}
# what this boot has, for the tables of configurations
system() {
	printf '{"type": "system", "linux": "%s", "cpu": "%s", "cpus": %d, "memory_kib": %d, ' \
		"$(uname -r)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" \
		"$(grep -c ^processor /proc/cpuinfo)" \
		"$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)"
	printf '"available_kib": %d, "swap": "%s", "swap_kib": %d, "area": "%s"}\n' \
		"$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" \
		"$(awk 'NR == 2 { print $1 }' /proc/swaps)" "$(awk 'NR == 2 { print $3 }' /proc/swaps)" \
		"$(tr ' ' '\n' </proc/cmdline | grep -E '^g?cma=' | tr '\n' ' ')"
}
# A sensor does not wait for a processor: vivid's threads, which stand for it, are born nice.
# shellcheck disable=SC2046 # one number
nice_camera() { need renice -n $camera_nice -p $(pidof kthreadd) >/dev/null; }
shot() { camera --nice $camera_nice --shots 1 "$@"; }
sweep_all() { need sweep --sizes "$1" --reps "$2" --interval-ms "$3" --seed $seed; }

# A card with nothing but the swap file.
empty_card() {
	need scratch $card -J size=16 -m 0
	dd if=/dev/zero of=/mnt/swap bs=1M count=$swap 2>/dev/null
	mkswap /mnt/swap >/dev/null
	if $zram; then need zram_swap $swap; else need swapon /mnt/swap; fi
}

# With the pages that CPUs keep on lists of their own, which may be many and are no longer counted.
free_kib() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '$1 == "MemFree:" { kib += $2 } $1 == "count:" { kib += 4 * $2 } END { print kib }' \
		/proc/meminfo /proc/zoneinfo
}
# null_blk takes memory when a sector is written for the first time. All that the load can write
# later is written now, so that every configuration has the same memory while it is measured. A
# file that is removed before it was written back takes none: that memory was taken is looked at.
fill_card() {
	say "filling the card"
	unused=$(free_kib)
	dd if=/dev/zero of=/mnt/fill bs=1M 2>/dev/null
	filled=$(($(stat -c %s /mnt/fill) / 1024))
	free=$(free_kib)
	taken=$((unused - free))
	rm /mnt/fill
	printf '{"type": "filled", "kib": %d, "taken_kib": %d, "free_kib": %d}\n' \
		$filled $taken $free
	need [ $((taken * 100)) -ge $((filled * filled_percent)) ]
}
write_blogs() {
	say "writing blogs"
	need blog --dir /mnt --blogs $blogs --prepare --seed $seed
	left=$(df -m /mnt | awk 'NR == 2 { print $4 }')
	need fallocate -l $((left - spare))M /mnt/rest
	# Another disk takes none of the board's memory.
	if $fill; then fill_card; fi
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# The load: the lab's own server of blogs, or Blogbench, which begins with an empty directory and
# says nothing until it ends.
serve() {
	if $blogbench; then
		mkdir -p /mnt/blogbench
		# shellcheck disable=SC2016 # for that shell
		sh -c 'renice -n $0 -p $$; exec blogbench -d /mnt/blogbench -i 10000' $nice >/tmp/load 2>&1 &
	else
		blog --dir /mnt --blogs $blogs --heap-mib $heap --seconds 36000 --nice $nice \
			--seed $seed "$@" &
	fi
	server=$!
}
retire() {
	if $blogbench; then
		kill -KILL $server
		wait $server
		rm -rf /mnt/blogbench
		return 0
	fi
	kill -TERM $server
	wait $server
}
warm_up() {
	serve
	say "warming up"
	sleep $warm
}
end() {
	phase end
	statdump --label end
}

# An allocation that takes very long is ended, and counts as failed.
give_up() {
	timeout -s KILL $give_up sweep --sizes $1 --reps 1 --seed $seed || {
		given_up
		printf '{"type": "alloc", "pages": %d, "ns": %d000000000, "ok": false}\n' $1 $give_up
	}
	sleep $pause
}

fig4_idle() {
	phase fig4-idle
	say "allocating, all sizes"
	sweep_all $sizes $fig4_runs $((pause * 1000))
}
fig5_idle() {
	phase fig5-idle
	say "allocating $fig5_pages pages"
	sweep_all $fig5_pages $fig5_runs $((pause * 1000))
}
fig6_idle() {
	phase fig6-idle
	say "photos"
	for n in $(seq $shots); do
		shot $pi_shot
		sleep $camera_pause
	done
}
fig7_loaded() {
	phase fig7-alone
	say "load alone"
	sleep $((scores * score + 1))
}
fig6_loaded() {
	phase fig6-loaded
	say "photos"
	for n in $(seq $shots); do
		shot $pi_shot
		sleep $((camera_pause / 2))
		shot $vivid_shot
		sleep $((camera_pause / 2))
	done
}
fig5_loaded() {
	phase fig5-loaded
	say "allocating $fig5_pages pages"
	for n in $(seq $fig5_runs); do give_up $fig5_pages; done
}
fig4_loaded() {
	phase fig4-loaded
	say "allocating, all sizes"
	for n in $(seq $fig4_runs_loaded); do
		for size in $(echo $sizes | tr , ' '); do give_up $size; done
	done
}

# Blogbench tells its scores at its end, after five minutes.
one_score() {
	mkdir /mnt/blogbench
	blogbench -d /mnt/blogbench >/tmp/score || return
	awk '/Final score for writes/ { w = $NF } /Final score for reads/ { r = $NF }
		END { printf "{\"type\": \"score\", \"reads\": %d, \"writes\": %d}\n", r, w }' /tmp/score
	rm -rf /mnt/blogbench
}
blogbench_scores() {
	phase fig7-alone
	for n in $(seq $scores); do one_score; done
	phase fig7-camera
	while :; do
		shot $pi_shot
		sleep $camera_pause
	done &
	shooting=$!
	for n in $(seq $scores); do one_score; done
	kill $shooting
	phase end
}

# perf has the context switch, sysbench the rest: the same quantities as lmbench's.
report() { printf '{"type": "table3", "what": "%s", "value": %s}\n' $1 "$2"; }
mibps() { sed -n 's/.*(\([0-9.]*\) MiB\/sec).*/\1/p'; }
readps() { sed -n 's/.*read, MiB\/s: *//p'; }
sysbench_file() { sysbench fileio --file-num=1 --file-total-size=64M "$@"; }
table3() {
	cd /mnt || exit
	need sysbench_file prepare >/dev/null
	for n in $(seq $table3_runs); do
		say "run $n"
		report lat_ctx_us "$(perf bench --format simple sched pipe --loop 20000 |
			awk '{ print $1 / 40000 * 1e6 }')"
		report file_mibps "$(sysbench_file --file-test-mode=seqrd --file-block-size=64K --time=0 \
			--events=4096 run | readps)"
		for way in read write; do
			report mem_${way}_mibps "$(sysbench memory --memory-block-size=8M \
				--memory-total-size=512M --memory-oper=$way --time=0 run | mibps)"
		done
	done
}

# An hour of the full load would take as long to emulate: memory is filled by it, then used by few.
hour() {
	retire
	serve --readers $hour_readers --pause-ms $hour_pause --writers 0 --commenters 1
	say "an allocation every second"
	sweep_all $sizes $hour_runs 1000
	statdump --label end
}
# With `used` pages of the area somebody's.
area() {
	if [ $used != 0 ]; then
		sweep --sizes $used --reps 1 --hold-ms 3600000 &
		holder=$!
	fi
	serve
	sleep $warm
	phase begin
	statdump --label begin
	sleep $((score + 1))
	end
	[ $used = 0 ] || kill $holder
}
# 512 pages of 2 MiB while the server's files and memory are everywhere: as one page of 1 GiB from
# an area that is then taken apart, or gathered by compaction.
huge_pages() {
	for n in $(seq $huge_runs); do
		say "huge pages, $n"
		timeout -s KILL $huge_give_up huge $huge || {
			given_up
			printf '{"type": "pool", "got": 0, "small": 0, "ns": %d000000000, "ok": false}\n' \
				$huge_give_up
		}
		sleep $pause
	done
	statdump --label end
}
