/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Limits that are set, and questions about the heap, while another thread has the loader's lock: loading FILE. The file is this program as a
 * library (-DLIBRARY), whose constructor waits; until it is done the loader lets nobody look up a name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef LIBRARY

extern sem_t begun, done;

__attribute__((constructor)) static void wait(void)
{
	sem_post(&begun);
	while (sem_wait(&done))
		;
}

#else

sem_t begun, done;
static volatile sig_atomic_t failed;

static void *load(void *file)
{
	return dlopen(file, RTLD_NOW);
}

static void set(int which)
{
	struct rlimit limit;
	struct rlimit64 limit64;

	if (getrlimit(which, &limit) || setrlimit(which, &limit))
		failed = 1;
	if (getrlimit64(which, &limit64) || setrlimit64(which, &limit64))
		failed = 1;
	if (prlimit(0, which, NULL, &limit) || prlimit(0, which, &limit, NULL))
		failed = 1;
	if (prlimit64(getpid(), which, &limit64, &limit64))
		failed = 1;
}

static void in_handler(int number)
{
	(void)number;
	set(RLIMIT_CORE);
	set(RLIMIT_DATA);
}

static void ask(void)
{
	/* no power of two */
	volatile size_t align = 24;
	int nowhere = open("/dev/null", O_WRONLY);

	if (mallopt(M_ARENA_MAX, 4) != 1 || mallinfo2().arena == 0)
		failed = 1;
	malloc_trim(0);
	free(aligned_alloc(align, 100));
	if (dup2(nowhere, STDERR_FILENO) == STDERR_FILENO)
		malloc_stats();
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *loaded = NULL;

	if (argc != 2 || sem_init(&begun, 0, 0) || sem_init(&done, 0, 0) ||
	    pthread_create(&thread, NULL, load, argv[1]))
		return 2;
	while (sem_wait(&begun))
		;
	/* who waits for the loader's lock is not to wait for ever */
	alarm(60);
	signal(SIGUSR1, in_handler);
	in_handler(0);
	raise(SIGUSR1);
	ask();
	sem_post(&done);
	pthread_join(thread, &loaded);
	if (!loaded)
		fprintf(stderr, "loading: %s\n", dlerror());
	return !loaded || failed;
}

#endif
