// SPDX-License-Identifier: MIT OR Apache-2.0
/* Files that have one owner, and the operations that read or change their content. */
#include "oracle.h"

#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#define BUF_BYTES	(512u * 1024)
/* maximum length of a single read or write */
#define IO_MAX		(64u * 1024)
#define HISTORY		8

enum op {
	OP_READ, OP_DIRECT_READ, OP_MMAP_READ, OP_WRITE, OP_OVERWRITE,
	OP_APPEND, OP_GROW, OP_DIRECT_WRITE, OP_MMAP_WRITE, OP_PINNED_WRITE,
	OP_TRUNCATE,
	OP_EXTEND, OP_PUNCH, OP_ZERO, OP_COLLAPSE, OP_INSERT, OP_ALLOCATE,
	OP_FSYNC, OP_DONTNEED, OP_WILLNEED, OP_PAGEOUT, OP_RECREATE,
	OP_RENAME, OP_REOPEN,
	NR_OPS,
};

static const struct {
	const char *name;
	u32 weight;		/* anywhere */
	u32 weight_evicted;	/* where pages have just been pushed out */
} ops[NR_OPS] = {
	[OP_READ]	  = { "read", 20, 24 },
	[OP_DIRECT_READ]  = { "direct_read", 3, 4 },
	[OP_MMAP_READ]	  = { "mmap_read", 7, 8 },
	[OP_WRITE]	  = { "write", 8, 10 },
	[OP_OVERWRITE]	  = { "overwrite", 3, 8 },
	[OP_APPEND]	  = { "append", 3, 2 },
	[OP_GROW]	  = { "grow", 4, 0 },
	[OP_DIRECT_WRITE] = { "direct_write", 5, 14 },
	[OP_MMAP_WRITE]	  = { "mmap_write", 5, 6 },
	[OP_PINNED_WRITE] = { "pinned_write", 2, 4 },
	[OP_TRUNCATE]	  = { "truncate", 3, 8 },
	[OP_EXTEND]	  = { "extend", 2, 2 },
	[OP_PUNCH]	  = { "punch", 4, 14 },
	[OP_ZERO]	  = { "zero", 2, 6 },
	[OP_COLLAPSE]	  = { "collapse", 1, 3 },
	[OP_INSERT]	  = { "insert", 1, 3 },
	[OP_ALLOCATE]	  = { "allocate", 1, 1 },
	[OP_FSYNC]	  = { "fsync", 2, 0 },
	[OP_DONTNEED]	  = { "dontneed", 2, 1 },
	[OP_WILLNEED]	  = { "willneed", 3, 4 },
	[OP_PAGEOUT]	  = { "pageout", 16, 3 },
	[OP_RECREATE]	  = { "recreate", 1, 2 },
	[OP_RENAME]	  = { "rename", 1, 1 },
	[OP_REOPEN]	  = { "reopen", 2, 2 },
};

struct step {
	u8 op;
	u32 off, len, tag;
};

struct file {
	struct model m;
	u32 id;
	u32 cap;		/* maximum size */
	u32 tag;		/* of the latest write; never goes back */
	int fd;
	bool renamed;
	u32 nr_steps;
	struct step steps[HISTORY];
};

struct file_worker {
	u32 id;
	struct rng rng;
	u32 nr_files;
	struct file *files;
	u8 *buf;
	u32 block;		/* of the file system */
	u32 direct;		/* alignment of direct I/O, 0 if impossible */
	aio_context_t aio;
	u32 unsupported;	/* operations, one bit each */
	/* the range that was pushed out, and how long to stay there */
	struct file *focus;
	u32 focus_off, focus_len, focus_left;
};

static u32 below(struct file_worker *w, u32 n)
{
	return rng_below(&w->rng, n);
}

static const char *file_path(const struct file_worker *w, const struct file *f)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/oracle.%u.%u%s", opt.dir, w->id, f->id,
		 f->renamed ? ".b" : "");
	return path;
}

static void file_open(struct file_worker *w, struct file *f)
{
	if (f->fd >= 0)
		return;
	f->fd = open(file_path(w, f), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (f->fd < 0)
		die("cannot open %s: %s", file_path(w, f), strerror(errno));
}

static void file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

static void step(struct file *f, enum op op, u32 off, u32 len, u32 tag)
{
	struct step *s = &f->steps[f->nr_steps++ % HISTORY];

	s->op = (u8)op;
	s->off = off;
	s->len = len;
	s->tag = tag;
}

static void file_recreate(struct file_worker *w, struct file *f)
{
	unlink(file_path(w, f));
	file_close(f);
	model_resize(&f->m, 0);
	file_open(w, f);
}

s64 pread_all(int fd, u8 *buf, u32 len, u32 off)
{
	u32 done = 0;

	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, off + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		done += (u32)n;
	}
	return done;
}

