// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mte - memory tags stay with the memory that they are of, while it is swapped out
 *
 * Writes data and tags, has the pages swapped out, and looks for both. Then the
 * same with memory without tags, which gets the frames that tagged pages had:
 * mapped with tags afterwards it must have none. At last, no page frame of the
 * area may be marked as tagged. One line {"type":"mte"}; exit status 1 if
 * anything was wrong. For arm64.
 */
#include "common.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "bench_abi.h"

/* As newer headers have them. */
#define MTE_PROT		0x20
#define MTE_TAGGED_ADDRESSES	(1UL << 0)
#define MTE_ALL_TAGS		(0xffffUL << 3)
#define MTE_GRANULE		16
#define KPF_ARCH_2		41
#define PAGE			4096

#define DEVICE			"/dev/cma_bench"
/* memory with tags, and as much without */
#define BYTES			((size_t)48 * MIB)

#ifdef __aarch64__
static void tag_set(char *granule, u32 tag)
{
	u64 p = (u64)granule | (u64)tag << 56;

	__asm__ volatile(".arch armv8.5-a+memtag\n\tstg %0, [%0]" : : "r"(p) : "memory");
}

static u32 tag_get(char *granule)
{
	u64 p = (u64)granule;

	__asm__ volatile(".arch armv8.5-a+memtag\n\tldg %0, [%0]" : "+r"(p) : : "memory");
	return p >> 56 & 15;
}
#else
static void tag_set(char *granule, u32 tag)
{
	(void)granule;
	(void)tag;
	die("memory tags are arm64's");
}

static u32 tag_get(char *granule)
{
	(void)granule;
	return 0;
}
#endif

/*
 * Never zero, so that a tag that was lost is seen. The same for every second
 * granule of a page: QEMU 7.2 keeps no more than two tags for each page.
 */
static u32 tag_of(size_t at)
{
	return 1 + mix64(at / PAGE * 2 + at / MTE_GRANULE % 2) % 15;
}

static char *memory(int prot)
{
	char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE | prot,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("cannot map memory%s: %s", prot ? " with tags" : "", strerror(errno));
	return at;
}

static void fill(char *memory, u64 seed)
{
	size_t at;

	for (at = 0; at < BYTES; at += sizeof(u64))
		*(word *)(memory + at) = mix64(seed + at);
}

static u64 wrong_words(const char *memory, u64 seed)
{
	u64 wrong = 0;
	size_t at;

	for (at = 0; at < BYTES; at += sizeof(u64))
		wrong += *(const word *)(memory + at) != mix64(seed + at);
	return wrong;
}

static u64 swap_counter(const char *name)
{
	struct fields fs = { 0 };

	fields_read_gcma(&fs);
	return fields_sum(&fs, name);
}

/* Returns how many pages of it are in the area then. */
static u64 swap_out(char *memory)
{
	u64 before = swap_counter("/swap/stored");

	if (madvise(memory, BYTES, MADV_PAGEOUT))
		die("cannot swap out: %s", strerror(errno));
	return swap_counter("/swap/stored") - before;
}

static u64 tagged_frames(void)
{
	struct cma_bench_info info;
	int dev = open(DEVICE, O_RDWR | O_CLOEXEC);
	int flags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	u64 pfn, bits, found = 0;

	if (dev < 0 || ioctl(dev, CMA_BENCH_INFO, &info) || flags < 0)
		die("cannot look at the pages of " DEVICE ": %s", strerror(errno));
	for (pfn = info.base_pfn; pfn < info.base_pfn + info.pages; pfn++) {
		if (pread(flags, &bits, sizeof(bits), pfn * sizeof(bits)) != sizeof(bits))
			die("cannot read /proc/kpageflags: %s", strerror(errno));
		found += bits >> KPF_ARCH_2 & 1;
	}
	close(flags);
	close(dev);
	return found;
}

int main(void)
{
	u64 stored, again, loaded, data, tags = 0, leaked = 0, frames;
	struct json j;
	char *m;
	size_t at;

	if (prctl(PR_SET_TAGGED_ADDR_CTRL, MTE_TAGGED_ADDRESSES | MTE_ALL_TAGS, 0, 0, 0))
		die("no memory tags here: %s", strerror(errno));

	m = memory(MTE_PROT);
	fill(m, 1);
	for (at = 0; at < BYTES; at += MTE_GRANULE)
		tag_set(m + at, tag_of(at));
	stored = swap_out(m);
	loaded = swap_counter("/swap/loaded");
	data = wrong_words(m, 1);
	for (at = 0; at < BYTES; at += MTE_GRANULE)
		tags += tag_get(m + at) != tag_of(at);
	/* Out again, and gone: the frames keep what they had. */
	swap_out(m);
	munmap(m, BYTES);

	m = memory(0);
	fill(m, 2);
	again = swap_out(m);
	data += wrong_words(m, 2);
	loaded = swap_counter("/swap/loaded") - loaded;
	if (mprotect(m, BYTES, PROT_READ | PROT_WRITE | MTE_PROT))
		die("cannot have tags: %s", strerror(errno));
	for (at = 0; at < BYTES; at += MTE_GRANULE)
		leaked += tag_get(m + at) != 0;
	swap_out(m);
	frames = tagged_frames();

	j = json_line("mte");
	json_u64(&j, "stored", stored + again);
	json_u64(&j, "loaded", loaded);
	json_u64(&j, "wrong_words", data);
	json_u64(&j, "wrong_tags", tags);
	json_u64(&j, "leaked_tags", leaked);
	json_u64(&j, "tagged_frames", frames);
	json_end(&j);
	return data || tags || leaked || frames;
}
