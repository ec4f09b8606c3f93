/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A coroutine with a stack of 8 KiB, of which it uses two itself: what its objects take of it, each in the
 * first call of its kind. With an argument the object is only freed as it was born.
 */
#define _GNU_SOURCE
#include "check.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { MIB = 1 << 20, MOST = 6 << 10 };

static char stack[256 << 10], *object;
static ucontext_t program, coroutine;
static int step;

static void run(void)
{
	switch (step) {
	case 0:
		object = malloc(3 * MIB);
		break;
	case 1:
		object = realloc(object, 40 * MIB);
		break;
	case 2:
		memset(object, 1, 40 * MIB);
		break;
	case 3:
		object = realloc(object, 60 * MIB);
		break;
	case 4:
		object = realloc(object, MIB);
		break;
	case 5:
		free(object);
		break;
	case 6:
		for (int i = 0; i < 400000; i++)
			free(malloc(100));
		break;
	case 7:
		free(malloc(100 * MIB));
		break;
	case 8:
		mallinfo2();
		break;
	case 9:
		malloc_trim(0);
		break;
	}
}

/* Bytes that the call takes of the stack. */
static long taken(void)
{
	long unused = 0;

	swapcontext(&program, &coroutine);
	while (unused < (long)sizeof(stack) && (unsigned char)stack[unused] == 0xa5)
		unused++;
	return sizeof(stack) - unused;
}

int main(int argc, char **argv)
{
	(void)argv;
	for (step = 0; step < 10; step += argc > 1 ? 5 : 1) {
		memset(stack, 0xa5, sizeof(stack));
		getcontext(&coroutine);
		coroutine.uc_stack.ss_sp = stack;
		coroutine.uc_stack.ss_size = sizeof(stack);
		coroutine.uc_link = &program;
		makecontext(&coroutine, run, 0);
		CHECK(taken() <= MOST);
	}
	puts("coroutine: all checks passed");
	return failures != 0;
}
