// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A library that stands in for functions and goes about them by others: by the name with underscores, by a bare system
 * call, by the function of old programs. With PROGRAM: one that calls them, and says what came of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef PROGRAM

int calls(void);

int main(void)
{
	static char block[65536];
	int (*calls)(void) = dlsym(RTLD_DEFAULT, "calls");
	char path[PATH_MAX], *words[] = { "true", NULL };
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	long sum = 0;
	struct stat st;
	pid_t child;

	/* Long enough for a stream to be taken. */
	for (int i = 0; i < 512; i++)
		sum += write(fd, block, sizeof(block));
	printf("written %ld\n", sum);
	printf("size %ld\n", fstat(fd, &st) ? -1L : (long)st.st_size);
	lseek(fd, 0, SEEK_SET);
	for (sum = 0; sum < 32 << 20;)
		sum += read(fd, block, sizeof(block));
	printf("read %ld\n", sum);
	printf("realpath %s\n", realpath("/", path));
	printf("posix_spawn %d\n", posix_spawn(&child, "/bin/true", NULL, NULL, words, words + 1));
	printf("mkdir %d, its own are called: %d\n", mkdir("made", 0700), calls && calls());
	return close(fd);
}

#else

ssize_t __write(int fd, const void *data, size_t len);
int __fxstat64(int version, int fd, struct stat64 *out);
void *__sbrk(intptr_t by);

static int count;

int calls(void)
{
	return count;
}

ssize_t write(int fd, const void *data, size_t len)
{
	count++;
	return __write(fd, data, len);
}

ssize_t read(int fd, void *data, size_t len)
{
	count++;
	return syscall(SYS_read, fd, data, len);
}

int fstat64(int fd, struct stat64 *out)
{
	count++;
	return __fxstat64(1, fd, out);
}

int fstat(int fd, struct stat *out)
{
	return fstat64(fd, (struct stat64 *)out);
}

void *sbrk(intptr_t by)
{
	return __sbrk(by);
}

char *realpath(const char *path, char *out)
{
	return path ? strcpy(out, "/elsewhere") : NULL;
}

int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const *words, char *const *environment)
{
	(void)path;
	(void)actions;
	(void)attributes;
	(void)words;
	(void)environment;
	*child = 0;
	return 77;
}

static int make(const char *path, mode_t mode)
{
	return path ? (int)mode : -1;
}

static int (*choose(void))(const char *, mode_t)
{
	return make;
}

int mkdir(const char *path, mode_t mode) __attribute__((ifunc("choose")));

#endif
