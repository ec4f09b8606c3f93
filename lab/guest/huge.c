// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * huge - use huge pages of the pool as programs do
 *
 * Maps so many, sees that they are zeroed, fills them, looks that nobody else
 * wrote to them, and gives them back. One line {"type":"huge"} for each
 * repetition; exit status 1 if any could not be had or was wrong.
 *
 *   --kib N    size of a page (2048)
 *   --pages N  (1)
 *   --reps N   (1)
 *
 * --pool N: times how long the kernel takes to put N pages into the pool, and
 * to take each apart into pages of 2 MiB with --demote; then empties the pool.
 * One line {"type":"pool"} for each repetition; no matter how many it got, the
 * exit status is 0.
 */
#include "options.h"

#include <sys/mman.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT	26
#endif

/* of each 4 KiB this many words are looked at */
#define WORDS	4u
#define PIECE	4096u

static struct {
	u32 kib, pages, reps, pool;
	bool demote;
} opt = { .kib = 2048, .pages = 1, .reps = 1 };

static bool rep(u32 number)
{
	size_t bytes = (size_t)opt.kib * 1024 * opt.pages, at;
	int order = __builtin_ctz(opt.kib) + 10;
	u64 base = mix64(1 + number), dirty = 0, wrong = 0;
	struct json j = json_line("huge");
	u32 i;
	u8 *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
		       order << MAP_HUGE_SHIFT, -1, 0);
	bool got = map != MAP_FAILED;

	for (at = 0; got && at < bytes; at += PIECE) {
		word *w = (word *)(map + at);

		for (i = 0; i < WORDS; i++) {
			dirty += w[i] != 0;
			w[i] = base + at + i;
		}
	}
	for (at = 0; got && at < bytes; at += PIECE) {
		const word *w = (const word *)(map + at);

		for (i = 0; i < WORDS; i++)
			wrong += w[i] != base + at + i;
	}
	json_u64(&j, "rep", number);
	json_u64(&j, "kib", opt.kib);
	json_u64(&j, "pages", opt.pages);
	if (!got)
		json_str(&j, "error", strerror(errno));
	json_u64(&j, "not_zeroed", dirty);
	json_u64(&j, "wrong", wrong);
	json_bool(&j, "ok", got && !dirty && !wrong);
	json_end(&j);
	if (got)
		munmap(map, bytes);
	return got && !dirty && !wrong;
}

/* A file of the pool of a page size. */
static void pool_path(char *path, size_t size, u32 kib, const char *file)
{
	snprintf(path, size, "/sys/kernel/mm/hugepages/hugepages-%ukB/%s", kib,
		 file);
}

static u64 pool_get(u32 kib)
{
	char path[128], text[32];
	u64 value;

	pool_path(path, sizeof(path), kib, "nr_hugepages");
	if (!read_text(path, text, sizeof(text)) || !text_is_u64(text, &value))
		die("cannot read %s (is there such a size?)", path);
	return value;
}

static void pool_set(u32 kib, const char *file, u64 value)
{
	char path[128], text[32];
	int fd, n = snprintf(text, sizeof(text), "%" PRIu64, value);

	pool_path(path, sizeof(path), kib, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* getting fewer than wanted is no error, and may be none at all */
	if (fd < 0 || (write(fd, text, (size_t)n) != n && errno != ENOMEM))
		die("cannot write %s: %s", path, strerror(errno));
	close(fd);
}

static void pool(u32 number)
{
	struct json j = json_line("pool");
	u64 begin = now_ns(), took, got;

	pool_set(opt.kib, "nr_hugepages", opt.pool);
	got = pool_get(opt.kib);
	if (opt.demote && got)
		pool_set(opt.kib, "demote", got);
	took = now_ns() - begin;
	json_u64(&j, "rep", number);
	json_u64(&j, "kib", opt.kib);
	json_u64(&j, "wanted", opt.pool);
	json_u64(&j, "got", got);
	json_u64(&j, "small", opt.demote ? pool_get(2048) : 0);
	json_u64(&j, "ns", took);
	json_bool(&j, "ok", got == opt.pool);
	json_end(&j);
	if (opt.demote)
		pool_set(2048, "nr_hugepages", 0);
	pool_set(opt.kib, "nr_hugepages", 0);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "kib", .number = &opt.kib },
		{ "pages", .number = &opt.pages },
		{ "reps", .number = &opt.reps },
		{ "pool", .number = &opt.pool },
		{ "demote", .flag = &opt.demote },
		{ 0 },
	};
	bool ok = true;
	u32 number;

	settings_parse(argc, argv, settings);
	if (opt.kib < 4 || opt.kib & (opt.kib - 1))
		die("--kib must be a power of two");
	for (number = 0; number < opt.reps; number++) {
		if (opt.pool)
			pool(number);
		else
			ok = rep(number) && ok;
	}
	return !ok;
}
