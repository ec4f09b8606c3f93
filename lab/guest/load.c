// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * load - file and anonymous memory in use, a stand-in for a small server
 *
 * Readers read pieces of many files, nine times out of ten of the few busy
 * ones; writers do the same and rewrite a piece now and then; anonymous memory
 * is gone through in windows, by workers of its own or as part of each of these
 * operations, as when a server answers requests. All content says where it
 * belongs and is looked at on the way. Every worker is a process with its own
 * random numbers, so its operations depend on the seed alone and only how many
 * of them happen depends on time.
 *
 *   --dir D           where the files are
 *   --file-mib N      all files together, 256 KiB each (256)
 *   --prepare         create missing files and end
 *   --readers N       (2)
 *   --writers N       (1)
 *   --hot N           per cent of the files that get 90 % of the operations,
 *		       0 for all alike (10)
 *   --anon-mib N      anonymous memory of all workers together (0)
 *   --anon-workers N  (1 with --anon-mib)
 *   --touches N       share the anonymous memory among readers and writers, who
 *		       touch N pages of it before each operation; no workers
 *   --seconds N       (60), or until SIGTERM
 *   --nice N          (0)
 *   --seed N          (1)
 *
 * Prints a line {"type":"load_tick"} each second and {"type":"load"} at the
 * end. Errors are wrong contents and failed calls.
 */
#include "options.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PAGE		4096u
#define PAGE_WORDS	(PAGE / 8)
#define FILE_BYTES	(256u * 1024)
#define FILE_PAGES	(FILE_BYTES / PAGE)
#define PIECE_PAGES	16u	/* largest piece: 64 KiB, smallest: 16 */
#define WINDOW_PAGES	64u
#define MAGIC		0x6e6f636f70796c64ULL
#define DENSE_WORDS	128u	/* words of a page that do not compress */
#define WORKERS_MAX	64
#define FSYNC_EVERY	64	/* writes of a writer */

static struct {
	const char *dir;
	u32 file_mib, readers, writers, hot;
	u32 anon_mib, anon_workers, touches, seconds;
	int nice;
	u64 seed;
	bool prepare;
} opt = {
	.file_mib = 256, .readers = 2, .writers = 1, .hot = 10,
	.anon_workers = 1, .seconds = 60, .seed = 1,
};

struct shared {
	_Atomic u32 stop;
	_Atomic u64 read_ops, read_bytes, write_ops, anon_touches, errors;
	_Atomic u64 read_worst_ns;
};

static struct shared *shared;
static u32 nr_files;

static bool stopping(void)
{
	return atomic_load_explicit(&shared->stop, memory_order_relaxed);
}

static void count(_Atomic u64 *counter, u64 n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---------------------------------------------------- anonymous memory */

struct anon {
	struct rng rng;
	word *map;
	u64 key;
	u32 pages, at, left;
};

static void anon_fill(word *w, u64 key, u32 page)
{
	u64 v = mix64(key + page);
	u32 i;

	for (i = 0; i < DENSE_WORDS; i++, v *= 5)
		w[i] = v;
	for (; i < PAGE_WORDS; i++)
		w[i] = page;
}

/* The share of one of so many workers. */
static struct anon anon_make(u32 id, u32 workers)
{
	u32 pages = (u32)((u64)opt.anon_mib * MIB / workers / PAGE), i;
	struct anon a = {
		.rng = rng_make(opt.seed, 200 + id),
		.key = mix64(opt.seed ^ ((u64)id << 32)),
	};

	if (!pages)
		return a;
	a.map = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)a.map == MAP_FAILED)
		die("cannot map %u MiB", opt.anon_mib);
	for (i = 0; i < pages && !stopping(); i++)
		anon_fill(a.map + (size_t)i * PAGE_WORDS, a.key, i);
	a.pages = i;
	return a;
}

static void anon_touch(struct anon *a)
{
	word *w;
	u32 i;

	/* windows in order, now and then a page anywhere */
	if (!a->left) {
		a->at = rng_below(&a->rng, a->pages);
		a->left = WINDOW_PAGES;
	}
	i = rng_below(&a->rng, 8) ? a->at : rng_below(&a->rng, a->pages);
	a->at = (a->at + 1) % a->pages;
	a->left--;
	w = a->map + (size_t)i * PAGE_WORDS;
	if (w[0] != mix64(a->key + i) || w[PAGE_WORDS - 1] != i) {
		struct json j = json_line("load_error");

		json_str(&j, "what", "wrong anonymous content");
		json_u64(&j, "page", i);
		json_hex(&j, "expected", mix64(a->key + i));
		json_hex(&j, "got", w[0]);
		json_end(&j);
		count(&shared->errors, 1);
		anon_fill(w, a->key, i);
	}
	/* a quarter of what is touched changes */
	if (!rng_below(&a->rng, 4))
		w[1]++;
	count(&shared->anon_touches, 1);
}

