// SPDX-License-Identifier: MIT OR Apache-2.0
/* Writes a file as a stream after its process has got another root directory, or another user. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	static char block[3000];
	int fd, result = 0;

	if (count != 3)
		return 2;
	fd = open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (!strcmp(arguments[2], "chroot"))
		result = chroot("/");
	else if (!strcmp(arguments[2], "bare chroot"))
		result = syscall(SYS_chroot, "/");
	else if (!strcmp(arguments[2], "setuid"))
		/* The file stays its own, and so does /proc/self. */
		result = fchown(fd, 1, -1) || seteuid(1) || prctl(PR_SET_DUMPABLE, 1);
	if (fd < 0 || result) {
		perror(arguments[2]);
		return 1;
	}
	for (int i = 0; i < 4000; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	return close(fd) != 0;
}
