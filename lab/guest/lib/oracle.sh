# SPDX-License-Identifier: MIT OR Apache-2.0
# What an oracle meets besides its own operations: filesystems, kinds of swap, settings that change.

# The oracle of oracle.sh goes on until this file is there, if it is told to.
enough=/tmp/enough

on_xfs() {
	need /bin/mkfs.xfs -q -f -K /dev/vda
	need mount -t xfs /dev/vda /mnt
}
on_btrfs() {
	need /bin/mkfs.btrfs -q -f -K /dev/vda >/dev/null
	need mount -t btrfs /dev/vda /mnt
}
# on_f2fs [mkfs.f2fs words]
on_f2fs() {
	need /bin/mkfs.f2fs -q -f -t 0 "$@" /dev/vda >/dev/null
	need mount -t f2fs /dev/vda /mnt
}
# What is on /mnt from now on is encrypted.
encrypted() {
	mkdir /mnt/files
	need fscrypt --encrypt
	need mount --bind /mnt/files /mnt
}
# An overlay on a filesystem in a file: the pages of both filesystems are kept.
on_overlay() {
	need scratch /dev/vda
	mkdir -p /loop /lower
	need mount --move /mnt /lower
	need truncate -s 640M /lower/image
	need /bin/mke2fs -q -F -t ext4 /lower/image
	need mount -o loop /lower/image /loop
	mkdir /lower/below /loop/above /loop/work
	need mount -t overlay -o lowerdir=/lower/below,upperdir=/loop/above,workdir=/loop/work none /mnt
}
# on_zram DEVICE SIZE: ext4 on compressed memory
on_zram() {
	echo "$2" >"/sys/block/$1/disksize"
	need scratch "/dev/$1"
}

# Traces large folios that are stored whole, and those that are filled whole.
trace_large_folios() {
	cd /sys/kernel/tracing || exit
	echo 64 >buffer_size_kb
	for event in store load; do
		echo 'pages > 1' >events/gcma/gcma_$event/filter
		echo 1 >events/gcma/gcma_$event/enable
	done
	cd / || exit
}
seen() { grep -q "gcma_$2: client=$1 .*$3" /sys/kernel/tracing/trace; }
# await_large_folios CLIENT [COMMAND]: it is enough when large folios of the client went whole both
# ways, and when COMMAND says so.
await_large_folios() {
	{
		until seen "$1" store; do sleep 0.5; done
		until seen "$1" load hit; do sleep 0.5; done
		printf '{"type": "large", "client": "%s"}\n' "$1"
		until ${2:-true}; do sleep 0.5; done
		: >$enough
	} &
}

# Swap in a file and on zram.
swap_file_and_zram() {
	need /bin/mke2fs -q -F -t ext4 /dev/vdb
	mkdir /swap
	need mount -t ext4 /dev/vdb /swap
	need fallocate -l 400M /swap/file
	need zram_swap 256
	need disk_swap /swap/file
}
# Each of the two comes and goes, and anonymous memory has large folios.
change_swap() {
	: >/tmp/swapoffs
	for size in 16 32 64; do
		echo always >/sys/kernel/mm/transparent_hugepage/hugepages-${size}kB/enabled
	done
	while true; do
		for device in /dev/zram0 /swap/file; do
			sleep 1
			swapoff $device && swapon $device && echo '{"type": "swapoff"}' | tee -a /tmp/swapoffs
		done
	done 2>/dev/null &
	changes=$!
}
swap_changed() { [ "$(wc -l </tmp/swapoffs)" -ge 2 ]; }
keep_swap() {
	kill $changes
	wait $changes
}

# While programs run and allocations are made, an area changes what it is lent for. Wrong words
# change nothing.
wrong() { echo '{"type": "wrong", "what": "'"$*"'"}' >>/tmp/wrong; }
change_clients() {
	cd /sys/kernel/mm/gcma/reserved || exit
	for word in cma tape file,swap '' ' file'; do
		echo "$word" >clients && wrong "clients took $word"
	done
	for count in 0 -1 x 16385; do
		echo $count >prepare && wrong "prepare took $count"
	done
	while sleep 2; do
		echo 8192 >prepare
		sleep 1
		for word in none file swap file+swap; do
			echo $word >clients && [ "$(cat clients)" = $word ] || wrong "clients is not $word"
			case $word in
			file | none) [ "$(cat swap/cached)" = 0 ] || wrong "swap left in $word" ;;
			esac
			case $word in
			swap | none) [ "$(cat file/cached)" = 0 ] || wrong "file left in $word" ;;
			esac
			sleep 0.1
		done
		echo . >>/tmp/rounds
		[ "$(wc -l </tmp/rounds)" -lt 5 ] || : >$enough
	done &
	control=$!
	cd / || exit
}
keep_clients() {
	kill $control
	cat /tmp/wrong
}

# Allocations that may not wait fail now and then, those of xarray nodes among them.
fail_allocations() {
	for what in failslab fail_page_alloc; do
		cd /sys/kernel/debug/$what || exit
		echo Y >ignore-gfp-wait
		echo 0 >verbose
		echo 5 >probability
		echo -1 >./times
	done
	echo 0 >/sys/kernel/debug/fail_page_alloc/min-order
	cd / || exit
}
fail_no_more() { echo 0 | tee /sys/kernel/debug/fail*/probability >/dev/null; }

# How often KCSAN waited for somebody else to use what a CPU was about to use.
kcsan_looked() {
	printf '{"type": "kcsan", "looked": %d}\n' \
		"$(sed -n 's/^setup_watchpoints: //p' /sys/kernel/debug/kcsan)"
}
