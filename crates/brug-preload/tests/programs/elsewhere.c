/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an allocator leaves of a limit of data to others: elsewhere KIND ASK MIB [WHEN]. Uses and gives
 * back memory as KIND says, and prints how many bytes can then be mapped at once, or be the stack
 * of a thread, up to MIB. RLIMIT_DATA becomes MIB at the beginning, or with WHEN, which names the
 * function that sets it, after the memory was used; "never" leaves it, where the system has a limit.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define ALL (200 * MIB)
#define MANY 100
#define LARGE 7

static void fail(const char *why)
{
	fprintf(stderr, "elsewhere: %s\n", why);
	exit(1);
}

static unsigned char *resized(unsigned char *object, size_t from, size_t size)
{
	object = realloc(object, size);
	if (!object)
		fail("refused before there was much");
	if (size > from)
		memset(object + from, 1, size - from);
	return object;
}

static void freed(void)
{
	free(resized(NULL, 0, ALL));
}

/* Objects that are resized, or freed where nothing is left. */
static void many(int count, size_t left)
{
	static unsigned char *objects[MANY];
	size_t size = ALL / count;

	for (int i = 0; i < count; i++)
		objects[i] = resized(NULL, 0, size);
	for (int i = 0; i < count; i++) {
		if (!left) {
			free(objects[i]);
			continue;
		}
		objects[i] = resized(objects[i], size, left);
		if (!objects[i][left - 1])
			fail("contents changed");
	}
}

static void many_freed(void)
{
	many(MANY, 0);
}

/* Of the largest that the C library may keep. */
static void large_freed(void)
{
	many(LARGE, 0);
}

/* Each is twice the switch point afterwards. */
static void many_shrunk(void)
{
	many(MANY, 256 << 10);
}

static void shrunk(void)
{
	resized(resized(NULL, 0, ALL), ALL, MIB);
}

static void grown(void)
{
	unsigned char *object = NULL;
	size_t size = 16;

	for (; size < ALL / 2; size *= 2)
		object = resized(object, size / 2, size);
	resized(object, size / 2, ALL);
}

static const struct {
	const char *name;
	void (*run)(void);
} KINDS[] = {
	{ "freed", freed },
	{ "large-freed", large_freed },
	{ "many-freed", many_freed },
	{ "shrunk", shrunk },
	{ "many-shrunk", many_shrunk },
	{ "grown", grown },
};

static void limit(const char *function, size_t bytes)
{
	struct rlimit to = { bytes, RLIM_INFINITY };
	struct rlimit64 to64 = { bytes, RLIM64_INFINITY };
	int failed = -1;

	if (!strcmp(function, "setrlimit"))
		failed = setrlimit(RLIMIT_DATA, &to);
	else if (!strcmp(function, "setrlimit64"))
		failed = setrlimit64(RLIMIT_DATA, &to64);
	else if (!strcmp(function, "prlimit"))
		failed = prlimit(0, RLIMIT_DATA, &to, NULL);
	else if (!strcmp(function, "prlimit64"))
		failed = prlimit64(getpid(), RLIMIT_DATA, &to64, NULL);
	else if (!strcmp(function, "never"))
		return;
	if (failed)
		fail("no limit");
}

static void *nothing(void *unused)
{
	return unused;
}

static int mapped(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && !munmap(p, bytes);
}

static int stack(size_t bytes)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, bytes);
	if (pthread_create(&thread, &attr, nothing, NULL))
		return 0;
	pthread_join(thread, NULL);
	return 1;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 10) * MIB : 0, found = 0;
	const char *when = argc > 4 ? argv[4] : NULL;
	int (*ask)(size_t) = NULL;

	if (argc > 3)
		ask = !strcmp(argv[2], "map") ? mapped : stack;
	if (!ask)
		fail("usage: elsewhere KIND map|stack MIB [WHEN]");
	if (!when)
		limit("setrlimit", bytes);
	for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++)
		if (!strcmp(argv[1], KINDS[i].name))
			KINDS[i].run();
	if (when)
		limit(when, bytes);
	/* The first that is not refused, from the most on: one that is refused changes nothing. */
	for (found = bytes; found && !ask(found); found -= MIB)
		;
	printf("%zu\n", found);
	return 0;
}
