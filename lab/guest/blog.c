// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * blog - a busy server of blogs, as the load behind an experiment
 *
 * A blog is a directory with articles, pictures and comments: small files, of
 * which there are many. Writers begin new blogs, which take the place of the
 * oldest ones when there are enough; rewriters replace articles and pictures;
 * commenters add comments, the newest in place of the oldest; readers ask for
 * anything, at random, and now and then for what is not there. Every blog is
 * as likely as any other. Files are written in pieces of 8 KiB under another
 * name and renamed, and read in pieces of 64 KiB, as web servers did.
 *
 * This is what Blogbench does (F. Denis), with two differences: the number of
 * files is bounded, so that a run is the same from beginning to end, and the
 * server has memory of its own, part of which each answer takes.
 *
 * Each page of a file begins with a word that tells which page of which file
 * it is. Readers look at it.
 *
 *   --dir D          where the blogs are; must exist
 *   --blogs N        how many there are (256), 2.6 MiB each on average
 *   --prepare        write all of them and end
 *   --writers N      (3)
 *   --commenters N   (5)
 *   --readers N      (100)
 *   --pause-ms N     of each reader after an answer (0)
 *   --heap-mib N     memory of the server (0)
 *   --seconds N      (60), or until SIGTERM
 *   --nice N         (0)
 *   --seed N         (1)
 *
 * Prints a line {"type":"blog_tick"} each second and {"type":"blog"} at the
 * end. "reads" and "writes" count pieces, as the scores of Blogbench do.
 */
#include "options.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE		4096u
#define WRITE_PIECE	8192u
#define READ_PIECE	65536u
#define BLOGS_MAX	65536u
#define THREADS_MAX	256u
#define STACK_BYTES	(128u * 1024)
/* how long writers and commenters, and rewriters, wait between two works */
#define PAUSE_MS	10
#define REWRITE_PAUSE_MS	1000
#define REWRITERS	1
/* one request of so many is for something that is not there */
#define WRONG_ADDRESS	16
#define TOUCHES		4	/* pages of the heap for each answer */

enum kind { ARTICLE, PICTURE, COMMENT, KINDS };

static const struct {
	const char *name;
	u32 most, min_bytes, max_bytes;
} kinds[KINDS] = {
	[ARTICLE] = { "article", 100, 1024, 32768 },
	[PICTURE] = { "picture", 100, 8192, 65536 },
	[COMMENT] = { "comment", 32, 2048, 10240 },
};

static struct {
	const char *dir;
	u32 blogs, writers, commenters, readers;
	u32 pause_ms, heap_mib, seconds;
	int nice;
	u64 seed;
	bool prepare;
} opt = {
	.blogs = 256, .writers = 3, .commenters = 5, .readers = 100,
	.seconds = 60, .seed = 1,
};

/* How many files of each kind a blog has; 0 articles: it is being made. */
static _Atomic u32 files[BLOGS_MAX][KINDS];
static _Atomic u32 next_blog;
static _Atomic u32 stop;
static _Atomic u64 reads, read_bytes, writes, missing, errors, heap_touches;
static u8 *heap;
static _Thread_local u32 self;

static bool stopping(void)
{
	return atomic_load_explicit(&stop, memory_order_relaxed);
}

