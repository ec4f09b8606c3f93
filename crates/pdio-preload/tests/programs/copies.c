// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One thread has a number lead to one file and then to another, as who changes to the next log does; the other
 * duplicates it and writes the name of the file that it got, or writes to the number, wherever that leads.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare.h"

enum { NUMBER = 100, ROUNDS = 20000, DIRECT_ROUNDS = 2000 };
static int files[2];
static volatile int stop;

static void *change(void *unused)
{
	for (int i = 0; !stop; i++)
		dup2(files[i & 1], NUMBER);
	return unused;
}

static int wrong(const char *name)
{
	static char text[1 << 20];
	int fd = open(name, O_RDONLY), n;
	int found = 0;

	while ((n = read(fd, text, sizeof(text))) > 0)
		for (int i = 0; i < n; i++)
			found += text[i] != *name && text[i] != '-';
	close(fd);
	return found;
}

int main(int argc, char **argv)
{
	/* Of direct I/O, for which nothing here is aligned. */
	int direct = argc > 1 && !strcmp(argv[1], "direct") ? O_DIRECT : 0;
	static char text[3][10000];
	struct stat about[2], got;
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		memset(text[i], "ab"[i], sizeof(text[i]));
		files[i] = open(i ? "b" : "a", O_WRONLY | O_CREAT | O_TRUNC | direct, 0600);
		for (int n = 0; n < 100; n++)
			if (write(files[i], text[i], sizeof(text[i])) != sizeof(text[i]))
				return 1;
		if (bare(SYS_fstat, files[i], &about[i]))
			return 1;
	}
	memset(text[2], '-', sizeof(text[2]));
	dup2(files[0], NUMBER);
	if (pthread_create(&thread, NULL, change, NULL))
		return 1;
	for (int i = 0; i < (direct ? DIRECT_ROUNDS : ROUNDS); i++) {
		int fd = i % 2 ? NUMBER : dup(NUMBER), which = 2;

		if (fd == NUMBER) {
			if (write(fd, text[which], 100) != 100 && !direct)
				return 1;
			continue;
		}
		if (bare(SYS_fstat, fd, &got))
			return 1;
		which = got.st_ino == about[1].st_ino;
		/* What comes while the number is changed may be refused, as without the library. */
		if (write(fd, text[which], 100) != 100 && !direct)
			return 1;
		close(fd);
	}
	stop = 1;
	pthread_join(thread, NULL);
	close(NUMBER);
	for (int i = 0; i < 2; i++)
		if (close(files[i]))
			return 1;
	if (stat("a", about) || stat("b", about + 1))
		return 1;
	if (!direct)
		printf("%ld bytes, ", (long)(about[0].st_size + about[1].st_size));
	printf("%d and %d wrong\n", wrong("a"), wrong("b"));
	return 0;
}
