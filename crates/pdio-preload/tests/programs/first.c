// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The first process of a namespace, which is writing, gets signals that nobody handles, and says what it
 * sees of them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int signals[] = { SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGALRM };
#define SIGNALS (int)(sizeof(signals) / sizeof(*signals))

int main(void)
{
	static char page[4096];
	int fd = open("first", O_WRONLY | O_CREAT | O_TRUNC, 0644), i;
	struct timespec fifth = { .tv_nsec = 200 * 1000 * 1000 };

	printf("process %d\n", (int)getpid());
	for (i = 0; i < 1024; i++)
		if (write(fd, page, sizeof(page)) != sizeof(page))
			return 1;
	for (i = 0; i < SIGNALS; i++) {
		pid_t child;

		fflush(stdout);
		child = fork();
		if (!child) {
			usleep(50 * 1000);
			_exit(kill(1, signals[i]) != 0);
		}
		printf("%d: %d\n", signals[i], nanosleep(&fifth, NULL));
		if (waitpid(child, NULL, 0) != child || write(fd, page, 100) != 100)
			return 1;
	}
	return 0;
}
