// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * oracle - does memory still hold what was written to it?
 *
 * Puts file, anonymous and contiguous memory under pressure and compares every
 * byte that is read with the one expected; in races, where versions bound what
 * may be read. Expected bytes are computed, not stored, see model.h. A kernel
 * that gives back an old copy of a page fails here.
 *
 * Four kinds of processes work at the same time:
 *
 *  file   Each owns files that nobody else touches, and reads and changes them
 *	   by the operations in ops[]. One of these pushes the pages of a range
 *	   out of memory (MADV_PAGEOUT), so that copies of them exist outside
 *	   the page cache. The next ones truncate, punch, write directly or
 *	   overwrite exactly there, where an old copy could come back.
 *  race   Threads share a small file: one changes it, others read it and push
 *	   it out. Two versions per unit of 256 bytes bound what a reader may
 *	   see: at least what was "done" before it started, at most what had
 *	   "begun" when it ended.
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
 *   --races N          shared files, four threads each (2)
 *   --anon-mib N       private anonymous memory of all workers (64)
 *   --shmem-mib N      shared anonymous memory of all workers (16)
 *   --anon-workers N   (2; 0 for none)
 *   --thp              ask for huge pages in half of the private memory
 *   --hog-mib N        height of the waves (0)
 *   --alloc            allocate contiguous memory as well
 *   --alloc-max-pages N  largest allocation (4096)
 *   --alloc-live N     pages that a worker holds at a time (twice the largest
 *                      allocation)
 *   --alloc-pieces N   in at most so many pieces (16)
 *   --alloc-workers N  (1); with more, the area must have room for all of them
 *   --alloc-pins       folios as well, and pages pinned when they are released
 *   --drop-caches      write 1, 2 or 3 to /proc/sys/vm/drop_caches now and then
 *   --skip OP,OP...    leave out file operations, to narrow a failure down
 *   --lax-direct       do not check what was read while a direct write went on:
 *                      f2fs shows what the disk had in a hole that is written
 *   --seconds N        at least (60)
 *   --until NAME=N,... and until these counters have grown by N: cma_allocs and
 *                      cma_pins of the oracle, all others of /proc/vmstat
 *   --until-exists F   and until there is this file: no verdict depends on how
 *                      much the computer does in a second
 *   --seed N           (1)
 *
 * It ends at the first wrong byte. Exit status: 0 if all was right, 1 if not.
 */
#include "../options.h"
#include "oracle.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define TICK_NS	(5 * NSEC_PER_SEC)

struct options opt = {
	.file_mib = 512, .file_max_kib = 4096, .races = 2,
	.anon_mib = 64, .shmem_mib = 16, .anon_workers = 2,
	.alloc_max_pages = 4096, .alloc_workers = 1, .alloc_pieces = LIVE_MAX,
	.seconds = 60, .seed = 1,
};

struct shared *shared;

/* What must have happened before the end. */
static struct goal {
	const char *counter;
	u64 growth, from;
} goals[16];
static u32 nr_goals;

void fail(_Atomic u64 *counter)
{
	count(counter, 1);
	atomic_store(&shared->stop, 1);
	_exit(1);
}

void *locked_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("out of memory (%zu bytes wanted)", size);
	mlock(p, size);
	return p;
}

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

static void sigbus(int sig)
{
	static const char text[] =
		"oracle: SIGBUS: a mapped file lost pages or memory is short\n";

	(void)sig;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

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
	{ "skip", .call = skip_file_ops },
	{ "lax-direct", .flag = &opt.lax_direct },
	{ "seconds", .number = &opt.seconds },
	{ "until", .call = parse_until },
	{ "until-exists", .text = &opt.until_exists },
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
	if (opt.file_mib < FILE_WORKERS)
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
		worker_add("file", file_worker, FILE_WORKERS, 0, false);
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
