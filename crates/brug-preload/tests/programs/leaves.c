// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program whose main thread leaves by pthread_exit. It ends with its last thread, and what it has
 * registered with atexit then finds a stack of the usual size, and signals as the program has them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void at_exit(void)
{
	volatile char large[1 << 20];
	sigset_t blocked;

	memset((void *)large, 1, sizeof(large));
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	if (sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGUSR1))
		puts("leaves: not the program's signals");
	else
		puts("leaves: all checks passed");
	free(malloc(200 << 20));
}

static void *last(void *arg)
{
	char *object = malloc(100 << 20);

	memset(object, 1, 100 << 20);
	free(object);
	return arg;
}

int main(void)
{
	pthread_t thread;
	sigset_t signals;

	alarm(60); /* where it fails, it would wait for an hour */
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	atexit(at_exit);
	if (pthread_create(&thread, NULL, last, NULL))
		return 1;
	pthread_detach(thread);
	pthread_exit(NULL);
}
