// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * oracle - does memory still hold what was written to it?
 *
 * Runs file, anonymous and contiguous memory under pressure and compares every
 * byte that is read with the expected one. Expected bytes are computed, not
 * stored, see model.h. A kernel that gives back an old copy of a page fails
 * here.
 *
 * Four kinds of processes work at the same time:
 *
 *  file   Each owns files that nobody else touches, and uses all operations of
 *	   a file system on them. Many operations first push the pages of a
 *	   range out of memory (MADV_PAGEOUT), so that copies of them exist
 *	   outside the page cache. Then they truncate, punch, write directly or
 *	   overwrite exactly there, where an old copy could come back.
 *  race   Threads share a small file: one changes it, others read it and push
 *	   it out. Two versions per unit of 256 bytes, "begun" and "done", bound
 *	   what a reader may see: at least what was done before it started.
 *  anon   Versioned pages of private and shared anonymous memory, which is
 *	   pushed out, touched, dropped, and inherited by children.
 *  alloc  Contiguous memory through /dev/cma_bench: allocate, fill, hold,
 *	   check, release. With --alloc-pins some pages are still pinned when
 *	   they are released, and must not be handed out before the unpin.
 *
 * A hog adds pressure in waves. Options:
 *
 *   --dir D            directory of the files; without it no file, no race
 *   --file-mib N       all files together (512)
 *   --file-max-kib N   largest file (4096)
 *   --file-workers N   (2)
 *   --races N          shared files, four threads each (2)
 *   --anon-mib N       private anonymous memory of all workers (64)
 *   --shmem-mib N      shared anonymous memory of all workers (16)
 *   --anon-workers N   (2; 0 for none)
 *   --thp              ask for huge pages in half of the private memory
 *   --hog-mib N        height of the waves (0)
 *   --alloc            allocate contiguous memory as well
 *   --alloc-max-pages N  largest allocation (4096)
 *   --alloc-live N     pages held at a time (twice the largest allocation)
 *   --alloc-workers N  workers that each hold so much (1)
 *   --alloc-pieces N   in at most so many pieces (16)
 *   --alloc-pins       folios as well, and pages pinned when they are released
 *   --drop-caches      write 1, 2 or 3 to /proc/sys/vm/drop_caches now and then
 *   --skip OP,OP...    leave out file operations, to narrow a failure down
 *   --seconds N        at least (60)
 *   --until NAME=N,... and until these counters have grown by N: cma_allocs and
 *                      cma_pins of the oracle, all others of /proc/vmstat
 *   --until-exists F   and until there is this file: no verdict depends on how
 *                      much the computer does in a second
 *   --ops N            each file, race and anon worker ends after N operations
 *   --keep-going       do not end at the first wrong byte
 *   --seed N           (1)
 *
 * Exit status: 0 if all was right, 1 if not.
 */
#include "options.h"
#include "model.h"

#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bench_abi.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT		21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#endif

#define PAGE		4096u
#define BUF_BYTES	(512u * 1024)
/* maximum length of a single read or write */
#define IO_MAX		(64u * 1024)
/* maximum length of a range that one operation pushes out */
#define PAGEOUT_MAX	(256u * 1024)
#define HISTORY		8
#define TICK_NS		(5 * NSEC_PER_SEC)
#define WORKERS_MAX	128
/* maximum number of pieces of contiguous memory that a worker holds */
#define LIVE_MAX	16

static struct {
	const char *dir;
	u32 file_mib, file_max_kib, file_workers;
	u32 races;
	u32 anon_mib, shmem_mib, anon_workers;
	u32 hog_mib;
	u32 alloc_max_pages, alloc_live, alloc_workers, alloc_pieces;
	u32 seconds;
	u64 ops, seed;
	const char *until_exists;
	bool thp, alloc, alloc_pins, drop_caches, keep_going;
	u32 skip;
} opt = {
	.file_mib = 512, .file_max_kib = 4096, .file_workers = 2, .races = 2,
	.anon_mib = 64, .shmem_mib = 16, .anon_workers = 2,
	.alloc_max_pages = 4096, .alloc_workers = 1, .alloc_pieces = LIVE_MAX,
	.seconds = 60, .seed = 1,
};

/* What must have happened before the end. */
static struct goal {
	const char *counter;
	u64 growth, from;
} goals[16];
static u32 nr_goals;

/* Shared by all processes. */
struct shared {
	_Atomic u32 stop;
	_Atomic u64 file_ops, race_ops, anon_ops;
	_Atomic u64 bytes_verified, races_verified;
	/* pages of files that left memory because they were asked to */
	_Atomic u64 paged_out, race_paged_out;
	_Atomic u64 wrong, direct_stale, anon_wrong;
	_Atomic u64 io_errors, nospace, unknown;
	_Atomic u64 forks, hog_waves;
	_Atomic u64 cma_allocs, cma_failed, cma_wrong, cma_worst_ns, cma_pins;
	/* pages of released memory that are still in use, by worker */
	_Atomic u64 pinned[WORKERS_MAX];
	_Atomic u64 final_files;
};

static struct shared *shared;

static bool stopping(void)
{
	return atomic_load_explicit(&shared->stop, memory_order_relaxed);
}

static void count(_Atomic u64 *counter, u64 n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Something was wrong; it has been reported. */
static void fail(_Atomic u64 *counter)
{
	count(counter, 1);
	if (opt.keep_going)
		return;
	atomic_store(&shared->stop, 1);
	_exit(1);
}

static void *locked_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("out of memory (%zu bytes wanted)", size);
	/* what is expected must not depend on what is tested */
	mlock(p, size);
	return p;
}

static u32 round_down(u32 v, u32 align)
{
	return v - v % align;
}

static u32 round_up(u32 v, u32 align)
{
	return round_down(v + align - 1, align);
}

static u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

/* ----------------------------------------------------------- the files */

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

/* Read all of a range; returns the bytes read, or -1. */
static s64 pread_all(int fd, u8 *buf, u32 len, u32 off)
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

static s64 pwrite_all(int fd, const u8 *buf, u32 len, u32 off)
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

/* The file system refused an operation. The content may have changed. */
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
	/* go on with a fresh file, else one fault is reported for ever */
	file_recreate(w, f);
}