static void count(_Atomic u64 *counter, u64 n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void blog_error(const char *what, const char *path, int err)
{
	struct json j = json_line("blog_error");

	json_str(&j, "what", what);
	json_str(&j, "file", path);
	if (err)
		json_str(&j, "error", strerror(err));
	json_end(&j);
	count(&errors, 1);
}

/* --------------------------------------------------------------- files */

static void file_path(char *path, size_t size, u32 blog, enum kind kind,
		      u32 number)
{
	snprintf(path, size, "%s/blog-%u/%s-%u", opt.dir, blog,
		 kinds[kind].name, number);
}

/* The first word of a page of a file, whoever wrote it when. */
static u64 page_word(u32 blog, enum kind kind, u32 number, u32 page)
{
	return mix64((u64)blog << 32 | (u64)kind << 24 | number << 12 | page);
}

/*
 * Text that compresses as text does, a picture that hardly compresses. Only
 * the word at the begin of a page says where it belongs.
 */
static void piece_fill(u8 *buf, u32 bytes, u64 first, enum kind kind)
{
	word *w = (word *)buf;
	u64 v = first;
	u32 i;

	for (i = 0; i < bytes / 8; i++, v = v * 5 + 1)
		w[i] = kind == PICTURE || i % 4 == 0 ? v : first;
}

static bool file_write(struct rng *rng, u32 blog, enum kind kind, u32 number)
{
	u32 range = kinds[kind].max_bytes - kinds[kind].min_bytes;
	u32 bytes = kinds[kind].min_bytes + rng_below(rng, range + 1), at;
	u8 __attribute__((aligned(8))) buf[WRITE_PIECE];
	char path[256], temp[272];
	int fd;

	file_path(path, sizeof(path), blog, kind, number);
	/* one of its own: who empties that of another leaves a hole in the file */
	snprintf(temp, sizeof(temp), "%s.tmp%u", path, self);
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		/* the blog went away meanwhile */
		if (errno != ENOENT)
			blog_error("create", temp, errno);
		return false;
	}
	for (at = 0; at < bytes; at += WRITE_PIECE) {
		u32 n = bytes - at < WRITE_PIECE ? bytes - at : WRITE_PIECE, i;

		piece_fill(buf, WRITE_PIECE, rng_next(rng), kind);
		for (i = 0; i < WRITE_PIECE; i += PAGE)
			*(word *)(buf + i) = page_word(blog, kind, number,
						       (at + i) / PAGE);
		if (write(fd, buf, n) != (ssize_t)n) {
			blog_error("write", temp, errno);
			break;
		}
		count(&writes, 1);
	}
	close(fd);
	if (at < bytes)
		return false;
	if (rename(temp, path)) {
		if (errno != ENOENT)
			blog_error("rename", temp, errno);
		return false;
	}
	return true;
}

static void file_read(u8 *buf, u32 blog, enum kind kind, u32 number)
{
	char path[256];
	u32 page = 0;
	ssize_t n, i;
	int fd;

	file_path(path, sizeof(path), blog, kind, number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		if (errno != ENOENT)
			blog_error("open", path, errno);
		count(&missing, 1);
		return;
	}
	while ((n = read(fd, buf, READ_PIECE)) > 0) {
		for (i = 0; i < n; i += PAGE, page++) {
			if (n - i >= (ssize_t)sizeof(word) &&
			    *(word *)(buf + i) !=
			    page_word(blog, kind, number, page))
				blog_error("wrong content", path, 0);
		}
		count(&reads, 1);
		count(&read_bytes, (u64)n);
	}
	if (n < 0)
		blog_error("read", path, errno);
	close(fd);
}

/* --------------------------------------------------------------- blogs */

static void blog_remove(u32 blog)
{
	u32 n[KINDS], kind, i;
	char path[256];

	for (kind = 0; kind < KINDS; kind++)
		n[kind] = atomic_exchange(&files[blog][kind], 0);
	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < n[kind]; i++) {
			file_path(path, sizeof(path), blog, kind, i);
			unlink(path);
		}
	}
}

/* A new blog has no comments, unless it plays one that is not new. */
static void blog_make(struct rng *rng, u32 blog, enum kind last)
{
	u32 n[KINDS] = { 0 }, kind, i;
	char path[256];

	blog_remove(blog);
	snprintf(path, sizeof(path), "%s/blog-%u", opt.dir, blog);
	if (mkdir(path, 0700) && errno != EEXIST)
		blog_error("mkdir", path, errno);
	for (kind = ARTICLE; kind <= last; kind++) {
		n[kind] = 1 + rng_below(rng, kinds[kind].most);
		for (i = 0; i < n[kind] && !stopping(); i++)
			file_write(rng, blog, kind, i);
		n[kind] = i;
	}
	for (kind = KINDS; kind-- > 0;)
		atomic_store(&files[blog][kind], n[kind]);
}

