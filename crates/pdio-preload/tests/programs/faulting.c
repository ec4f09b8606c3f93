// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A file of which a mapping is written elsewhere is cut off by another process, so that the copy faults.
 * The handler closes what else is written to, looks at its size, and ends the process as the argument says. With
 * "default" there is no handler.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, CALLS = 4200, PRIME = 251 };

static int other;
static long written;
static const char *end;

static void handler(int signal)
{
	struct stat about;

	(void)signal;
	if (!strcmp(end, "fork")) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		if (child < 0 || waitpid(child, NULL, 0) != child)
			_exit(5);
	}
	if (close(other))
		_exit(4);
	if (stat("other", &about))
		_exit(6);
	dprintf(STDOUT_FILENO, "%ld of %ld\n", (long)about.st_size, written);
	if (!strcmp(end, "exec"))
		execl("/bin/true", "true", NULL);
	if (!strcmp(end, "_exit"))
		_exit(0);
	exit(0);
}

int main(int count, char **arguments)
{
	static char page[PAGE];
	int source = open("source", O_RDWR | O_CREAT | O_TRUNC, 0644), copy, i;
	struct sigaction action = { .sa_handler = handler };
	char *map;

	if (count != 2)
		return 2;
	end = arguments[1];
	for (i = 0; i < PAGES; i++) {
		memset(page, i, sizeof(page));
		if (write(source, page, PAGE) != PAGE)
			return 1;
	}
	map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, source, 0);
	copy = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	other = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (map == MAP_FAILED || copy < 0 || other < 0)
		return 1;
	if (strcmp(end, "default") && sigaction(SIGBUS, &action, NULL))
		return 1;
	for (i = 0; i < CALLS; i++) {
		memset(page, i % PRIME, sizeof(page));
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
