// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A handler of a signal frees large objects. It comes in the midst of the C library's malloc, which has the
 * lock of its heap then: the object that is asked for ends in pages that are protected.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "status.h"

#define SMALL (64 << 10)
#define LARGE (1 << 20)
#define MANY 32

static char *large[MANY];
static char *from;
static size_t length;
static volatile int caught;

static void handler(int signal)
{
	(void)signal;
	caught++;
	mprotect(from, length, PROT_READ | PROT_WRITE);
	for (int i = 0; i < MANY; i++)
		free(large[i]);
}

static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static char *filled(size_t bytes)
{
	char *object = malloc(bytes);

	memset(object, 1, bytes);
	return object;
}

int main(void)
{
	struct sigaction action = { .sa_handler = handler };
	pthread_t thread;
	char *small;
	size_t before;

	alarm(60); /* where it fails, it waits for ever */
	/* Where there is one thread only, the C library takes no lock. */
	CHECK(!pthread_create(&thread, NULL, idle, NULL));
	/* With mappings of their own, as there is not that much at the end of the heap yet. */
	for (int i = 0; i < MANY; i++)
		large[i] = filled(LARGE);
	mallopt(M_TOP_PAD, 4 << 20);
	for (int i = 0; i < 4; i++)
		small = filled(SMALL);
	from = (char *)(((size_t)small + SMALL + 8191) & ~4095UL);
	length = (char *)sbrk(0) - from;
	CHECK(length > SMALL && length < 8 << 20);
	sigaction(SIGSEGV, &action, NULL);
	before = status_kib("VmRSS:");
	mprotect(from, length, PROT_NONE);
	free(filled(SMALL));
	CHECK(caught == 1);
	/* All but what needs no thread has gone back, and stays so. */
	CHECK(status_kib("VmRSS:") + (MANY - 9) * (LARGE >> 10) < before);
	free(filled(LARGE));
	if (!failures)
		puts("handler: all checks passed");
	return failures != 0;
}
