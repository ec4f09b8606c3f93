# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests of the crates in a guest, each with a line about how it ended.

# run NAME COMMAND...
run() {
	name=$1; shift
	"$@" >/tmp/said 2>&1 </dev/null
	code=$?
	[ $code = 0 ] || { echo "lab: $name ended with $code" >/dev/console
		tail -n 40 /tmp/said >/dev/console; }
	printf '{"type": "case", "name": "%s", "exit": %d, "skipped": %d}\n' "$name" $code \
		"$(grep -c skipped: /tmp/said)"
}
# passed COUNT COMMAND...: so many tests passed. A name that no test has would pass.
passed() {
	wanted=$1; shift
	"$@" || return 1
	grep -q "^test result: ok. $wanted passed" /tmp/said
}