/* A blog with articles, or BLOGS_MAX. */
static u32 blog_pick(struct rng *rng)
{
	u32 tries;

	for (tries = 0; tries < 64; tries++) {
		u32 blog = rng_below(rng, opt.blogs);

		if (atomic_load(&files[blog][ARTICLE]))
			return blog;
	}
	return BLOGS_MAX;
}

/*
 * What --prepare made, counted anew: a process that serves blogs knows nothing
 * of the one that wrote them.
 */
static void blogs_count(void)
{
	u32 blog, kind, n;
	char path[256];

	for (blog = 0; blog < opt.blogs; blog++) {
		for (kind = KINDS; kind-- > 0;) {
			for (n = 0; n < kinds[kind].most; n++) {
				file_path(path, sizeof(path), blog, kind, n);
				if (access(path, F_OK))
					break;
			}
			atomic_store(&files[blog][kind], n);
		}
	}
}

/* ------------------------------------------------------------- workers */

static void heap_touch(struct rng *rng)
{
	u32 pages = opt.heap_mib * (MIB / PAGE), i;

	for (i = 0; pages && i < TOUCHES; i++) {
		/* nine times out of ten what all answers need */
		u32 some = rng_below(rng, 10) ? pages / 4 : pages;
		word *w = (word *)(heap + (size_t)rng_below(rng, some) * PAGE);

		if (w[1] != mix64((u64)((u8 *)w - heap)))
			blog_error("wrong content", "heap", 0);
		w[0]++;
		count(&heap_touches, 1);
	}
}

static void heap_fill(void)
{
	u32 pages = opt.heap_mib * (MIB / PAGE), i;

	if (!pages)
		return;
	heap = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)heap == MAP_FAILED)
		die("cannot map %u MiB", opt.heap_mib);
	for (i = 0; i < pages; i++) {
		u8 *page = heap + (size_t)i * PAGE;

		/* objects of a program compress to a third or so */
		piece_fill(page, PAGE, mix64(i), ARTICLE);
		*((word *)page + 1) = mix64((u64)i * PAGE);
	}
}

static void writer(struct rng *rng)
{
	while (!stopping()) {
		blog_make(rng, atomic_fetch_add(&next_blog, 1) % opt.blogs,
			  PICTURE);
		sleep_ms(PAUSE_MS);
	}
}

static void rewriter(struct rng *rng)
{
	while (!stopping()) {
		u32 blog = blog_pick(rng), kind, n;

		for (kind = ARTICLE; blog < BLOGS_MAX && kind <= PICTURE;
		     kind++) {
			n = atomic_load(&files[blog][kind]);
			if (n)
				file_write(rng, blog, kind, rng_below(rng, n));
		}
		sleep_ms(REWRITE_PAUSE_MS);
	}
}

static void commenter(struct rng *rng)
{
	while (!stopping()) {
		u32 blog = blog_pick(rng), n;

		if (blog < BLOGS_MAX) {
			n = atomic_load(&files[blog][COMMENT]);
			if (n == kinds[COMMENT].most)
				file_write(rng, blog, COMMENT,
					   rng_below(rng, n));
			else if (file_write(rng, blog, COMMENT, n))
				atomic_compare_exchange_strong(
					&files[blog][COMMENT], &n, n + 1);
		}
		sleep_ms(PAUSE_MS);
	}
}

static void reader(struct rng *rng)
{
	u8 *buf = xalloc(READ_PIECE);

	while (!stopping()) {
		u32 blog = blog_pick(rng), kind = rng_below(rng, KINDS), n;

		if (blog == BLOGS_MAX) {
			sleep_ms(PAUSE_MS);
			continue;
		}
		heap_touch(rng);
		n = atomic_load(&files[blog][kind]);
		if (!n || rng_one_in(rng, WRONG_ADDRESS))
			n = kinds[kind].most + rng_below(rng, kinds[kind].most);
		else
			n = rng_below(rng, n);
		file_read(buf, blog, kind, n);
		sleep_ms(opt.pause_ms);
	}
}

/* ------------------------------------------------------- the conductor */

struct worker {
	pthread_t thread;
	void (*work)(struct rng *rng);
	struct rng rng;
};

static struct worker workers[THREADS_MAX];
static u32 nr_workers;