/* @buf holds what was read at @off; it has the alignment of @off. */
static bool verify(struct file_worker *w, struct file *f, const u8 *buf,
		   u32 off, u32 len, const char *how)
{
	s64 bad = model_check(&f->m, buf, off, len);
	u64 expected, got = 0;
	u32 at, n, i, bytes = 0;
	char text[64];

	count(&shared->bytes_verified, len);
	if (bad < 0)
		return true;

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
	return false;
}

static bool read_and_verify(struct file_worker *w, struct file *f, u32 off,
			    u32 len)
{
	u32 want = off < f->m.size ? min_u32(len, f->m.size - off) : 0;
	u8 *buf = w->buf + off % 8;
	s64 n = pread_all(f->fd, buf, len, off);

	if (n < 0) {
		file_error(w, f, OP_READ, 0, 0, errno);
		return true;
	}
	if (n != want) {
		file_wrong(w, f, "read ended elsewhere", off + (u32)n, want,
			   (u64)n, "length", 0);
		return false;
	}
	return verify(w, f, buf, off, want, "read");
}

static bool direct_read_and_verify(struct file_worker *w, struct file *f,
				   u32 off, u32 len)
{
	u32 end = round_up(off + len, w->direct), want;
	int fd = open(file_path(w, f), O_RDONLY | O_DIRECT | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return true;
	off = round_down(off, w->direct);
	want = off < f->m.size ? min_u32(end - off, f->m.size - off) : 0;
	/* one call: after a short one the rest would not be aligned */
	n = pread(fd, w->buf, end - off, off);
	close(fd);
	if (n < 0) {
		file_error(w, f, OP_DIRECT_READ, 0, 0, errno);
		return true;
	}
	if ((u32)n > want) {
		file_wrong(w, f, "direct read beyond the end", want, want,
			   (u64)n, "length", 0);
		return false;
	}
	return verify(w, f, w->buf, off, (u32)n, "direct_read");
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

static bool mmap_read_and_verify(struct file_worker *w, struct file *f, u32 off,
				 u32 len)
{
	u32 end, i, bad = 0;
	u8 *p, *map;
	bool ok;

	if (off >= f->m.size)
		return true;
	len = min_u32(len, f->m.size - off);
	p = map_range(f, off, len, PROT_READ, &map);
	if (!p)
		return true;
	ok = verify(w, f, p, off, len, "mmap_read");
	/* the rest of the last page reads as zeros */
	end = off + len;
	if (ok && end == f->m.size) {
		for (i = 0; (end + i) % PAGE; i++)
			bad += p[len + i] != 0;
		if (bad)
			file_wrong(w, f, "mapping beyond the end", end, 0,
				   p[len], "not zero", bad);
		ok = !bad;
	}
	unmap_range(map, off, len);
	return ok;
}

/* Read a range in one of several ways. */
static bool check(struct file_worker *w, struct file *f, u32 off, u32 len)
{
	len = min_u32(len, BUF_BYTES - PAGE);
	switch (below(w, 8)) {
	case 0:
	case 1:
		return mmap_read_and_verify(w, f, off, len);
	case 2:
		if (w->direct)
			return direct_read_and_verify(w, f, off, len);
		/* fall through */
	default:
		return read_and_verify(w, f, off, len);
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
	u32 off, len = random_range(w, f, PAGE, f->m.size, &off), tag;
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

static u32 pages_absent(u8 *map, u32 len)
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
	if (below(w, 2) &&
	    !read_and_verify(w, f, random_off(w, f, f->m.size), IO_MAX))
		return;
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

/* The smallest unit of direct I/O here; 0 if there is none. */
static u32 probe_direct(const char *path, u8 *buf)
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

static void sigbus(int sig)
{
	static const char text[] =
		"oracle: SIGBUS: a mapped file lost pages or memory is short\n";

	(void)sig;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

static void file_worker(u32 id)
{
	u64 budget = (u64)opt.file_mib * MIB / opt.file_workers;
	struct file_worker *w = xalloc(sizeof(*w));
	u32 max = opt.file_max_kib * 1024, i;
	struct statvfs vfs;
	u64 n;

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

	for (n = 0; !stopping() && (!opt.ops || n < opt.ops); n++) {
		bool evicted = w->focus_left;
		enum op op = random_op(w, evicted);
		struct file *f;

		/* a few files are busy, the others wait until evicted */
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
			if (!read_and_verify(w, f, off, PAGEOUT_MAX))
				break;
		count(&shared->final_files, 1);
		unlink(file_path(w, f));
		file_close(f);
	}
}

/* ----------------------------------------------------------- the races */

#define UNIT		256u
#define RACE_UNITS	1024u
#define RACE_BYTES	(RACE_UNITS * UNIT)
#define RACE_READERS	2

enum race_kind {
	RACE_NONE, RACE_DIRECT, RACE_BUFFERED, RACE_PUNCH, RACE_ZERO,
	RACE_TRUNCATE,
};

static const char *const race_kinds[] = {
	"none", "direct", "buffered", "punch", "zero", "truncate",
};

/*
 * Versions of a unit: the writer counts begun[] up before it changes the unit,
 * and done[] afterwards. A reader sees a version from the done[] before its
 * read to the begun[] after it. The low bits say which kind of change it was,
 * so a reader knows when to expect zeros.
 */
struct race {
	u32 id;
	int fd, direct_fd;
	u32 direct;
	bool truncates;		/* then no thread keeps it mapped */
	u64 key;
	char path[512];
	_Atomic u32 begun[RACE_UNITS];
	_Atomic u32 done[RACE_UNITS];
	_Atomic u32 cut_begun, cut_done;
};

static u32 race_tag(u32 u, u32 stamp)
{
	u32 kind = stamp & 7;

	if (kind != RACE_DIRECT && kind != RACE_BUFFERED)
		return TAG_ZERO;
	return (u32)(mix64((u64)u << 32 | stamp) | 1);
}

static void race_wrong(struct race *r, const char *how, u32 off, u32 lo, u32 hi,
		       u64 got)
{
	u32 u = off / UNIT, v, kind;
	struct json j = json_line("wrong");
	char text[64] = "unknown";

	if (!got)
		snprintf(text, sizeof(text), "zeros");
	for (v = lo >> 3; got && v && v + 4096 > lo >> 3; v--)
		for (kind = RACE_DIRECT; kind <= RACE_BUFFERED; kind++)
			if (stream_word(r->key, race_tag(u, v << 3 | kind),
					off % UNIT) == got)
				snprintf(text, sizeof(text), "version %u (%s)",
					 v, race_kinds[kind]);
	json_str(&j, "where", "race");
	json_str(&j, "file", r->path);
	json_str(&j, "how", how);
	json_u64(&j, "offset", off);
	json_u64(&j, "done_version", lo >> 3);
	json_str(&j, "done_by", race_kinds[lo & 7]);
	json_u64(&j, "begun_version", hi >> 3);
	json_str(&j, "begun_by", race_kinds[hi & 7]);
	json_hex(&j, "expected", stream_word(r->key, race_tag(u, lo),
					     off % UNIT));
	json_hex(&j, "got", got);
	json_str(&j, "got_is", text);
	json_end(&j);
	fail(&shared->direct_stale);
}

/* Is each byte from one version or from the next? */
static s64 race_check_either(const struct race *r, const u8 *p, u32 len, u32 u,
			     u32 lo, u32 hi)
{
	u32 a = race_tag(u, lo), b = race_tag(u, hi), i;

	for (i = 0; i < len; i++)
		if (p[i] != stream_byte(r->key, a, i) &&
		    p[i] != stream_byte(r->key, b, i))
			return i;
	return -1;
}

static void race_compare(struct race *r, const char *how, const u8 *buf,
			 u32 first, u32 len, const u32 *lo)
{
	u32 i, u, n;
	u64 got;
	s64 bad;

	atomic_thread_fence(memory_order_seq_cst);
	for (i = 0; i * UNIT < len; i++) {
		u32 hi = atomic_load(&r->begun[first + i]);

		u = first + i;
		n = min_u32(UNIT, len - i * UNIT);
		if (lo[i] == hi)
			bad = stream_check(buf + i * UNIT, n, r->key,
					   race_tag(u, hi), 0);
		else if ((hi >> 3) - (lo[i] >> 3) == 1)
			bad = race_check_either(r, buf + i * UNIT, n, u, lo[i],
						hi);
		else
			continue;
		count(&shared->races_verified, n);
		if (bad < 0)
			continue;
		got = 0;
		memcpy(&got, buf + i * UNIT + round_down((u32)bad, 8),
		       min_u32(8, n - round_down((u32)bad, 8)));
		race_wrong(r, how, u * UNIT + round_down((u32)bad, 8), lo[i],
			   hi, got);
		return;
	}
}

static void race_read(struct race *r, u8 *buf, u32 first, u32 units, bool map)
{
	u32 lo[RACE_UNITS], i, cuts, len = units * UNIT;
	u32 off = first * UNIT, from = round_down(off, PAGE);
	s64 n;
	u8 *p;

	cuts = atomic_load(&r->cut_done);
	for (i = 0; i < units; i++)
		lo[i] = atomic_load(&r->done[first + i]);
	atomic_thread_fence(memory_order_seq_cst);
	if (map) {
		p = mmap(NULL, off + len - from, PROT_READ, MAP_SHARED, r->fd,
			 (off_t)from);
		if (p == MAP_FAILED)
			return;
		/* copy: the bytes must not change while they are compared */
		memcpy(buf, p + (off - from), len);
		munmap(p, off + len - from);
		race_compare(r, "mmap", buf, first, len, lo);
		return;
	}
	n = pread_all(r->fd, buf, len, off);
	if (n < 0) {
		count(&shared->io_errors, 1);
		return;
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (n < len && cuts == atomic_load(&r->cut_begun)) {
		race_wrong(r, "read ended early", off + (u32)n, lo[0], lo[0],
			   (u64)n);
		return;
	}
	race_compare(r, "read", buf, first, (u32)n, lo);
}

/* Two versions may be mixed by bytes, not only by words. */
static void *race_reader(void *arg)
{
	static _Atomic u32 next;
	struct race *r = arg;
	u32 nr = atomic_fetch_add(&next, 1);
	struct rng rng = rng_make(opt.seed, 3000 + r->id * 10 + nr);
	u8 *buf = locked_alloc(RACE_BYTES);
	u64 i;

	for (i = 0; !stopping() && (!opt.ops || i < opt.ops); i++) {
		u32 units = 1 + rng_below(&rng, 1u << rng_below(&rng, 9));
		u32 first = rng_below(&rng, RACE_UNITS - units + 1);

		/* reads that hit memory are cheap: leave the CPU to others */
		if (i % 4 == 3)
			sleep_ms(2);
		race_read(r, buf, first, units, !r->truncates &&
			  rng_one_in(&rng, 3));
		count(&shared->race_ops, 1);
	}
	return NULL;
}

static void race_begin(struct race *r, u32 first, u32 units, enum race_kind k)
{
	u32 u;

	for (u = first; u < first + units; u++)
		atomic_store(&r->begun[u],
			     ((r->begun[u] >> 3) + 1) << 3 | (u32)k);
	atomic_thread_fence(memory_order_seq_cst);
}

static void race_end(struct race *r, u32 first, u32 units)
{
	u32 u;

	atomic_thread_fence(memory_order_seq_cst);
	for (u = first; u < first + units; u++)
		atomic_store(&r->done[u], atomic_load(&r->begun[u]));
}

static void race_write(struct race *r, u8 *buf, u32 first, u32 units,
		       enum race_kind kind)
{
	u32 u;

	for (u = 0; u < units; u++)
		stream_fill(buf + u * UNIT, UNIT, r->key,
			    race_tag(first + u, r->begun[first + u]), 0);
	if (pwrite_all(kind == RACE_DIRECT ? r->direct_fd : r->fd, buf,
		       units * UNIT, first * UNIT) != units * UNIT)
		die("%s write to %s failed: %s", race_kinds[kind], r->path,
		    strerror(errno));
}

static void *race_writer(void *arg)
{
	static const enum race_kind kinds[] = {
		RACE_DIRECT, RACE_DIRECT, RACE_DIRECT, RACE_DIRECT,
		RACE_BUFFERED, RACE_PUNCH, RACE_PUNCH, RACE_ZERO,
		RACE_TRUNCATE, RACE_TRUNCATE,
	};
	struct race *r = arg;
	struct rng rng = rng_make(opt.seed, 2000 + r->id);
	u8 *buf = locked_alloc(RACE_BYTES);
	u64 i;

	for (i = 0; !stopping() && (!opt.ops || i < opt.ops); i++) {
		enum race_kind kind = kinds[rng_below(&rng,
						      ARRAY_SIZE(kinds))];
		u32 units = 1 + rng_below(&rng, 1u << rng_below(&rng, 8));
		u32 first = rng_below(&rng, RACE_UNITS - units + 1);
		int mode = FALLOC_FL_KEEP_SIZE;

		if (kind == RACE_DIRECT && !r->direct)
			kind = RACE_BUFFERED;
		if (kind == RACE_TRUNCATE && !r->truncates)
			kind = RACE_DIRECT;
		if (kind == RACE_DIRECT) {
			u32 align = rng_one_in(&rng, 2) ? PAGE : r->direct;

			first = round_down(first, align / UNIT);
			units = min_u32(round_up(units, align / UNIT),
					RACE_UNITS - first);
		}
		if (kind == RACE_TRUNCATE) {
			/* mostly near the end, else only zeros are left */
			if (first < RACE_UNITS / 2 && rng_below(&rng, 8))
				first += RACE_UNITS / 2;
			units = RACE_UNITS - first;
		}

		race_begin(r, first, units, kind);
		switch (kind) {
		case RACE_TRUNCATE:
			atomic_fetch_add(&r->cut_begun, 1);
			if (ftruncate(r->fd, first * UNIT))
				die("cannot truncate %s: %s", r->path,
				    strerror(errno));
			if (rng_one_in(&rng, 4) &&
			    pread_all(r->fd, buf, UNIT, first * UNIT) > 0)
				race_wrong(r, "read beyond the end",
					   first * UNIT, r->begun[first],
					   r->begun[first], *(word *)buf);
			if (ftruncate(r->fd, RACE_BYTES))
				die("cannot extend %s: %s", r->path,
				    strerror(errno));
			atomic_fetch_add(&r->cut_done, 1);
			break;
		case RACE_PUNCH:
		case RACE_ZERO:
			mode |= kind == RACE_PUNCH ? FALLOC_FL_PUNCH_HOLE :
						     FALLOC_FL_ZERO_RANGE;
			if (!fallocate(r->fd, mode, first * UNIT, units * UNIT))
				break;
			if (errno != EOPNOTSUPP)
				die("cannot punch %s: %s", r->path,
				    strerror(errno));
			/* the same, by an operation of every file system */
			memset(buf, 0, units * UNIT);
			if (pwrite_all(r->fd, buf, units * UNIT,
				       first * UNIT) != units * UNIT)
				die("cannot write %s: %s", r->path,
				    strerror(errno));
			break;
		default:
			race_write(r, buf, first, units, kind);
		}
		race_end(r, first, units);

		/* no other thread writes: this must be exactly right */
		if (rng_one_in(&rng, 2))
			race_read(r, buf, first, units, !r->truncates &&
				  rng_one_in(&rng, 3));
		count(&shared->race_ops, 1);
	}
	return NULL;
}

static void *race_pusher(void *arg)
{
	struct race *r = arg;
	struct rng rng = rng_make(opt.seed, 4000 + r->id);
	u64 i;

	for (i = 0; !stopping() && (!opt.ops || i < opt.ops); i++) {
		u32 len = (1 + rng_below(&rng, RACE_BYTES / PAGE)) * PAGE;
		u32 off = rng_below(&rng, (RACE_BYTES - len) / PAGE + 1) * PAGE;
		u32 absent, gone;
		u8 *p;

		if (rng_one_in(&rng, 4))
			sync_file_range(r->fd, 0, 0,
					SYNC_FILE_RANGE_WAIT_BEFORE |
					SYNC_FILE_RANGE_WRITE |
					SYNC_FILE_RANGE_WAIT_AFTER);
		if (rng_one_in(&rng, 16)) {
			posix_fadvise(r->fd, off, len, POSIX_FADV_DONTNEED);
			continue;
		}
		p = mmap(NULL, len, PROT_READ, MAP_SHARED, r->fd, off);
		if (p == MAP_FAILED)
			continue;
		/* do not touch the mapping: the file may be short just now */
		madvise(p, len, MADV_POPULATE_READ);
		absent = pages_absent(p, len);
		madvise(p, len, MADV_PAGEOUT);
		/* others bring pages back meanwhile: a lower bound */
		gone = pages_absent(p, len);
		if (gone > absent)
			count(&shared->race_paged_out,
			      gone - absent);
		munmap(p, len);
	}
	return NULL;
}

static void race_worker(u32 id)
{
	struct race *r = xalloc(sizeof(*r));
	pthread_t threads[RACE_READERS + 2];
	u8 *buf = locked_alloc(PAGE);
	u32 i;

	r->id = id;
	r->truncates = id & 1;
	r->key = mix64(opt.seed ^ ((u64)id << 40) ^ 0x72616365);
	snprintf(r->path, sizeof(r->path), "%s/oracle.race.%u", opt.dir, id);
	r->direct = probe_direct(r->path, buf);
	r->fd = open(r->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (r->fd < 0 || ftruncate(r->fd, RACE_BYTES))
		die("cannot create %s: %s", r->path, strerror(errno));
	r->direct_fd = r->direct ?
		       open(r->path, O_RDWR | O_DIRECT | O_CLOEXEC) : -1;

	for (i = 0; i < ARRAY_SIZE(threads); i++) {
		int err = pthread_create(&threads[i], NULL,
					 i == 0 ? race_writer :
					 i == 1 ? race_pusher : race_reader, r);

		if (err)
			die("cannot start a thread: %s", strerror(err));
	}
	while (i)
		pthread_join(threads[--i], NULL);

	buf = locked_alloc(RACE_BYTES);
	race_read(r, buf, 0, RACE_UNITS, false);
	unlink(r->path);
}

/* ------------------------------------------------- anonymous memory */

/* words of a page that a compressor cannot shrink; it can shrink the rest */
#define DENSE_WORDS	96u
#define PAGE_WORDS	(PAGE / 8)

struct space {
	const char *name;
	u8 *map;
	u32 pages;
	u64 key;
	u32 *version;		/* of each page; 0 is the page of zeros */
	bool is_shared;
};

static u64 anon_base(const struct space *s, u32 page, u32 version)
{
	return mix64(s->key ^ (u64)page * 0xff51afd7ed558ccdULL ^
		     (u64)version * 0xc4ceb9fe1a85ec53ULL);
}

/* The step between the first words, and the content of the others. */
static u64 anon_shape(u64 *base, u32 version, u64 *rest)
{
	switch (version ? *base >> 61 : 0) {
	case 0:
		*base = 0;
		*rest = 0;
		return 0;
	case 1:		/* one word all over, as swap likes it */
		*rest = *base;
		return 0;
	default:
		*rest = ~*base;
		return STREAM_STEP;
	}
}

static void anon_fill(const struct space *s, u32 page, u32 version)
{
	u64 base = anon_base(s, page, version), rest, step, v;
	word *w = (word *)(s->map + (size_t)page * PAGE);
	u32 i;

	step = anon_shape(&base, version, &rest);
	for (v = base, i = 0; i < DENSE_WORDS; i++, v += step)
		w[i] = v;
	for (; i < PAGE_WORDS; i++)
		w[i] = rest;
}

/* Returns the first wrong word of a page, or -1. */
static int anon_compare(const struct space *s, u32 page, u64 *expected,
			u64 *got)
{
	u32 version = s->version[page], i;
	u64 base = anon_base(s, page, version), rest, step, v;
	const word *w = (const word *)(s->map + (size_t)page * PAGE);

	step = anon_shape(&base, version, &rest);
	for (v = base, i = 0; i < PAGE_WORDS; i++, v += step) {
		u64 want = i < DENSE_WORDS ? v : rest, is = w[i];

		if (is == want)
			continue;
		*expected = want;
		*got = is;
		return (int)i;
	}
	return -1;
}

static void anon_wrong(const struct space *s, u32 page, int at, u64 expected,
		       u64 got, const char *who)
{
	struct json j = json_line("wrong");
	char text[96] = "unknown";
	u32 p, back;

	if (!got)
		snprintf(text, sizeof(text), "zeros");
	for (p = 0; got && p < s->pages; p++) {
		for (back = 0; back < 64 && back < s->version[p]; back++) {
			u32 version = s->version[p] - back;
			u64 base = anon_base(s, p, version), rest, step;

			step = anon_shape(&base, version, &rest);
			if (got == ((u32)at < DENSE_WORDS ?
				    base + (u64)at * step : rest))
				snprintf(text, sizeof(text),
					 "page %u version %u", p, version);
		}
	}
	json_str(&j, "where", s->name);
	json_str(&j, "who", who);
	json_u64(&j, "page", page);
	json_u64(&j, "version", s->version[page]);
	json_s64(&j, "word", at);
	json_hex(&j, "expected", expected);
	json_hex(&j, "got", got);
	json_str(&j, "got_is", text);
	json_end(&j);
	fail(&shared->anon_wrong);
}

static bool anon_verify(const struct space *s, u32 first, u32 n,
			const char *who)
{
	bool ok = true;
	u32 p;

	for (p = first; p < first + n; p++) {
		u64 expected, got;
		int at = anon_compare(s, p, &expected, &got);

		if (at >= 0) {
			anon_wrong(s, p, at, expected, got, who);
			anon_fill(s, p, s->version[p]);
			ok = false;
		}
	}
	count(&shared->bytes_verified, (u64)n * PAGE);
	return ok;
}

/* A child sees its parent's memory as it was at the fork. */
static pid_t anon_fork(const struct space *s, struct rng *rng)
{
	pid_t pid = fork();
	u32 i, k, round;

	if (pid) {
		if (pid > 0)
			count(&shared->forks, 1);
		return pid;
	}
	for (round = 0; round < 16; round++) {
		u32 n = 1 + rng_below(rng, min_u32(32, s->pages));
		u32 first = rng_below(rng, s->pages - n + 1);

		if (!anon_verify(s, first, n, "child"))
			_exit(1);
		for (i = 0; i < n; i += 4) {
			k = ++s->version[first + i];
			anon_fill(s, first + i, k);
		}
		if (rng_one_in(rng, 2))
			madvise(s->map + (size_t)first * PAGE,
				(size_t)n * PAGE, MADV_PAGEOUT);
		if (!anon_verify(s, first, n, "child"))
			_exit(1);
	}
	_exit(0);
}

static void anon_reap(pid_t *child, int flags)
{
	int status;

	if (*child > 0 && waitpid(*child, &status, flags) == *child) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			die("a child died of signal %d", WTERMSIG(status));
		*child = 0;
	}
}

static void space_make(struct space *s, const char *name, u32 mib, u32 id,
		       bool is_shared)
{
	s->name = name;
	s->pages = (u32)((u64)mib * MIB / opt.anon_workers / PAGE);
	s->key = mix64(opt.seed ^ ((u64)id << 40) ^ is_shared ^ 0x616e6f6e);
	s->is_shared = is_shared;
	if (!s->pages)
		return;
	s->version = locked_alloc(s->pages * sizeof(*s->version));
	s->map = mmap(NULL, (size_t)s->pages * PAGE, PROT_READ | PROT_WRITE,
		      (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS,
		      -1, 0);
	if (s->map == MAP_FAILED)
		die("cannot map %u MiB", mib);
	if (opt.thp && !is_shared)
		madvise(s->map, (size_t)s->pages / 2 * PAGE, MADV_HUGEPAGE);
}

static void anon_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 5000 + id);
	struct space spaces[2] = { { 0 } };
	pid_t child = 0;
	u32 i;
	u64 n;

	space_make(&spaces[0], "anon", opt.anon_mib, id, false);
	space_make(&spaces[1], "shmem", opt.shmem_mib, id, true);
	if (!spaces[0].pages && !spaces[1].pages)
		return;

	for (n = 0; !stopping() && (!opt.ops || n < opt.ops); n++) {
		struct space *s = &spaces[rng_below(&rng, 4) == 0];
		u32 what = rng_below(&rng, 100), len, first;
		size_t bytes;
		u8 *at;

		if (!s->pages)
			s = &spaces[!s->is_shared];
		len = 1 + rng_below(&rng, 1u << rng_below(&rng, 8));
		len = min_u32(len, s->pages);
		first = rng_below(&rng, s->pages - len + 1);
		at = s->map + (size_t)first * PAGE;
		bytes = (size_t)len * PAGE;

		if (what < 35) {
			anon_verify(s, first, len, "owner");
		} else if (what < 60) {
			if (rng_one_in(&rng, 2))
				anon_verify(s, first, len, "owner");
			for (i = first; i < first + len; i++)
				anon_fill(s, i, ++s->version[i]);
		} else if (what < 65) {
			/* shared memory loses its content only when removed */
			if (s->is_shared && rng_one_in(&rng, 2)) {
				madvise(at, bytes, MADV_DONTNEED);
			} else if (!madvise(at, bytes, s->is_shared ?
					    MADV_REMOVE : MADV_DONTNEED)) {
				memset(&s->version[first], 0,
				       len * sizeof(*s->version));
			}
			anon_verify(s, first, len, "owner");
		} else if (what < 88) {
			madvise(at, bytes, MADV_PAGEOUT);
			if (rng_one_in(&rng, 2))
				anon_verify(s, first, len, "owner");
			else if (rng_one_in(&rng, 2))
				for (i = first; i < first + len; i += 2)
					anon_fill(s, i, ++s->version[i]);
		} else if (what < 92) {
			madvise(at, bytes, MADV_WILLNEED);
		} else if (what < 94 && spaces[0].pages) {
			anon_reap(&child, WNOHANG);
			if (!child)
				child = anon_fork(&spaces[0], &rng);
		} else {
			anon_verify(s, first, len, "owner");
		}
		count(&shared->anon_ops, 1);
	}
	anon_reap(&child, 0);
	for (i = 0; i < 2; i++)
		if (spaces[i].pages)
			anon_verify(&spaces[i], 0, spaces[i].pages, "final");
}

/* Allocates memory, uses it and gives it back, again and again. */
static void hog_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 6000 + id);
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "1000", 4);
		close(fd);
	}
	while (!stopping()) {
		u32 pages = (u32)((u64)opt.hog_mib * MIB / PAGE *
				  (50 + rng_below(&rng, 51)) / 100), i;
		u64 tag = rng_next(&rng);
		/* with more than is free, the OOM killer ends it */
		u8 *p = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			die("cannot map %u MiB for the hog", opt.hog_mib);
		for (i = 0; i < pages && (i % 256 || !stopping()); i++)
			*(word *)(p + (size_t)i * PAGE) = tag + i;
		pages = i;
		for (i = 0; i < 50 && !stopping(); i++)
			sleep_ms(rng_below(&rng, 10));
		for (i = 0; i < pages && (i % 256 || !stopping()); i++) {
			u64 got = *(word *)(p + (size_t)i * PAGE);

			if (got != tag + i) {
				struct json j = json_line("wrong");

				json_str(&j, "where", "hog");
				json_u64(&j, "page", i);
				json_hex(&j, "expected", tag + i);
				json_hex(&j, "got", got);
				json_end(&j);
				fail(&shared->anon_wrong);
			}
		}
		munmap(p, (size_t)pages * PAGE);
		count(&shared->hog_waves, 1);
		for (i = 0; i < 50 && !stopping(); i++)
			sleep_ms(rng_below(&rng, 20));
	}
}

/* --------------------------------------------------- contiguous memory */

struct piece {
	struct cma_bench_op op;
	bool folio;
};

static void cma_wrong(const char *what, const struct cma_bench_op *o)
{
	struct json j = json_line("wrong");

	json_str(&j, "where", "cma");
	json_str(&j, "what", what);
	json_u64(&j, "pfn", o->pfn);
	json_u64(&j, "pages", o->pages);
	json_u64(&j, "bad_words", o->bad);
	json_end(&j);
	fail(&shared->cma_wrong);
}

/* Pages that were in use all the time cannot be part of an allocation. */
static void pins_verify(const struct cma_bench_op *o)
{
	u32 i;

	for (i = 0; i < opt.alloc_workers; i++) {
		u64 pfn = atomic_load(&shared->pinned[i]);

		if (pfn && pfn >= o->pfn && pfn < o->pfn + o->pages)
			cma_wrong("a pinned page was handed out", o);
	}
}

static void pin(int fd, u32 id, const struct piece *p, struct rng *rng)
{
	struct cma_bench_op o = { .pages = 1, .pfn = p->op.pfn };

	/* the head of a folio has the references */
	if (!p->folio)
		o.pfn += rng_below(rng, (u32)p->op.pages);
	if (ioctl(fd, CMA_BENCH_PIN, &o))
		die("cannot pin a page: %s", strerror(errno));
	atomic_store(&shared->pinned[id], o.pfn);
	count(&shared->cma_pins, 1);
}

static void unpin(int fd, u32 id)
{
	struct cma_bench_op o = {
		.pages = 1, .pfn = atomic_exchange(&shared->pinned[id], 0),
	};

	if (o.pfn && ioctl(fd, CMA_BENCH_UNPIN, &o))
		die("cannot unpin a page: %s", strerror(errno));
}

static void alloc_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 7000 + id);
	struct piece live[LIVE_MAX], asked = { 0 };
	bool again = false, crowded = false;
	u32 n = 0, pages = 0;
	int fd = open("/dev/cma_bench", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("cannot open /dev/cma_bench: %s (a kernel with it is needed for --alloc)",
		    strerror(errno));
	while (!stopping() || n) {
		bool want = !stopping() && !crowded && n < opt.alloc_pieces &&
			    rng_below(&rng, 3);
		struct piece p = { 0 };
		struct cma_bench_op *o = &p.op;

		if (opt.alloc_pins && rng_one_in(&rng, 4))
			unpin(fd, id);
		o->pages = 1 + rng_below(&rng, 1u << rng_below(&rng, 16));
		o->align = rng_below(&rng, 5);
		o->seed = rng_next(&rng);
		if (o->pages > opt.alloc_max_pages)
			o->pages = opt.alloc_max_pages;
		p.folio = opt.alloc_pins && o->pages > 1 && rng_one_in(&rng, 4);
		while (p.folio && o->pages & (o->pages - 1))
			o->pages &= o->pages - 1;
		if (again)
			p = asked;
		if (want && pages + o->pages <= opt.alloc_live) {
			asked = p;
			if (!again)
				count(&shared->cma_allocs, 1);
			if (ioctl(fd, p.folio ? CMA_BENCH_ALLOC_FOLIO :
						CMA_BENCH_ALLOC, o)) {
				/*
				 * The held pieces can be scattered so that no
				 * range is long enough. Without any there is.
				 */
				again = n > 0;
				crowded = again;
				if (!again)
					count(&shared->cma_failed, 1);
				sleep_ms(1);
				continue;
			}
			again = false;
			pins_verify(o);
			if (o->ns > atomic_load(&shared->cma_worst_ns))
				atomic_store(&shared->cma_worst_ns, o->ns);
			if (ioctl(fd, CMA_BENCH_FILL, o))
				die("cannot fill an allocation: %s",
				    strerror(errno));
			pages += (u32)o->pages;
			live[n++] = p;
			sleep_ms(rng_below(&rng, 20));
		} else if (n) {
			u32 i = rng_below(&rng, n);

			crowded = false;
			p = live[i];
			live[i] = live[--n];
			if (ioctl(fd, CMA_BENCH_CHECK, o))
				die("cannot check an allocation: %s",
				    strerror(errno));
			if (o->bad)
				cma_wrong("somebody wrote to it", o);
			if (opt.alloc_pins && !shared->pinned[id] &&
			    rng_one_in(&rng, 2))
				pin(fd, id, &p, &rng);
			if (ioctl(fd, p.folio ? CMA_BENCH_FREE_FOLIO :
						CMA_BENCH_RELEASE, o))
				die("cannot release an allocation: %s",
				    strerror(errno));
			pages -= (u32)o->pages;
		}
	}
	unpin(fd, id);
	close(fd);
}

