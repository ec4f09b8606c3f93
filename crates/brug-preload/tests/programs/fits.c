// SPDX-License-Identifier: MIT OR Apache-2.0
/* A new object has the memory of a freed one of about its size, whatever was freed last. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define KIB 1024UL
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static const size_t sizes[] = { 140 * KIB, 240 * KIB, 300 * KIB, 500 * KIB,
	700 * KIB, 1100 * KIB, 1900 * KIB, 3000 * KIB, 5000 * KIB };

int main(void)
{
	char *kept[SIZES];
	size_t i, round;
	char *first = malloc(20 << 20);

	/* What is freed first goes back at once. */
	CHECK(first);
	memset(first, 1, 20 << 20);
	free(first);
	for (i = 0; i < SIZES; i++) {
		kept[i] = malloc(sizes[i]);
		CHECK(kept[i]);
		memset(kept[i], 1, sizes[i]);
	}
	/* Upwards, so that the last is the largest, and downwards. */
	for (round = 0; round < 2; round++) {
		for (i = 0; i < SIZES; i++)
			free(kept[round ? SIZES - 1 - i : i]);
		for (i = 0; i < SIZES; i++) {
			char *again = malloc(sizes[i]);

			CHECK(again == kept[i]);
		}
	}
	if (!failures)
		puts("fits: all checks passed");
	return failures != 0;
}
