// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A file of which a mapping is written elsewhere is cut off by another process, so that the copy faults.
 * The handler closes what else is written to, which says how much it was.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, CALLS = 4096 };

static int other;
static long written;

static void handler(int signal)
{
	(void)signal;
	if (close(other))
		_exit(4);
	dprintf(STDOUT_FILENO, "%ld\n", written);
	exit(0);
}

int main(void)
{
	static char page[PAGE];
	int source = open("source", O_RDWR | O_CREAT | O_TRUNC, 0644), copy, i;
	struct sigaction action = { .sa_handler = handler };
	char *map;

	memset(page, 1, sizeof(page));
	for (i = 0; i < PAGES; i++)
		if (write(source, page, PAGE) != PAGE)
			return 1;
	map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, source, 0);
	copy = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	other = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (map == MAP_FAILED || copy < 0 || other < 0 || sigaction(SIGBUS, &action, NULL))
		return 1;
	for (i = 0; i < CALLS; i++) {
		if (write(copy, map + i % PAGES * PAGE, PAGE) != PAGE ||
		    write(other, page, PAGE) != PAGE)
			return 1;
		written += PAGE;
	}
	/* A child would be one that shares the descriptors: nothing would be taken any more. */
	dprintf(STDOUT_FILENO, "cut\n");
	if (read(STDIN_FILENO, page, 1) != 1)
		return 1;
	for (i = 0; i < PAGES; i++)
		if (write(copy, map + i * PAGE, PAGE) != PAGE)
			break;
	/* The kernel said so, as it does without the library. */
	raise(SIGBUS);
	return 3;
}
