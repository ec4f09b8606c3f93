// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that has the library start its thread, and then changes its group: the C library has every
 * thread do that by a signal, which takes some of its stack. The thread-local storage is
 * at the upper end of a thread's stack; how large it is, the test says.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 40 << 20 };

static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int found = 0;

	while (tasks && readdir(tasks))
		found++;
	if (tasks)
		closedir(tasks);
	return found - 2;
}

int main(void)
{
	/* What is freed first goes back without a thread. */
	for (int i = 0; i < 2; i++) {
		char *object = malloc(LARGE);

		if (!object)
			return 2;
		memset(object, 1, LARGE);
		free(object);
	}
	if (setgid(getgid()))
		return 3;
	printf("thread: %d\n", threads());
	/* until it has done its work */
	for (int i = 0; i < 6000 && threads() > 1; i++)
		usleep(10000);
	return threads() > 1;
}
