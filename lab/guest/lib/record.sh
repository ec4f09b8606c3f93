# SPDX-License-Identifier: MIT OR Apache-2.0
# What a comparison of recorders needs; lab/nocopy_lab/experiments/record.py says which.

# prepare_recorders FILES: a disk with what this function of the following writes for the load
prepare_recorders() {
	export GLIBC_TUNABLES=$tunables
	need zram_swap $swap
	need scratch $disk -J size=64
	need cp /bin/nocopy-record /mnt
	debian_root /dev/vda
	camera_thread_first
	for camera in $cameras; do need debian v4l2-ctl -d "$camera" -c osd_text_mode=2; done
	"$1"
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

load_files() { need load --dir /mnt --file-mib $files --prepare --seed $seed; }
blog_files() { need blog --dir /mnt --blogs $blogs --prepare --seed $seed; }

# debian_root DEVICE: programs of Debian, which see the same disk, cameras and processes
debian_root() {
	mkdir /debian && need mount -t ext4 -o ro "$1" /debian
	debian_places
	# where a package's script would put a link to them
	where=/usr/lib/$(uname -m)-linux-gnu
	export LD_LIBRARY_PATH=$where/blas:$where/lapack
}
debian_places() {
	for place in dev proc sys tmp mnt; do
		[ -d /debian/$place ] || mkdir /debian/$place
		need mount --bind /$place /debian/$place
	done
}
# debian COMMAND...: one of them
debian() { chroot /debian "$@"; }
# A virtual camera is a thread, which must not wait for programs as a real one does not.
camera_thread_first() { need renice -n -20 -p "$(pidof kthreadd)"; }

# take CASE CAMERA SECONDS COMMAND: a recording; what it leaves goes
take() {
	say "$1"
	recording --case "$1" --camera "$2" --seconds "$3" --frame-bytes $frame_bytes \
		--disk $disk --file /mnt/out.raw --command "exec $4" $counting
	taken=$?
	cat /tmp/said >&2
	need [ $taken = 0 ]
	rm -f /mnt/out.raw /mnt/out.raw.index
	sync
}

begin_load() {
	load --dir /mnt --file-mib $files --anon-mib $anon --seconds 36000 --touches $touches \
		--hot $hot --nice 10 --seed $seed &
	load=$!
	sleep $warm
}
# begin_blog [words]: instead of that, the server of blogs
begin_blog() {
	blog --dir /mnt --blogs $blogs --heap-mib $heap --seconds 36000 --nice $blog_nice \
		--seed $seed "$@" &
	load=$!
	sleep $blog_warm
}
end_load() {
	[ -z "$hogs" ] || kill $hogs
	kill -TERM $load
	wait $load
}
# Two programs that take all of the processor that they get.
begin_hogs() {
	for _ in 1 2; do
		while :; do :; done &
		hogs="$hogs $!"
	done
}
