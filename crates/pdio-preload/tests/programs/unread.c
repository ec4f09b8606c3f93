// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One thread executes a program while standard error is a full pipe, so it waits with what the library prints before. The
 * other one forks meanwhile. Ends with 0 if the child does, with 3 if the first thread was not seen to wait.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bare.h"

static char block[4096];

/* The system call that the first thread waits in; -1 if it runs. */
static long waits_in(void)
{
	char text[64] = "";
	int fd = bare(SYS_openat, AT_FDCWD, "/proc/self/syscall", O_RDONLY);

	/* That of the process's first thread. */
	(void)!bare(SYS_read, fd, text, sizeof(text) - 1);
	bare(SYS_close, fd);
	return *text >= '0' && *text <= '9' ? atol(text) : -1;
}

static void *forks(void *unused)
{
	struct timespec moment = { 0, 10000000 };
	pid_t child;

	for (int i = 0; waits_in() != SYS_write; i++) {
		if (i == 1000)
			bare(SYS_exit_group, 3);
		nanosleep(&moment, NULL);
	}
	child = fork();
	if (!child)
		exit(0);
	for (int i = 0; i < 1000; i++) {
		if (waitpid(child, NULL, WNOHANG) == child)
			bare(SYS_exit_group, 0);
		nanosleep(&moment, NULL);
	}
	kill(child, SIGKILL);
	bare(SYS_exit_group, 1);
	return unused;
}

int main(void)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	pthread_t thread;

	for (int i = 0; i < 512; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 2;
	close(fd);
	fcntl(2, F_SETFL, O_NONBLOCK);
	while (write(2, block, sizeof(block)) > 0)
		;
	while (write(2, block, 1) > 0)
		;
	fcntl(2, F_SETFL, 0);
	if (pthread_create(&thread, NULL, forks, NULL))
		return 2;
	/* It fails: with what is printed, the other thread ends the process before. */
	execl("/bin/false", "false", (char *)NULL);
	return 2;
}
