// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads that are to be cancelled while they allocate. No function of an allocator is a point at which a
 * thread is: each goes on until it asks.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 300000, LARGER = 40 << 20, SMALL = 20000, KINDS = 3 };

static int reached;

static void allocate(int kind)
{
	char *object = NULL;

	switch (kind) {
	case 0: /* the first large object */
		object = malloc(LARGE);
		break;
	case 1: /* more than is kept without a look at how much there is */
		object = realloc(malloc(LARGE), LARGER);
		if (object)
			memset(object, 1, LARGER);
		break;
	default: /* enough to compare allocators of small ones */
		for (int i = 0; i < SMALL; i++)
			free(malloc(100));
		object = malloc(100);
	}
	if (object)
		reached++;
	free(object);
}

static void *run(void *kind)
{
	pthread_cancel(pthread_self());
	allocate(*(int *)kind);
	reached++;
	pthread_testcancel();
	return NULL;
}

int main(void)
{
	for (int kind = 0; kind < KINDS; kind++) {
		void *result = NULL;
		pthread_t thread;

		reached = 0;
		if (pthread_create(&thread, NULL, run, &kind) || pthread_join(thread, &result))
			return 2;
		if (reached != 2 || result != PTHREAD_CANCELED) {
			printf("cancelled: not where it asks, in kind %d\n", kind);
			return 1;
		}
	}
	/* what they were in the middle of */
	for (int kind = 0; kind < KINDS; kind++)
		allocate(kind);
	puts("cancelled: all checks passed");
	return 0;
}
