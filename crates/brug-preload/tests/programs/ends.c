// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread forks while others begin and end, and ends in the child. What the C
 * library does at the end of a thread, it does whoever had which lock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS	2000
#define OTHERS	4

static atomic_int done;

static void *allocate(void *size)
{
	void *volatile p = malloc((size_t)size);

	free(p);
	return NULL;
}

static void *come_and_go(void *arg)
{
	while (!done) {
		pthread_t one;

		if (!pthread_create(&one, NULL, allocate, arg))
			pthread_join(one, NULL);
	}
	return NULL;
}

static void *fork_often(void *arg)
{
	allocate(arg);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		int status = 0;

		if (!child) {
			alarm(60);
			pthread_exit(NULL);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status) {
			fprintf(stderr, "child %d of %d: status %#x\n", i, FORKS, status);
			exit(1);
		}
	}
	done = 1;
	return NULL;
}

int main(void)
{
	pthread_t others[OTHERS], forker;

	for (int i = 0; i < OTHERS; i++)
		if (pthread_create(&others[i], NULL, come_and_go, (void *)100))
			return 2;
	if (pthread_create(&forker, NULL, fork_often, (void *)100))
		return 2;
	pthread_join(forker, NULL);
	for (int i = 0; i < OTHERS; i++)
		pthread_join(others[i], NULL);
	puts("ends: all checks passed");
	return 0;
}
