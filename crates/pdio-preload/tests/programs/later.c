// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that opens files by openat2(), which C libraries have from glibc 2.43 on. It may be given one that stands for
 * the C library's (openat2.c). If there is none, it makes the system call; with "has" it then fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int opens(int, const char *, const struct open_how *, size_t);

static int by_number(int directory, const char *path, const struct open_how *how, size_t size)
{
	return syscall(SYS_openat2, directory, path, how, size);
}

static char block[7000];

static long size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) ? -1 : (long)st.st_size;
}

static void fill(int fd, int count)
{
	for (int i = 0; i < count; i++) {
		memset(block, i + 1, sizeof(block));
		if (write(fd, block, sizeof(block)) != sizeof(block))
			printf("write: %s\n", strerror(errno));
	}
}

static void say(const char *what, long result)
{
	printf("%s: %ld, %s\n", what, result, strerror(errno));
	errno = 0;
}

int main(int argc, char **argv)
{
	opens *found = (opens *)dlsym(RTLD_DEFAULT, "openat2"), *opened = found ? found : by_number;
	struct open_how how = { .flags = O_WRONLY | O_CREAT | O_TRUNC, .mode = 0600 };
	struct open_how shows = { .flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT };
	int fd, other;

	if (argc > 1 && !strcmp(argv[1], "has") && !found)
		return 3;
	errno = 0;
	fd = opened(AT_FDCWD, "file", &how, sizeof(how));
	say("made", fd);
	fill(fd, 1000);
	say("whole", size_of("file"));
	fill(fd, 1);
	/* Emptied beside it; the next write leaves a hole. */
	how = (struct open_how){ .flags = O_WRONLY | O_TRUNC };
	other = opened(AT_FDCWD, "file", &how, sizeof(how));
	say("emptied", other);
	say("empty", size_of("file"));
	fill(fd, 3);
	say("written behind a hole", size_of("file"));
	say("closed", close(other) | close(fd));
	fd = open("file", O_RDONLY);
	say("in the hole", pread(fd, block, 100, 1000 * sizeof(block)));
	say("is", block[50]);
	say("closed", close(fd));

	/* Also where it is not known to what the path leads. */
	fd = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	fill(fd, 1001);
	how.resolve = RESOLVE_NO_SYMLINKS;
	other = opened(AT_FDCWD, "other", &how, sizeof(how));
	say("emptied", other);
	say("empty", size_of("other"));
	fill(fd, 1);
	/* What is read of it there. */
	say("closed", close(other));
	other = opened(AT_FDCWD, "other", &shows, sizeof(shows));
	say("opened", other);
	say("read", pread(other, block, sizeof(block), 1001 * sizeof(block)));
	say("closed", close(other) | close(fd));

	say("no file", opened(AT_FDCWD, "none", &shows, sizeof(shows)));
	say("no words", opened(AT_FDCWD, "file", NULL, sizeof(shows)));
	say("too few", opened(AT_FDCWD, "file", &shows, 8));
	shows.resolve = ~0ull;
	say("unknown", opened(AT_FDCWD, "file", &shows, sizeof(shows)));
	return 0;
}
