// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that the program makes by `clone`. It has thread-local storage of its own, in which not even the C
 * library's table of such storage is there, or that of the thread that made it (`shared`). It reads and writes
 * files of the program, by functions that need no more than that.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char stack[256 << 10] __attribute__((aligned(16)));
/* Zeros, below the thread's own block and in it. */
static struct {
	char below[64 << 10];
	void *self[512];
} storage __attribute__((aligned(64)));

static char block[10000];
static int in, out, before, later;
static volatile long results[9];
static int alive = 1;

static int work(void *data)
{
	results[0] = syscall(SYS_write, out, data, sizeof(block));
	results[1] = write(out, data, sizeof(block));
	results[2] = syscall(SYS_read, in, data, sizeof(block));
	results[3] = read(in, data, sizeof(block));
	results[4] = lseek(out, 0, SEEK_CUR);
	results[5] = syscall(SYS_openat, AT_FDCWD, "another", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 100; i++)
		results[6] += write(results[5], data, sizeof(block));
	results[7] = close(results[5]);
	results[8] = syscall(SYS_gettid) != syscall(SYS_getpid);
	syscall(SYS_exit, 0);
	return 0;
}

int main(int argc, char **argv)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		    CLONE_CHILD_CLEARTID;

	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "shared"))
		flags |= CLONE_SETTLS;
	out = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 200; i++)
		before += write(out, block, sizeof(block));
	in = open("file", O_RDONLY);
	for (int i = 0; i < 100; i++)
		before += read(in, block, sizeof(block));
	storage.self[0] = storage.self[2] = storage.self;
	if (clone(work, stack + sizeof(stack), flags, block, NULL, storage.self, &alive) < 0)
		return 1;
	/* The kernel ends it with this word; no call tells of that. */
	while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE))
		sched_yield();
	for (int i = 0; i < 100; i++)
		later += write(out, block, sizeof(block));
	for (int i = 0; i < 9; i++)
		printf("%ld ", results[i]);
	printf("%d %d\n", before, later);
	return 0;
}
