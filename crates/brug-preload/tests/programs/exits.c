/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A library that registers more handlers of the end of a program than the C library has room for, before
 * anybody has allocated.
 */
#ifdef LIBRARY

#include <stdlib.h>
#include <unistd.h>

static void nothing(void)
{
}

__attribute__((constructor)) static void registers(void)
{
	alarm(60);
	for (int i = 0; i < 200; i++)
		atexit(nothing);
}

int exits(void)
{
	return 0;
}

#else

int exits(void);

int main(void)
{
	return exits();
}

#endif