static void anon_worker(u32 id)
{
	struct anon a = anon_make(id, opt.anon_workers);

	while (a.pages && !stopping())
		anon_touch(&a);
}

/* --------------------------------------------------------------- files */

/*
 * The first words of a page: magic, file and page, version. The version is
 * that of whoever wrote last, so a reader does not look at it. The last word
 * repeats file and page: half a page from elsewhere is found as well.
 */
static void page_fill(word *w, u32 file, u32 page, u64 version)
{
	u64 where = (u64)file << 32 | page, v;
	u32 i;

	w[0] = MAGIC;
	w[1] = where;
	w[2] = version;
	for (i = 3, v = mix64(where); i < DENSE_WORDS; i++, v *= 5)
		w[i] = v;
	for (; i < PAGE_WORDS; i++)
		w[i] = where;
}

static bool page_ok(const word *w, u32 file, u32 page)
{
	u64 where = (u64)file << 32 | page;

	return w[0] == MAGIC && w[1] == where && w[3] == mix64(where) &&
	       w[PAGE_WORDS - 1] == where;
}

static const char *file_path(u32 file)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/load.%05u", opt.dir, file);
	return path;
}

static void prepare(bool say)
{
	word *buf = xalloc(FILE_BYTES);
	u32 file, page, made = 0;
	struct json j;

	for (file = 0; file < nr_files; file++) {
		struct stat st;
		int fd;

		if (!stat(file_path(file), &st) && st.st_size == FILE_BYTES)
			continue;
		for (page = 0; page < FILE_PAGES; page++)
			page_fill(buf + page * PAGE_WORDS, file, page, 0);
		fd = open(file_path(file),
			  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, buf, FILE_BYTES) != FILE_BYTES)
			die("cannot write %s: %s", file_path(file),
			    strerror(errno));
		close(fd);
		made++;
	}
	free(buf);
	if (made)
		sync();
	if (!say)
		return;
	j = json_line("prepared");
	json_u64(&j, "files", nr_files);
	json_u64(&j, "created", made);
	json_end(&j);
}

static void file_error(const char *what, u32 file, u32 page, int err)
{
	struct json j = json_line("load_error");

	json_str(&j, "what", what);
	json_str(&j, "file", file_path(file));
	json_u64(&j, "page", page);
	if (err)
		json_str(&j, "error", strerror(err));
	json_end(&j);
	count(&shared->errors, 1);
}

static u32 pick_file(struct rng *rng)
{
	u32 hot = (u32)((u64)nr_files * opt.hot / 100);

	if (opt.hot && hot && rng_below(rng, 10))
		return rng_below(rng, hot);
	return rng_below(rng, nr_files);
}

static void file_worker(u32 id, bool writes)
{
	struct rng rng = rng_make(opt.seed, 100 + id);
	word *buf = xalloc(PIECE_PAGES * PAGE);
	struct anon anon = { 0 };
	u64 version = 0;

	if (opt.touches)
		anon = anon_make(id, opt.readers + opt.writers);
	while (!stopping()) {
		bool write_now = writes && rng_one_in(&rng, 20);
		u32 file = pick_file(&rng), i;
		u32 pages = PIECE_PAGES >> rng_below(&rng, 3);
		u32 page = rng_below(&rng, FILE_PAGES - pages + 1);
		ssize_t want = (ssize_t)(pages * PAGE), got;
		u64 before, took;
		int fd;

		for (i = 0; anon.pages && i < opt.touches; i++)
			anon_touch(&anon);
		before = now_ns();
		fd = open(file_path(file),
			  (write_now ? O_RDWR : O_RDONLY) | O_CLOEXEC);
		if (fd < 0) {
			file_error("open", file, page, errno);
			continue;
		}
		if (write_now) {
			version++;
			for (i = 0; i < pages; i++)
				page_fill(buf + i * PAGE_WORDS, file, page + i,
					  (u64)id << 48 | version);
			got = pwrite(fd, buf, (size_t)want,
				     (off_t)page * PAGE);
			if (got != want)
				file_error("write", file, page,
					   got < 0 ? errno : ENOSPC);
			if (version % FSYNC_EVERY == 0)
				fdatasync(fd);
			close(fd);
			count(&shared->write_ops, 1);
			continue;
		}
		got = pread(fd, buf, (size_t)want, (off_t)page * PAGE);
		took = now_ns() - before;
		if (got != want)
			file_error("read", file, page, got < 0 ? errno : 0);
		for (i = 0; got == want && i < pages; i++) {
			if (!page_ok(buf + i * PAGE_WORDS, file, page + i)) {
				file_error("wrong content", file, page + i, 0);
				break;
			}
		}
		close(fd);
		/* a lost update only makes the worst a little better */
		if (took > atomic_load(&shared->read_worst_ns))
			atomic_store(&shared->read_worst_ns, took);
		count(&shared->read_ops, 1);
		count(&shared->read_bytes, (u64)want);
	}
}

