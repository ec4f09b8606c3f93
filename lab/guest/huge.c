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
 *   --seed N   (1)
 */
#include "common.h"

#include <sys/mman.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT	26
#endif

/* of each 4 KiB this many words are looked at */
#define WORDS	4u
#define PIECE	4096u

static struct {
	u32 kib, pages, reps;
	u64 seed;
} opt = { .kib = 2048, .pages = 1, .reps = 1, .seed = 1 };

static bool rep(u32 number)
{
	size_t bytes = (size_t)opt.kib * 1024 * opt.pages, at;
	int order = __builtin_ctz(opt.kib) + 10;
	u64 base = mix64(opt.seed + number), dirty = 0, wrong = 0;
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

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "kib", 1, NULL, 'k' },
		{ "pages", 1, NULL, 'p' },
		{ "reps", 1, NULL, 'r' },
		{ "seed", 1, NULL, 'S' },
		{ NULL, 0, NULL, 0 },
	};
	int c, i;
	u32 number;
	bool ok = true;

	while ((c = getopt_long(argc, argv, "", options, &i)) != -1) {
		const char *name = c == '?' ? "" : options[i].name;

		switch (c) {
		case 'k':
			opt.kib = parse_u32(name, optarg);
			break;
		case 'p':
			opt.pages = parse_u32(name, optarg);
			break;
		case 'r':
			opt.reps = parse_u32(name, optarg);
			break;
		case 'S':
			opt.seed = parse_u64(name, optarg);
			break;
		default:
			usage(options);
		}
	}
	if (opt.kib < 4 || opt.kib & (opt.kib - 1))
		die("--kib must be a power of two");
	for (number = 0; number < opt.reps; number++)
		ok = rep(number) && ok;
	return !ok;
}