s64 pwrite_all(int fd, const u8 *buf, u32 len, u32 off)
{
	u32 done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, buf + done, len - done, off + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return done ? (s64)done : -1;
		done += (u32)n;
	}
	return done;
}

/* Describe which write a word comes from. */
static void explain(const struct model *m, u32 off, u64 got, u32 newest,
		    char *text, size_t size)
{
	u32 tag;

	if (!got) {
		snprintf(text, size, "zeros");
		return;
	}
	for (tag = newest; tag; tag--) {
		if (stream_word(m->key, tag, off) == got) {
			snprintf(text, size, "write %u of this place", tag);
			return;
		}
	}
	snprintf(text, size, "unknown");
}

/* An operation failed. It may have changed a part of the content. */
static void file_error(struct file_worker *w, struct file *f, enum op op,
		       u32 off, u32 len, int err)
{
	struct stat st;

	if (err == EOPNOTSUPP || err == ENOSYS) {
		w->unsupported |= 1u << op;
		return;
	}
	if (err == ENOSPC) {
		count(&shared->nospace, 1);
	} else {
		struct json j = json_line("io_error");

		json_str(&j, "file", file_path(w, f));
		json_str(&j, "op", ops[op].name);
		json_u64(&j, "offset", off);
		json_u64(&j, "len", len);
		json_str(&j, "error", strerror(err));
		json_end(&j);
		count(&shared->io_errors, 1);
	}
	if (op == OP_COLLAPSE || op == OP_INSERT) {
		file_recreate(w, f);
		return;
	}
	if (fstat(f->fd, &st))
		die("cannot stat %s: %s", file_path(w, f), strerror(errno));
	if ((u64)st.st_size > f->m.size)
		model_write(&f->m, f->m.size, (u32)st.st_size - f->m.size,
			    TAG_UNKNOWN);
	else
		model_resize(&f->m, (u32)st.st_size);
	if (off < f->m.size)
		model_write(&f->m, off, min_u32(len, f->m.size - off),
			    TAG_UNKNOWN);
	count(&shared->unknown, 1);
}

