/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program of one thread that frees a large object once. It stays one of one thread for the C library, which then
 * takes no locks, so that a handler of a signal may fork in the midst of malloc.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "status.h"

#define LARGE (20 << 20)

static volatile int forks;

static void use(void)
{
	char *object = malloc(LARGE);

	memset(object, 1, LARGE);
	free(object);
}

static void handler(int signal)
{
	pid_t child = fork();

	(void)signal;
	if (!child)
		_exit(0);
	CHECK(child > 0 && waitpid(child, NULL, 0) == child);
	forks++;
}

int main(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	size_t before = status_kib("VmRSS:");
	int status = 1;
	time_t end;
	pid_t child;

	alarm(60); /* where it fails, it waits for ever */
	use();
	CHECK(__libc_single_threaded);
	/* So does each of its children. */
	child = fork();
	if (!child) {
		use();
		_exit(!__libc_single_threaded);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(status_kib("VmRSS:") < before + (9 << 10));
	signal(SIGPROF, handler);
	end = time(NULL) + 2;
	setitimer(ITIMER_PROF, &often, NULL);
	while (time(NULL) < end)
		for (int i = 0; i < 1000; i++)
			free(malloc(5000));
	setitimer(ITIMER_PROF, &never, NULL);
	CHECK(forks > 0);
	if (!failures)
		puts("single: all checks passed");
	return failures != 0;
}
