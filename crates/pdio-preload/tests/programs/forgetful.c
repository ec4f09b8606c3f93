// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A library that is wrong in one small way: every so often the last byte of a write is another one.
 * The comparison of sequences has to find that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int fd, const void *data, size_t len)
{
	static ssize_t (*next)(int, const void *, size_t);
	static char copy[8192];
	static int calls;

	if (!next)
		next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (len < 2 || len > sizeof(copy) || ++calls % 20)
		return next(fd, data, len);
	memcpy(copy, data, len);
	copy[len - 1] ^= 1;
	return next(fd, copy, len);
}
