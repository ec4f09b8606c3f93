// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * heap - allocate through the dma-buf heap of a CMA area, as media stacks do
 *
 * For each repetition: allocate a buffer, map it, see that it is zeroed, fill
 * it, look that nobody else wrote to it, release it. One line {"type":"heap"}
 * each; exit status 1 if any failed or was wrong.
 *
 *   --mib N       size of a buffer (8)
 *   --buffers N   how many are held at a time (4)
 *   --reps N      (10)
 *   --seed N      (1)
 */
#include "options.h"

#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define DEVICE		"/dev/dma_heap/reserved"
#define BUFFERS_MAX	64

static struct {
	u32 mib, buffers, reps;
	u64 seed;
} opt = {
	.mib = 8, .buffers = 4, .reps = 10, .seed = 1,
};

struct buffer {
	int fd;
	u64 *words;
};

static bool buffer_get(int heap, size_t bytes, struct buffer *b)
{
	struct dma_heap_allocation_data data = {
		.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC,
	};

	if (ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data))
		return false;
	b->fd = (int)data.fd;
	b->words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (b->words == MAP_FAILED)
		die("cannot map a buffer of " DEVICE ": %s", strerror(errno));
	return true;
}

static void rep(int heap, u32 number)
{
	size_t bytes = (size_t)opt.mib << 20, n = bytes / sizeof(u64), i;
	struct buffer buffers[BUFFERS_MAX];
	u64 start = now_ns(), ns = 0, dirty = 0, wrong = 0;
	u32 got, b;
	struct json j;

	for (got = 0; got < opt.buffers; got++)
		if (!buffer_get(heap, bytes, &buffers[got]))
			break;
	ns = now_ns() - start;
	for (b = 0; b < got; b++) {
		for (i = 0; i < n; i++) {
			dirty += buffers[b].words[i] != 0;
			buffers[b].words[i] = mix64(opt.seed + number) + b * n + i;
		}
	}
	for (b = 0; b < got; b++)
		for (i = 0; i < n; i++)
			wrong += buffers[b].words[i] !=
				 mix64(opt.seed + number) + b * n + i;
	for (b = 0; b < got; b++) {
		munmap(buffers[b].words, bytes);
		close(buffers[b].fd);
	}
	j = json_line("heap");
	json_u64(&j, "rep", number);
	json_u64(&j, "buffers", got);
	json_u64(&j, "alloc_ns", ns);
	json_u64(&j, "not_zeroed", dirty);
	json_u64(&j, "wrong", wrong);
	json_bool(&j, "ok", got == opt.buffers && !dirty && !wrong);
	json_end(&j);
	if (got != opt.buffers || dirty || wrong)
		exit(1);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "mib", .number = &opt.mib },
		{ "buffers", .number = &opt.buffers },
		{ "reps", .number = &opt.reps },
		{ "seed", .large = &opt.seed },
		{ 0 },
	};
	int heap;
	u32 number;

	settings_parse(argc, argv, settings);
	if (!opt.mib || opt.mib > 1024)
		die("--mib must be 1 to 1024");
	if (!opt.buffers || opt.buffers > BUFFERS_MAX)
		die("--buffers must be 1 to %d", BUFFERS_MAX);
	heap = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (heap < 0)
		die("cannot open " DEVICE ": %s", strerror(errno));
	for (number = 0; number < opt.reps; number++)
		rep(heap, number);
	return 0;
}
