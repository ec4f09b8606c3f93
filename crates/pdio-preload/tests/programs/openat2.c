// SPDX-License-Identifier: MIT OR Apache-2.0
/* Behind the library: what glibc 2.43 has. */
#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "bare.h"

int openat2(int directory, const char *path, const void *how, size_t size)
{
	long result = bare(SYS_openat2, directory, path, how, size);

	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}
