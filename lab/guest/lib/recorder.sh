# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings of virtual cameras, each a case; lab/nocopy_lab/checks/recorder.py judges them.

hugepages=/sys/kernel/mm/hugepages
# text FILE: what is in it, for a string of JSON
text() { tr -s '\n\t\\"' ' ' <$1; }
# object FILE: the object in it, or null
object() { [ -s $1 ] && cat $1 || echo null; }
# tell CASE STATUS: what nocopy-record said, and how it ended
tell() {
	printf '{"type": "run", "case": "%s", "status": %d, "lines": %d, ' \
		$1 $2 "$(wc -l </tmp/$1.err)"
	printf '"error": "%s", "said": %s}\n' "$(text /tmp/$1.err)" "$(object /tmp/$1.out)"
}
# camera DEVICE SIZE: the words that say so; a host that is busy elsewhere is no dead camera
format=YUYV
camera() { echo --device $1 --size $2 --format $format --rate 25; }
patient="--timeout 1h --json --quiet"
# learn DEVICE SIZE: set this camera, and learn what its pictures look like
learn() {
	need pattern --case learn --device $1 --learn /tmp/rest-$2-$format --format $format \
		--width ${2%x*} --height ${2#*x}
}
# look CASE SIZE DIRECTORY [words]: at every byte of a recording; then it goes
look() {
	file=$3/$1.raw look=$1 size=$2
	shift 3
	need pattern --case $look --rest /tmp/rest-$size-$format --width ${size%x*} --height ${size#*x} \
		--check $file "$@"
	rm $file $file.index
}
# explain CASE DEVICE SIZE; no way is tried for ever
explain() {
	# shellcheck disable=SC2046 # words
	timeout -s KILL 300 nocopy-record explain $(camera $2 $3) --json /mnt/out.raw >/tmp/$1.out 2>/tmp/$1.err
	tell $1 $?
}
# begin CASE DEVICE SIZE DIRECTORY [words]: a recording
begin() {
	case=$1 size=$3 directory=$4 words=$(camera $2 $3)
	shift 4
	nocopy-record $words $patient "$@" $directory/$case.raw \
		>/tmp/$case.out 2>/tmp/$case.err &
	recorder=$!
}
# end [SIGNAL]: that recording
# shellcheck disable=SC2120
end() {
	[ -z "$1" ] || kill -$1 $recorder
	wait $recorder
	tell $case $?
}
# meanwhile CASE DEVICE SIZE DIRECTORY: another recording, which has to fail
meanwhile() {
	# shellcheck disable=SC2046 # words
	nocopy-record $(camera $2 $3) $patient $4/$1.raw >/tmp/$1.out 2>/tmp/$1.err
	tell $1 $?
	[ ! -e $4/$1.raw ] || exit 1
}
# record CASE DEVICE SIZE DIRECTORY [words]: from its beginning to its end
record() {
	begin "$@"
	end
	look $case $size $directory
}
# reached COUNT PATTERN: the index has so many such lines, or the recording is over
reached() {
	until [ "$(grep -c "$2" $directory/$case.raw.index)" -ge $1 ]; do
		kill -0 $recorder || break
		sleep 0.1
	done 2>/dev/null
}
# given COUNT DEVICE: the camera has given so many frames more
given() {
	left=$1 last=
	while [ $left -ge 0 ] && kill -0 $recorder; do
		now=$(pattern --device $2 --count)
		[ "$now" = "$last" ] || left=$((left - 1))
		last=$now
		sleep 0.01
	done
}
FRAME='^[0-9]' LOST='^# lost' DAMAGED='^# damaged'
