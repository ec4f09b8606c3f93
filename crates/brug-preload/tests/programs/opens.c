// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program whose own open() allocates, as that of libraries which look at what is opened. The allocator
 * calls it by its name to read what the system is set to.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SMALL = 20000, LARGE = 1 << 20 };

static int opened;
static size_t also; /* bytes of another object */

int open(const char *path, int flags, ...)
{
	char *copy = strdup(path), *other = malloc(also);
	int mode, file = -1;
	va_list list;

	va_start(list, flags);
	mode = va_arg(list, int);
	va_end(list);
	opened++;
	if (copy)
		file = syscall(SYS_openat, AT_FDCWD, copy, flags, mode);
	free(other);
	free(copy);
	return file;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int main(void)
{
	for (int i = 0; i < SMALL; i++)
		free(malloc(100));
	also = LARGE;
	for (int i = 0; i < 40; i++)
		free(realloc(malloc(LARGE), 20 * LARGE));
	printf("opens: %s\n", opened < 100 ? "all checks passed" : "again and again");
	return opened >= 100;
}
