# SPDX-License-Identifier: MIT OR Apache-2.0
# For plain CMA: begin no more when `end` seconds have passed.
begin=$(cut -d. -f1 /proc/uptime)
in_time() { [ "$(cut -d. -f1 /proc/uptime)" -lt $((begin + end)) ]; }
