# SPDX-License-Identifier: MIT OR Apache-2.0
# A server of blogs.
. /lib/traces.sh

need blog --dir /mnt --blogs 150 --prepare --seed $seed
begin
say "serving blogs"
need blog --dir /mnt --blogs 150 --readers 20 --writers 1 --commenters 2 --heap-mib 40 \
	--seconds $seconds --seed $seed
end
