# SPDX-License-Identifier: MIT OR Apache-2.0
# Where freed memory is cleared, so is what copies leave behind when their client loses the area.
. /lib/reclaimed.sh

need scratch /dev/nullb0 -J size=16
tr '\0' Z </dev/zero 2>/dev/null | head -c 32m >/mnt/file
evict
sleep 1
need sweep --sizes 32768 --reps 1 --zeroed
cat /mnt/file >/dev/null
evict
# What had to be cleared before has been.
sleep 1
# The worker that looks for memory to clear does not look at each copy that is kept.
cd /sys/kernel/tracing || exit
echo 1 >events/workqueue/enable
echo file+swap >/sys/kernel/mm/gcma/reserved/clients
sleep 1
echo 0 >events/workqueue/enable
awk '$NF == "tidy" && $5 == "workqueue_execute_start:" { begun = $4 }
	$NF == "tidy" && $5 == "workqueue_execute_end:" {
		printf "{\"type\": \"tidied\", \"us\": %d}\n", ($4 - begun) * 1000000
	}' trace
echo none >/sys/kernel/mm/gcma/reserved/clients
sleep 1
need sweep --sizes 32768 --reps 1 --zeroed
