// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with another thread forks after as many small objects as the argument says; its child
 * has many more, and ends like a program.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 400000 };

static void *idle(void *arg)
{
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	int before = argc > 1 ? atoi(argv[1]) : 0, status = -1;
	pthread_t thread;
	pid_t child;

	if (pthread_create(&thread, NULL, idle, NULL))
		return 2;
	for (int i = 0; i < before; i++)
		if (!malloc(50))
			return 3;
	child = fork();
	if (child == 0) {
		for (int i = 0; i < MANY; i++)
			free(malloc(60));
		return 0;
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 4;
	_exit(status != 0);
}
