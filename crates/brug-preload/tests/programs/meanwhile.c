/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The library's thread takes long to end: what another thread does meanwhile is as good as at other times.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define SIZE (24ul << 20)

static int (*detach)(pthread_t thread);
static atomic_int ends, may_end, done;

/* The library's thread calls it at its end. */
int pthread_detach(pthread_t thread)
{
	ends = 1;
	while (!may_end)
		usleep(1000);
	/* Until others have asked for what they want of it. */
	usleep(50000);
	return detach(thread);
}

static int threads(void)
{
	struct stat about;

	return stat("/proc/self/task", &about) ? -1 : (int)about.st_nlink - 2;
}

/* A busy machine may take long. */
static void wait_for_threads(int number)
{
	for (int i = 0; i < 60000 && threads() != number; i++)
		usleep(1000);
	CHECK(threads() == number);
}

static void *object(void)
{
	void *object = malloc(SIZE);

	if (!object)
		_exit(2);
	return memset(object, 1, SIZE);
}

static void *free_meanwhile(void *object)
{
	while (!ends)
		usleep(1000);
	free(object);
	may_end = 1;
	while (!done)
		usleep(1000);
	return NULL;
}

/* Nobody frees anything later. */
static void free_while_it_is_waited_for(void)
{
	void *last = object();
	pthread_t thread;

	free(object());
	CHECK(threads() == 2);
	CHECK(!pthread_create(&thread, NULL, free_meanwhile, last));
	/* Who may not is told so, after the thread has ended. */
	unshare(CLONE_FS);
	wait_for_threads(3);
	done = 1;
	pthread_join(thread, NULL);
}

/* The library's thread has nothing more to do. How long it needs for its end nobody can tell who is as late as that. */
static void unshare_while_it_ends(void)
{
	for (int tries = 0; tries < 10; tries++) {
		ends = 0;
		may_end = 0;
		free(object());
		while (!ends)
			usleep(1000);
		may_end = 1;
		/* Who may not is told so. */
		if (!unshare(CLONE_NEWUSER) || errno != EINVAL)
			return;
		wait_for_threads(1);
	}
	CHECK(!"a namespace of users");
}

int main(int argc, char **argv)
{
	alarm(300); /* where it fails, it may wait for ever */
	detach = (int (*)(pthread_t))dlsym(RTLD_NEXT, "pthread_detach");
	if (argc != 2 || !detach)
		return 2;
	/* What is freed first goes back without a thread. */
	free(object());
	if (!strcmp(argv[1], "free"))
		free_while_it_is_waited_for();
	else
		unshare_while_it_ends();
	if (!failures)
		puts("meanwhile: all checks passed");
	return failures != 0;
}
