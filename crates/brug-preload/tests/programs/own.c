// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with a malloc of its own, as some count or trace with, which defines only the four
 * functions that everybody knows. What it has not defined comes from elsewhere and is given back to
 * it, so elsewhere has to be where it gives memory back itself: the C library. With HEAP defined it
 * has memory of its own as well, which nobody else must be given back.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static long calls;

#ifdef HEAP
#define ROOM ((size_t)256 << 20)
static char heap[ROOM] __attribute__((aligned(4096)));
static size_t used;

static int is_own(void *object)
{
	return (uintptr_t)object - (uintptr_t)heap < ROOM;
}

void *malloc(size_t size)
{
	size_t need = (size + 31) & ~(size_t)15;
	char *object = heap + used + 16;

	calls++;
	if (need > ROOM - used)
		return NULL;
	used += need;
	((size_t *)object)[-1] = size;
	return object;
}

void free(void *object)
{
	CHECK(!object || is_own(object));
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size); /* what is used once is still zero */
}

void *realloc(void *object, size_t size)
{
	size_t old = object ? ((size_t *)object)[-1] : 0;
	void *moved = malloc(size);

	CHECK(!object || is_own(object));
	if (moved && old)
		memcpy(moved, object, old < size ? old : size);
	return moved;
}
#else
extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
	calls++;
	return __libc_malloc(size);
}

void free(void *object)
{
	__libc_free(object);
}

void *calloc(size_t count, size_t size)
{
	calls++;
	return __libc_calloc(count, size);
}

void *realloc(void *object, size_t size)
{
	return __libc_realloc(object, size);
}

static void of_the_c_library(void)
{
	static const size_t sizes[] = { 1, 100, 1000, 20000, 200000, 1 << 20, 40 << 20 };

	/* often enough for an allocator that changes its mind after a while */
	for (int round = 0; round < 3000; round++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) - (round > 9 ? 3 : 0); i++) {
			size_t size = sizes[i];
			void *object = NULL;

			CHECK(posix_memalign(&object, 64, size) == 0);
			object = realloc(object, size + 150000);
			CHECK(object);
			free(object);
			object = aligned_alloc(4096, size);
			CHECK(object && malloc_usable_size(object) >= size);
			free(object);
			object = memalign(32, size);
			CHECK(object);
			free(object);
			object = valloc(size);
			CHECK(object);
			free(object);
		}
}
#endif

int main(void)
{
	char *text = strdup("text"), *array = NULL;
	long before = calls;

	free(text);
	for (size_t count = 1; count < 3000; count += 300) {
		array = reallocarray(array, count, 1000);
		CHECK(array);
		array[0] = array[count * 1000 - 1] = 1;
	}
	free(array);
	CHECK(before > 0);
#ifdef HEAP
	CHECK(is_own(text) && is_own(array));
#else
	of_the_c_library();
#endif
	if (failures) {
		printf("own: %d checks failed\n", failures);
		return 1;
	}
	puts("own: all checks passed");
	return 0;
}
