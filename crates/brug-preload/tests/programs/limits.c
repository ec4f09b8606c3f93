// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How much there is under a limit: limits SIZE [MIB]. Objects of SIZE bytes are
 * allocated and written to until there are no more; prints how many bytes they had.
 * With MIB, two buffers have grown to 8 MiB each before, and two threads have grown
 * another one each and sit on them; then RLIMIT_DATA becomes so many MiB, unless 0.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define GROWN ((size_t)8 << 20)

static pthread_barrier_t met;

static void fail(const char *why)
{
	fprintf(stderr, "limits: %s\n", why);
	exit(1);
}

static unsigned char *grow(void)
{
	unsigned char *buffer = NULL;

	for (size_t size = 16; size <= GROWN; size *= 2) {
		buffer = realloc(buffer, size);
		if (!buffer)
			fail("refused before there was much");
		memset(buffer + size / 2, (int)(size >> 12), size / 2);
	}
	return buffer;
}

static void verify(const unsigned char *buffer)
{
	for (size_t size = GROWN; size > 16; size /= 2)
		for (size_t at = size / 2; at < size; at += 509)
			if (buffer[at] != (unsigned char)(size >> 12))
				fail("contents changed");
}

static void *sit(void *unused)
{
	unsigned char *buffer = grow();

	(void)unused;
	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	verify(buffer);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, count = 0;
	unsigned char *mine[2] = { NULL, NULL };
	pthread_t others[2];
	void **last = NULL;
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (size < sizeof(last))
		fail("no size");
	if (argc > 2) {
		pthread_barrier_init(&met, NULL, 3);
		for (int i = 0; i < 2; i++) {
			mine[i] = grow();
			if (pthread_create(&others[i], NULL, sit, NULL))
				fail("no thread");
		}
		pthread_barrier_wait(&met);
		limit.rlim_cur = strtoul(argv[2], NULL, 10) << 20;
		if (limit.rlim_cur && setrlimit(RLIMIT_DATA, &limit))
			fail("no limit");
	}
	for (;;) {
		void **object = malloc(size);

		if (!object)
			break;
		for (size_t at = 0; at < size; at += 4096)
			((char *)object)[at] = 1;
		object[0] = last;
		last = object;
		count++;
	}
	if (errno != ENOMEM)
		fail("refusal without ENOMEM");
	while (last) {
		void **next = last[0];

		free(last);
		last = next;
	}
	if (argc > 2) {
		pthread_barrier_wait(&met);
		for (int i = 0; i < 2; i++) {
			verify(mine[i]);
			pthread_join(others[i], NULL);
		}
	}
	printf("%zu\n", count * size);
	return 0;
}
