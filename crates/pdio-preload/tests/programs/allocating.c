// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Signals that come while memory is allocated, and what their handlers may then do: allocating HOW.
 * Whoever allocates or frees in such a handler would find the C library's locks held and its lists
 * half changed; here the process ends with 99.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare.h"
#include "wrapped.h"

static volatile int armed, handling;

/* Of the first thread: the library's own have interrupted nothing. */
static void enter(void)
{
	static const char text[] = "memory is allocated or freed in a handler\n";

	if (handling && bare(SYS_gettid) == getpid()) {
		bare(SYS_write, 2, text, sizeof(text) - 1);
		bare(SYS_exit_group, 99);
	}
}

void *malloc(size_t size)
{
	enter();
	if (armed) {
		long process = bare(SYS_getpid);

		armed = 0;
		bare(SYS_tgkill, process, process, SIGTERM);
	}
	return __libc_malloc(size);
}

static const char *how;
static int ends[2];

static void handler(int signal)
{
	(void)signal;
	handling = 1;
	if (!strcmp(how, "_exit"))
		_exit(3);
	if (!strcmp(how, "_Exit"))
		_Exit(4);
	if (!strcmp(how, "exit_group"))
		syscall(SYS_exit_group, 5);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "execve"))
		execve("/bin/true", (char *[]){ "true", NULL }, environ);
	if (!strcmp(how, "tell") && write(ends[1], "x", 1) != 1)
		_exit(6);
	handling = 0;
}

static char block[7000];

static int taken(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	for (int i = 0; i < 300; i++) {
		memset(block, i, sizeof(block));
		if (write(fd, block, sizeof(block)) != sizeof(block))
			exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	int fd, other;

	how = argc > 1 ? argv[1] : "";
	if (pipe(ends))
		return 1;
	signal(SIGTERM, handler);
	fd = taken("first");
	other = taken("second");
	lseek(other, 5, SEEK_SET);
	for (int i = 0; i < 20; i++) {
		if (write(fd, block, 100) != 100 || write(other, block, 10) != 10)
			return 1;
		/* The first time from here: the library may begin what it needs for it. */
		if (!strcmp(how, "tell") && i == 0 && write(ends[1], "x", 1) != 1)
			return 1;
		/* No stream goes back in the handler. */
		if (!strcmp(how, "execve") && i == 19 && close(fd) | close(other))
			return 1;
		if (!strcmp(how, "tell") || i == 19) {
			armed = 1;
			free(malloc(10));
		}
	}
	return close(fd) | close(other);
}
