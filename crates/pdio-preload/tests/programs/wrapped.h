// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An allocator around the C library's: each function calls enter() first. Both that and malloc() are the
 * program's.
 */
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void enter(void);

void *calloc(size_t count, size_t size)
{
	enter();
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	enter();
	return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
	enter();
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	*out = memalign(alignment, size);
	return 0;
}

void free(void *old)
{
	enter();
	__libc_free(old);
}
