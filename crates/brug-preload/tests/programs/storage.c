// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads that come and go, each with megabytes of thread-local storage of a library that has been
 * opened. The loader allocates it, and frees it when the C library gives up the stacks of some of
 * the threads that have ended: under a lock, with all signals blocked.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef PLUGIN
static __thread char storage[12 << 20];

void touch(void)
{
	memset(storage, 1, sizeof(storage));
	__asm__ volatile("" : : "r"(storage) : "memory");
}
#else
enum { THREADS = 12 };

static void (*touch)(void);
static pthread_barrier_t all;

static void *use(void *arg)
{
	touch();
	pthread_barrier_wait(&all);
	return arg;
}

static int come_and_go(const char *plugin)
{
	void *library = dlopen(plugin, RTLD_NOW);

	if (!library || !(touch = (void (*)(void))dlsym(library, "touch")))
		return 2;
	pthread_barrier_init(&all, NULL, THREADS);
	for (int round = 0; round < 3; round++) {
		pthread_t threads[THREADS];

		for (int i = 0; i < THREADS; i++)
			if (pthread_create(&threads[i], NULL, use, NULL))
				return 3;
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	return 0;
}

int main(int argc, char **argv)
{
	pid_t child = argc > 1 ? fork() : -1;
	int status = -1;

	if (child == 0)
		_exit(come_and_go(argv[1]));
	/* who waits for a lock of its own with all signals blocked does not end by itself */
	for (int i = 0; i < 6000 && child > 0 && waitpid(child, &status, WNOHANG) == 0; i++)
		usleep(10000);
	if (child > 0 && status != 0)
		kill(child, SIGKILL);
	printf("storage: %s\n", status ? "failed" : "all checks passed");
	return status != 0;
}
#endif
