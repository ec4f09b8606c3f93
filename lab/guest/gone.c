// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * gone - does a file show content that has been taken out of it?
 *
 * Threads bring pages of the file into the page cache, while another one takes them out of the
 * file and reads what must be zeros by then.
 *
 *   --file F     the file, which is made anew
 *   --punch      punch a hole of one page; otherwise cut the file, and let it grow again
 *   --turns N    how often (20000)
 */
#include "options.h"

#include <linux/falloc.h>
#include <pthread.h>

#define KIB		1024
#define PAGE		(4 * KIB)
#define READERS		3
/* Content in the last KiB before the cut; holes before it, on its page and the one before. */
#define CUT		(140 * KIB)
#define SIZE		(256 * KIB)

static struct {
	const char *file;
	bool punch;
	u32 turns;
} opt = { .turns = 20000 };

static int fd, direct;
static _Atomic bool over;
static u8 page[PAGE] __attribute__((aligned(PAGE)));

static void *read_ahead(void *unused)
{
	while (!over)
		posix_fadvise(fd, CUT - PAGE, 4 * PAGE, POSIX_FADV_WILLNEED);
	return unused;
}

static void *read_page(void *unused)
{
	u8 seen[PAGE];

	while (!over)
		if (pread(fd, seen, PAGE, 0) != PAGE)
			die("cannot read %s: %s", opt.file, strerror(errno));
	return unused;
}

static void resize(off_t size)
{
	if (ftruncate(fd, size))
		die("cannot resize %s: %s", opt.file, strerror(errno));
}

/* Returns where there must be zeros afterwards. */
static off_t cut(void)
{
	resize(CUT);
	resize(SIZE);
	return CUT;
}

static off_t punch(void)
{
	if (pwrite(direct, page, PAGE, 0) != PAGE)
		die("cannot write %s: %s", opt.file, strerror(errno));
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE))
		die("no hole in %s: %s", opt.file, strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "file", .text = &opt.file },
		{ "punch", .flag = &opt.punch },
		{ "turns", .number = &opt.turns },
		{ 0 },
	};
	u32 turn, wrong = 0;
	pthread_t threads[READERS];
	struct json j;
	int i, nr;

	settings_parse(argc, argv, settings);
	if (!opt.file)
		die("--file wants a name");
	fd = open(opt.file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		die("cannot create %s: %s", opt.file, strerror(errno));
	direct = open(opt.file, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (direct < 0)
		die("no direct I/O to %s: %s", opt.file, strerror(errno));
	resize(SIZE);
	memset(page, 'Z', PAGE);
	if (pwrite(fd, page, KIB, CUT - KIB) != KIB || fsync(fd))
		die("cannot write %s: %s", opt.file, strerror(errno));
	nr = opt.punch ? READERS : 1;
	for (i = 0; i < nr; i++) {
		errno = pthread_create(&threads[i], NULL, opt.punch ? read_page : read_ahead, NULL);
		if (errno)
			die("no thread: %s", strerror(errno));
	}
	for (turn = 0; turn < opt.turns; turn++) {
		u8 first;

		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(fd, &first, 1, opt.punch ? punch() : cut()) != 1)
			die("cannot read %s: %s", opt.file, strerror(errno));
		wrong += first != 0;
	}
	over = true;
	for (i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	j = json_line("gone");
	json_u64(&j, "turns", turn);
	json_u64(&j, "wrong", wrong);
	json_end(&j);
	return 0;
}
