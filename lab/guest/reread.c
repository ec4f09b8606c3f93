// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * reread - read a file again and again, page by page, and time it
 *
 * With a file larger than free memory this measures what a page costs that
 * left memory a while ago. Each page says at its start which file and which
 * page it is, and is looked at after each read. Ends with one line
 * {"type":"reread"}; times are those of the reads alone, usual_ns the mean of
 * their middle half, which chance does not touch, and waits how often the
 * program slept in them: once for each that went to the disk.
 *
 *   --file F     the file
 *   --mib M      its size (256)
 *   --prepare    write it, sync it and end
 *   --reads N    reads that are timed (10000)
 *   --warm N     reads before that (0)
 *   --order O    random: all pages alike; zipf: popular ones more often, of the
 *                2^k most popular ones beyond the first 2^k as often for any k;
 *                cyclic: one after the other, over and over, with readahead (random)
 *   --mmap       through a mapping instead of pread()
 *   --pieces N   into so many pieces of memory instead of one, with preadv()
 *   --heap PATH  into a buffer of that dma-buf heap, which is a device's memory
 *   --seed N     (1)
 */
#include "options.h"

#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define PAGE		4096u
#define PIECES_MAX	1024u

static struct {
	const char *file, *order, *heap;
	u32 mib, pieces;
	u64 reads, warm, seed;
	bool prepare, map;
} opt = { .order = "random", .mib = 256, .pieces = 1, .reads = 10000, .seed = 1 };

/* The first 16 bytes of a page. They do not depend on the seed of a run. */
static void header(u64 *h, u64 page)
{
	h[0] = mix64(0x7265726561640000ULL + opt.mib);
	h[1] = mix64(h[0] ^ page) | 1;
}

static void prepare(void)
{
	u32 chunk = 64 * PAGE, i, k;
	u64 pages = (u64)opt.mib * MIB / PAGE, page;
	word *buf = xalloc(chunk);
	struct json j;
	int fd = open(opt.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		die("cannot create %s: %s", opt.file, strerror(errno));
	for (page = 0; page < pages; page += chunk / PAGE) {
		for (i = 0; i < chunk / PAGE; i++) {
			word *w = buf + i * (PAGE / 8);
			u64 h[2];

			header(h, page + i);
			w[0] = h[0];
			for (k = 1; k < PAGE / 8; k++)
				w[k] = h[1] * k;
		}
		if (write(fd, buf, chunk) != (ssize_t)chunk)
			die("cannot write %s: %s", opt.file, strerror(errno));
	}
	if (fsync(fd))
		die("cannot sync %s: %s", opt.file, strerror(errno));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	free(buf);
	j = json_line("prepared");
	json_str(&j, "file", opt.file);
	json_u64(&j, "mib", opt.mib);
	json_end(&j);
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* in thousandths */
static u64 usual(u64 *took, u64 n)
{
	u64 first = n / 4, end = n - n / 4, sum = 0, i;

	qsort(took, n, sizeof(*took), compare);
	for (i = first; i < end; i++)
		sum += took[i];
	return n ? sum * 1000 / (end - first) : 0;
}

static u64 waited(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage: %s", strerror(errno));
	return (u64)usage.ru_nvcsw;
}

static const struct setting settings[] = {
	{ "file", .text = &opt.file },
	{ "mib", .number = &opt.mib },
	{ "prepare", .flag = &opt.prepare },
	{ "reads", .large = &opt.reads },
	{ "warm", .large = &opt.warm },
	{ "order", .text = &opt.order },
	{ "mmap", .flag = &opt.map },
	{ "pieces", .number = &opt.pieces },
	{ "heap", .text = &opt.heap },
	{ "seed", .large = &opt.seed },
	{ 0 },
};

static void parse(int argc, char **argv)
{
	settings_parse(argc, argv, settings);
	if (!opt.file || !opt.mib)
		die("--file and --mib are needed");
	if (strcmp(opt.order, "random") && strcmp(opt.order, "zipf") &&
	    strcmp(opt.order, "cyclic"))
		die("--order is random, zipf or cyclic, not '%s'", opt.order);
	if (!opt.pieces || opt.pieces > PIECES_MAX || PAGE % opt.pieces)
		die("--pieces is a power of two up to %u", PIECES_MAX);
}

/* Where to read a page to. */
static word *destination(void)
{
	static word buf[PAGE / 8] __attribute__((aligned(PAGE)));
	struct dma_heap_allocation_data data = {
		.len = PAGE, .fd_flags = O_RDWR | O_CLOEXEC,
	};
	void *p;
	int fd;

	if (!opt.heap)
		return buf;
	fd = open(opt.heap, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, DMA_HEAP_IOCTL_ALLOC, &data))
		die("no buffer from %s: %s", opt.heap, strerror(errno));
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, (int)data.fd, 0);
	if (p == MAP_FAILED)
		die("cannot map a buffer of %s: %s", opt.heap, strerror(errno));
	return p;
}

