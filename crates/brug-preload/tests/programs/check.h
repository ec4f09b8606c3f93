/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a test program of one thread checks, and how often it did not hold. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(what)                                                          \
	do {                                                                 \
		if (!(what)) {                                               \
			failures++;                                          \
			fprintf(stderr, "%d: %s\n", __LINE__, #what);        \
		}                                                            \
	} while (0)

#endif
