// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cost - what a page costs on the ways that GCMA has hooks in
 *
 * Takes batches of pages of a file and of private memory through all of them,
 * and times each way. Where time counts instructions, two kernels that do the
 * same give the same figures, batch for batch. One line {"type":"cost"} for
 * each way, with the time of each batch of so many pages:
 *
 *   read_cached    pread() of pages in the page cache
 *   fault_cached   a mapping of them
 *   evict          MADV_PAGEOUT of these pages, which are clean
 *   read_evicted   pread() of pages that are not there
 *   fault_evicted  a mapping of such pages
 *   read_new       pread() of pages of which the page cache knows nothing
 *   swap_out       MADV_PAGEOUT of private pages
 *   swap_in        and access to them
 *
 *   --file F       written if it is not there
 *   --batches N    (400)
 *   --calls        instead, a line {"type":"calls"} for each of some sizes of
 *                  calls that read cached pages, and evicted ones that stay so
 *   --cached       of these only cached pages: for kernels that bring them back
 */
#include "options.h"

#include <sched.h>
#include <sys/mman.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

#define PAGE		4096u
#define BATCH		32u
#define FILE_BATCHES	64u	/* the file is gone through more than once */
#define CALL_MAX	(1u << 20)
#define CALLS_MAX	4096u	/* of one size */

enum way {
	READ_CACHED, FAULT_CACHED, EVICT, READ_EVICTED, FAULT_EVICTED,
	READ_NEW, SWAP_OUT, SWAP_IN, WAYS,
};

static const char *const names[WAYS] = {
	"read_cached", "fault_cached", "evict", "read_evicted",
	"fault_evicted", "read_new", "swap_out", "swap_in",
};

static const char *path;
static u32 batches = 400;
static u64 *took[WAYS];
static u8 buffer[CALL_MAX] __attribute__((aligned(PAGE)));
static bool calls, only_cached;

static void fill(word *w, u64 key)
{
	u32 i;

	for (i = 0; i < PAGE / 8; i++)
		w[i] = i < 64 ? mix64(key + i) : key;
}

static int prepare(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;
	u32 page;

	if (fd < 0 || fstat(fd, &st))
		die("cannot open %s: %s", path, strerror(errno));
	if (st.st_size == (off_t)FILE_BATCHES * BATCH * PAGE)
		return fd;
	for (page = 0; page < FILE_BATCHES * BATCH; page++) {
		fill((word *)buffer, page + 1);
		if (write(fd, buffer, PAGE) != PAGE)
			die("cannot write %s: %s", path, strerror(errno));
	}
	if (fsync(fd))
		die("cannot sync %s: %s", path, strerror(errno));
	return fd;
}

static void read_pages(int fd, u32 first)
{
	u32 i;

	for (i = 0; i < BATCH; i++)
		if (pread(fd, buffer, PAGE, (off_t)(first + i) * PAGE) != PAGE)
			die("cannot read %s: %s", path, strerror(errno));
}

static void touch(const u8 *at)
{
	u32 i;

	for (i = 0; i < BATCH; i++)
		(void)*(const volatile u8 *)(at + (size_t)i * PAGE);
}

static void page_out(u8 *at)
{
	if (madvise(at, (size_t)BATCH * PAGE, MADV_PAGEOUT))
		die("cannot page out: %s", strerror(errno));
}

/* How many pages are in memory must be none or all, or what we time is not it. */
static void must_be(u8 *at, bool resident)
{
	unsigned char in[BATCH];
	u32 i;

	if (mincore(at, (size_t)BATCH * PAGE, in))
		die("mincore: %s", strerror(errno));
	for (i = 0; i < BATCH; i++)
		if ((in[i] & 1) != resident)
			die("page %u of a batch is%s in memory", i,
			    resident ? " not" : "");
}

