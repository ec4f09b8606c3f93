// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has an object or two of each size in each of some threads: little memory, spread over much address space.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "status.h"

enum { THREADS = 6, LARGEST = 8192, MOST_KIB = 4 << 10 };

static pthread_barrier_t all_have_theirs;

static void *have(void *unused)
{
	for (size_t size = 16; size <= LARGEST; size += size / 8) {
		char *object = malloc(size);

		if (!object)
			exit(2);
		*object = 1;
	}
	pthread_barrier_wait(&all_have_theirs);
	pthread_barrier_wait(&all_have_theirs);
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];
	size_t before = status_kib("RssAnon:"), more;

	pthread_barrier_init(&all_have_theirs, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, have, NULL))
			return 2;
	pthread_barrier_wait(&all_have_theirs);
	more = status_kib("RssAnon:") - before;
	pthread_barrier_wait(&all_have_theirs);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (more > MOST_KIB) {
		fprintf(stderr, "spread: %zu KiB\n", more);
		return 1;
	}
	puts("spread: all checks passed");
	return 0;
}