/* Read the place in other ways: is only the cache wrong, or the disk too? */
static const char *read_again(struct file_worker *w, struct file *f, u32 off,
			      bool direct)
{
	u32 from = round_down(off, PAGE), len;
	const char *answer = "wrong";
	int fd = f->fd;
	s64 n;

	len = min_u32(PAGE, f->m.size - from);
	if (direct) {
		fd = open(file_path(w, f), O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			return "impossible";
	}
	n = pread_all(fd, w->buf, PAGE, from);
	if (n < 0)
		answer = strerror(errno);
	else if (n == len && model_check(&f->m, w->buf, from, len) < 0)
		answer = "right";
	if (direct)
		close(fd);
	return answer;
}

static void file_wrong(struct file_worker *w, struct file *f, const char *how,
		       u32 off, u64 expected, u64 got, const char *got_is,
		       u32 bad_bytes)
{
	struct json j = json_line("wrong");
	u32 i, n = f->nr_steps < HISTORY ? f->nr_steps : HISTORY;

	json_str(&j, "where", "file");
	json_str(&j, "file", file_path(w, f));
	json_str(&j, "how", how);
	json_u64(&j, "offset", off);
	json_u64(&j, "size", f->m.size);
	json_hex(&j, "expected", expected);
	json_hex(&j, "got", got);
	json_str(&j, "got_is", got_is);
	json_u64(&j, "bad_bytes", bad_bytes);
	if (off < f->m.size) {
		const struct extent *e = &f->m.ext[model_find(&f->m, off)];

		json_u64(&j, "expected_tag", e->tag);
		json_u64(&j, "extent_off", e->off);
		json_u64(&j, "extent_end", model_end(&f->m, (u32)(e - f->m.ext)));
		json_str(&j, "read_again", read_again(w, f, off, false));
		json_str(&j, "direct_read", read_again(w, f, off, true));
	}
	json_open(&j, "op_history", "[");
	for (i = f->nr_steps - n; i < f->nr_steps; i++) {
		const struct step *s = &f->steps[i % HISTORY];
		char text[96];

		snprintf(text, sizeof(text), "%s off=%u len=%u tag=%u",
			 ops[s->op].name, s->off, s->len, s->tag);
		json_str(&j, NULL, text);
	}
	json_close(&j, "]");
	json_end(&j);
	fail(&shared->wrong);
}

/* @buf holds what was read at @off; it has the alignment of @off. */
static void verify(struct file_worker *w, struct file *f, const u8 *buf,
		   u32 off, u32 len, const char *how)
{
	s64 bad = model_check(&f->m, buf, off, len);
	u64 expected, got = 0;
	u32 at, n, i, bytes = 0;
	char text[64];

	count(&shared->bytes_verified, len);
	if (bad < 0)
		return;

	at = round_down((u32)bad, 8);
	if (at < off)
		at = (u32)bad;
	n = min_u32(8, off + len - at);
	memcpy(&got, buf + (at - off), n);
	for (expected = 0, i = 0; i < n; i++) {
		const struct extent *e = &f->m.ext[model_find(&f->m, at + i)];

		((u8 *)&expected)[i] = stream_byte(f->m.key, e->tag,
						   e->place + at + i - e->off);
	}
	for (i = (u32)bad; i < off + len; i++) {
		const struct extent *e = &f->m.ext[model_find(&f->m, i)];

		bytes += e->tag != TAG_UNKNOWN &&
			 buf[i - off] != stream_byte(f->m.key, e->tag,
						     e->place + i - e->off);
	}
	explain(&f->m, at, got, f->tag, text, sizeof(text));
	file_wrong(w, f, how, (u32)bad, expected, got, text, bytes);
}

static void read_and_verify(struct file_worker *w, struct file *f, u32 off,
			    u32 len)
{
	u32 want = off < f->m.size ? min_u32(len, f->m.size - off) : 0;
	u8 *buf = w->buf + off % 8;
	s64 n = pread_all(f->fd, buf, len, off);

	if (n < 0) {
		file_error(w, f, OP_READ, 0, 0, errno);
		return;
	}
	if (n != want)
		file_wrong(w, f, "read ended elsewhere", off + (u32)n, want,
			   (u64)n, "length", 0);
	verify(w, f, buf, off, want, "read");
}

static void direct_read_and_verify(struct file_worker *w, struct file *f,
				   u32 off, u32 len)
{
	u32 end = round_up(off + len, w->direct), want;
	int fd = open(file_path(w, f), O_RDONLY | O_DIRECT | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	off = round_down(off, w->direct);
	want = off < f->m.size ? min_u32(end - off, f->m.size - off) : 0;
	/* one call: after a short one the rest would not be aligned */
	n = pread(fd, w->buf, end - off, off);
	close(fd);
	if (n < 0) {
		file_error(w, f, OP_DIRECT_READ, 0, 0, errno);
		return;
	}
	if ((u32)n > want)
		file_wrong(w, f, "direct read beyond the end", want, want,
			   (u64)n, "length", 0);
	verify(w, f, w->buf, off, (u32)n, "direct_read");
}

/* Map the pages that hold a range; @map is the address of its first byte. */
static u8 *map_range(struct file *f, u32 off, u32 len, int prot, u8 **map)
{
	u32 from = round_down(off, PAGE);
	u8 *p = mmap(NULL, off + len - from, prot, MAP_SHARED, f->fd,
		     (off_t)from);

	if (p == MAP_FAILED)
		return NULL;
	*map = p;
	return p + (off - from);
}

static void unmap_range(u8 *map, u32 off, u32 len)
{
	munmap(map, off + len - round_down(off, PAGE));
}

static void mmap_read_and_verify(struct file_worker *w, struct file *f, u32 off,
				 u32 len)
{
	u32 end, i, bad = 0;
	u8 *p, *map;

	if (off >= f->m.size)
		return;
	len = min_u32(len, f->m.size - off);
	p = map_range(f, off, len, PROT_READ, &map);
	if (!p)
		return;
	verify(w, f, p, off, len, "mmap_read");
	/* the rest of the last page reads as zeros */
	end = off + len;
	if (end == f->m.size) {
		for (i = 0; (end + i) % PAGE; i++)
			bad += p[len + i] != 0;
		if (bad)
			file_wrong(w, f, "mapping beyond the end", end, 0,
				   p[len], "not zero", bad);
	}
	unmap_range(map, off, len);
}

/* Read a range by read(), by mmap() or directly, and compare. */
static void check(struct file_worker *w, struct file *f, u32 off, u32 len)
{
	len = min_u32(len, BUF_BYTES - PAGE);
	switch (below(w, 8)) {
	case 0:
	case 1:
		mmap_read_and_verify(w, f, off, len);
		return;
	case 2:
		if (w->direct) {
			direct_read_and_verify(w, f, off, len);
			return;
		}
		/* fall through */
	default:
		read_and_verify(w, f, off, len);
	}
}

/* After a change: mostly check it at once, with the bytes around it. */
static void check_around(struct file_worker *w, struct file *f, u32 off,
			 u32 len)
{
	u32 from = off > PAGE ? off - PAGE : 0;

	if (below(w, 4))
		check(w, f, from, off + len + PAGE - from);
}

static u32 random_align(struct file_worker *w)
{
	static const u32 aligns[] = {
		1, 1, 1, 8, 512, 512, 1024, 1024, 2048, PAGE, PAGE, PAGE,
	};

	return aligns[below(w, ARRAY_SIZE(aligns))];
}

/* An offset in the range of interest, at most @limit. */
static u32 random_off(struct file_worker *w, struct file *f, u32 limit)
{
	if (w->focus == f && w->focus_left)
		return min_u32(w->focus_off + below(w, w->focus_len), limit);
	return below(w, limit + 1);
}

/* Lengths of all magnitudes, 1 to @max, a power of two. */
static u32 random_len(struct file_worker *w, u32 max)
{
	u32 shift = 0;

	while (max >> (shift + 1))
		shift++;
	return 1 + below(w, 1u << below(w, shift + 1));
}

/* Choose a range to change; 0 if there is none. */
static u32 random_range(struct file_worker *w, struct file *f, u32 align,
			u32 limit, u32 *off)
{
	u32 len = round_up(random_len(w, IO_MAX), align);

	if (!below(w, 3))
		len = round_up(len, PAGE);
	*off = round_down(random_off(w, f, limit), align);
	len = min_u32(len, IO_MAX);
	if (*off >= f->cap)
		return 0;
	return round_down(min_u32(len, f->cap - *off), align);
}

static void write_range(struct file_worker *w, struct file *f, enum op op,
			u32 off, u32 len)
{
	u32 tag = ++f->tag;
	u8 *buf = w->buf + off % 8;
	int fd = f->fd, err;
	s64 n;

	stream_fill(buf, len, f->m.key, tag, off);
	if (op == OP_DIRECT_WRITE) {
		fd = open(file_path(w, f), O_WRONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			return;
	}
	step(f, op, off, len, tag);
	n = pwrite_all(fd, buf, len, off);
	err = errno;
	if (op == OP_DIRECT_WRITE)
		close(fd);
	if (n > 0)
		model_write(&f->m, off, (u32)n, tag);
	if (n < 0)
		n = 0;
	if (n < len)
		file_error(w, f, op, off + (u32)n, len - (u32)n, err);
}

static void op_write(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, random_align(w), f->m.size + 8192,
				    &off);

	if (!len)
		return;
	write_range(w, f, OP_WRITE, off, len);
	check_around(w, f, off, len);
}

/* Whole pages, so the kernel need not read the old content. */
static void op_overwrite(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, PAGE, f->m.size, &off);

	if (!len)
		return;
	write_range(w, f, OP_OVERWRITE, off, len);
	check_around(w, f, off, len);
}

static void op_append(struct file_worker *w, struct file *f)
{
	u32 off = f->m.size;
	u32 len = min_u32(random_len(w, IO_MAX), f->cap - off);

	if (!len)
		return;
	write_range(w, f, OP_APPEND, off, len);
	check_around(w, f, off, len);
}

/* Refill files that lost their content. */
static void op_grow(struct file_worker *w, struct file *f)
{
	u32 i;

	for (i = 0; i < 4 && f->m.size < f->cap; i++)
		write_range(w, f, OP_GROW, f->m.size,
			    min_u32(IO_MAX, f->cap - f->m.size));
}

static void op_direct_write(struct file_worker *w, struct file *f)
{
	u32 align = below(w, 2) ? w->direct : PAGE, off, len;

	if (!w->direct)
		return;
	len = random_range(w, f, align, f->m.size, &off);
	if (!len)
		return;
	write_range(w, f, OP_DIRECT_WRITE, off, len);
	check_around(w, f, off, len);
}

static void op_mmap_write(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, random_align(w), f->m.size, &off);
	u32 tag;
	u8 *p, *map;

	if (off >= f->m.size)
		return;
	len = min_u32(len, f->m.size - off);
	p = len ? map_range(f, off, len, PROT_READ | PROT_WRITE, &map) : NULL;
	if (!p)
		return;
	tag = ++f->tag;
	step(f, OP_MMAP_WRITE, off, len, tag);
	stream_fill(p, len, f->m.key, tag, off);
	model_write(&f->m, off, len, tag);
	switch (below(w, 4)) {
	case 0:
		msync(map, off + len - round_down(off, PAGE), MS_SYNC);
		break;
	case 1:
		msync(map, off + len - round_down(off, PAGE), MS_ASYNC);
		break;
	}
	unmap_range(map, off, len);
	check_around(w, f, off, len);
}

