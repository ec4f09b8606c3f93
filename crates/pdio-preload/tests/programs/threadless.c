// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A process that may have no further thread from some time on. What is written reaches the kernel
 * all the same, without a call that others could notice.
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
#include <unistd.h>

#ifdef LIBRARY
/* Preloaded behind the library, which calls what is next by this name. */
int refused;
volatile int full;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
		   void *argument)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))
		dlsym(RTLD_NEXT, "pthread_create");

	if (full) {
		refused++;
		return EAGAIN;
	}
	return next(thread, attributes, start, argument);
}

#else
#include "bare.h"

static int threads(void)
{
	DIR *list = opendir("/proc/self/task");
	int n = -2;

	while (readdir(list))
		n++;
	closedir(list);
	return n;
}

static char block[10000];

int main(void)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600), *refused = dlsym(RTLD_DEFAULT, "refused");
	volatile int *full = dlsym(RTLD_DEFAULT, "full");
	struct stat about = {0};
	time_t before;

	for (int i = 0; i < 200; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
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
