/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The child of a vfork, which has its parent's memory and limits of its own, sets a limit of data; then
 * the parent sets one. Prints how many bytes beyond an object that has grown can be written to, after
 * the first and after the second.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "maps.h"

#define SIZE (8ul << 20)

static char *grown(void)
{
	char *p = NULL;

	for (size_t size = 16; size <= SIZE; size *= 2) {
		p = realloc(p, size);
		if (!p)
			_exit(1);
		memset(p + size / 2, 1, size / 2);
	}
	return p;
}

int main(void)
{
	static const struct rlimit limit = { 1ul << 30, RLIM_INFINITY };
	char *first, *second;
	int status = 1;
	pid_t child = vfork();

	if (!child)
		_exit(setrlimit(RLIMIT_DATA, &limit) != 0);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return 1;
	first = grown();
	printf("%lu ", writable(first) - SIZE);
	if (setrlimit(RLIMIT_DATA, &limit))
		return 1;
	second = grown();
	printf("%lu %lu\n", writable(first) - SIZE, writable(second) - SIZE);
	return 0;
}
