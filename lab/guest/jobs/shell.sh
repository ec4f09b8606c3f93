# SPDX-License-Identifier: MIT OR Apache-2.0
# Sets the stage for whoever has the terminal.
echo 7 >/proc/sys/kernel/printk
zram_swap 512
[ ! -b /dev/vda ] || scratch /dev/vda
clear 2>/dev/null
cat <<END
$(uname -sr): $(grep -c ^processor /proc/cpuinfo) CPUs, swap on zram, on x86-fast an ext4 on /mnt.
Contiguous area: /sys/kernel/mm/gcma/, /sys/kernel/mm/cma/; programs: sweep, load, statdump, ...
Leave with Ctrl-A X, or: poweroff -f
END
