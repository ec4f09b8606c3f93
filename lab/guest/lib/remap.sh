# SPDX-License-Identifier: MIT OR Apache-2.0
# Disks that change under their filesystem.

# There is no udev that would answer.
export DM_DISABLE_UDEV=1
# remap NAME TABLE: another table of a mapped device
remap() {
	need dmsetup suspend --nolockfs "$1"
	printf '%s\n' "$2" | need dmsetup load "$1" || exit 1
	need dmsetup resume "$1"
}
