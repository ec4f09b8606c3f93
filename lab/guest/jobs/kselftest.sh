# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel's own test program.

need zram_swap 256
need scratch /dev/vda -b 1024
gcma_test /mnt >/tmp/ktap 2>&1
status=$?
sed 's/[\"]/\&/g; s/.*/{"type": "ktap", "line": "&"}/' /tmp/ktap
exit $status
