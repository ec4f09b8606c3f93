// SPDX-License-Identifier: MIT OR Apache-2.0
/* A C program that loads a C++ plug-in into a scope of its own and runs it: plugin FILE. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : NULL;
	int status;

	if (!run) {
		fprintf(stderr, "plugin: %s\n", dlerror());
		return 2;
	}
	status = run();
	return dlclose(library) || status;
}
