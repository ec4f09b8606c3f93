// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads that come, have some small objects by the function that the argument names, and end; objects are freed by
 * others as well. What they hold does not change, and all of it stays within what so many objects take.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VISITORS = 4000, AT_ONCE = 4, OBJECTS = 150, LEFT = 8, MOST_KIB = 1900 };

static unsigned char *left[VISITORS][LEFT];
static int by_realloc;

#define CHECK(what) \
	do { \
		if (!(what)) { \
			printf("visitors: line %d: %s\n", __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

static size_t size_of(uintptr_t number, int object)
{
	return 1 + (number * 31 + object * 17) % 200;
}

static unsigned char *made(uintptr_t number, int object)
{
	size_t size = size_of(number, object);
	unsigned char *p = by_realloc ? realloc(NULL, size) : malloc(size);

	CHECK(p);
	return memset(p, (int)(number + object), size);
}

static void freed(unsigned char *p, uintptr_t number, int object)
{
	for (size_t i = 0; i < size_of(number, object); i++)
		CHECK(p[i] == (unsigned char)(number + object));
	free(p);
}

static void *visit(void *arg)
{
	uintptr_t number = (uintptr_t)arg;
	unsigned char *own[OBJECTS];

	for (int i = 0; i < OBJECTS; i++)
		own[i] = made(number, i);
	for (int i = 0; i < OBJECTS; i++)
		freed(own[i], number, i);
	for (int i = 0; i < LEFT; i++)
		left[number][i] = made(number, i);
	if (number >= AT_ONCE)
		for (int i = 0; i < LEFT; i++)
			freed(left[number - AT_ONCE][i], number - AT_ONCE, i);
	return NULL;
}

/* KiB of its own that the process has. */
static long memory(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[128];
	long kib = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

int main(int argc, char **argv)
{
	by_realloc = argc > 1 && !strcmp(argv[1], "realloc");
	for (uintptr_t first = 0; first < VISITORS; first += AT_ONCE) {
		pthread_t threads[AT_ONCE];

		for (uintptr_t i = 0; i < AT_ONCE; i++)
			CHECK(!pthread_create(&threads[i], NULL, visit, (void *)(first + i)));
		for (int i = 0; i < AT_ONCE; i++)
			CHECK(!pthread_join(threads[i], NULL));
	}
	CHECK(memory() < MOST_KIB);
	puts("visitors: all checks passed");
	return 0;
}
