// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Stands for functions of the C library behind libpdio.so. The one that is awaited notes the size of
 * "file" as the kernel has it, and does nothing; the others are the C library's.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "bare.h"

extern void *dlsym(void *, const char *);
extern int strcmp(const char *, const char *);

const char *volatile awaited;
long met;

static long size_now(void)
{
	struct stat st;

	return bare(SYS_newfstatat, AT_FDCWD, (long)"file", (long)&st, 0) ? -2 : st.st_size;
}

#define SHIM(name) \
	long shim_##name(long a, long b, long c, long d, long e, long f) __asm__(#name); \
	long shim_##name(long a, long b, long c, long d, long e, long f) \
	{ \
		static long (*next)(long, long, long, long, long, long); \
\
		if (awaited && !strcmp(awaited, #name)) { \
			met = size_now(); \
			return 0; \
		} \
		if (!next) \
			next = dlsym((void *)-1l, #name); \
		return next(a, b, c, d, e, f); \
	}
