# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests of libpdio.so and of the crate below it: those of these names, and random sequences.
. /lib/tests.sh

need scratch /dev/vda
mkdir -p /var
ln -s /mnt /var/tmp
# Tests end processes by faults; the kernel's lines about them are no complaints.
echo 0 >/proc/sys/debug/exception-trace
export PDIO_TEST_BUILT=/pdio PDIO_MODEL_SEEDS=1 RUST_BACKTRACE=1
for file in $files; do
	eval "names=\$$file"
	# shellcheck disable=SC2154,SC2086 # words
	run "$file" passed "$(set -- $names; echo $#)" "/pdio/tests/$file" --exact $names --show-output
	# What is broken may make what follows hang.
	[ $code = 0 ] || exit 1
	say "$file: $(cut -d. -f1 /proc/uptime) s after the start"
done
seed=$(cat /pdio/seed)
export PDIO_FUZZ_ON=disk PDIO_FUZZ_SEED=$seed PDIO_FUZZ_SECONDS=$seconds
run "random sequences from seed $seed" passed 1 \
	/pdio/tests/fuzz --exact random_sequences_do_what_they_do_without_the_library --nocapture