/*
 * A device writes to pages of the file that are pinned: another file is read
 * directly into the mapping, while reclaim tries to get at the pages.
 */
static void op_pinned_write(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, PAGE, f->m.size, &off), tag, i;
	struct iocb io = { .aio_lio_opcode = IOCB_CMD_PREAD };
	struct iocb *ios[1] = { &io };
	struct io_event event;
	char path[512];
	u8 *p, *map;
	int fd;

	if (!w->direct || off + len > f->m.size || !len)
		return;
	snprintf(path, sizeof(path), "%s/oracle.source.%u", opt.dir, w->id);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	tag = ++f->tag;
	stream_fill(w->buf, len, f->m.key, tag, off);
	p = map_range(f, off, len, PROT_READ | PROT_WRITE, &map);
	if (p && pwrite(fd, w->buf, len, 0) == (ssize_t)len) {
		io.aio_fildes = (u32)fd;
		io.aio_buf = (u64)(uintptr_t)p;
		io.aio_nbytes = len;
		step(f, OP_PINNED_WRITE, off, len, tag);
		if (syscall(SYS_io_submit, w->aio, 1L, ios) != 1)
			die("cannot submit a read: %s", strerror(errno));
		madvise(map, len, MADV_PAGEOUT);
		if (syscall(SYS_io_getevents, w->aio, 1L, 1L, &event, NULL) != 1)
			die("a read does not end: %s", strerror(errno));
		if (event.res == (s64)len)
			model_write(&f->m, off, len, tag);
		else
			file_error(w, f, OP_PINNED_WRITE, off, len,
				   event.res < 0 ? (int)-event.res : EIO);
		if (below(w, 2))
			madvise(map, len, MADV_PAGEOUT);
		/*
		 * Pages that were written out during the read are made dirty by a
		 * worker of the block layer, after the read has ended: for so long a
		 * direct read finds the old content on the device. A store makes
		 * them dirty at once.
		 */
		for (i = 0; i < len; i += PAGE)
			((volatile u8 *)p)[i] = p[i];
	}
	if (p)
		unmap_range(map, off, len);
	close(fd);
	unlink(path);
	check_around(w, f, off, len);
}