static bool read_page(int fd, word *to, u64 page)
{
	struct iovec piece[PIECES_MAX];
	u32 size = PAGE / opt.pieces, i;

	if (opt.pieces == 1)
		return pread(fd, to, PAGE, (off_t)(page * PAGE)) == PAGE;
	for (i = 0; i < opt.pieces; i++) {
		piece[i].iov_base = (u8 *)to + i * size;
		piece[i].iov_len = size;
	}
	return preadv(fd, piece, (int)opt.pieces, (off_t)(page * PAGE)) == PAGE;
}

static u64 pick(struct rng *rng, u64 i, u64 pages)
{
	u32 octaves = 0, rank;

	if (opt.order[0] == 'c')
		return i % pages;
	if (opt.order[0] == 'r')
		return rng_below(rng, (u32)pages);
	while (2ULL << octaves <= pages)
		octaves++;
	rank = 1u << rng_below(rng, octaves);
	rank += rng_below(rng, rank) - 1;
	/* Popular pages lie anywhere: a prime scatters all of them. */
	return rank * 2654435761ULL % pages;
}

int main(int argc, char **argv)
{
	static struct fields vm[2], gcma[2];
	u64 pages, i, wrong = 0, total = 0, max = 0, waits = 0, *all;
	const u8 *map = NULL;
	word *buf;
	struct rng rng;
	struct stat st;
	struct json j;
	bool alone;
	int fd;

	parse(argc, argv);
	if (opt.prepare) {
		prepare();
		return 0;
	}
	pages = (u64)opt.mib * MIB / PAGE;
	fd = open(opt.file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die("cannot open %s: %s (write it with --prepare)", opt.file,
		    strerror(errno));
	if ((u64)st.st_size != pages * PAGE)
		die("%s has not %u MiB (write it with --prepare)", opt.file,
		    opt.mib);
	alone = opt.order[0] != 'c';
	posix_fadvise(fd, 0, 0, alone ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
	if (opt.map) {
		void *p = mmap(NULL, (size_t)(pages * PAGE), PROT_READ,
			       MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			die("cannot map %s: %s", opt.file, strerror(errno));
		madvise(p, (size_t)(pages * PAGE),
			alone ? MADV_RANDOM : MADV_NORMAL);
		map = p;
	}

	buf = destination();
	all = xalloc(opt.reads * sizeof(*all));
	rng = rng_make(opt.seed, 0);
	for (i = 0; i < opt.warm + opt.reads; i++) {
		u64 page = pick(&rng, i, pages);
		u64 before, took, want[2], got[2];

		if (i == opt.warm) {
			fields_read_vmstat(&vm[0]);
			fields_read_gcma(&gcma[0]);
			waits = waited();
		}
		before = now_ns();
		if (map) {
			const volatile word *w =
				(const volatile word *)(map + page * PAGE);

			got[0] = w[0];
			got[1] = w[1];
		} else {
			if (!read_page(fd, buf, page))
				die("cannot read page %" PRIu64 " of %s: %s",
				    page, opt.file, strerror(errno));
			got[0] = buf[0];
			got[1] = buf[1];
		}
		took = now_ns() - before;
		header(want, page);
		if (got[0] != want[0] || got[1] != want[1]) {
			if (!wrong)
				note("page %" PRIu64 " of %s is not what was written",
				     page, opt.file);
			wrong++;
		}
		if (i < opt.warm)
			continue;
		all[i - opt.warm] = took;
		total += took;
		if (took > max)
			max = took;
	}
	waits = waited() - waits;
	fields_read_vmstat(&vm[1]);
	fields_read_gcma(&gcma[1]);

	j = json_line("reread");
	json_u64(&j, "mib", opt.mib);
	json_str(&j, "order", opt.order);
	json_str(&j, "by", opt.map ? "mmap" : "pread");
	json_u64(&j, "pieces", opt.pieces);
	json_u64(&j, "seed", opt.seed);
	json_u64(&j, "warm", opt.warm);
	json_u64(&j, "reads", opt.reads);
	json_u64(&j, "ns_total", total);
	json_u64(&j, "ns_per_read", opt.reads ? total / opt.reads : 0);
	json_milli(&j, "usual_ns", usual(all, opt.reads));
	json_u64(&j, "max_ns", max);
	json_u64(&j, "waits", waits);
	json_u64(&j, "wrong", wrong);
	json_deltas(&j, "vmstat_delta", &vm[0], &vm[1], pressure_fields);
	json_deltas(&j, "gcma_delta", &gcma[0], &gcma[1], NULL);
	json_end(&j);
	return wrong != 0;
}
