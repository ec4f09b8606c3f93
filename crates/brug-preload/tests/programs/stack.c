// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads with the smallest stack there may be allocate, grow and free objects of all sizes, ask
 * about the heap, and end.
 */
#define _GNU_SOURCE
#include "check.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 4, OBJECTS = 512, STEPS = 5000 };

static void *objects[THREADS][OBJECTS];

static void *work(void *number)
{
	void **object = objects[(intptr_t)number];
	unsigned int random = (intptr_t)number + 1;
	for (int step = 0; step < STEPS; step++) {
		random = random * 1103515245 + 12345;
		size_t size = (random >> 8) % (300u << step % 4 * 4);
		void **one = &object[(random >> 4) % OBJECTS];
		if (random & 1 << 28) {
			*one = realloc(*one, size + 1);
			continue;
		}
		free(*one);
		switch (random >> 29) {
		case 0:
			*one = calloc(1, size);
			break;
		case 1:
			*one = memalign(4096, size);
			break;
		default:
			*one = malloc(size);
		}
	}
	for (int i = 0; i < OBJECTS; i++)
		free(object[i]);
	malloc_trim(0);
	mallinfo2();
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	size_t guard = 64 << 10, size = PTHREAD_STACK_MIN;
	pthread_attr_t how;
	CHECK(pthread_attr_init(&how) == 0);
	for (intptr_t i = 0; i < THREADS; i++) {
		char *memory = mmap(NULL, guard + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(memory != MAP_FAILED && mprotect(memory, guard, PROT_NONE) == 0);
		CHECK(pthread_attr_setstack(&how, memory + guard, size) == 0);
		CHECK(pthread_create(&threads[i], &how, work, (void *)i) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	puts("stack: all checks passed");
	return failures != 0;
}
