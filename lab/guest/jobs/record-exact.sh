# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings while nobody else runs, where the disk is memory of the guest: how many instructions a
# frame takes, the same in every boot. A Debian root is not there, but v4l2-ctl is, below /debian.
. /lib/record.sh

# What of it is the disk's, which copies with the processor: the same requests to it, and to one that
# throws all away. All of it is written once, so that its memory is there.
need mount -t configfs none /sys/kernel/config
away=/sys/kernel/config/nullb/nullb1
need mkdir $away
for word in size=1024 blocksize=4096 blocking=1 memory_backed=0 $disk_words; do
	need sh -c "echo ${word#*=} >$away/${word%=*}"
done
need echo 1 >$away/power
need dd if=/dev/zero of="$disk" bs=1M count=1024 oflag=direct status=none
for turn in 1 2; do
	need timed "disk:$turn" dd if=/dev/zero of="$disk" bs="$frame_bytes" count="$requests" oflag=direct status=none
	need timed "nothing:$turn" dd if=/dev/zero of=/dev/nullb1 bs="$frame_bytes" count="$requests" oflag=direct status=none
done

need scratch "$disk" -J size=64
need cp /bin/nocopy-record /mnt
debian_places
camera_thread_first
for camera in $cameras; do need debian v4l2-ctl -d "$camera" -c osd_text_mode=2; done
sync
echo 3 >/proc/sys/vm/drop_caches
phase quiet
eval "$quiet"
phase end
