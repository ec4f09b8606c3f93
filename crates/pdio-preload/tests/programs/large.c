// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program with variables of each thread that take so many bytes (LARGE). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static __thread char large[LARGE];
static char block[7000];

int main(void)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	memset(large, 1, sizeof(large));
	for (int i = 0; i < 2000; i++) {
		memset(block, i + large[i], sizeof(block));
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
		/* Time for the thread that looks for idle data. */
		if (i == 1000)
			usleep(200000);
	}
	if (fsync(fd) || close(fd))
		return 1;
	puts("written");
	return 0;
}
