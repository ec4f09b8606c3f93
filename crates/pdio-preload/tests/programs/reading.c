// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that ends, by the way that is asked for, in the middle of a file that it reads. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char block[7000];

int main(int count, char **words)
{
	const struct rlimit no_core = { 0, 0 };
	int fd = count == 3 ? open(words[1], O_RDONLY) : -1;

	for (int i = 0; i < 3000; i++)
		if (read(fd, block, sizeof(block)) != sizeof(block))
			return 2;
	setrlimit(RLIMIT_CORE, &no_core);
	if (!strcmp(words[2], "_exit"))
		_exit(0);
	if (!strcmp(words[2], "abort"))
		abort();
	raise(atoi(words[2]));
	return 3;
}
