/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that, as daemons do, closes what it began with, and has a file of its own as descriptor 2. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE (1ul << 20)

int main(int argc, char **argv)
{
	char *object = NULL;

	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (argc != 2 || open("/dev/null", O_RDWR) != 0 || dup(0) != 1 ||
	    open(argv[1], O_CREAT | O_RDWR, 0644) != 2 ||
	    write(2, "data\n", 5) != 5)
		return 1;
	for (size_t size = 4096; size <= SIZE; size *= 2) {
		object = realloc(object, size);
		if (!object)
			return 2;
		memset(object + size / 2, 1, size / 2);
	}
	free(object);
	return 0;
}