/* Truncate, and mostly grow again at once: the old content must be gone. */
static void op_truncate(struct file_worker *w, struct file *f)
{
	u32 old = f->m.size, cut, back = old > IO_MAX ? old - IO_MAX : 0;

	if (w->focus == f && w->focus_left)
		cut = random_off(w, f, old);
	else
		cut = back + below(w, old - back + 1);
	cut = round_down(cut, random_align(w));
	step(f, OP_TRUNCATE, cut, 0, 0);
	if (ftruncate(f->fd, cut)) {
		file_error(w, f, OP_TRUNCATE, 0, old, errno);
		return;
	}
	model_resize(&f->m, cut);
	if (!below(w, 4))
		return;
	if (below(w, 2)) {
		step(f, OP_EXTEND, old, 0, 0);
		if (ftruncate(f->fd, old)) {
			file_error(w, f, OP_EXTEND, cut, old - cut, errno);
			return;
		}
		model_resize(&f->m, old);
	} else {
		u32 off = cut + below(w, 2 * PAGE);

		if (off + 2 * PAGE > f->cap)
			return;
		write_range(w, f, OP_WRITE, off, 1 + below(w, 2 * PAGE));
	}
	check(w, f, round_down(cut, PAGE), 4 * PAGE);
}

static void op_extend(struct file_worker *w, struct file *f)
{
	u32 old = f->m.size, size;

	size = min_u32(f->cap, round_up(old + random_len(w, IO_MAX),
					random_align(w)));
	if (size < old)
		return;
	step(f, OP_EXTEND, size, 0, 0);
	if (ftruncate(f->fd, size)) {
		file_error(w, f, OP_EXTEND, old, size - old, errno);
		return;
	}
	model_resize(&f->m, size);
	check_around(w, f, old, size - old);
}

