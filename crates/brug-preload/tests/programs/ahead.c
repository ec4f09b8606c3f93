/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real-time program has the C library keep all of its heap, and touches that ahead. Then no object that it
 * allocates, whatever its size, has pages that are still to come.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static void *filled(void *object, size_t size)
{
	CHECK(object);
	return memset(object, 1, size);
}

int main(void)
{
	char *objects[16], *grows = NULL;
	long before;

	CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
	CHECK(mallopt(M_MMAP_MAX, 0) == 1);
	free(filled(malloc(64 * MIB), 64 * MIB));
	before = faults();
	for (int i = 0; i < 16; i++)
		objects[i] = filled(malloc(MIB), MIB);
	for (size_t size = 1000; size < 16 * MIB; size *= 2)
		grows = filled(realloc(grows, size), size);
	for (int i = 0; i < 16; i++)
		free(objects[i]);
	free(grows);
	/* The stack may have some. */
	CHECK(faults() - before < 32);
	if (!failures)
		puts("ahead: all checks passed");
	return failures != 0;
}
