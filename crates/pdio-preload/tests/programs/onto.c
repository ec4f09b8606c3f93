// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Two threads have one number lead to files of their own at the same time. Whichever is last, the number
 * leads to one of the files, and what is written to it belongs there.
 *
 * The other thread runs where a library behind libpdio.so lets it: just before or after the first one's
 * dup2 in the kernel, after a look at the number, or before the first one's write there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER = 100, NEVER, BEFORE, AFTER, LOOK, WRITE };

#ifdef LIBRARY
/* When the other thread is to run, once, and what it does. */
volatile int turn = NEVER;
void (*other)(void);
pthread_t late;

static void *thread(void *unused)
{
	other();
	return unused;
}

static void meet(int now)
{
	struct timespec until;
	pthread_t one;

	if (turn != now)
		return;
	turn = NEVER;
	pthread_create(&one, NULL, thread, NULL);
	if (now != LOOK) {
		pthread_join(one, NULL);
		return;
	}
	/* It may have to wait for what this thread holds, and then goes on after it. */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (pthread_timedjoin_np(one, NULL, &until))
		late = one;
}

int dup2(int from, int to)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "dup2");
	int result;

	meet(BEFORE);
	result = next(from, to);
	meet(AFTER);
	return result;
}

int fstat64(int fd, struct stat64 *about)
{
	int (*next)(int, struct stat64 *) = (int (*)(int, struct stat64 *))dlsym(RTLD_NEXT, "fstat64");
	int result = next(fd, about);

	if (fd == NUMBER)
		meet(LOOK);
	return result;
}

ssize_t write(int fd, const void *data, size_t len)
{
	ssize_t (*next)(int, const void *, size_t) =
		(ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");

	if (fd == NUMBER)
		meet(WRITE);
	return next(fd, data, len);
}

#else
#include "bare.h"

#define LONG (2 << 20)
static char block[1 << 16] __attribute__((aligned(4096)));
static int first, second, ask[2], answer[2];

static int make(const char *name, int flags)
{
	return open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
}

static void fill(int fd)
{
	for (int i = 0; i < LONG / (int)sizeof(block); i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			perror("write");
}

static void second_onto(void)
{
	dup2(second, NUMBER);
}

/* A long stream, of which no other descriptor is left. */
static void second_onto_and_stream(void)
{
	dup2(second, NUMBER);
	close(second);
	fill(NUMBER);
}

static void first_onto(void)
{
	dup2(first, NUMBER);
}

static void write_and_tell(void)
{
	(void)!write(second, block, 100);
	(void)!write(NUMBER, "", 1);
}

static void let(int now, void (*what)(void))
{
	*(void (**)(void))dlsym(RTLD_DEFAULT, "other") = what;
	*(volatile int *)dlsym(RTLD_DEFAULT, "turn") = now;
}

static void meet(int now, void (*what)(void), int from)
{
	let(now, what);
	dup2(from, NUMBER);
	if (*(pthread_t *)dlsym(RTLD_DEFAULT, "late"))
		pthread_join(*(pthread_t *)dlsym(RTLD_DEFAULT, "late"), NULL);
}

static long size(int fd)
{
	struct stat about;

	return bare(SYS_fstat, fd, &about) ? -1 : (long)about.st_size;
}

static const char *which(const char *name, const char *other)
{
	struct stat one, two, now;

	stat(name, &one);
	stat(other, &two);
	bare(SYS_fstat, NUMBER, &now);
	return now.st_ino == one.st_ino ? name : now.st_ino == two.st_ino ? other : "neither";
}

/* The child has a descriptor of the first file, whose offset it tells. */
static void child(void)
{
	char byte;

	if (fork())
		return;
	close(ask[1]);
	while (read(ask[0], &byte, 1) == 1) {
		long at = bare(SYS_lseek, first, 0, SEEK_CUR);

		(void)!write(answer[1], &at, sizeof(at));
	}
	_exit(0);
}

static void *nothing(void *unused)
{
	return unused;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;
	long at = -1;

	memset(block, 'x', sizeof(block));
	/* It is a program of several threads before they meet. */
	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		return 1;
	if (!strcmp(how, "direct-look") || !strcmp(how, "direct-after")) {
		first = make("first", O_DIRECT);
		second = make("second", O_DIRECT);
		/* Misaligned, so that it needs a second way to the file. */
		(void)!write(first, block, 100);
		meet(how[7] == 'l' ? LOOK : AFTER, second_onto, first);
		(void)!pwrite(NUMBER, block, 700, 0);
		printf("to the %s: %ld and %ld\n", which("first", "second"), size(first), size(second));
	} else if (!strcmp(how, "stream")) {
		first = make("first", O_APPEND);
		second = make("second", 0);
		meet(BEFORE, second_onto_and_stream, first);
		(void)!write(NUMBER, block, 700);
		second = open("second", O_RDONLY);
		printf("to the %s: %ld and %ld\n", which("first", "second"), size(first), size(second));
	} else if (!strcmp(how, "shared")) {
		if (pipe(ask) || pipe(answer))
			return 1;
		first = make("first", 0);
		child();
		second = make("second", 0);
		meet(AFTER, first_onto, second);
		close(first);
		fill(NUMBER);
		(void)!write(ask[1], "", 1);
		(void)!read(answer[0], &at, sizeof(at));
		close(ask[1]);
		wait(NULL);
		printf("to the %s: %ld\n", which("first", "second"), at);
	} else if (!strcmp(how, "written")) {
		/* As where a log is replaced while another thread writes to it. */
		first = make("first", 0);
		dup2(first, NUMBER);
		close(first);
		second = make("second", 0);
		let(WRITE, second_onto_and_stream);
		(void)!write(NUMBER, block, 700);
		fill(NUMBER);
		close(NUMBER);
		second = open("second", O_RDONLY);
		printf("to the second: %ld\n", size(second));
	} else if (!strcmp(how, "told")) {
		/* The other thread tells nobody, and this one a pipe. */
		first = open("/dev/null", O_WRONLY);
		if (pipe(ask) || dup2(first, NUMBER) != NUMBER)
			return 1;
		second = make("second", 0);
		fill(second);
		meet(BEFORE, write_and_tell, ask[1]);
		write_and_tell();
		printf("told: %ld\n", size(second));
	} else {
		return 2;
	}
	return 0;
}
#endif