static void op_punch(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, random_align(w), f->m.size, &off);

	if (!len)
		return;
	step(f, OP_PUNCH, off, len, 0);
	if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
		      len)) {
		file_error(w, f, OP_PUNCH, off, len, errno);
		return;
	}
	model_punch(&f->m, off, len);
	check_around(w, f, off, len);
}

static void op_zero(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, random_align(w), f->m.size, &off);
	bool keep = below(w, 2);

	if (!len)
		return;
	step(f, OP_ZERO, off, len, keep);
	if (fallocate(f->fd, FALLOC_FL_ZERO_RANGE |
		      (keep ? FALLOC_FL_KEEP_SIZE : 0), off, len)) {
		file_error(w, f, OP_ZERO, off, len, errno);
		return;
	}
	if (keep)
		model_punch(&f->m, off, len);
	else
		model_write(&f->m, off, len, TAG_ZERO);
	check_around(w, f, off, len);
}

static void op_collapse(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, w->block, f->m.size, &off);

	if (!len || off + len >= f->m.size)
		return;
	step(f, OP_COLLAPSE, off, len, 0);
	if (fallocate(f->fd, FALLOC_FL_COLLAPSE_RANGE, off, len)) {
		file_error(w, f, OP_COLLAPSE, off, len, errno);
		return;
	}
	model_collapse(&f->m, off, len);
	check_around(w, f, off, IO_MAX);
}

static void op_insert(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, w->block, f->m.size, &off);

	if (!len || off >= f->m.size || f->m.size + len > f->cap)
		return;
	step(f, OP_INSERT, off, len, 0);
	if (fallocate(f->fd, FALLOC_FL_INSERT_RANGE, off, len)) {
		file_error(w, f, OP_INSERT, off, len, errno);
		return;
	}
	model_insert(&f->m, off, len);
	check_around(w, f, off, len + PAGE);
}

static void op_allocate(struct file_worker *w, struct file *f)
{
	u32 off, len = random_range(w, f, random_align(w), f->m.size, &off);
	bool keep = below(w, 2);

	if (!len)
		return;
	step(f, OP_ALLOCATE, off, len, keep);
	if (fallocate(f->fd, keep ? FALLOC_FL_KEEP_SIZE : 0, off, len)) {
		file_error(w, f, OP_ALLOCATE, 0, 0, errno);
		return;
	}
	if (!keep && off + len > f->m.size)
		model_resize(&f->m, off + len);
	check_around(w, f, off, len);
}

u32 pages_absent(u8 *map, u32 len)
{
	u8 vec[PAGEOUT_MAX / PAGE + 1];
	u32 i, n = 0;

	if (mincore(map, len, vec))
		return 0;
	for (i = 0; i < (len + PAGE - 1) / PAGE; i++)
		n += !(vec[i] & 1);
	return n;
}

/*
 * Reclaim the pages of a range now, as if memory were short: bring them in,
 * clean them, and push them out. The next operations aim at this range.
 */
static void op_pageout(struct file_worker *w, struct file *f)
{
	u32 off, len, absent, gone;
	u8 *map;

	if (!f->m.size)
		return;
	w->focus_left = 0;
	off = round_down(random_off(w, f, f->m.size - 1), PAGE);
	len = min_u32(f->m.size - off,
		      random_len(w, PAGEOUT_MAX / PAGE) * PAGE);
	/* dirty pages would stay; a commit would take long each time */
	if (!below(w, 8))
		fdatasync(f->fd);
	else if (below(w, 8))
		sync_file_range(f->fd, off, len, SYNC_FILE_RANGE_WAIT_BEFORE |
				SYNC_FILE_RANGE_WRITE |
				SYNC_FILE_RANGE_WAIT_AFTER);
	if (!map_range(f, off, len, PROT_READ, &map))
		return;
	step(f, OP_PAGEOUT, off, len, 0);
	if (madvise(map, len, MADV_POPULATE_READ) && errno == EINVAL) {
		volatile u8 *p = map;
		u32 i;

		for (i = 0; i < len; i += PAGE)
			(void)p[i];
	}
	absent = pages_absent(map, len);
	madvise(map, len, MADV_PAGEOUT);
	len = round_up(len, PAGE);
	gone = pages_absent(map, len);
	if (gone > absent)
		count(&shared->paged_out, gone - absent);
	munmap(map, len);

	w->focus = f;
	w->focus_off = off;
	w->focus_len = len;
	w->focus_left = 1 + below(w, 4);
}

