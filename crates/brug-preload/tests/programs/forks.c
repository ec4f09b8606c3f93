// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How far an object can grow, in MiB, so that fork still works beside it. The
 * system has to promise all that the child could write to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	size_t mib = 0, step = 2;
	char *data = NULL;

	while (mib < 4096) {
		char *more = realloc(data, (mib + step) << 20);
		pid_t child;

		if (!more)
			break;
		data = more;
		memset(data + (mib << 20), 1, step << 20);
		child = fork();
		if (child == 0)
			_exit(0);
		if (child < 0)
			break;
		waitpid(child, NULL, 0);
		mib += step;
	}
	printf("%zu\n", mib);
	return 0;
}