static void batch(int fd, u8 *file, u8 *anon, u32 n)
{
	u32 first = n % FILE_BATCHES * BATCH, i;
	u8 *at = file + (size_t)first * PAGE;
	size_t bytes = (size_t)BATCH * PAGE;
	u64 t;

	/* Mapped, as a read may leave a page where it is. */
	touch(at);
	must_be(at, true);
	t = now_ns();
	read_pages(fd, first);
	took[READ_CACHED][n] = now_ns() - t;

	madvise(at, bytes, MADV_DONTNEED);
	t = now_ns();
	touch(at);
	took[FAULT_CACHED][n] = now_ns() - t;

	t = now_ns();
	page_out(at);
	took[EVICT][n] = now_ns() - t;
	must_be(at, false);

	t = now_ns();
	read_pages(fd, first);
	took[READ_EVICTED][n] = now_ns() - t;

	touch(at);
	page_out(at);
	must_be(at, false);
	t = now_ns();
	touch(at);
	took[FAULT_EVICTED][n] = now_ns() - t;

	madvise(at, bytes, MADV_DONTNEED);
	if (posix_fadvise(fd, (off_t)first * PAGE, bytes, POSIX_FADV_DONTNEED))
		die("cannot drop pages of %s", path);
	must_be(at, false);
	t = now_ns();
	read_pages(fd, first);
	took[READ_NEW][n] = now_ns() - t;
	touch(at);
	page_out(at);

	for (i = 0; i < BATCH; i++)
		fill((word *)(anon + (size_t)i * PAGE), i + 1);
	t = now_ns();
	page_out(anon);
	took[SWAP_OUT][n] = now_ns() - t;
	must_be(anon, false);
	t = now_ns();
	touch(anon);
	took[SWAP_IN][n] = now_ns() - t;
}

static u64 time_calls(int fd, u32 size, u32 n)
{
	u64 before = now_ns();
	u32 i;

	for (i = 0; i < n; i++)
		if (pread(fd, buffer, size, (off_t)size * i) != (ssize_t)size)
			die("cannot read %s: %s", path, strerror(errno));
	return now_ns() - before;
}

static void call(int fd, u8 *file, u32 size)
{
	u32 n = CALL_MAX / size < CALLS_MAX ? CALL_MAX / size : CALLS_MAX, at;
	u32 stretch = size < PAGE ? PAGE * BATCH : CALL_MAX;
	struct json j = json_line("calls");

	for (at = 0; at < CALL_MAX; at += PAGE * BATCH)
		touch(file + at);
	must_be(file, true);
	/* Pages that are read for the first time and the second are moved on lists. */
	time_calls(fd, size, n);
	time_calls(fd, size, n);
	json_u64(&j, "size", size);
	json_u64(&j, "calls", n);
	json_u64(&j, "cached_ns", time_calls(fd, size, n));
	if (only_cached) {
		json_end(&j);
		return;
	}
	for (at = 0; at < CALL_MAX; at += PAGE * BATCH)
		page_out(file + at);
	for (at = 0; at < stretch; at += PAGE * BATCH)
		must_be(file + at, false);
	time_calls(fd, size, n);
	json_u64(&j, "evicted_ns", time_calls(fd, size, n));
	for (at = 0; at < stretch; at += PAGE * BATCH)
		must_be(file + at, false);
	json_end(&j);
}

static void report(enum way way)
{
	struct json j = json_line("cost");
	u32 n;

	json_str(&j, "way", names[way]);
	json_u64(&j, "pages", BATCH);
	json_open(&j, "ns", "[");
	for (n = 0; n < batches; n++)
		json_u64(&j, NULL, took[way][n]);
	json_close(&j, "]");
	json_end(&j);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "file", .text = &path },
		{ "batches", .number = &batches },
		{ "calls", .flag = &calls },
		{ "cached", .flag = &only_cached },
		{ 0 },
	};
	size_t bytes = (size_t)FILE_BATCHES * BATCH * PAGE;
	cpu_set_t first;
	u8 *file, *anon;
	static const u32 sizes[] = { 8, 512, PAGE, 16 * PAGE, CALL_MAX };
	u32 way, n;
	int fd;

	settings_parse(argc, argv, settings);
	if (!path || batches < 4)
		die("--file and at least 4 --batches are needed");
	/* What another CPU has yet to put on a list is not evicted. */
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		die("cannot stay on one CPU: %s", strerror(errno));
	fd = prepare();
	/* one page at a time, and nothing ahead */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	anon = mmap(NULL, (size_t)BATCH * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (file == MAP_FAILED || anon == MAP_FAILED)
		die("cannot map: %s", strerror(errno));
	madvise(file, bytes, MADV_RANDOM);
	if (calls) {
		for (n = 0; n < sizeof(sizes) / sizeof(*sizes); n++)
			call(fd, file, sizes[n]);
		return 0;
	}
	for (way = 0; way < WAYS; way++)
		took[way] = xalloc(batches * sizeof(u64));
	for (n = 0; n < batches; n++)
		batch(fd, file, anon, n);
	for (way = 0; way < WAYS; way++)
		report(way);
	return 0;
}
