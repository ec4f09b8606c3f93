// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A process that may have no further thread from some time on. What is written reaches the kernel
 * all the same, without a call that others could notice. With an argument: it may have one, but not beside those of the
 * library, and asks for it in the way that the argument says.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <threads.h>
#include <unistd.h>

static int threads(void)
{
	DIR *list = opendir("/proc/self/task");
	int n = -2;

	while (readdir(list))
		n++;
	closedir(list);
	return n;
}

#ifdef LIBRARY
/* Preloaded behind the library, which calls what is next by this name. */
int refused;
volatile int full, crowded;

static int refuses(void)
{
	int no = full || (crowded && threads() > 1);

	refused += no;
	return no;
}

int thrd_create(thrd_t *thread, thrd_start_t start, void *argument)
{
	int (*next)(thrd_t *, thrd_start_t, void *) =
		(int (*)(thrd_t *, thrd_start_t, void *))dlsym(RTLD_NEXT, "thrd_create");

	return refuses() ? thrd_error : next(thread, start, argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
		   void *argument)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))
		dlsym(RTLD_NEXT, "pthread_create");

	return refuses() ? EAGAIN : next(thread, attributes, start, argument);
}

#else
#include "bare.h"

static char block[10000];

static int sleeps(void *unused)
{
	(void)unused;
	pause();
	return 0;
}

static void *pauses(void *unused)
{
	pause();
	return unused;
}

static int one_more(const char *how)
{
	pthread_t thread;
	thrd_t other;

	*(volatile int *)dlsym(RTLD_DEFAULT, "crowded") = 1;
	if (*how == 'p')
		return pthread_create(&thread, NULL, pauses, NULL);
	return thrd_create(&other, sleeps, NULL);
}

int main(int count, char **words)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600), *refused = dlsym(RTLD_DEFAULT, "refused");
	volatile int *full = dlsym(RTLD_DEFAULT, "full");
	struct stat about = {0};
	time_t before;

	for (int i = 0; i < 200; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	if (count > 1) {
		int result = one_more(words[1]);

		fprintf(stderr, *refused ? "refused\n" : "not refused\n");
		printf("%d, %d threads\n", result, threads());
		return 0;
	}
	/* The thread that looks for idle data does not stay when there is none. */
	while (threads() > 1)
		usleep(20000);
	*full = 1;
	if (write(fd, block, 100) != 100)
		return 1;
	before = time(NULL);
	while (time(NULL) - before < 10 && about.st_size != 200 * (long)sizeof(block) + 100)
		if (bare(SYS_fstat, fd, &about))
			return 1;
	fprintf(stderr, *refused ? "refused\n" : "not refused\n");
	printf("%ld\n", (long)about.st_size);
	return 0;
}
#endif