static void op_recreate(struct file_worker *w, struct file *f)
{
	step(f, OP_RECREATE, 0, 0, 0);
	/* an unlinked file can still be read */
	unlink(file_path(w, f));
	if (below(w, 2))
		read_and_verify(w, f, random_off(w, f, f->m.size), IO_MAX);
	file_close(f);
	model_resize(&f->m, 0);
	file_open(w, f);
	op_extend(w, f);
	op_grow(w, f);
}

static void op_rename(struct file_worker *w, struct file *f)
{
	char from[512];

	snprintf(from, sizeof(from), "%s", file_path(w, f));
	step(f, OP_RENAME, 0, 0, 0);
	f->renamed = !f->renamed;
	if (rename(from, file_path(w, f)))
		die("cannot rename %s: %s", from, strerror(errno));
}

static void file_op(struct file_worker *w, struct file *f, enum op op)
{
	u32 off, len;

	switch (op) {
	case OP_READ:
	case OP_DIRECT_READ:
	case OP_MMAP_READ:
		off = random_off(w, f, f->m.size);
		len = random_len(w, IO_MAX);
		if (op == OP_READ)
			read_and_verify(w, f, off, len);
		else if (op == OP_MMAP_READ)
			mmap_read_and_verify(w, f, off, len);
		else if (w->direct)
			direct_read_and_verify(w, f, off, len);
		return;
	case OP_WRITE:
		op_write(w, f);
		return;
	case OP_OVERWRITE:
		op_overwrite(w, f);
		return;
	case OP_APPEND:
		op_append(w, f);
		return;
	case OP_GROW:
		op_grow(w, f);
		return;
	case OP_DIRECT_WRITE:
		op_direct_write(w, f);
		return;
	case OP_MMAP_WRITE:
		op_mmap_write(w, f);
		return;
	case OP_PINNED_WRITE:
		op_pinned_write(w, f);
		return;
	case OP_TRUNCATE:
		op_truncate(w, f);
		return;
	case OP_EXTEND:
		op_extend(w, f);
		return;
	case OP_PUNCH:
		op_punch(w, f);
		return;
	case OP_ZERO:
		op_zero(w, f);
		return;
	case OP_COLLAPSE:
		op_collapse(w, f);
		return;
	case OP_INSERT:
		op_insert(w, f);
		return;
	case OP_ALLOCATE:
		op_allocate(w, f);
		return;
	case OP_FSYNC:
		step(f, op, 0, 0, 0);
		fsync(f->fd);
		return;
	case OP_DONTNEED:
	case OP_WILLNEED:
		off = random_off(w, f, f->m.size);
		len = random_len(w, PAGEOUT_MAX);
		step(f, op, off, len, 0);
		posix_fadvise(f->fd, off, len, op == OP_DONTNEED ?
			      POSIX_FADV_DONTNEED : POSIX_FADV_WILLNEED);
		return;
	case OP_PAGEOUT:
		op_pageout(w, f);
		return;
	case OP_RECREATE:
		op_recreate(w, f);
		return;
	case OP_RENAME:
		op_rename(w, f);
		return;
	case OP_REOPEN:
		step(f, op, 0, 0, 0);
		file_close(f);
		file_open(w, f);
		return;
	case NR_OPS:
		return;
	}
}

static enum op random_op(struct file_worker *w, bool evicted)
{
	u32 sum = 0, at, i;

	for (i = 0; i < NR_OPS; i++)
		sum += evicted ? ops[i].weight_evicted : ops[i].weight;
	at = below(w, sum);
	for (i = 0;; i++) {
		u32 weight = evicted ? ops[i].weight_evicted : ops[i].weight;

		if (at < weight)
			return (enum op)i;
		at -= weight;
	}
}

