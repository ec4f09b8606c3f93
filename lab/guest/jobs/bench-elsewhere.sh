# SPDX-License-Identifier: MIT OR Apache-2.0
# Copies of `mib` MiB in calls of `sizes` bytes, in `rounds`, where libpdio.so takes no files: on NFS,
# from this kernel's own server, and on FUSE. By GNU dd, with O_DIRECT, with the library, by pdio dd.
. /lib/nfs.sh

need scratch /dev/nullb0
mkdir -p /mnt/exported /mnt/passed /fuse
nfs /mnt/exported /nfs
need bindfs /mnt/passed /fuse

# copy DIRECTION WORDS...: timed, by $way; all are started alike
copy() {
	name="$place $1 $size $way"; shift
	case $way in
	preload) set -- LD_PRELOAD=/bin/libpdio.so /bin/dd "$@" ;;
	pdio) set -- LAB=1 /bin/pdio dd "$@" ;;
	*) set -- LAB=1 /bin/dd "$@" ;;
	esac
	need timed "$name" env "$@" bs=$size status=none
}

for round in $(seq "$rounds"); do
	for place in nfs fuse; do
		file=/$place/file
		for size in $sizes; do
			for way in $ways; do
				direct=""
				if [ $way = direct ]; then
					# Smaller ones take many times as long, and say no more.
					[ $size -ge 65536 ] || continue
					direct=flag=direct
				fi
				say "$place $size $way"
				rm -f $file && sync
				copy write if=/dev/zero of=$file count=$(((mib << 20) / size)) conv=fsync ${direct:+o$direct}
				echo 3 >/proc/sys/vm/drop_caches
				copy read if=$file of=/dev/null ${direct:+i$direct}
			done
		done
	done
done
