/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real-time program has the C library keep all of its heap, and touches that ahead. Then no object that it
 * allocates, whatever its size, has pages that are still to come. With an argument it does so as servers do, which
 * leave the largest objects their own mappings.
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

int main(int argc, char **argv)
{
	char *objects[16], *grows = NULL;
	long before;

	(void)argv;
	CHECK(mallopt(M_TRIM_THRESHOLD, argc > 1 ? 1 << 30 : -1) == 1);
	CHECK(mallopt(argc > 1 ? M_MMAP_THRESHOLD : M_MMAP_MAX, argc > 1 ? 32 << 20 : 0) == 1);
	for (int i = 0; i < 4; i++)
		objects[i] = filled(malloc(16 * MIB), 16 * MIB);
	for (int i = 0; i < 4; i++)
		free(objects[i]);
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