/* ------------------------------------------------------- the conductor */

static pid_t pids[WORKERS_MAX];
static u32 nr_pids;

enum kind { READER, WRITER, ANON };

static void start(enum kind kind, u32 id)
{
	pid_t pid;

	if (nr_pids == WORKERS_MAX)
		die("more than %d workers", WORKERS_MAX);
	pid = fork();
	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (pid) {
		pids[nr_pids++] = pid;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* the parent tells us when to stop */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	if (kind == ANON)
		anon_worker(id);
	else
		file_worker(id, kind == WRITER);
	_exit(0);
}

static void on_term(int sig)
{
	(void)sig;
	atomic_store(&shared->stop, 1);
}

static void totals(struct json *j, u64 elapsed)
{
	json_milli(j, "seconds", elapsed / NSEC_PER_MSEC);
	json_u64(j, "read_ops", shared->read_ops);
	json_milli(j, "read_mib", shared->read_bytes * 1000 / MIB);
	json_u64(j, "write_ops", shared->write_ops);
	json_u64(j, "anon_touches", shared->anon_touches);
	json_u64(j, "errors", shared->errors);
}

static const struct setting settings[] = {
	{ "dir", .text = &opt.dir },
	{ "file-mib", .number = &opt.file_mib },
	{ "prepare", .flag = &opt.prepare },
	{ "readers", .number = &opt.readers },
	{ "writers", .number = &opt.writers },
	{ "hot", .number = &opt.hot },
	{ "anon-mib", .number = &opt.anon_mib },
	{ "anon-workers", .number = &opt.anon_workers },
	{ "touches", .number = &opt.touches },
	{ "seconds", .number = &opt.seconds },
	{ "nice", .signed_number = &opt.nice },
	{ "seed", .large = &opt.seed },
	{ 0 },
};

static void parse(int argc, char **argv)
{
	settings_parse(argc, argv, settings);
	if (opt.hot > 100)
		die("--hot is per cent");
	if (opt.touches && (!opt.dir || !opt.anon_mib))
		die("--touches needs --dir and --anon-mib");
	if (opt.touches)
		opt.anon_workers = 0;
	nr_files = (u32)((u64)opt.file_mib * MIB / FILE_BYTES);
	if (opt.dir ? !nr_files : !opt.anon_mib)
		die("nothing to do: --dir with --file-mib, or --anon-mib");
}

int main(int argc, char **argv)
{
	static struct fields vm[2], gcma[2];
	bool died = false;
	u64 begin, now, tick;
	struct json j;
	u32 i, left;

	parse(argc, argv);
	if (opt.dir)
		prepare(opt.prepare);
	if (opt.prepare)
		return 0;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("out of memory");
	if (opt.nice && setpriority(PRIO_PROCESS, 0, opt.nice))
		note("cannot set --nice %d: %s", opt.nice, strerror(errno));
	signal(SIGTERM, on_term);
	signal(SIGINT, on_term);
	fields_read_vmstat(&vm[0]);
	fields_read_gcma(&gcma[0]);
	begin = now_ns();
	tick = begin;

	for (i = 0; opt.dir && i < opt.readers; i++)
		start(READER, i);
	for (i = 0; opt.dir && i < opt.writers; i++)
		start(WRITER, opt.readers + i);
	for (i = 0; opt.anon_mib && i < opt.anon_workers; i++)
		start(ANON, i);

	for (left = nr_pids; left;) {
		int status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			left--;
			if (WIFEXITED(status) && !WEXITSTATUS(status))
				continue;
			died = true;
			if (WIFSIGNALED(status))
				note("a worker died of signal %d%s",
				     WTERMSIG(status),
				     WTERMSIG(status) == SIGKILL ?
				     " (out of memory?)" : "");
		}
		now = now_ns();
		if (now - begin >= opt.seconds * NSEC_PER_SEC)
			atomic_store(&shared->stop, 1);
		if (now - tick >= NSEC_PER_SEC) {
			tick = now;
			j = json_line("load_tick");
			totals(&j, now - begin);
			json_end(&j);
		}
		if (left)
			sleep_ms(20);
	}
	now = now_ns();
	fields_read_vmstat(&vm[1]);
	fields_read_gcma(&gcma[1]);

	j = json_line("load");
	json_u64(&j, "seed", opt.seed);
	totals(&j, now - begin);
	json_u64(&j, "read_worst_ns", shared->read_worst_ns);
	json_bool(&j, "worker_died", died);
	json_deltas(&j, "vmstat_delta", &vm[0], &vm[1], pressure_fields);
	json_deltas(&j, "gcma_delta", &gcma[0], &gcma[1], NULL);
	json_end(&j);
	return died || shared->errors;
}