static void *run(void *arg)
{
	struct worker *w = arg;

	self = (u32)(w - workers);
	w->work(&w->rng);
	return NULL;
}

static void start(u32 n, void (*work)(struct rng *rng))
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (; n; n--) {
		struct worker *w = &workers[nr_workers];

		if (nr_workers == THREADS_MAX)
			die("more than %u workers", THREADS_MAX);
		w->work = work;
		w->rng = rng_make(opt.seed, 100 + nr_workers++);
		if (pthread_create(&w->thread, &attr, run, w))
			die("cannot start a thread");
	}
}

static void on_term(int sig)
{
	(void)sig;
	atomic_store(&stop, 1);
}

static void totals(struct json *j, u64 elapsed)
{
	json_milli(j, "seconds", elapsed / NSEC_PER_MSEC);
	json_u64(j, "reads", reads);
	json_milli(j, "read_mib", read_bytes * 1000 / MIB);
	json_u64(j, "writes", writes);
	json_u64(j, "missing", missing);
	json_u64(j, "heap_touches", heap_touches);
	json_u64(j, "errors", errors);
}

static void prepare(void)
{
	struct rng rng = rng_make(opt.seed, 0);
	struct json j = json_line("prepared");
	u32 blog;

	for (blog = 0; blog < opt.blogs && !stopping(); blog++)
		blog_make(&rng, blog, COMMENT);
	sync();
	json_u64(&j, "blogs", blog);
	json_u64(&j, "writes", writes);
	json_end(&j);
}

static void serve(void)
{
	static struct fields vm[2], gcma[2];
	u64 begin, now, tick;
	struct json j;
	u32 i;

	blogs_count();
	heap_fill();
	fields_read_vmstat(&vm[0]);
	fields_read_gcma(&gcma[0]);
	begin = now_ns();
	tick = begin;
	start(opt.writers, writer);
	start(REWRITERS, rewriter);
	start(opt.commenters, commenter);
	start(opt.readers, reader);
	while (!stopping()) {
		sleep_ms(20);
		now = now_ns();
		if (now - begin >= opt.seconds * NSEC_PER_SEC)
			break;
		if (now - tick >= NSEC_PER_SEC) {
			tick += NSEC_PER_SEC;
			j = json_line("blog_tick");
			totals(&j, now - begin);
			json_end(&j);
		}
	}
	/* what is being read or written does not count: it may take long */
	fields_read_vmstat(&vm[1]);
	fields_read_gcma(&gcma[1]);
	j = json_line("blog");
	json_u64(&j, "seed", opt.seed);
	totals(&j, now_ns() - begin);
	json_deltas(&j, "vmstat_delta", &vm[0], &vm[1], pressure_fields);
	json_deltas(&j, "gcma_delta", &gcma[0], &gcma[1], NULL);
	json_end(&j);
	atomic_store(&stop, 1);
	for (i = 0; i < nr_workers; i++)
		pthread_join(workers[i].thread, NULL);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "dir", .text = &opt.dir },
		{ "blogs", .number = &opt.blogs },
		{ "prepare", .flag = &opt.prepare },
		{ "writers", .number = &opt.writers },
		{ "commenters", .number = &opt.commenters },
		{ "readers", .number = &opt.readers },
		{ "pause-ms", .number = &opt.pause_ms },
		{ "heap-mib", .number = &opt.heap_mib },
		{ "seconds", .number = &opt.seconds },
		{ "nice", .signed_number = &opt.nice },
		{ "seed", .large = &opt.seed },
		{ 0 },
	};

	settings_parse(argc, argv, settings);
	if (!opt.dir || !opt.blogs || opt.blogs > BLOGS_MAX)
		die("--dir, and 1 to %u --blogs", BLOGS_MAX);
	if (opt.nice && setpriority(PRIO_PROCESS, 0, opt.nice))
		note("cannot set --nice %d: %s", opt.nice, strerror(errno));
	signal(SIGTERM, on_term);
	signal(SIGINT, on_term);
	if (opt.prepare)
		prepare();
	else
		serve();
	return errors != 0;
}
