// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that opens the library when it runs already, which is too late for its
 * objects: late FILE. They are as before; 0 then, and "opened" or what the loader said.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	char *before = malloc(300000);
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const char *why = library ? "opened" : dlerror();

	memset(before, 3, 300000);
	before = realloc(before, 3000000);
	for (size_t i = 0; i < 300000; i++)
		if (before[i] != 3)
			return 1;
	free(before);
	free(calloc(3, 100000));
	puts(why);
	return 0;
}
