// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of guaranteed contiguous memory areas (GCMA)
 *
 * Usage: gcma_test [DIRECTORY]
 *
 * DIRECTORY, or else the current one, is on the file system whose pages are to
 * be kept. Boot with an area, for example cma=64M gcma=file+swap.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/dma-heap.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"

#define SYSFS		"/sys/kernel/mm/gcma"
#define HEAPS		"/dev/dma_heap"
#define FILE_NAME	"gcma_test.tmp"
#define FILE_PAGES	64
#define ALLOCS		16
/* An allocation may take this many times as long where pages are discarded. */
#define SLOWER		10
/* What is shorter says nothing on a machine with other work. */
#define SHORT_NS	1000000
/* Do not write larger files than this. */
#define FILL_MAX	(512UL << 20)

static const char *const words[] = {
	"none", "file", "swap", "file+swap",
};

static const char *const counters[] = {
	"frames", "owned", "quarantined", "allocs", "alloc_fails",
	"bad_releases", "copy_waits", "poisoned",
	"file/cached", "file/stored", "file/loaded", "file/served",
	"file/missed", "file/discarded", "file/evicted", "file/refused",
	"swap/cached", "swap/stored", "swap/loaded", "swap/missed",
	"swap/discarded", "swap/evicted", "swap/refused",
};

static size_t page_size;
static int heap = -1;
static struct {
	char name[NAME_MAX + 1];
	long pages;
} area;

/* One line of a file of the area; false if it cannot be read. */
static bool area_text(const char *name, char *text, size_t size)
{
	char path[PATH_MAX];
	FILE *file;
	bool done;

	snprintf(path, sizeof(path), SYSFS "/%s/%s", area.name, name);
	file = fopen(path, "r");
	if (!file)
		return false;
	done = fgets(text, size, file);
	fclose(file);
	if (done)
		text[strcspn(text, "\n")] = '\0';
	return done;
}

/* A counter of the area, or -1. */
static long counter(const char *name)
{
	char text[64], *end;
	long value;

	if (!area_text(name, text, sizeof(text)))
		return -1;
	value = strtol(text, &end, 10);
	return *text && !*end ? value : -1;
}

static bool keeps(const char *client)
{
	char text[64];

	return area_text("clients", text, sizeof(text)) && strstr(text, client);
}

static void test_counters(void)
{
	unsigned int i, bad = 0;

	for (i = 0; i < ARRAY_SIZE(counters); i++) {
		if (counter(counters[i]) < 0) {
			ksft_print_msg("%s is no number\n", counters[i]);
			bad++;
		}
	}
	ksft_test_result(!bad, "counters are numbers\n");
}

static void test_words(void)
{
	char before[64] = "", after[64] = "", path[PATH_MAX];
	bool known = false, taken;
	unsigned int i;
	int fd;

	area_text("clients", before, sizeof(before));
	for (i = 0; i < ARRAY_SIZE(words); i++)
		known |= !strcmp(before, words[i]);
	ksft_test_result(known, "clients is a word that is documented\n");

	snprintf(path, sizeof(path), SYSFS "/%s/clients", area.name);
	fd = open(path, O_WRONLY);
	taken = fd >= 0 && write(fd, "tape", 4) >= 0;
	if (fd >= 0)
		close(fd);
	area_text("clients", after, sizeof(after));
	ksft_test_result(!taken && !strcmp(before, after),
			 "other words are refused\n");
}

/* Contiguous memory: a descriptor, which is closed to release it, or -1. */
static int allocate(long pages)
{
	struct dma_heap_allocation_data data = {
		.len = pages * page_size, .fd_flags = O_RDWR | O_CLOEXEC,
	};

	return ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) ? -1 : (int)data.fd;
}

static void test_accounting(void)
{
	long owned = counter("owned"), allocs = counter("allocs");
	int buffer = allocate(64);

	ksft_test_result(buffer >= 0 && counter("owned") == owned + 64 &&
			 counter("allocs") == allocs + 1,
			 "an allocation is counted\n");
	close(buffer);
	ksft_test_result(counter("owned") == owned, "a release is counted\n");
}

/*
 * A file, and what its content must be.
 */

static int fd = -1;
static unsigned char *model;

static void fill(unsigned char *page, size_t bytes, unsigned int seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
	size_t i;

	for (i = 0; i < bytes; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		page[i] = x;
	}
}

