// SPDX-License-Identifier: MIT OR Apache-2.0
// Writes the file FILE, over which there is the loop device DEVICE, and reads each 64th block from there.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 1024, EACH = 64 };

int main(int count, char **words)
{
	char block[BLOCK], got[BLOCK];
	int file, device, old = 0;

	if (count != 3)
		return 2;
	file = open(words[1], O_WRONLY | O_CREAT, 0600);
	device = open(words[2], O_RDONLY);
	for (int i = 0; i < BLOCKS; i++) {
		memset(block, 'a' + i % 26, BLOCK);
		if (write(file, block, BLOCK) != BLOCK)
			return 1;
		if (i % EACH != EACH - 1)
			continue;
		if (pread(device, got, BLOCK, (off_t)i * BLOCK) != BLOCK)
			return 1;
		old += memcmp(block, got, BLOCK) != 0;
	}
	printf("%d blocks are old\n", old);
	return 0;
}