/* ------------------------------------------------------- the conductor */

struct worker {
	const char *name;
	void (*run)(u32 id);
	u32 id;
	pid_t pid;
	int nice;
	bool may_die;
};

static struct worker workers[WORKERS_MAX];
static u32 nr_workers;

static void worker_start(struct worker *w)
{
	w->pid = fork();
	if (w->pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (w->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGBUS, sigbus);
	signal(SIGTERM, SIG_DFL);
	/* file workers wait for disks and must not starve beside the others */
	if (w->nice && nice(w->nice) == -1)
		note("cannot lower the priority of %s", w->name);
	w->run(w->id);
	/* exit() would make every child flush the parent's buffers */
	_exit(0);
}

static void worker_add(const char *name, void (*run)(u32), u32 n, int priority,
		       bool may_die)
{
	u32 i;

	for (i = 0; i < n; i++) {
		struct worker *w = &workers[nr_workers++];

		if (nr_workers > WORKERS_MAX)
			die("more than %d workers", WORKERS_MAX);
		w->name = name;
		w->run = run;
		w->id = i;
		w->nice = priority;
		w->may_die = may_die;
	}
}

static void on_term(int sig)
{
	(void)sig;
	atomic_store(&shared->stop, 1);
}

static u64 total_wrong(void)
{
	return shared->wrong + shared->direct_stale + shared->anon_wrong +
	       shared->cma_wrong;
}

static void totals(struct json *j, u64 elapsed)
{
	json_milli(j, "seconds", elapsed / NSEC_PER_MSEC);
	json_u64(j, "ops", shared->file_ops + shared->race_ops +
			   shared->anon_ops);
	json_u64(j, "file_ops", shared->file_ops);
	json_u64(j, "race_ops", shared->race_ops);
	json_u64(j, "anon_ops", shared->anon_ops);
	json_u64(j, "bytes_verified", shared->bytes_verified +
				      shared->races_verified);
	json_u64(j, "paged_out", shared->paged_out);
	json_u64(j, "race_paged_out", shared->race_paged_out);
	json_u64(j, "wrong", shared->wrong);
	json_u64(j, "direct_stale", shared->direct_stale);
	json_u64(j, "anon_wrong", shared->anon_wrong);
	json_u64(j, "cma_allocs", shared->cma_allocs);
	json_u64(j, "cma_failed", shared->cma_failed);
	json_u64(j, "cma_wrong", shared->cma_wrong);
	json_u64(j, "cma_pins", shared->cma_pins);
}

/* Collect workers that ended; returns how many are left. */
static u32 reap(bool *failed)
{
	u32 i, left = 0;

	for (i = 0; i < nr_workers; i++) {
		struct worker *w = &workers[i];
		int status;

		if (!w->pid)
			continue;
		if (waitpid(w->pid, &status, WNOHANG) != w->pid) {
			left++;
			continue;
		}
		w->pid = 0;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		if (w->may_die && WIFSIGNALED(status) && !stopping()) {
			worker_start(w);
			left++;
			continue;
		}
		if (w->may_die && WIFSIGNALED(status))
			continue;
		*failed = true;
		atomic_store(&shared->stop, 1);
		if (WIFSIGNALED(status))
			note("%s worker %u died of signal %d%s", w->name, w->id,
			     WTERMSIG(status), WTERMSIG(status) == SIGKILL ?
			     " (out of memory?)" : "");
	}
	return left;
}

static void parse_skip(const char *list)
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

static void parse_until(const char *list)
{
	char *copy = strdup(list), *name, *save = NULL;

	for (name = strtok_r(copy, ",", &save); name;
	     name = strtok_r(NULL, ",", &save)) {
		char *growth = strchr(name, '=');

		if (!growth)
			die("--until wants NAME=N, not '%s'", name);
		if (nr_goals == sizeof(goals) / sizeof(goals[0]))
			die("--until has too many counters");
		*growth++ = '\0';
		goals[nr_goals++] = (struct goal){
			.counter = name,
			.growth = parse_u32("until", growth),
		};
	}
	/* not freed: the names are in it */
}

static const struct setting settings[] = {
	{ "dir", .text = &opt.dir },
	{ "file-mib", .number = &opt.file_mib },
	{ "file-max-kib", .number = &opt.file_max_kib },
	{ "file-workers", .number = &opt.file_workers },
	{ "races", .number = &opt.races },
	{ "anon-mib", .number = &opt.anon_mib },
	{ "shmem-mib", .number = &opt.shmem_mib },
	{ "anon-workers", .number = &opt.anon_workers },
	{ "thp", .flag = &opt.thp },
	{ "hog-mib", .number = &opt.hog_mib },
	{ "alloc", .flag = &opt.alloc },
	{ "alloc-max-pages", .number = &opt.alloc_max_pages },
	{ "alloc-live", .number = &opt.alloc_live },
	{ "alloc-workers", .number = &opt.alloc_workers },
	{ "alloc-pieces", .number = &opt.alloc_pieces },
	{ "alloc-pins", .flag = &opt.alloc_pins },
	{ "drop-caches", .flag = &opt.drop_caches },
	{ "skip", .call = parse_skip },
	{ "seconds", .number = &opt.seconds },
	{ "until", .call = parse_until },
	{ "until-exists", .text = &opt.until_exists },
	{ "ops", .large = &opt.ops },
	{ "keep-going", .flag = &opt.keep_going },
	{ "seed", .large = &opt.seed },
	{ 0 },
};

static void parse(int argc, char **argv)
{
	settings_parse(argc, argv, settings);
	if (!opt.alloc_max_pages)
		die("--alloc-max-pages must be at least 1");
	if (!opt.alloc_pieces || opt.alloc_pieces > LIVE_MAX)
		die("--alloc-pieces must be 1 to %d", LIVE_MAX);
	if (opt.alloc_pins && !gcma_present())
		die("--alloc-pins wants a guaranteed area: plain CMA complains");
	if (!opt.alloc_live)
		opt.alloc_live = opt.alloc_max_pages * 2;
	if (opt.file_max_kib < 64 || opt.file_max_kib > MIB)
		die("--file-max-kib must be 64 to %u", MIB);
}

/* Leave free space in the file system. */
static void check_dir(void)
{
	u32 room;
	struct statvfs vfs;

	if (!opt.dir)
		return;
	if (statvfs(opt.dir, &vfs))
		die("cannot use --dir %s: %s", opt.dir, strerror(errno));
	room = (u32)((u64)vfs.f_bavail * vfs.f_frsize / MIB * 85 / 100);
	if (opt.file_mib > room) {
		note("%s has room for %u MiB, not %u", opt.dir, room,
		     opt.file_mib);
		opt.file_mib = room;
	}
	if (opt.file_workers && opt.file_mib < opt.file_workers)
		die("%s is too small", opt.dir);
}

static u64 counter(const struct fields *vmstat, const char *name)
{
	u64 value;

	if (!strcmp(name, "cma_allocs"))
		return shared->cma_allocs;
	if (!strcmp(name, "cma_pins"))
		return shared->cma_pins;
	if (!fields_get(vmstat, name, &value))
		die("--until: there is no counter '%s'", name);
	return value;
}

/* Describe the first goal that is not reached; NULL if all are. */
static const char *missing(void)
{
	static struct fields after;
	static char text[128];
	u32 i;

	fields_read_vmstat(&after);
	for (i = 0; i < nr_goals; i++) {
		const struct goal *g = &goals[i];
		u64 grown = counter(&after, g->counter) - g->from;

		if (grown < g->growth) {
			snprintf(text, sizeof(text), "%s has grown by %" PRIu64
				 " of %" PRIu64, g->counter, grown, g->growth);
			return text;
		}
	}
	if (opt.until_exists && access(opt.until_exists, F_OK)) {
		snprintf(text, sizeof(text), "there is no %s",
			 opt.until_exists);
		return text;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct fields gcma[2], vm[2];
	u64 start, tick, next_drop, now;
	const char *waits_for;
	bool failed = false;
	struct rng rng;
	struct json j;
	u32 i, left;

	parse(argc, argv);
	check_dir();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("out of memory");
	mlock(shared, sizeof(*shared));
	signal(SIGTERM, on_term);
	signal(SIGINT, on_term);
	rng = rng_make(opt.seed, 0);

	if (opt.dir) {
		worker_add("file", file_worker, opt.file_workers, 0, false);
		worker_add("race", race_worker, opt.races, 8, false);
	}
	worker_add("anon", anon_worker, opt.anon_workers, 4, false);
	if (opt.hog_mib)
		worker_add("hog", hog_worker, 1, 8, true);
	if (opt.alloc)
		worker_add("alloc", alloc_worker, opt.alloc_workers, 0, false);

	fields_read_vmstat(&vm[0]);
	fields_read_gcma(&gcma[0]);
	for (i = 0; i < nr_goals; i++)
		goals[i].from = counter(&vm[0], goals[i].counter);
	start = now_ns();
	tick = start;
	next_drop = start + 5 * NSEC_PER_SEC;
	for (i = 0; i < nr_workers; i++)
		worker_start(&workers[i]);

	for (;;) {
		u32 busy = 0;

		left = reap(&failed);
		if (!left)
			break;
		now = now_ns();
		waits_for = NULL;
		if (now - start >= opt.seconds * NSEC_PER_SEC &&
		    !stopping()) {
			waits_for = missing();
			if (!waits_for)
				atomic_store(&shared->stop, 1);
		}
		/* with --ops, do not wait for workers that never end */
		for (i = 0; i < nr_workers; i++)
			busy += workers[i].pid && workers[i].run != hog_worker &&
				workers[i].run != alloc_worker;
		if (!busy && opt.ops)
			atomic_store(&shared->stop, 1);
		if (opt.drop_caches && now >= next_drop && !stopping()) {
			int fd = open("/proc/sys/vm/drop_caches",
				      O_WRONLY | O_CLOEXEC);
			char what = (char)('1' + rng_below(&rng, 3));

			if (fd >= 0) {
				(void)!write(fd, &what, 1);
				close(fd);
			}
			next_drop = now + (10 + rng_below(&rng, 20)) *
				    NSEC_PER_SEC;
		}
		if (now - tick >= TICK_NS) {
			tick = now;
			j = json_line("oracle_tick");
			totals(&j, now - start);
			json_u64(&j, "workers", left);
			json_end(&j);
			if (waits_for)
				note("the time is over, but %s", waits_for);
		}
		sleep_ms(50);
	}
	now = now_ns();
	fields_read_vmstat(&vm[1]);
	fields_read_gcma(&gcma[1]);

	j = json_line("oracle");
	json_u64(&j, "seed", opt.seed);
	totals(&j, now - start);
	json_u64(&j, "files_at_end", shared->final_files);
	json_u64(&j, "races_verified", shared->races_verified);
	json_u64(&j, "io_errors", shared->io_errors);
	json_u64(&j, "nospace", shared->nospace);
	json_u64(&j, "unknown_ranges", shared->unknown);
	json_u64(&j, "forks", shared->forks);
	json_u64(&j, "hog_waves", shared->hog_waves);
	json_u64(&j, "cma_worst_ns", shared->cma_worst_ns);
	json_deltas(&j, "vmstat_delta", &vm[0], &vm[1], pressure_fields);
	json_fields(&j, "gcma_before", &gcma[0]);
	json_fields(&j, "gcma_after", &gcma[1]);

	if (total_wrong() || shared->io_errors)
		failed = true;
	json_bool(&j, "ok", !failed);
	json_end(&j);
	return failed;
}
