// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that has functions of its own with names that the C standard does not reserve, and that
 * the allocator calls the C library's by. The linker exports them, as the C library has such names.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int called;

/* Under another name here, as headers declare some of them. */
#define OWN(name) \
	int own_##name(void) __asm__(#name); \
	int own_##name(void) { called = 1; abort(); }
OWN(close) OWN(fcntl) OWN(fstat64) OWN(getpid) OWN(getrlimit) OWN(gettid) OWN(gettimeofday)
OWN(lseek64) OWN(madvise) OWN(mincore) OWN(mmap) OWN(mmap64) OWN(mprotect) OWN(mremap)
OWN(munmap) OWN(prctl) OWN(read) OWN(readlink) OWN(sbrk) OWN(sched_getaffinity)
OWN(sched_getcpu) OWN(sched_getscheduler) OWN(sched_setaffinity) OWN(sched_setscheduler)
OWN(sched_yield) OWN(secure_getenv) OWN(sigfillset) OWN(clock_nanosleep) OWN(sleep) OWN(stat64)
OWN(statx) OWN(syscall) OWN(sysconf) OWN(sysinfo) OWN(unlink) OWN(write) OWN(writev)

static void *work(void *unused)
{
	void *objects[6000];

	for (int i = 0; i < 6000; i++)
		memset(objects[i] = malloc(10 + i % 400), 1, 10);
	for (int i = 0; i < 6000; i++)
		free(objects[i]);
	for (int round = 0; round < 2; round++) {
		char *large = NULL;

		for (size_t size = 4096; size <= 16 << 20; size *= 2) {
			large = realloc(large, size);
			memset(large + size / 2, 1, size / 2);
		}
		free(large);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	work(NULL);
	if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
		return 1;
	puts(called ? "called" : "names: not called");
	return 0;
}