static bool write_all(int to, const void *data, size_t size, off_t at)
{
	return pwrite(to, data, size, at) == (ssize_t)size;
}

static bool new_file(unsigned int seed)
{
	if (fd >= 0)
		close(fd);
	unlink(FILE_NAME);
	fd = open(FILE_NAME, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return false;
	fill(model, FILE_PAGES * page_size, seed);
	return write_all(fd, model, FILE_PAGES * page_size, 0);
}

/*
 * Have reclaim remove pages of a file. Returns how many of them are kept. They are
 * mapped at the beginning of a page table: a large folio that lies in two of them
 * is not paged out.
 */
static long evict(int file, off_t at, size_t size)
{
	const size_t table = page_size / sizeof(long) * page_size;
	long stored = counter("file/stored");
	char *room, *map;
	int err;

	if (fsync(file))
		return -1;
	room = mmap(NULL, size + table, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return -1;
	map = (char *)(((unsigned long)room + table - 1) / table * table);
	err = mmap(map, size, PROT_READ, MAP_SHARED | MAP_POPULATE | MAP_FIXED, file,
		   at) == MAP_FAILED || madvise(map, size, MADV_PAGEOUT);
	munmap(room, size + table);
	return err ? -1 : counter("file/stored") - stored;
}

/* Is the file what it should be, for read() and for who maps it? */
static bool same(void)
{
	size_t size = FILE_PAGES * page_size;
	unsigned char *copy = malloc(size), *map;
	bool good;

	good = copy && pread(fd, copy, size, 0) == (ssize_t)size &&
	       !memcmp(copy, model, size);
	free(copy);
	if (evict(fd, 0, size) < 0)
		return false;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	good = good && !memcmp(map, model, size);
	munmap(map, size);
	return good;
}

static int do_nothing(void)
{
	return 0;
}

/*
 * The end within a page, and further out again. Where blocks are smaller than
 * pages this may be the end of one, and nobody need read the page to cut it.
 */
static int do_truncate(void)
{
	size_t size = FILE_PAGES * page_size, cut = size / 2 + 1024;

	memset(model + cut, 0, size - cut);
	return ftruncate(fd, cut) ?: ftruncate(fd, size);
}

/* No copies are allowed while data is journalled; what is there must not stay. */
static int do_truncate_journalled(void)
{
	int flags, err;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags))
		return -1;
	flags |= FS_JOURNAL_DATA_FL;
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags))
		return -1;
	err = do_truncate();
	flags &= ~FS_JOURNAL_DATA_FL;
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) ?: err;
}

/* A hole that cuts pages at both ends. */
static int do_punch(void)
{
	size_t at = 5 * page_size + 123, size = 3 * page_size + 77;

	memset(model + at, 0, size);
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, size);
}

/* Part of a page and several whole ones. */
static int do_write(void)
{
	size_t at = 20 * page_size, size = 3 * page_size + page_size / 2;

	fill(model + at, size, 77);
	return write_all(fd, model + at, size, at) ? 0 : -1;
}

static int do_write_direct(void)
{
	size_t at = 10 * page_size, size = 4 * page_size;
	int direct = open(FILE_NAME, O_RDWR | O_DIRECT);
	int err = -1;

	if (direct < 0)
		return -1;
	fill(model + at, size, 78);
	if (write_all(direct, model + at, size, at))
		err = 0;
	close(direct);
	return err;
}

