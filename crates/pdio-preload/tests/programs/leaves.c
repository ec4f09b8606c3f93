// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program whose main thread leaves, by the way that is asked for, with a stream open. The process ends
 * with its last thread, which runs what was registered for that: it has to be one of the program's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static char block[7000];

static void write_stream(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	for (int i = 0; i < 1000; i++) {
		memset(block, i, sizeof(block));
		if (write(fd, block, sizeof(block)) != sizeof(block))
			exit(1);
	}
}

static void at_the_end(void)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	printf("%s thread, SIGALRM %s, descriptor %d\n", gettid() == getpid() ? "main" : "another",
	       sigismember(&mask, SIGALRM) ? "blocked" : "free", open("/dev/null", O_RDONLY));
	fflush(stdout);
}

/* By value: what the main thread has on its stack is gone once it is cancelled. */
static void *cancel(void *main_thread)
{
	pthread_cancel((pthread_t)main_thread);
	pthread_join((pthread_t)main_thread, NULL);
	return NULL;
}

/* The thread that forks is the main thread of the child. */
static void *divide(void *unused)
{
	int status;
	pid_t child = fork();

	if (!child) {
		write_stream("child's");
		pthread_exit(NULL);
	}
	waitpid(child, &status, 0);
	exit(status ? 1 : 0);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	const char *how = argc > 1 ? argv[1] : "";

	atexit(at_the_end);
	if (!strcmp(how, "fork")) {
		if (pthread_create(&thread, NULL, divide, NULL))
			return 1;
		for (;;)
			pause();
	}
	write_stream("file");
	if (!strcmp(how, "pthread_exit"))
		pthread_exit(NULL);
	if (!strcmp(how, "thrd_exit"))
		thrd_exit(0);
	if (!strcmp(how, "cancelled")) {
		if (pthread_create(&thread, NULL, cancel, (void *)pthread_self()))
			return 1;
		for (;;)
			pause();
	}
	/* For which the library's threads end. Until then the one that looks for idle data has begun to wait. */
	if (!strcmp(how, "unshare")) {
		usleep(300000);
		time_t before = time(NULL);
		int result = unshare(CLONE_NEWUSER);

		printf("%d%s\n", result, time(NULL) - before > 15 ? " late" : "");
		return 0;
	}
	return 2;
}
