// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Allocates so much that the library compares allocators meanwhile, and uses next to nothing of it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "status.h"

enum { REQUESTS = 300000, LARGE = 256 << 20, MOST_KIB = 128 << 10 };

int main(void)
{
	for (int i = 0; i < REQUESTS; i++) {
		char *object = malloc(i % 64 ? 100 : LARGE);

		if (!object)
			return 2;
		*object = 1;
		free(object);
	}
	if (status_kib("VmHWM:") > MOST_KIB) {
		fprintf(stderr, "sparse: %zu KiB\n", status_kib("VmHWM:"));
		return 1;
	}
	puts("sparse: all checks passed");
	return 0;
}
