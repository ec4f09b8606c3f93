/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread has the loader's lock for good, as it is in the constructor of a library. The child that another thread
 * makes by the system call changes its rights all the same, and has no thread afterwards that it did not have before,
 * however much of what its parent freed is retained.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int capset(void *header, const void *data);

#ifdef PLUGIN
__attribute__((constructor)) static void begin(void)
{
	CHECK(write(atoi(getenv("HOLDS")), "", 1) == 1);
	for (;;)
		pause();
}
#else
static void *load(void *plugin)
{
	return dlopen(plugin, RTLD_NOW);
}

static long threads(void)
{
	struct stat about;

	return stat("/proc/self/task", &about) ? -1 : (long)about.st_nlink - 2;
}

static void change(void)
{
	CHECK(!unshare(0));
	CHECK(threads() == 1);
	CHECK(setns(-1, 0) && errno == EBADF);
	CHECK(threads() == 1);
	CHECK(capset(NULL, NULL) && errno == EFAULT);
	CHECK(threads() == 1);
}

static void use(void)
{
	enum { LARGE = 24 << 20 };
	char *object = malloc(LARGE);

	memset(object, 1, LARGE);
	free(object);
}

int main(int argc, char **argv)
{
	int ends[2], status = 1;
	pthread_t thread;
	char text[8], byte;
	pid_t child;

	if (argc != 2 || pipe(ends))
		return 2;
	change();
	use(); /* what is freed first is not retained */
	use();
	snprintf(text, sizeof(text), "%d", ends[1]);
	setenv("HOLDS", text, 1);
	CHECK(!pthread_create(&thread, NULL, load, argv[1]));
	CHECK(read(ends[0], &byte, 1) == 1);
	child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		alarm(60); /* where it fails, it waits for ever */
		change();
		_exit(failures);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	if (!failures)
		puts("holds: all checks passed");
	fflush(stdout);
	_exit(failures != 0); /* exit() would wait for the loader */
}
#endif
