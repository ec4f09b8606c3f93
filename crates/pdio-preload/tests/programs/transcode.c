// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a media converter does to its files: transcode IN OUT.
 *
 * The input is probed (short reads, back to the start, a look at its end), then read in odd sizes by
 * one thread, transformed by a second, and written by a third, which leaves room for a header, fills
 * in its fields now and then, and ends with an index. Prints the size and a sum of the output.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 8
#define MOST (256 << 10)

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned char *data[SLOTS];
	size_t len[SLOTS];
	unsigned long head, tail;
};

static struct queue raw = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static struct queue done = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static int in, out;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void put(struct queue *queue, unsigned char *data, size_t len)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->head - queue->tail == SLOTS)
		pthread_cond_wait(&queue->changed, &queue->lock);
	queue->data[queue->head % SLOTS] = data;
	queue->len[queue->head % SLOTS] = len;
	queue->head++;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

static size_t get(struct queue *queue, unsigned char **data)
{
	size_t len;

	pthread_mutex_lock(&queue->lock);
	while (queue->head == queue->tail)
		pthread_cond_wait(&queue->changed, &queue->lock);
	*data = queue->data[queue->tail % SLOTS];
	len = queue->len[queue->tail % SLOTS];
	queue->tail++;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
	return len;
}

static void *reader(void *unused)
{
	uint32_t x = 1;

	for (;;) {
		unsigned char *data = malloc(MOST);
		ssize_t n;

		x = x * 1664525 + 1013904223;
		n = read(in, data, 1 + x % MOST);
		if (n < 0)
			fail("read");
		put(&raw, data, n);
		if (n == 0)
			return unused;
	}
}

static void *transformer(void *unused)
{
	for (;;) {
		unsigned char *data;
		size_t len = get(&raw, &data);

		for (size_t i = 0; i < len; i++)
			data[i] = data[i] * 5 + i;
		put(&done, data, len);
		if (len == 0)
			return unused;
	}
}

static void all(const void *data, size_t len)
{
	if (write(out, data, len) != (ssize_t)len)
		fail("write");
}

static void *writer(void *unused)
{
	static uint64_t index[1 << 16];
	uint64_t header[8] = { 0x6f69646770ull }, total = sizeof(header), last = 0;
	size_t entries = 0;

	all(header, sizeof(header));
	for (;;) {
		unsigned char *data;
		size_t len = get(&done, &data);

		if (len == 0)
			break;
		/* In packets, as a container has them. */
		for (size_t at = 0; at < len; at += 4000) {
			size_t n = len - at < 4000 ? len - at : 4000;

			all(data + at, n);
		}
		free(data);
		total += len;
		index[entries++ % (1 << 16)] = total;
		if (total - last > 16 << 20) {
			last = total;
			header[1] = total;
			if (lseek(out, 8, SEEK_SET) != 8)
				fail("lseek");
			all(&header[1], 8);
			if (lseek(out, 0, SEEK_END) != (off_t)total)
				fail("the end is elsewhere");
		}
	}
	all(index, (entries < 1 << 16 ? entries : 1 << 16) * 8);
	header[1] = total;
	header[2] = entries;
	if (pwrite(out, header, sizeof(header), 0) != sizeof(header))
		fail("pwrite");
	return unused;
}

int main(int argc, char **argv)
{
	static unsigned char probe[1 << 16];
	pthread_t threads[3];
	struct stat st;
	uint32_t sum = 2166136261u;
	ssize_t n;

	if (argc != 3)
		return 2;
	in = open(argv[1], O_RDONLY);
	out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (in < 0 || out < 0)
		fail("open");
	for (size_t size = 2048; size <= sizeof(probe); size *= 2) {
		if (read(in, probe, size) < 0 || lseek(in, 0, SEEK_SET) != 0)
			fail("probe");
	}
	if (pread(in, probe, 4096, lseek(in, -4096, SEEK_END)) != 4096 || lseek(in, 0, SEEK_SET))
		fail("probe");
	pthread_create(&threads[0], NULL, reader, NULL);
	pthread_create(&threads[1], NULL, transformer, NULL);
	pthread_create(&threads[2], NULL, writer, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	if (fstat(out, &st) || close(out) || close(in))
		fail("close");
	printf("%lld bytes\n", (long long)st.st_size);
	in = open(argv[2], O_RDONLY);
	while ((n = read(in, probe, sizeof(probe))) > 0)
		for (ssize_t i = 0; i < n; i++)
			sum = (sum ^ probe[i]) * 16777619u;
	printf("%08x\n", sum);
	return 0;
}
