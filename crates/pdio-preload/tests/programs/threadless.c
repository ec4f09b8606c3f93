// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A process that may have no further thread from some time on. What is written reaches the kernel
 * all the same, without a call that others could notice. With an argument: it may have one, but not beside those of the
 * library, and asks for it in the way that the argument says; two threads at a time ("both"), or again and again under a
 * name like those of the library's threads, and in vain ("named").
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
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
volatile int refused, full, crowded, both, started;

static int refuses(void)
{
	int no = full || (crowded && threads() > crowded);
	int which = __atomic_add_fetch(&refused, no, __ATOMIC_SEQ_CST);

	/* The second hears of it when the first has its thread. */
	while (no && both && (refused < 2 || (which == 2 && !started)))
		usleep(1000);
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
	int result = refuses() ? EAGAIN : next(thread, attributes, start, argument);

	if (crowded && !result) {
		crowded = 0;
		started = 1;
	}
	return result;
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

static void set(const char *name, int value)
{
	*(volatile int *)dlsym(RTLD_DEFAULT, name) = value;
}

static volatile int go, second = -1;

static void *starts(void *unused)
{
	pthread_t thread;

	while (!go)
		usleep(1000);
	second = pthread_create(&thread, NULL, pauses, NULL);
	pause();
	return unused;
}

/* Both have their thread. */
static int both(void)
{
	pthread_t thread;
	int first;

	if (pthread_create(&thread, NULL, starts, NULL))
		return -2;
	set("both", 1);
	set("crowded", 2);
	go = 1;
	first = pthread_create(&thread, NULL, pauses, NULL);
	while (second == -1)
		usleep(1000);
	return first | second;
}

/* It takes no more time than one wait for threads that never end. */
static int named(void)
{
	time_t before = time(NULL);
	pthread_t thread;

	prctl(PR_SET_NAME, "pdio-own");
	set("full", 1);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&thread, NULL, pauses, NULL) != EAGAIN)
			return -1;
	return time(NULL) - before < 7 ? 0 : -2;
}

static int one_more(const char *how)
{
	pthread_t thread;
	thrd_t other;

	if (*how == 'b')
		return both();
	if (*how == 'n')
		return named();
	set("crowded", 1);
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
