// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls functions by both of their names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare.h"

static void say(const char *what)
{
	bare(SYS_write, 1, (long)what, (long)strlen(what), 0);
}

int main(void)
{
	static char block[65536];
	int flags = O_WRONLY | O_CREAT | O_TRUNC, fd = open("file", flags, 0600), other;
	struct stat64 wide;
	struct stat st;
	FILE *file;

	/* Long enough for a stream to be taken. */
	for (int i = 0; i < 64; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	say("open64\n");
	other = open64("other", flags, 0600);
	close(other);
	say("open\n");
	other = open("other", O_RDONLY);
	close(other);
	say("fopen64\n");
	file = fopen64("other", "r");
	fclose(file);
	say("fopen\n");
	file = fopen("other", "r");
	fclose(file);
	say("stat64\n");
	if (stat64("other", &wide) || wide.st_size)
		return 2;
	say("stat\n");
	if (stat("other", &st) || st.st_size)
		return 3;
	return close(fd);
}
