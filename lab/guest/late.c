// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * late - direct writes that end late, over pages that were read and evicted meanwhile
 *
 * Each turn begins an asynchronous direct write of a page, reads the page through the page cache,
 * has it evicted before the write has ended, and reads it again when it has. For a disk that
 * is made to write slowly. One line {"type":"late"}: the turns in which all happened in that order,
 * how many did not, pages that were kept, and turns that read what was there before the write.
 *
 *   --file F      a file of --turns pages, which are overwritten
 *   --reclaim F   what takes an amount of memory to reclaim from this program's cgroup
 *   --turns N     turns to try at most (60)
 *   --fails       each write fails behind its page, where there is no memory to write
 */
#include "options.h"

#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE		4096u
#define SLOW_NS		(100 * NSEC_PER_MSEC)
#define ENOUGH		3u	/* turns in which all happened in that order */

static struct {
	const char *file, *reclaim;
	u32 turns;
	bool fails;
} opt = { .turns = 60 };

static u8 page[PAGE] __attribute__((aligned(PAGE)));
static aio_context_t aio;
static int cached, direct;

/* The disk lets so many writes pass at once. That one is slow may be the host's doing. */
static void until_slow(void)
{
	int slow = 0;

	while (slow < 3) {
		u64 begin = now_ns();

		if (pwrite(direct, page, PAGE, 0) != PAGE)
			die("cannot write %s: %s", opt.file, strerror(errno));
		slow = now_ns() - begin < SLOW_NS ? 0 : slow + 1;
	}
}

static bool ended(long least)
{
	struct io_event event;
	long n = syscall(SYS_io_getevents, aio, least, 1L, &event,
			 least ? NULL : &(struct timespec){ 0 });

	if (n < 0 || (n && event.res != (opt.fails ? -EFAULT : (s64)PAGE)))
		die("a write of %s ends with %lld", opt.file, (long long)event.res);
	return n;
}

static u8 first_byte(u32 turn)
{
	u8 byte;

	if (pread(cached, &byte, 1, (off_t)turn * PAGE) != 1)
		die("cannot read %s: %s", opt.file, strerror(errno));
	return byte;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "file", .text = &opt.file },
		{ "reclaim", .text = &opt.reclaim },
		{ "turns", .number = &opt.turns },
		{ "fails", .flag = &opt.fails },
		{ 0 },
	};
	u32 turn, good = 0, missed = 0, kept = 0, old = 0;
	struct json j;

	settings_parse(argc, argv, settings);
	if (!opt.file || !opt.reclaim)
		die("--file and --reclaim want names");
	cached = open(opt.file, O_RDWR | O_CLOEXEC);
	direct = open(opt.file, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (cached < 0 || direct < 0 || posix_fadvise(cached, 0, 0, POSIX_FADV_RANDOM))
		die("cannot open %s: %s", opt.file, strerror(errno));
	if (syscall(SYS_io_setup, 1, &aio))
		die("no asynchronous I/O: %s", strerror(errno));
	memset(page, 'N', PAGE);
	until_slow();
	for (turn = 1; turn + 1 < opt.turns && good < ENOUGH; turn++) {
		struct iovec parts[2] = { { page, PAGE }, { NULL, PAGE } };
		struct iocb io = {
			.aio_lio_opcode = IOCB_CMD_PWRITEV,
			.aio_fildes = (u32)direct,
			.aio_buf = (u64)(uintptr_t)parts,
			.aio_nbytes = opt.fails ? 2 : 1,
			.aio_offset = (s64)turn * PAGE,
		};
		struct iocb *ios[1] = { &io };
		u64 before;

		if (syscall(SYS_io_submit, aio, 1L, ios) != 1)
			die("cannot begin a write: %s", strerror(errno));
		first_byte(turn);
		before = vmstat("gcma_store_file");
		tell(opt.reclaim, "64M", 3);
		if (ended(0)) {
			missed++;
			continue;
		}
		kept += vmstat("gcma_store_file") != before;
		ended(1);
		good++;
		old += first_byte(turn) != 'N';
	}
	j = json_line("late");
	json_u64(&j, "good", good);
	json_u64(&j, "missed", missed);
	json_u64(&j, "kept", kept);
	json_u64(&j, "old", old);
	json_end(&j);
	return 0;
}
