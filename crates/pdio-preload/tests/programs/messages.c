// SPDX-License-Identifier: MIT OR Apache-2.0
/* Messages of a program that has no files open any more; the argument is one to make. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bare.h"

static int ready(const char *name, int flags)
{
	int fd = open(name, flags, 0600);

	if (fd < 0)
		exit(1);
	return fd;
}

/* Each way in which a descriptor is known, and no longer. */
static void come_and_go(const char *name)
{
	static char data[1 << 16];
	int fd = ready(name, O_RDWR | O_CREAT);

	/* A stream, with a copy; again, and closed where nobody sees it. */
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 80; i++)
			if (write(fd, data, sizeof(data)) != sizeof(data))
				exit(1);
		close(dup(fd));
		if (round)
			bare(SYS_close, fd);
		else
			close(fd);
		fd = ready(name, O_WRONLY);
	}
	if (!fork())
		_exit(close(dup(fd)));
	wait(NULL);
	dup2(fd, fd + 1);
	/* Watched no longer, or by another name. */
	flock(fd, LOCK_EX);
	dup2(ready(name, O_RDONLY), fd);
	close_range(fd, fd + 2, 0);
	/* Direct I/O of its own, which not every filesystem has. */
	fd = open(name, O_RDONLY | O_DIRECT);
	if (fd >= 0) {
		close(dup(fd));
		close(fd);
	}
}

int main(int count, char **words)
{
	char data[10] = "message";
	struct iovec part = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int pair[2];

	if (count != 2)
		return 1;
	come_and_go(words[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	for (int i = 0; i < 1000; i++)
		if (sendmsg(pair[0], &message, 0) != 10 || read(pair[1], data, 10) != 10)
			return 1;
	return 0;
}
