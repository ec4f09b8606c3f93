// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Allocates little, as most programs of a shell script do. Its system calls are compared with and
 * without the library; getppid() marks where main() begins and where it ends.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	char *kept[500];
	unsigned int i;

	getppid();
	for (i = 0; i < 500; i++) {
		kept[i] = i % 2 ? malloc(i + 1) : calloc(i + 1, 2);
		if (!kept[i])
			return 1;
		kept[i][i] = 1;
	}
	for (i = 0; i < 500; i += 3) {
		char *larger = realloc(kept[i], 4 * i + 8);

		if (!larger)
			return 1;
		kept[i] = larger;
	}
	for (i = 0; i < 500; i++)
		free(kept[i]);
	kept[0] = malloc(60 << 10);
	if (!kept[0])
		return 1;
	memset(kept[0], 1, 60 << 10);
	free(kept[0]);
	/* A buffer that doubles. */
	kept[0] = NULL;
	for (i = 4000; i < 100000; i *= 2) {
		kept[0] = realloc(kept[0], i);
		if (!kept[0])
			return 1;
		memset(kept[0], 1, i);
	}
	free(kept[0]);
	getppid();
	return 0;
}
