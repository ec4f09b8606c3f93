// SPDX-License-Identifier: MIT OR Apache-2.0
/* A file that is written and read in long streams, and a stack for signals, in a program that is built with a sanitizer. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	static char block[70000];
	static char stack[65536];
	stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	long sum = 0, got;
	int fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600);

	if (sigaltstack(&other, NULL))
		return 1;
	memset(block, 7, sizeof(block));
	for (int i = 0; i < 200; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	lseek(fd, 0, SEEK_SET);
	while ((got = read(fd, block, sizeof(block))) > 0)
		sum += got;
	printf("%ld\n", sum);
	return close(fd);
}
