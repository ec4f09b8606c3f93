# SPDX-License-Identifier: MIT OR Apache-2.0
# A boot of the paper's evaluation: the steps, one after the other.
. /lib/paper.sh

nice_camera
for step in $steps; do $step; done
