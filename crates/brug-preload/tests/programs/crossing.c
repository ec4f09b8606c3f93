// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Objects on both sides of dlopen: crossing PLUGIN, or crossing PLUGIN deep, where the plug-in is to
 * find what its own libraries define first. The same source is the plug-in (-DPLUGIN). What either side allocates the other enlarges and frees, in several
 * threads, also after the plug-in is gone; the plug-in allocates in its constructor,
 * its destructor, and for thread-local storage of its own, which the loader gets from
 * malloc at first use. "crossing: all checks passed" and 0, or one line and 1.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN

static char *kept;
static __thread char *of_thread;
static __thread char large[20000];

__attribute__((constructor)) static void begin(void)
{
	kept = realloc(malloc(100), 400000);
	memset(kept, 5, 400000);
}

__attribute__((destructor)) static void end(void)
{
	if (kept[399999] != 5)
		abort();
	free(kept);
}

char *make(size_t size)
{
	char *object = calloc(1, size);

	memset(object, 7, size);
	large[size % sizeof(large)] = 1;
	free(of_thread);
	of_thread = malloc(size);
	return object;
}

char *enlarge(char *object, size_t size)
{
	return realloc(object, size);
}

void drop(char *object)
{
	free(of_thread);
	of_thread = NULL;
	free(object);
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

static const char *file;
static int flags;

static void fail(const char *why)
{
	fprintf(stderr, "crossing: %s\n", why);
	exit(1);
}

static void intact(const char *object, size_t size, char byte)
{
	for (size_t i = 0; i < size; i++)
		if (object[i] != byte)
			fail("contents changed");
}

static void *come_and_go(void *arg)
{
	static const size_t sizes[] = { 10, 3000, 70000, 200000, 1500000 };

	for (int round = 0; round < 40; round++) {
		void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL | flags);
		char *(*make)(size_t), *(*enlarge)(char *, size_t);
		void (*drop)(char *);
		size_t size = sizes[round % 5];
		char *theirs, *ours;

		if (!plugin)
			fail(dlerror());
		*(void **)&make = dlsym(plugin, "make");
		*(void **)&enlarge = dlsym(plugin, "enlarge");
		*(void **)&drop = dlsym(plugin, "drop");
		theirs = make(size);
		ours = malloc(size);
		memset(ours, 9, size);
		theirs = realloc(theirs, size * 3);
		ours = enlarge(ours, size * 3);
		intact(theirs, size, 7);
		intact(ours, size, 9);
		drop(ours);
		if (dlclose(plugin))
			fail(dlerror());
		/* made by code that may be gone */
		intact(theirs, size, 7);
		theirs = realloc(theirs, size * 7);
		intact(theirs, size, 7);
		free(theirs);
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];

	if (argc != 2 && argc != 3)
		return 2;
	file = argv[1];
	flags = argc == 3 ? RTLD_DEEPBIND : 0;
	alarm(120);
	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, come_and_go, NULL))
			fail("no thread");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	come_and_go(NULL);
	puts("crossing: all checks passed");
	return 0;
}

#endif
