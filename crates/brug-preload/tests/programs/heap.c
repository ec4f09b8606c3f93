// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a program is told about its heap, by the functions of the C library and of jemalloc; with an argument, only
 * what malloc_stats says of one large object. With LIBRARY, a library with the name of one of the latter, as a program has that is linked with
 * jemalloc.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak mallctl
int mallctl(const char *name, void *old, size_t *len, void *value, size_t value_len);
int mallctlnametomib(const char *name, size_t *mib, size_t *len) __attribute__((weak));
int mallctlbymib(const size_t *mib, size_t mib_len, void *old, size_t *len, void *value,
		 size_t value_len) __attribute__((weak));
void malloc_stats_print(void (*write)(void *, const char *), void *opaque, const char *options)
	__attribute__((weak));

#ifdef LIBRARY

int mallctl(const char *name, void *old, size_t *len, void *value, size_t value_len)
{
	(void)name, (void)old, (void)len, (void)value, (void)value_len;
	return 77;
}

#else

#define COUNT 100000
#define LARGE 3

static char *small[2][COUNT], *large[LARGE];

static void fail(const char *what, size_t bytes)
{
	fprintf(stderr, "heap: %s: %zu bytes\n", what, bytes);
	exit(1);
}

static size_t control(const char *name)
{
	uint64_t epoch = 1;
	size_t value = 0, len = sizeof(value);

	if (mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)))
		fail("no epoch", 0);
	if (mallctl(name, &value, &len, NULL, 0) || len != sizeof(value))
		fail(name, len);
	return value;
}

static size_t by_number(const char *name)
{
	size_t mib[4], depth = 4, value = 0, len = sizeof(value);

	if (mallctlnametomib(name, mib, &depth) ||
	    mallctlbymib(mib, depth, &value, &len, NULL, 0))
		fail(name, 0);
	return value;
}

/* As jemalloc's manual says: one look-up, and then each arena by its number. */
static void purge_by_number(const char *name)
{
	size_t mib[3], depth = 2;

	if (mallctlnametomib(name, mib, &depth) != EINVAL)
		fail("three numbers in two places", depth);
	depth = 3;
	if (mallctlnametomib(name, mib, &depth) || depth != 3 || mib[1] != 0)
		fail(name, depth);
	for (mib[1] = 0; mib[1] < 3; mib[1]++)
		if (mallctlbymib(mib, depth, NULL, NULL, NULL, 0))
			fail("cannot purge by number", mib[1]);
	mib[2] += 10;
	if (mallctlbymib(mib, depth, NULL, NULL, NULL, 0) != ENOENT)
		fail("an unknown number is known", mib[2]);
}

static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
	size_t known = info.uordblks + info.hblkhd;

	if ((size_t)old.uordblks + (size_t)old.hblkhd != known)
		fail("mallinfo differs from mallinfo2", known);
	if (info.uordblks > info.arena)
		fail("more is in use than there is", info.uordblks);
	return known;
}

static void *allocate(void *place)
{
	char **objects = place;

	for (int i = 0; i < COUNT; i++)
		objects[i] = memset(malloc(100), 1, 100);
	return NULL;
}

static void count(void *lines, const char *text)
{
	for (; *text; text++)
		*(int *)lines += *text == '\n';
}

int main(int argc, char **argv)
{
	size_t least = 2 * 100 * COUNT + LARGE * 2000000, before, now, len = sizeof(now);
	pthread_t other;
	int lines = 0;

	(void)argv;
	free(malloc(1));
	if (argc > 1) {
		large[0] = malloc(2000000);
		malloc_stats();
		return 0;
	}
	before = in_use();
	/* All counts but the system's are of two threads, and so are the objects. */
	pthread_create(&other, NULL, allocate, small[0]);
	pthread_join(other, NULL);
	allocate(small[1]);
	for (int i = 0; i < LARGE; i++)
		large[i] = memset(malloc(2000000), 1, 2000000);
	now = in_use() - before;
	if (now < least || now > least * 3 / 2)
		fail("mallinfo2 with objects", now);
	now = control("stats.allocated") - before;
	if (now < least || now > least * 3 / 2)
		fail("stats.allocated with objects", now);
	if (control("stats.active") < control("stats.allocated") ||
	    by_number("stats.active") < control("stats.allocated"))
		fail("stats.active is less than what is allocated", control("stats.active"));
	/* A descriptor of 64 bytes for each large object at least, and never a tenth of them all. */
	now = control("stats.metadata");
	if (now < 64 * LARGE || now > least / 10 || by_number("stats.metadata") != now)
		fail("stats.metadata with objects", now);
	for (int i = 0; i < 2 * COUNT; i++)
		free(small[i / COUNT][i % COUNT]);
	for (int i = 0; i < LARGE; i++)
		free(large[i]);
	if (mallctl("arena.0.purge", NULL, NULL, NULL, 0) ||
	    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0))
		fail("cannot purge", 0);
	purge_by_number("arena.0.purge");
	purge_by_number("arena.0.decay");
	/* As BIND does, which ends if it cannot. */
	unsigned int arena = 77;
	size_t its_len = sizeof(arena);
	char name[40];

	if (mallctl("arenas.create", &arena, &its_len, NULL, 0))
		fail("an arena cannot be made", arena);
	snprintf(name, sizeof(name), "arena.%u.destroy", arena);
	if (mallctl(name, NULL, NULL, NULL, 0))
		fail("an arena cannot be destroyed", arena);
	now = in_use();
	if (now > before + least / 8)
		fail("mallinfo2 without objects", now - before);
	if (mallctl("stats.allocated", &now, &len, &now, sizeof(now)) != EPERM)
		fail("statistics can be written", 0);
	malloc_stats_print(count, &lines, "");
	if (lines < 10)
		fail("malloc_stats_print says little", (size_t)lines);
	for (int i = 0; i < 3; i++)
		if (mallctl("opt.lg_prof_sample", &now, &len, NULL, 0) != ENOENT)
			fail("an unknown name is known", 0);
	puts("heap: all checks passed");
	return 0;
}

#endif
