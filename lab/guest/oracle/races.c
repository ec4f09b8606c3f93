// SPDX-License-Identifier: MIT OR Apache-2.0
/* Files that one thread changes while others read them and push them out. */
#include "oracle.h"

#include <linux/falloc.h>
#include <pthread.h>

#define UNIT		256u
#define RACE_UNITS	1024u
#define RACE_BYTES	(RACE_UNITS * UNIT)
#define RACE_READERS	2
/* Versions of each unit among which a report looks for a wrong word. */
#define VERSIONS_KNOWN	2048u

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
	_Atomic u32 direct_begun, direct_done;
};

static u32 race_tag(u32 u, u32 stamp)
{
	u32 kind = stamp & 7;

	if (kind != RACE_DIRECT && kind != RACE_BUFFERED)
		return TAG_ZERO;
	return (u32)(mix64((u64)u << 32 | stamp) | 1);
}

static u64 race_key(u32 id)
{
	return mix64(opt.seed ^ ((u64)id << 40) ^ 0x72616365);
}

/* Of which file, unit and version is a word from this place of a unit? */
static void race_origin(struct json *j, const char *name, u32 off, u64 got)
{
	u64 left = got ? (u64)opt.races * RACE_UNITS * VERSIONS_KNOWN : 0;
	char text[64];

	snprintf(text, sizeof(text), got ? "unknown" : "zeros");
	while (left--) {
		u32 version = left % VERSIONS_KNOWN;
		u32 u = left / VERSIONS_KNOWN % RACE_UNITS;
		u32 id = (u32)(left / VERSIONS_KNOWN / RACE_UNITS), kind;

		for (kind = RACE_DIRECT; kind <= RACE_BUFFERED; kind++)
			if (stream_word(race_key(id),
					race_tag(u, version << 3 | kind),
					off % UNIT) == got)
				snprintf(text, sizeof(text),
					 "file %u, unit %u, version %u (%s)",
					 id, u, version, race_kinds[kind]);
	}
	json_str(j, name, text);
}

/* The word that is there now; 0 if there is none. */
static u64 race_word(int fd, u32 off)
{
	u8 *buf = locked_alloc(PAGE);
	u32 from = round_down(off, PAGE);
	u64 word = 0;

	/* where a read ended early need not be a word's place */
	off = round_down(off, sizeof(word));
	if (pread(fd, buf, PAGE, from) == PAGE)
		memcpy(&word, buf + (off - from), sizeof(word));
	munmap(buf, PAGE);
	return word;
}

static void race_wrong(struct race *r, const char *how, u32 off, u32 lo, u32 hi,
		       u64 got)
{
	u32 u = off / UNIT;
	/* the writer goes on: these may be newer than @hi */
	u64 again = race_word(r->fd, off);
	u64 disk = r->direct ? race_word(r->direct_fd, off) : again;
	struct json j = json_line("wrong");

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
	race_origin(&j, "got_is", off, got);
	race_origin(&j, "read_again", off, again);
	race_origin(&j, "direct_read", off, disk);
	json_end(&j);
	fail(&shared->direct_stale);
}

/* Is each byte from one version or from the next? Words may be mixed of both. */
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

/* @directs: how many direct writes had ended before this was read. */
static void race_compare(struct race *r, const char *how, const u8 *buf,
			 u32 first, u32 len, const u32 *lo, u32 directs)
{
	u32 i, u, n;
	u64 got;
	s64 bad;

	atomic_thread_fence(memory_order_seq_cst);
	if (opt.lax_direct && directs != atomic_load(&r->direct_begun))
		return;
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
	}
}

static void race_read(struct race *r, u8 *buf, u32 first, u32 units, bool map)
{
	u32 lo[RACE_UNITS], i, cuts, directs, len = units * UNIT;
	u32 off = first * UNIT, from = round_down(off, PAGE);
	s64 n;
	u8 *p;

	cuts = atomic_load(&r->cut_done);
	directs = atomic_load(&r->direct_done);
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
		race_compare(r, "mmap", buf, first, len, lo, directs);
		return;
	}
	n = pread_all(r->fd, buf, len, off);
	if (n < 0) {
		count(&shared->io_errors, 1);
		return;
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (n < len && cuts == atomic_load(&r->cut_begun))
		race_wrong(r, "read ended early", off + (u32)n, lo[0], lo[0],
			   (u64)n);
	race_compare(r, "read", buf, first, (u32)n, lo, directs);
}

static void *race_reader(void *arg)
{
	static _Atomic u32 next;
	struct race *r = arg;
	u32 nr = atomic_fetch_add(&next, 1);
	struct rng rng = rng_make(opt.seed, 3000 + r->id * 10 + nr);
	u8 *buf = locked_alloc(RACE_BYTES);
	u64 i;

	for (i = 0; !stopping(); i++) {
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

	while (!stopping()) {
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
			/* the same result on every file system: write zeros */
			memset(buf, 0, units * UNIT);
			if (pwrite_all(r->fd, buf, units * UNIT,
				       first * UNIT) != units * UNIT)
				die("cannot write %s: %s", r->path,
				    strerror(errno));
			break;
		case RACE_DIRECT:
			atomic_fetch_add(&r->direct_begun, 1);
			race_write(r, buf, first, units, kind);
			atomic_fetch_add(&r->direct_done, 1);
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

	while (!stopping()) {
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

void race_worker(u32 id)
{
	struct race *r = xalloc(sizeof(*r));
	pthread_t threads[RACE_READERS + 2];
	u8 *buf = locked_alloc(PAGE);
	u32 i;

	r->id = id;
	r->truncates = id & 1;
	r->key = race_key(id);
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
