// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads the beginning of the file FILE in sequence, and then all over it with several threads at once.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, READS = 20000, BLOCK = 4096, SEQUENCE = 4 << 20 };

static int fd;
static off_t blocks;

/* Each block begins with its number. */
static void *reads(void *argument)
{
	unsigned int seed = (uintptr_t)argument;
	uint64_t block[BLOCK / sizeof(uint64_t)];

	for (int i = 0; i < READS; i++) {
		uint64_t at = rand_r(&seed) % blocks;

		if (pread(fd, block, BLOCK, at * BLOCK) != BLOCK || block[0] != at)
			abort();
	}
	return NULL;
}

int main(int count, char **words)
{
	pthread_t threads[THREADS];
	char block[BLOCK];

	if (count != 2)
		return 2;
	fd = open(words[1], O_RDONLY);
	blocks = lseek(fd, 0, SEEK_END) / BLOCK;
	if (lseek(fd, 0, SEEK_SET) != 0)
		return 1;
	for (int i = 0; i < SEQUENCE / BLOCK; i++)
		if (read(fd, block, BLOCK) != BLOCK)
			return 1;
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, reads, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("at %lld\n", (long long)lseek(fd, 0, SEEK_CUR));
	return 0;
}
