# SPDX-License-Identifier: MIT OR Apache-2.0
# Taking memory of an area offline, which has to be refused. `base` is where it begins.

base=$(cat /sys/kernel/debug/cma/$area/base_pfn)
# offline N: the block of memory N behind the one with the beginning
offline() {
	size=$((0x$(cat /sys/devices/system/memory/block_size_bytes)))
	block=$((base * 4096 / size + $1))
	answer=$(timeout 60 sh -c "echo offline >/sys/devices/system/memory/memory$block/state" 2>&1)
	case $answer in
	*"resource busy"*) ;;
	*) echo "{\"type\": \"broken\", \"why\": \"offlining said: $answer\"}" ;;
	esac
}
