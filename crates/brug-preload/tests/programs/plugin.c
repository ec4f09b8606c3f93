// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
/* A C program that loads a C++ plug-in into a scope of its own and runs it: plugin FILE. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

/* operator new(size_t, const std::nothrow_t &) */
typedef void *nothrow(size_t, const void *);

int main(int argc, char **argv)
{
	/* no C++ runtime is there yet */
	nothrow *new = (nothrow *)dlsym(RTLD_DEFAULT, "_ZnwmRKSt9nothrow_t");
	void *refused = new ? new(PTRDIFF_MAX, "") : NULL;
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : NULL;
	int status;

	if (refused || !run) {
		fprintf(stderr, "plugin: %s\n", dlerror());
		return 2;
	}
	status = run();
	return dlclose(library) || status;
}
