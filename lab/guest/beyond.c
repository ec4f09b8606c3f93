// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * beyond - does a file show content where it ended, after it has grown again?
 *
 * A thread asks for readahead around a place where another one cuts the file, grows
 * it and reads what must be zeros.
 *
 *   --file F     the file, which is made anew
 *   --turns N    how often it is cut (20000)
 */
#include "options.h"

#include <pthread.h>

#define KIB		1024
#define PAGE		(4 * KIB)
/* Content in the last KiB before the cut; holes before it, on its page and the one before. */
#define CUT		(140 * KIB)
#define SIZE		(256 * KIB)

static struct {
	const char *file;
	u32 turns;
} opt = { .turns = 20000 };

static int fd;
static _Atomic bool over;

static void *read_ahead(void *unused)
{
	while (!over)
		posix_fadvise(fd, CUT - PAGE, 4 * PAGE, POSIX_FADV_WILLNEED);
	return unused;
}

static void resize(off_t size)
{
	if (ftruncate(fd, size))
		die("cannot resize %s: %s", opt.file, strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "file", .text = &opt.file },
		{ "turns", .number = &opt.turns },
		{ 0 },
	};
	u32 turn, wrong = 0;
	pthread_t thread;
	char buf[KIB];
	struct json j;

	settings_parse(argc, argv, settings);
	if (!opt.file)
		die("--file wants a name");
	fd = open(opt.file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		die("cannot create %s: %s", opt.file, strerror(errno));
	resize(SIZE);
	memset(buf, 'Z', KIB);
	if (pwrite(fd, buf, KIB, CUT - KIB) != KIB || fsync(fd))
		die("cannot write %s: %s", opt.file, strerror(errno));
	errno = pthread_create(&thread, NULL, read_ahead, NULL);
	if (errno)
		die("no thread: %s", strerror(errno));
	for (turn = 0; turn < opt.turns; turn++) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		resize(CUT);
		resize(SIZE);
		if (pread(fd, buf, KIB, CUT) != KIB)
			die("cannot read %s: %s", opt.file, strerror(errno));
		wrong += buf[0] != 0;
	}
	over = true;
	pthread_join(thread, NULL);
	j = json_line("beyond");
	json_u64(&j, "turns", turn);
	json_u64(&j, "wrong", wrong);
	json_end(&j);
	return 0;
}
