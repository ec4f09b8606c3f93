// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with an allocator linked in that has the C library's internal names as well, as mold has
 * mimalloc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define ROOM ((size_t)64 << 20)
static char heap[ROOM];
static size_t used;

void *memalign(size_t alignment, size_t size)
{
	uintptr_t at = (uintptr_t)heap + used + 16;

	at = (at + alignment - 1) & -alignment;
	used = at - (uintptr_t)heap + ((size + 15) & ~(size_t)15);
	if (used > ROOM)
		return NULL;
	((size_t *)at)[-1] = size;
	return (void *)at;
}

void *malloc(size_t size)
{
	return memalign(16, size);
}

void free(void *object)
{
	CHECK(!object || (uintptr_t)object - (uintptr_t)heap < ROOM);
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size); /* nothing is used twice */
}

void *realloc(void *object, size_t size)
{
	size_t old = object ? ((size_t *)object)[-1] : 0;
	void *moved = malloc(size);

	if (moved && old)
		memcpy(moved, object, old < size ? old : size);
	return moved;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	*out = memalign(alignment, size);
	return *out ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

void *__libc_malloc(size_t) __attribute__((alias("malloc"), copy(malloc)));
void *__libc_calloc(size_t, size_t) __attribute__((alias("calloc"), copy(calloc)));
void *__libc_realloc(void *, size_t) __attribute__((alias("realloc"), copy(realloc)));
void *__libc_memalign(size_t, size_t) __attribute__((alias("memalign"), copy(memalign)));
void __libc_free(void *) __attribute__((alias("free"), copy(free)));

int main(void)
{
	char *text = strdup("text"), *line = NULL;
	void *object;

	for (size_t size = 1; size < 1 << 20; size *= 3) {
		text = realloc(text, size + 5);
		CHECK(text && !strcmp(text, "text"));
	}
	free(text);
	CHECK(!posix_memalign(&object, 4096, 300000) && !((uintptr_t)object & 4095));
	free(object);
	CHECK(asprintf(&line, "%0300d", 1) == 300);
	free(line);
	puts("whole: all checks passed");
	return 0;
}
