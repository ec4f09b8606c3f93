// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An allocator that asks the system about itself when a thread is new to it, and when the thread
 * ends, by system calls of which the library knows nothing.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare.h"
#include "wrapped.h"

static __thread int known;
static int armed, asked;
static pthread_key_t end;

static void ask(void)
{
	syscall(SYS_getpgid, 0);
	__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
}

static void gone(void *value)
{
	(void)value;
	ask();
}

static void enter(void)
{
	/* Not in the first thread: it may ask, and then nothing is taken any more. */
	if (!armed || known || bare(SYS_gettid) == bare(SYS_getpid))
		return;
	known = 1;
	ask();
	pthread_setspecific(end, &known);
}

void *malloc(size_t size)
{
	enter();
	return __libc_malloc(size);
}

static char block[7000];

int main(void)
{
	if (pthread_key_create(&end, gone))
		return 1;
	armed = 1;
	for (int file = 0; file < 20; file++) {
		int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);

		for (int i = 0; i < 300; i++) {
			memset(block, i + file, sizeof(block));
			if (write(fd, block, sizeof(block)) != sizeof(block))
				return 1;
		}
		if (lseek(fd, 0, SEEK_END) != 300 * (long)sizeof(block) || fsync(fd) || close(fd))
			return 1;
	}
	puts("written");
	fflush(stdout);
	fprintf(stderr, "%s\n", asked ? "asked" : "not asked");
	return 0;
}
