/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Memory that is freed goes back: in a child that was made by the system call itself, whose C library
 * ran no handler, while its parent had more than one thread; and after the child of a vfork, which has
 * its parent's memory, has freed some.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (60ul << 20)

static unsigned long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long all, pages = 0;

	if (!file || fscanf(file, "%lu %lu", &all, &pages) != 2)
		_exit(4);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void use(void)
{
	char *object = malloc(SIZE);

	if (!object)
		_exit(5);
	memset(object, 1, SIZE);
	free(object);
}

/* Status 0 if memory goes back in time, long as that is. */
static int goes_back(void)
{
	for (int i = 0; i < 2000; i++) {
		if (resident() < SIZE / 2)
			return 0;
		usleep(10000);
	}
	return 1;
}

static int ended(pid_t child)
{
	int status = 1;

	return child < 0 || waitpid(child, &status, 0) != child || status;
}

int main(void)
{
	pid_t child = vfork();

	if (!child) {
		use();
		_exit(0);
	}
	if (ended(child))
		return 2;
	use();
	if (goes_back())
		return puts("orphans: memory stays after a vfork"), 1;
	use();
	child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		use();
		_exit(goes_back());
	}
	if (ended(child))
		return puts("orphans: memory stays in a child"), 1;
	puts("orphans: all checks passed");
	return 0;
}
