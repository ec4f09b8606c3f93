// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that once had descriptors with high numbers; the argument is a file to read. It marks what is measured by
 * a signal to itself before and after. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "bare.h"

static void mark(void)
{
	bare(SYS_kill, getpid(), SIGUSR2);
}

static void tell(int socket)
{
	char data[10] = "message";
	struct iovec part = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	sendmsg(socket, &message, 0);
}

int main(int count, char **words)
{
	static char data[1 << 16];
	struct rlimit limit;
	struct stat about;
	int pair[2], fd;

	if (count != 2 || getrlimit(RLIMIT_NOFILE, &limit))
		return 1;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	fd = open(words[1], O_RDONLY);
	if (fd < 0 || close(fcntl(fd, F_DUPFD, 4000)) || close(fd))
		return 1;
	/* First once more, for what is only done the first time. */
	tell(pair[0]);
	mark();
	tell(pair[0]);
	mark();
	fd = open(words[1], O_RDONLY);
	for (int i = 0; i < 20; i++)
		if (read(fd, data, sizeof(data)) != sizeof(data))
			return 1;
	stat("/", &about);
	mark();
	stat("/", &about);
	mark();
	return 0;
}
