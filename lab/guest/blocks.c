// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * blocks - requests that give a file other blocks
 *
 *   --from FILE      F2FS_IOC_MOVE_RANGE: all of its blocks go to
 *   --to FILE        this file, which had as many
 *   --donor FILE     or EXT4_IOC_MOVE_EXT: this file and --from exchange all of their
 *                    blocks, and --from keeps its content
 *   --clone FILE     or FICLONE: this file gets the blocks of --from
 *
 *   --refused FILE   to cut a byte out of it, which f2fs refuses: its blocks stay
 *
 *   --pin FILE       F2FS_IOC_SET_PIN_FILE: its blocks stay where they are
 *   --under FILE     write to its blocks, from standard input,
 *   --disk DEVICE    on this device, and not by way of its file system
 *
 *   --atomic FILE    write it anew, in one step: from standard input,
 *   --run COMMAND    after which, and before the commit, the shell runs this
 */
#include "options.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

/* As in linux/f2fs.h, which older systems do not have. */
#define F2FS_IOC_START_ATOMIC_WRITE	_IO(0xf5, 1)
#define F2FS_IOC_COMMIT_ATOMIC_WRITE	_IO(0xf5, 2)
#define F2FS_IOC_MOVE_RANGE		_IOWR(0xf5, 9, struct move_range)
#define F2FS_IOC_SET_PIN_FILE		_IOW(0xf5, 13, u32)

/* As in fs/ext4/ext4.h. */
#define EXT4_IOC_MOVE_EXT		_IOWR('f', 15, struct move_extent)
#define EXT4_BLOCK			4096

struct move_extent {
	u32 reserved, donor_fd;
	u64 orig_start, donor_start, len, moved_len;	/* in blocks */
};

struct move_range {
	u32 dst_fd;
	u64 pos_in, pos_out, len;
};

static struct {
	const char *from, *to, *donor, *clone, *refused, *pin, *under, *disk, *atomic, *run;
} opt = { .run = "true" };

static int open_file(const char *name)
{
	int fd = open(name, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s: %s", name, strerror(errno));
	return fd;
}

static u64 size_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		die("%s: %s", opt.from, strerror(errno));
	return (u64)st.st_size;
}

static void exchange(void)
{
	struct move_extent extent = { .donor_fd = (u32)open_file(opt.donor) };
	int from = open_file(opt.from);

	extent.len = size_of(from) / EXT4_BLOCK;
	if (ioctl(from, EXT4_IOC_MOVE_EXT, &extent))
		die("cannot exchange the blocks of %s: %s", opt.from, strerror(errno));
	if (extent.moved_len != extent.len)
		die("%llu of %llu blocks of %s were exchanged",
		    (unsigned long long)extent.moved_len, (unsigned long long)extent.len,
		    opt.from);
}

static void move(void)
{
	struct move_range range = { .dst_fd = (u32)open_file(opt.to) };
	int from = open_file(opt.from);

	range.len = size_of(from);
	if (ioctl(from, F2FS_IOC_MOVE_RANGE, &range))
		die("cannot move the blocks of %s: %s", opt.from, strerror(errno));
}

static void clone_file(void)
{
	if (ioctl(open_file(opt.clone), FICLONE, open_file(opt.from)))
		die("cannot clone %s: %s", opt.from, strerror(errno));
}

static void ask_in_vain(void)
{
	if (!fallocate(open_file(opt.refused), FALLOC_FL_COLLAPSE_RANGE, 0, 1) || errno != EINVAL)
		die("to cut a byte out of %s is not refused", opt.refused);
}

static void pin(void)
{
	u32 yes = 1;

	if (ioctl(open_file(opt.pin), F2FS_IOC_SET_PIN_FILE, &yes) < 0)
		die("cannot pin %s: %s", opt.pin, strerror(errno));
}

static void write_under(void)
{
	static char buf[MIB];
	static struct {
		struct fiemap map;
		struct fiemap_extent extents[256];
	} found = { .map = { .fm_length = FIEMAP_MAX_OFFSET, .fm_extent_count = 256 } };
	int disk = open_file(opt.disk);

	if (ioctl(open_file(opt.under), FS_IOC_FIEMAP, &found.map))
		die("cannot tell the blocks of %s: %s", opt.under, strerror(errno));
	for (u32 i = 0; i < found.map.fm_mapped_extents; i++) {
		struct fiemap_extent *e = &found.extents[i];

		for (u64 done = 0; done < e->fe_length;) {
			u64 left = e->fe_length - done;
			ssize_t len = read(STDIN_FILENO, buf, left < MIB ? left : MIB);

			if (len <= 0)
				goto written;
			if (pwrite(disk, buf, (size_t)len, (off_t)(e->fe_physical + done)) != len)
				die("cannot write %s: %s", opt.disk, strerror(errno));
			done += (u64)len;
		}
	}
written:
	if (fsync(disk))
		die("cannot write %s: %s", opt.disk, strerror(errno));
}

static void write_atomically(void)
{
	static char buf[MIB];
	int fd = open_file(opt.atomic);
	ssize_t len;
	off_t pos = 0;

	if (ioctl(fd, F2FS_IOC_START_ATOMIC_WRITE))
		die("cannot begin to write %s: %s", opt.atomic, strerror(errno));
	while ((len = read(STDIN_FILENO, buf, sizeof(buf))) > 0) {
		if (pwrite(fd, buf, (size_t)len, pos) != len)
			die("cannot write %s: %s", opt.atomic, strerror(errno));
		pos += len;
	}
	if (system(opt.run))
		die("'%s' failed", opt.run);
	if (ioctl(fd, F2FS_IOC_COMMIT_ATOMIC_WRITE))
		die("cannot commit %s: %s", opt.atomic, strerror(errno));
}

static const struct setting settings[] = {
	{ "from", .text = &opt.from },
	{ "to", .text = &opt.to },
	{ "donor", .text = &opt.donor },
	{ "clone", .text = &opt.clone },
	{ "refused", .text = &opt.refused },
	{ "pin", .text = &opt.pin },
	{ "under", .text = &opt.under },
	{ "disk", .text = &opt.disk },
	{ "atomic", .text = &opt.atomic },
	{ "run", .text = &opt.run },
	{ 0 },
};

int main(int argc, char **argv)
{
	settings_parse(argc, argv, settings);
	if (!opt.from != (!opt.to + !opt.donor + !opt.clone == 3) || !opt.under != !opt.disk ||
	    !opt.from + !opt.atomic + !opt.refused + !opt.pin + !opt.under != 4)
		die("one of --from with --to, --donor or --clone, --refused, --pin, --atomic, "
		    "--under with --disk");
	if (opt.atomic)
		write_atomically();
	else if (opt.refused)
		ask_in_vain();
	else if (opt.pin)
		pin();
	else if (opt.under)
		write_under();
	else if (opt.donor)
		exchange();
	else if (opt.clone)
		clone_file();
	else
		move();
	return 0;
}
