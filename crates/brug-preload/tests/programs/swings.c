// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has freed one large object, and then a heap of small ones that grows and shrinks by a megabyte, as a program
 * does that works through one piece after the other. The C library keeps its heap for the next piece then.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

#define OBJECTS 100
#define SIZE 10000
#define ROUNDS 100

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

int main(void)
{
	/* Or the compiler leaves it out. */
	char *volatile large = malloc(4 << 20);
	static char *kept[OBJECTS];
	long before;
	int i, round;

	CHECK(large);
	memset(large, 1, 4 << 20);
	free(large);
	before = faults();
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < OBJECTS; i++) {
			kept[i] = malloc(SIZE);
			CHECK(kept[i]);
			memset(kept[i], 1, SIZE);
		}
		for (i = 0; i < OBJECTS; i++)
			free(kept[i]);
	}
	/* Each page once, and what the allocator itself has. */
	CHECK(faults() - before < 2 * OBJECTS * SIZE / 4096);
	if (!failures)
		puts("swings: all checks passed");
	return failures != 0;
}