static int do_write_mapped(void)
{
	size_t at = 30 * page_size + 11, size = 2 * page_size;
	unsigned char *map = mmap(NULL, FILE_PAGES * page_size,
				  PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -1;
	fill(model + at, size, 79);
	memcpy(map + at, model + at, size);
	return munmap(map, FILE_PAGES * page_size);
}

/* Inode numbers are used again. */
static int do_replace(void)
{
	return new_file(80) ? 0 : -1;
}

static const struct {
	const char *name;
	int (*change)(void);
} changes[] = {
	{ "nothing happened",			do_nothing },
	{ "truncating within a page",		do_truncate },
	{ "truncating it journalled",		do_truncate_journalled },
	{ "a hole that cuts pages",		do_punch },
	{ "writing",				do_write },
	{ "writing directly",			do_write_direct },
	{ "writing through a mapping",		do_write_mapped },
	{ "deleting and creating it anew",	do_replace },
};

/* What a file system or its device cannot do; all else is an error. */
static bool unsupported(int err)
{
	return err == EOPNOTSUPP || err == ENOTTY || err == EINVAL;
}

/* Change a file whose pages are all in the area. */
static void test_file(unsigned int nr)
{
	const char *name = changes[nr].name;
	long kept;

	if (!keeps("file")) {
		ksft_test_result_skip("content of a file after %s: the area keeps none\n",
				      name);
		return;
	}
	if (!new_file(nr)) {
		ksft_print_msg("%s: %m\n", FILE_NAME);
		ksft_test_result_fail("content of a file after %s\n", name);
		return;
	}
	kept = evict(fd, 0, FILE_PAGES * page_size);
	if (kept < FILE_PAGES / 2) {
		ksft_test_result_skip("content of a file after %s: %ld of %d pages were kept\n",
				      name, kept, FILE_PAGES);
		return;
	}
	errno = 0;
	if (changes[nr].change()) {
		if (unsupported(errno))
			ksft_test_result_skip("content of a file after %s: %m\n", name);
		else
			ksft_test_result_fail("content of a file after %s: %m\n", name);
		return;
	}
	ksft_test_result(same(), "content of a file after %s\n", name);
}

/* What the caller has no room for is no loss of the copy. */
static void test_bad_buffer(void)
{
	const char *name = "a copy after a read to nowhere";
	long missed, cached;
	bool good = false;
	char *room;
	int i;

	if (!keeps("file") || !new_file(82) ||
	    evict(fd, 0, FILE_PAGES * page_size) < FILE_PAGES / 2) {
		ksft_test_result_skip("%s: none was kept\n", name);
		return;
	}
	room = mmap(NULL, 2 * page_size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED || mprotect(room + page_size, page_size, PROT_NONE))
		ksft_exit_fail_msg("no memory\n");
	/* Others may read files of theirs meanwhile. */
	for (i = 0; i < 10 && !good; i++) {
		missed = counter("file/missed");
		cached = counter("file/cached");
		good = pread(fd, room + page_size, page_size, 0) < 0 && errno == EFAULT &&
		       pread(fd, room + page_size, 100, 0) < 0 && errno == EFAULT &&
		       pread(fd, room, 2 * page_size, 0) == (ssize_t)page_size &&
		       !memcmp(room, model, page_size) &&
		       counter("file/missed") == missed && counter("file/cached") == cached;
	}
	ksft_test_result(good, "%s\n", name);
	munmap(room, 2 * page_size);
}

static void test_swap(void)
{
	size_t size = FILE_PAGES * page_size, i;
	long stored = counter("swap/stored"), loaded = counter("swap/loaded");
	unsigned char *data;
	bool good = true;

	data = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	fill(model, size, 81);
	memcpy(data, model, size);
	/* The first time they are written, the second time removed. */
	for (i = 0; i < 10 && counter("swap/stored") == stored; i++) {
		madvise(data, size, MADV_PAGEOUT);
		usleep(10000);
	}
	if (!keeps("swap") || counter("swap/stored") == stored) {
		ksft_test_result_skip("content of memory after swapping: none was kept\n");
	} else {
		good = !memcmp(data, model, size);
		ksft_test_result(good && counter("swap/loaded") > loaded,
				 "content of memory after swapping\n");
	}
	munmap(data, size);
}

/* Nobody can find what was swapped out of memory that is gone, so none of it is kept. */
static void test_swap_gone(void)
{
	const char *name = "copies of swapped memory go with it";
	size_t size = 4 * FILE_PAGES * page_size;
	long before = counter("swap/cached"), kept = 0;
	unsigned char *data;
	int i;

	data = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	fill(data, size, 83);
	for (i = 0; i < 10 && kept < 3 * FILE_PAGES; i++) {
		madvise(data, size, MADV_PAGEOUT);
		usleep(10000);
		kept = counter("swap/cached") - before;
	}
	munmap(data, size);
	if (!keeps("swap") || kept < 3 * FILE_PAGES)
		ksft_test_result_skip("%s: only %ld were kept\n", name, kept);
	else
		/* Some slots are freed later, with others. */
		ksft_test_result(counter("swap/cached") - before < kept / 2, "%s\n", name);
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Median time of allocations that add up to the area, or 0. They are cleared. */
static uint64_t time_allocs(void)
{
	int i, n, buffers[ALLOCS];
	uint64_t ns[ALLOCS];

	for (n = 0; n < ALLOCS; n++) {
		ns[n] = now_ns();
		buffers[n] = allocate(area.pages / ALLOCS);
		ns[n] = now_ns() - ns[n];
		if (buffers[n] < 0)
			break;
	}
	for (i = 0; i < n; i++)
		close(buffers[i]);
	qsort(ns, n, sizeof(*ns), by_time);
	/* Others may have some of the area. */
	return n >= ALLOCS / 2 ? ns[n / 2] : 0;
}

/* Fill the area with copies of file pages; returns whether most of it is. */
static bool fill_area(int file)
{
	size_t size = area.pages * page_size, step = FILE_PAGES * page_size, at;

	for (at = 0; at + step <= size; at += step)
		if (!write_all(file, model, step, at))
			return false;
	return evict(file, 0, size) > 0 &&
	       counter("file/cached") > area.pages / 4 * 3;
}

static void forget_copies(void)
{
	int to = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (to < 0 || write(to, "1", 1) != 1)
		ksft_perror("/proc/sys/vm/drop_caches");
	if (to >= 0)
		close(to);
}

static void test_full_area(void)
{
	size_t half = area.pages / 2 * page_size, i;
	unsigned char *memory = MAP_FAILED;
	uint64_t idle, full;
	long discarded;
	bool good = true;
	int file, buffer;

	if (!keeps("file") || area.pages * page_size > FILL_MAX) {
		ksft_test_result_skip("time with a full area: too large, or not lent\n");
		ksft_test_result_skip("allocated memory while pages are kept\n");
		return;
	}
	file = open(FILE_NAME ".fill", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0)
		ksft_exit_fail_msg("%s.fill: %m\n", FILE_NAME);
	unlink(FILE_NAME ".fill");

	forget_copies();
	idle = time_allocs();
	if (!fill_area(file)) {
		ksft_test_result_skip("time with a full area: only %ld of %ld frames\n",
				      counter("file/cached"), area.pages);
	} else {
		discarded = counter("file/discarded");
		full = time_allocs();
		discarded = counter("file/discarded") - discarded;
		ksft_print_msg("%ld pages: %llu ns; where %ld of all were discarded: %llu ns\n",
			       area.pages / ALLOCS,
			       (unsigned long long)idle, discarded,
			       (unsigned long long)full);
		ksft_test_result(idle && full && discarded > 0 &&
				 (full < SHORT_NS || full < SLOWER * idle),
				 "time with a full area\n");
	}

	buffer = allocate(area.pages / 2);
	if (buffer >= 0)
		memory = mmap(NULL, half, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
	if (memory == MAP_FAILED) {
		ksft_test_result_fail("allocated memory while pages are kept\n");
	} else {
		memset(memory, 0x5a, half);
		/* As far as it goes. */
		fill_area(file);
		for (i = 0; i < half; i++)
			good &= memory[i] == 0x5a;
		ksft_test_result(good, "allocated memory while pages are kept\n");
		munmap(memory, half);
	}
	if (buffer >= 0)
		close(buffer);
	close(file);
}

/* An area that programs can allocate from. */
static void find_area(void)
{
	DIR *dir = opendir(SYSFS);
	char path[PATH_MAX];
	struct dirent *entry;

	while (dir && heap < 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), HEAPS "/%s", entry->d_name);
		heap = open(path, O_RDONLY | O_CLOEXEC);
		snprintf(area.name, sizeof(area.name), "%s", entry->d_name);
	}
	if (dir)
		closedir(dir);
}

int main(int argc, char **argv)
{
	unsigned int i;

	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("only root may do this\n");
	if (access(SYSFS, F_OK))
		ksft_exit_skip("no guaranteed area; boot with cma=64M gcma=file+swap\n");
	find_area();
	if (heap < 0)
		ksft_exit_skip("no guaranteed area has a heap in " HEAPS "\n");
	area.pages = counter("frames");
	if (argc > 1 && chdir(argv[1]))
		ksft_exit_fail_msg("%s: %m\n", argv[1]);
	page_size = sysconf(_SC_PAGESIZE);
	if (posix_memalign((void **)&model, page_size, FILE_PAGES * page_size))
		ksft_exit_fail_msg("no memory\n");

	ksft_set_plan(10 + ARRAY_SIZE(changes));
	test_counters();
	test_words();
	test_accounting();
	for (i = 0; i < ARRAY_SIZE(changes); i++)
		test_file(i);
	test_bad_buffer();
	test_swap();
	test_swap_gone();
	test_full_area();
	unlink(FILE_NAME);
	ksft_finished();
}
