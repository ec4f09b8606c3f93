// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Another library to preload, which stands in for one of the two names that some functions have, and says
 * when it is called.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "bare.h"

#define SAY(what) bare(SYS_write, 1, (long)("half: " what "\n"), sizeof("half: " what), 0)

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = va_arg(more, mode_t);
	va_end(more);
	SAY("open");
	return next(path, flags, mode);
}

/* By the other name, as that of a library before it or of the C library. */
FILE *fopen(const char *path, const char *mode)
{
	SAY("fopen");
	return fopen64(path, mode);
}

int stat64(const char *path, struct stat64 *out)
{
	int (*next)(const char *, struct stat64 *) = dlsym(RTLD_NEXT, "stat64");

	SAY("stat64");
	return next(path, out);
}
