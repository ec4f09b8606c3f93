// SPDX-License-Identifier: MIT OR Apache-2.0
/* Messages of a program that has no files open. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	char data[10] = "message";
	struct iovec part = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int pair[2];

	/* One that was watched. */
	close(open("/proc/self/exe", O_RDONLY));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	for (int i = 0; i < 1000; i++)
		if (sendmsg(pair[0], &message, 0) != 10 || read(pair[1], data, 10) != 10)
			return 1;
	return 0;
}
