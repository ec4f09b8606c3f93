// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Calls each function that a list names, with a file that waits, and looks whether the kernel has that
 * file when the C library's function is entered. Nothing is carried out: a library behind libpdio.so
 * stands for the C library (see `SHIM`).
 *
 * listed, with lines of NAME HOW on standard input; in an empty directory, with PDIO_SEQUENTIAL=0.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare.h"

/* In the shim: the function to stand for, and what it met. */
extern const char *volatile awaited;
extern long met;

static char text[1 << 16];

int main(void)
{
	static struct pollfd one;
	static fd_set set;
	static char data[5000];
	char line[200];
	size_t len = 0;
	long got;

	while ((got = bare(SYS_read, 0, (long)text + len, sizeof(text) - 1 - len)) > 0)
		len += got;

	int pair[2], epoll = epoll_create1(0), lock = open("lock", O_RDWR | O_CREAT, 0600);

	/* A directory that is closed may be locked from here on. */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || flock(lock, LOCK_SH))
		return 3;
	bare(SYS_dup3, pair[0], 0, 0);

	FILE *file = fdopen(pair[0], "r+");

	one = (struct pollfd){ pair[0], POLLIN, 0 };
	FD_SET(pair[0], &set);
	for (char *next = text, *entry; (entry = strsep(&next, "\n"));) {
		char *name = strsep(&entry, " "), *how = entry;
		unsigned long words[6] = { 0 };
		long (*function)(long, long, long, long, long, long);
		int fd;

		if (!how)
			break;
		function = (long (*)(long, long, long, long, long, long))dlsym(RTLD_DEFAULT, name);
		if (!function)
			continue;
		if ((!strncmp(how, "output_of_", 10) || !strncmp(how, "input_of_", 9)) &&
		    strcmp(how, "input_of_standard"))
			words[how[strlen(how) - 1] - '1'] = (unsigned long)file;
		if (!strcmp(how, "character_of"))
			words[0] = (unsigned long)file;
		if (!strncmp(how, "receiving", 9))
			words[0] = pair[0];
		if (!strncmp(how, "polling", 7)) {
			words[0] = (unsigned long)&one;
			words[1] = 1;
			words[2] = strcmp(how, "polling") ? 0 : -1;
		}
		if (!strcmp(how, "selecting")) {
			words[0] = pair[0] + 1;
			words[1] = (unsigned long)&set;
		}
		if (!strncmp(how, "awaiting", 8)) {
			words[0] = epoll;
			words[3] = strcmp(how, "awaiting") ? 0 : -1;
		}
		if (!strcmp(how, "closing_directory"))
			words[0] = (unsigned long)opendir(".");
		bare(SYS_unlinkat, AT_FDCWD, (long)"file", 0);
		fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (write(fd, data, 5000) != 5000 || write(fd, data, 1000) != 1000)
			return 3;
		met = -1;
		awaited = name;
		function(words[0], words[1], words[2], words[3], words[4], words[5]);
		awaited = NULL;
		len = met == 6000 ? 0 : met < 0 ? 2 : 1;
		got = strlen(strcpy(line, name));
		got += strlen(strcpy(line + got, len == 0 ? ": good\n" : len == 1 ? ": late\n" : ": not called\n"));
		bare(SYS_write, 1, (long)line, got);
		close(fd);
	}
	return 0;
}
