/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program of one thread that has the library start its own. With that it may leave its user namespace all
 * the same, no thread keeps rights that it has given up, and none takes a signal that it waits for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB (1ul << 20)
#define SIZE (64 * MIB)

int capset(cap_user_header_t header, const cap_user_data_t data);

static long threads(void)
{
	struct stat about;

	return stat("/proc/self/task", &about) ? -1 : (long)about.st_nlink - 2;
}

static void start_a_thread(void)
{
	char *object = malloc(SIZE);

	if (!object)
		_exit(2);
	memset(object, 1, SIZE);
	free(object);
}

static void start_and_wait_for(int (*run)(void))
{
	int status = 1;
	pid_t child = fork();

	if (!child)
		_exit(run());
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
}

static int nothing(void)
{
	return 0;
}

/* The library's thread may watch how an object is filled. Python warns of a fork among threads right after it. */
static int fork_while_filling(void)
{
	char *object = NULL;

	for (size_t end = MIB; end <= 48 * MIB; end += MIB) {
		object = realloc(object, end);
		if (!object)
			_exit(2);
		memset(object + end - MIB, 1, MIB);
	}
	start_and_wait_for(nothing);
	CHECK(threads() == 1);
	free(object);
	return failures;
}

/* The library leaves SIGSYS to a handler, but only where the program does. */
static int wait_for_signals(void)
{
	const struct timespec at_once = { 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGSYS);
	CHECK(!sigprocmask(SIG_BLOCK, &set, NULL));
	for (int threads_before = 1; threads_before <= 2; threads_before++) {
		CHECK(threads() == threads_before);
		CHECK(!kill(getpid(), SIGSYS));
		/* What is freed first goes back at once; the next object starts the thread. */
		start_a_thread();
		start_a_thread();
		CHECK(threads() == 2);
		CHECK(sigtimedwait(&set, NULL, &at_once) == SIGSYS);
	}
	CHECK(!kill(getpid(), SIGSYS));
	start_and_wait_for(nothing);
	CHECK(sigtimedwait(&set, NULL, &at_once) == SIGSYS);
	return failures;
}

int main(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { 0 };
	int fd = 0;

	start_and_wait_for(fork_while_filling);
	start_and_wait_for(wait_for_signals);
	/* What is freed first goes back without one. */
	start_a_thread();
	CHECK(threads() == 1);
	start_a_thread();
	CHECK(threads() == 2);
	/* Under a limit of processes there may be no room for both. */
	start_and_wait_for(nothing);
	CHECK(threads() == 1);
	start_a_thread();
	CHECK(threads() == 2);
	/* Who may not is told so. */
	CHECK(!unshare(CLONE_NEWUSER) || errno != EINVAL);
	CHECK(threads() == 1);
	start_a_thread();
	CHECK(threads() == 2);
	CHECK(!capset(&header, none));
	CHECK(threads() == 1);
	start_a_thread();
	CHECK(threads() == 2);
	errno = 0;
	CHECK(setns(fd, 0) && errno == EINVAL);
	CHECK(threads() == 1);
	if (!failures)
		puts("rights: all checks passed");
	return failures != 0;
}
