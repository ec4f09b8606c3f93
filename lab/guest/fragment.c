// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * fragment - run a program where no free memory makes up a huge page
 *
 * Takes the free memory in single pages, gives back all but some of each 2 MiB of physical memory,
 * and runs a command. One line {"type":"fragmented"}: how many pages are kept, and how many free
 * blocks there are that are large enough for a huge page.
 *
 *   --keep N      pages to keep of each 2 MiB, 1 to 512 (1)
 *   --pinned      hold them so that the kernel cannot move them
 *   --then TEXT   the command, for a shell
 */
#include "options.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE		4096u
#define HUGE_PAGES	512u	/* pages of a huge page */
#define HUGE_ORDER	9
#define PIPE_PAGES	256u
#define SPARE_MIB	16u	/* memory that is not taken */
/* What an entry of /proc/self/pagemap has. */
#define PFN		(((u64)1 << 55) - 1)
#define PRESENT		((u64)1 << 63)

extern char **environ;

static struct {
	u32 keep;
	bool pinned;
	const char *then;
} opt = { .keep = 1 };

/* The kernel does not move a page that a pipe holds. */
static void pin(void *page)
{
	static int ends[2];
	static u32 held = PIPE_PAGES;
	struct iovec piece = { page, PAGE };

	if (held == PIPE_PAGES) {
		if (pipe2(ends, 0) || fcntl(ends[1], F_SETPIPE_SZ, PIPE_PAGES * PAGE) < 0)
			die("no pipe of %u pages: %s", PIPE_PAGES, strerror(errno));
		held = 0;
	}
	if (vmsplice(ends[1], &piece, 1, 0) != PAGE)
		die("a pipe does not take a page: %s", strerror(errno));
	held++;
}

/* Free blocks of memory in which there is a huge page. */
static u64 free_huge(void)
{
	FILE *f = fopen("/proc/buddyinfo", "re");
	u64 sum = 0, blocks;
	int order;

	if (!f)
		die("no /proc/buddyinfo");
	while (fscanf(f, "Node %*d, zone %*s") != EOF)
		for (order = 0; fscanf(f, "%" SCNu64, &blocks) == 1; order++)
			if (order >= HUGE_ORDER)
				sum += blocks;
	fclose(f);
	return sum;
}

/* The frame of a page. */
static u64 frame(int pagemap, volatile u8 *page)
{
	u64 entry;

	do {
		/* If it is just being moved to another frame, this waits. */
		(void)*page;
		if (pread(pagemap, &entry, sizeof(entry), (off_t)((uintptr_t)page / PAGE * sizeof(entry))) !=
		    sizeof(entry))
			die("cannot read /proc/self/pagemap: %s", strerror(errno));
	} while (!(entry & PRESENT));
	return entry & PFN;
}

static u64 fragment(void)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	u64 i, entry, pages, kept = 0, blocks = 0;
	struct sysinfo info;
	u32 *seen;
	u8 *at;

	sysinfo(&info);
	pages = (u64)info.freeram * info.mem_unit / PAGE;
	if (pages <= SPARE_MIB * MIB / PAGE)
		die("less than %u MiB free", SPARE_MIB);
	pages -= SPARE_MIB * MIB / PAGE;
	at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED || madvise(at, pages * PAGE, MADV_NOHUGEPAGE))
		die("no room for %" PRIu64 " pages: %s", pages, strerror(errno));
	for (i = 0; i < pages; i++)
		at[i * PAGE] = 1;
	/* Physical addresses may have holes. */
	blocks = (u64)info.totalram * info.mem_unit / PAGE / HUGE_PAGES * 2 + 4096;
	seen = xalloc(blocks * sizeof(*seen));
	for (i = 0; i < pages; i++) {
		entry = frame(pagemap, at + i * PAGE) / HUGE_PAGES;
		if (entry >= blocks)
			die("a page far beyond the memory");
		if (seen[entry]++ * opt.keep % HUGE_PAGES >= opt.keep) {
			madvise(at + i * PAGE, PAGE, MADV_DONTNEED);
			continue;
		}
		if (opt.pinned)
			pin(at + i * PAGE);
		kept++;
	}
	free(seen);
	return kept;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "keep", .number = &opt.keep },
		{ "pinned", .flag = &opt.pinned },
		{ "then", .text = &opt.then },
		{ 0 },
	};
	char *words[] = { "sh", "-c", NULL, NULL };
	struct json j;
	u64 kept;
	pid_t child;
	int status;

	settings_parse(argc, argv, settings);
	if (!opt.then || !opt.keep || opt.keep > HUGE_PAGES)
		die("--then wants a command, and --keep 1 to %u", HUGE_PAGES);
	kept = fragment();
	j = json_line("fragmented");
	json_u64(&j, "kept", kept);
	json_u64(&j, "free_huge", free_huge());
	json_end(&j);
	words[2] = (char *)opt.then;
	/* Not by fork: that would write-protect all that is kept. */
	errno = posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ);
	if (errno || waitpid(child, &status, 0) != child)
		die("cannot run a shell: %s", strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
