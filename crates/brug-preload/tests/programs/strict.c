/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A system that does not overcommit, as far as the allocator can tell: this program's open() has
 * it read 2. Grows an object and forks; the child, which is charged for everything that its parent
 * may write to, prints how many bytes that is beyond the object.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "maps.h"

#define SIZE (64ul << 20)

static int open_strict(const char *path, int flags, int mode)
{
	int ends[2];

	if (strcmp(path, "/proc/sys/vm/overcommit_memory"))
		return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (pipe(ends) || write(ends[1], "2\n", 2) != 2)
		return -1;
	close(ends[1]);
	return ends[0];
}

int open(const char *path, int flags, ...)
{
	va_list list;

	va_start(list, flags);
	int mode = va_arg(list, int);
	va_end(list);
	return open_strict(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int main(void)
{
	char *p = malloc(200 << 10);
	pid_t child;

	for (size_t size = 400 << 10; size < SIZE; size *= 2)
		p = realloc(p, size);
	p = realloc(p, SIZE);
	memset(p, 7, SIZE);
	unsigned long before = writable(p);
	child = fork();
	if (child < 0)
		return 1;
	if (!child) {
		if (p[SIZE - 1] != 7)
			_exit(1);
		printf("%lu\n", writable(p) - SIZE);
		fflush(stdout);
		_exit(before < SIZE);
	}
	int status = 0;
	waitpid(child, &status, 0);
	/* It goes on growing. */
	p = realloc(p, 2 * SIZE);
	memset(p + SIZE, 8, SIZE);
	return status || p[0] != 7 || p[SIZE - 1] != 7;
}
