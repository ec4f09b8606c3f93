# SPDX-License-Identifier: MIT OR Apache-2.0
# A file server and its client in one kernel.

# nfs DIRECTORY MOUNTPOINT: exports a directory of a local filesystem, and mounts it over loopback.
#
# The kernel's server asks a program who may mount what, unless it knows. It is told here what it
# would ask: who the client is, what that client may mount and how, and which directory is the root.
nfs() {
	forever=2147483647
	# not only from privileged ports, no check of subtrees, the root of NFSv4: NFSEXP_* of the kernel
	flags=$((0x2 | 0x400 | 0x2000))
	need ifconfig lo 127.0.0.1 up
	need mount -t nfsd none /proc/fs/nfsd
	echo "nfsd 127.0.0.1 $forever loopback" >/proc/net/rpc/auth.unix.ip/channel || exit 1
	echo "loopback $1 $forever $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel || exit 1
	printf 'loopback 1 \\x00000000 %s %s\n' $forever "$1" >/proc/net/rpc/nfsd.fh/channel || exit 1
	echo "-3 +4" >/proc/fs/nfsd/versions
	echo "tcp 2049" >/proc/fs/nfsd/portlist || exit 1
	# How long clients may reclaim what they had before the server began; no less can be said.
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo 8 >/proc/fs/nfsd/threads || exit 1
	while grep -q N /proc/fs/nfsd/v4_end_grace; do sleep 1; done
	mkdir -p "$2"
	need mount -t nfs4 -o vers=4.2,clientaddr=127.0.0.1 127.0.0.1:/ "$2"
}