u32 probe_direct(const char *path, u8 *buf)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC,
		      0600);
	u32 align;

	memset(buf, 0, PAGE);
	for (align = 512; fd >= 0 && align <= PAGE; align *= 2)
		if (pwrite(fd, buf, align, align) == (ssize_t)align)
			break;
	if (fd >= 0)
		close(fd);
	unlink(path);
	return fd >= 0 && align <= PAGE ? align : 0;
}

void file_worker(u32 id)
{
	u64 budget = (u64)opt.file_mib * MIB / FILE_WORKERS;
	struct file_worker *w = xalloc(sizeof(*w));
	u32 max = opt.file_max_kib * 1024, i;
	struct statvfs vfs;

	w->id = id;
	w->rng = rng_make(opt.seed, 1000 + id);
	w->buf = locked_alloc(BUF_BYTES + PAGE);
	if (statvfs(opt.dir, &vfs))
		die("cannot stat %s: %s", opt.dir, strerror(errno));
	w->block = vfs.f_bsize > PAGE ? (u32)vfs.f_bsize :
		   vfs.f_bsize < 1024 ? 1024 : (u32)vfs.f_bsize;

	/* sizes of all magnitudes, none of them round */
	w->files = locked_alloc(sizeof(*w->files) * (budget / 65536 + 2));
	while (budget >= 65536) {
		struct file *f = &w->files[w->nr_files];
		u32 cap = 65536 + below(w, max > 65536 ? max - 65536 : 1);

		f->id = w->nr_files++;
		f->cap = (u32)(cap < budget ? cap : budget) | 1;
		f->fd = -1;
		f->m.key = mix64(opt.seed ^ ((u64)id << 48) ^
				 ((u64)f->id << 24) ^ 0x66696c65);
		f->m.ext = locked_alloc(MODEL_EXTENTS * sizeof(*f->m.ext));
		budget -= f->cap < budget ? f->cap : budget;
		unlink(file_path(w, f));
		f->renamed = true;
		unlink(file_path(w, f));
		f->renamed = false;
	}
	w->direct = probe_direct(file_path(w, &w->files[0]), w->buf);
	if (!w->direct && !id)
		note("no direct I/O on %s, leaving it out", opt.dir);
	if (w->direct && syscall(SYS_io_setup, 1, &w->aio))
		die("no asynchronous I/O: %s", strerror(errno));

	for (i = 0; i < w->nr_files && !stopping(); i++) {
		struct file *f = &w->files[i];

		file_open(w, f);
		while (f->m.size < f->cap && !stopping()) {
			u32 before = f->m.size;

			op_grow(w, f);
			if (f->m.size == before)
				break;
		}
		file_close(f);
	}

	while (!stopping()) {
		bool evicted = w->focus_left;
		enum op op = random_op(w, evicted);
		struct file *f;

		/* an eighth is used more often; the others age and are evicted */
		f = evicted ? w->focus :
		    &w->files[below(w, below(w, 3) ? w->nr_files :
				    (w->nr_files + 7) / 8)];
		if ((w->unsupported | opt.skip) & (1u << op)) {
			w->focus_left -= evicted;
			continue;
		}
		file_open(w, f);
		if (model_is_full(&f->m))
			op = OP_RECREATE;
		file_op(w, f, op);
		if (evicted && op != OP_PAGEOUT && w->focus_left)
			w->focus_left--;
		if (!below(w, 6))
			file_close(f);
		count(&shared->file_ops, 1);
	}

	/* check everything once more */
	for (i = 0; i < w->nr_files; i++) {
		struct file *f = &w->files[i];
		u32 off;

		file_open(w, f);
		for (off = 0; off < f->m.size; off += PAGEOUT_MAX)
			read_and_verify(w, f, off, PAGEOUT_MAX);
		count(&shared->final_files, 1);
		unlink(file_path(w, f));
		file_close(f);
	}
}

void skip_file_ops(const char *list)
{
	char *copy = strdup(list), *name, *save = NULL;
	u32 i;

	for (name = strtok_r(copy, ",", &save); name;
	     name = strtok_r(NULL, ",", &save)) {
		for (i = 0; i < NR_OPS && strcmp(ops[i].name, name); i++)
			;
		if (i == NR_OPS)
			die("--skip knows no operation '%s'", name);
		opt.skip |= 1u << i;
	}
	free(copy);
}
