// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A disk that fails on demand: behind the library, writes return EIO while `failing` is set. How
 * many did is in `failed`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>

int failing, failed;

ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
	static ssize_t (*next)(int, const void *, size_t, off_t);

	if (failing) {
		__atomic_fetch_add(&failed, 1, __ATOMIC_SEQ_CST);
		errno = EIO;
		return -1;
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "pwrite64");
	return next(fd, data, len, at);
}
