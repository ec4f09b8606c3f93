// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that opens the library when it runs already, which is too late for its
 * objects: late FILE. They are as before; 0 then, and "opened" or what the loader said. What it has of the library by
 * name, it may free, and close the library, and fork.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* so much is freed that a thread is to give it back */
static int used_and_closed(void *library)
{
	void *(*new)(size_t, int) = (void *(*)(size_t, int))dlsym(library, "mallocx");
	void (*delete)(void *, int) = (void (*)(void *, int))dlsym(library, "dallocx");
	void *object = new(40 << 20, 0);
	int status;

	memset(object, 1, 40 << 20);
	delete(object, 0);
	if (dlclose(library))
		return 2;
	switch (fork()) {
	case -1:
		return 3;
	case 0:
		_exit(0);
	}
	return wait(&status) < 0 || status ? 4 : 0;
}

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
	return library ? used_and_closed(library) : 0;
}
