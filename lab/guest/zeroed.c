// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * zeroed - memory that becomes zeros while zswap may have what was there before
 *
 * Fills 32 MiB of memory and has it evicted; reads it, and makes every other page zeros; has it evicted again;
 * has zswap write back what it has; and looks at all of it at once. One line {"type":"zeroed"}: the
 * pages, those that came from the area, those that zswap wrote back, and those with wrong content.
 *
 *   --reclaim F   what takes an amount of memory to reclaim from this program's cgroup
 */
#include "options.h"

#include <sys/mman.h>

#define PAGE	4096u
#define WORDS	(PAGE / sizeof(u64))
#define OFFER	(64u << 10)

static const char *reclaim_file;

/* Some of it can be compressed: zswap takes it, and its shrinker finds it worth writing. */
static u64 word_of(u64 page, u32 nr)
{
	return nr % 2 ? page + 1 : mix64(page * WORDS + nr) & 0xffff;
}

/*
 * Have zswap write back some of what it has. Each offer of more that it refuses has it look at 16 pages at
 * least, and it passes over each once before it writes: so many offers, each of something else.
 */
static u64 written_back(char *more, u64 enough)
{
	u64 before = vmstat("zswpwb"), last, now = before;
	u32 left = 3000;

	tell("/sys/module/zswap/parameters/max_pool_percent", "0", 1);
	do {
		memset(more, left, OFFER);
		/* Not so much that what it has written is reclaimed as well. */
		tell(reclaim_file, "64K", 1);
		usleep(20 * 1000);
		now = vmstat("zswpwb");
	} while (now - before < enough && left--);
	do {
		last = now;
		usleep(500 * 1000);
		now = vmstat("zswpwb");
	} while (now != last);
	return now - before;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "reclaim", .text = &reclaim_file },
		{ 0 },
	};
	const u64 pages = 32 * MIB / PAGE;
	u64 page, loads, written, wrong = 0;
	volatile word *at;
	struct json j;
	u32 nr;

	settings_parse(argc, argv, settings);
	if (!reclaim_file)
		die("--reclaim wants a name");
	at = mmap(NULL, pages * PAGE + OFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || madvise((void *)at, pages * PAGE, MADV_NOHUGEPAGE))
		die("no memory: %s", strerror(errno));
	for (page = 0; page < pages; page++)
		for (nr = 0; nr < WORDS; nr++)
			at[page * WORDS + nr] = word_of(page, nr);
	tell(reclaim_file, "64M", 3);
	loads = vmstat("gcma_load_swap");
	for (page = 0; page < pages; page++)
		(void)at[page * WORDS];
	loads = vmstat("gcma_load_swap") - loads;
	for (page = 0; page < pages; page += 2)
		for (nr = 0; nr < WORDS; nr++)
			at[page * WORDS + nr] = 0;
	tell(reclaim_file, "64M", 3);
	written = written_back((char *)at + pages * PAGE, pages / 8);
	for (page = 0; page < pages; page++)
		for (nr = 0; nr < WORDS; nr++)
			if (at[page * WORDS + nr] != (page % 2 ? word_of(page, nr) : 0)) {
				wrong++;
				break;
			}
	j = json_line("zeroed");
	json_u64(&j, "pages", pages);
	json_u64(&j, "taken", vmstat("zswpout"));
	json_u64(&j, "loads", loads);
	json_u64(&j, "written_back", written);
	json_u64(&j, "wrong", wrong);
	json_end(&j);
	return 0;
}
