// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Two threads tell others at the same time: the second begins while the first one's call hands over what a
 * stream holds. What the file is when the second has told is what counts. Or the second sends the first one
 * the signal for which that is about to wait.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY
/* Preloaded behind the library: before its next write the other thread runs. */
void *(*volatile other)(void *);
pthread_t late;

ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
	ssize_t (*next)(int, const void *, size_t, off_t) =
		(ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
	void *(*now)(void *) = other;
	struct timespec until;
	pthread_t one;

	other = NULL;
	if (now && !pthread_create(&one, NULL, now, NULL)) {
		/* It may have to wait for what this thread holds, and then goes on after it. */
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (pthread_timedjoin_np(one, NULL, &until))
			late = one;
	}
	return next(fd, data, len, at);
}

#else
#include "bare.h"

static int fd, words[2];
static long size = -1;

static void *nothing(void *unused)
{
	return unused;
}

static void *tell(void *unused)
{
	struct stat about;

	if (write(words[1], "", 1) == 1 && bare(SYS_fstat, fd, &about) == 0)
		size = about.st_size;
	return unused;
}

static void woken(int number)
{
	(void)number;
}

static pid_t first;

static void *wake(void *unused)
{
	bare(SYS_tgkill, getpid(), first, SIGUSR1);
	return unused;
}

int main(int argc, char **argv)
{
	static char block[5000];
	pthread_t *late = dlsym(RTLD_DEFAULT, "late"), thread;
	const int pauses = argc > 1 && *argv[1] == 'p';

	/* It is a program of several threads before they meet. */
	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL) || pipe(words))
		return 1;
	fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 3; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	first = gettid();
	signal(SIGUSR1, woken);
	*(void *(**)(void *))dlsym(RTLD_DEFAULT, "other") = pauses ? wake : tell;
	if (pauses) {
		/* Whoever is not woken ends. */
		alarm(120);
		pause();
		tell(NULL);
	} else {
		(void)!write(words[1], "", 1);
	}
	if (*late)
		pthread_join(*late, NULL);
	printf("%ld\n", size);
	return 0;
}
#endif
