// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * neighbour - what a program that reads a set of pages gets beside another
 *
 * Reads a file twice, so that it is in memory if it fits, then pages of it at
 * random, one after the other, until the command beside it ends or the time is
 * over. Ends with one line {"type":"neighbour"}: reads, the seconds they took,
 * and how long one took: the median, 99 and 99.9 % of them, and the worst, in
 * nanoseconds, of which all but the worst are right to 1.6 %.
 *
 *   --file F      the file
 *   --beside C    the command, for sh; it must end with status 0
 *   --seconds S   without a command, so long (5)
 *   --name N      what the line calls it (alone)
 */
#include "options.h"

#include <signal.h>
#include <sys/wait.h>

#define PAGE	4096u
#define FINE	64u /* a power of two is divided into so many */
#define BUCKETS	(FINE * 64)

static struct {
	const char *file, *beside, *name;
	u32 seconds;
} opt = { .name = "alone", .seconds = 5 };

static const struct setting settings[] = {
	{ "file", .text = &opt.file },
	{ "beside", .text = &opt.beside },
	{ "seconds", .number = &opt.seconds },
	{ "name", .text = &opt.name },
	{ 0 },
};

static u64 buckets[BUCKETS];
static volatile sig_atomic_t ended;

static void child_ended(int signal)
{
	(void)signal;
	ended = 1;
}

/* Below FINE a bucket is a nanosecond; above, 1/64 of a power of two. */
static u32 bucket_of(u64 ns)
{
	u32 shift = 0;

	while (ns >> shift >= 2 * FINE)
		shift++;
	return shift * FINE + (u32)(ns >> shift);
}

static u64 least_of(u32 bucket)
{
	u32 shift = bucket < 2 * FINE ? 0 : bucket / FINE - 1;

	return (u64)(bucket - shift * FINE) << shift;
}

static u64 quantile(u64 reads, u32 per_mille)
{
	u64 wanted = reads * per_mille / 1000, seen = 0;
	u32 i;

	for (i = 0; i < BUCKETS; i++) {
		seen += buckets[i];
		if (seen > wanted)
			return least_of(i);
	}
	return 0;
}

static void read_page(int fd, u64 page)
{
	static char buf[PAGE] __attribute__((aligned(4096)));

	if (pread(fd, buf, PAGE, (off_t)(page * PAGE)) != (ssize_t)PAGE)
		die("cannot read %s: %s", opt.file, strerror(errno));
}

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		execl("/bin/sh", "sh", "-c", opt.beside, NULL);
		die("/bin/sh: %s", strerror(errno));
	}
	return pid;
}

int main(int argc, char **argv)
{
	struct rng rng;
	u64 pages, i, begin, end, before, reads = 0, worst = 0;
	int fd, status = 0;
	pid_t pid = 0;
	struct json j;
	struct stat st;

	settings_parse(argc, argv, settings);
	if (!opt.file)
		die("--file is wanted");
	fd = open(opt.file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die("cannot open %s: %s", opt.file, strerror(errno));
	pages = (u64)st.st_size / PAGE;
	if (!pages || pages > UINT32_MAX)
		die("%s has no page, or too many", opt.file);
	for (i = 0; i < 2 * pages; i++)
		read_page(fd, i % pages);
	rng = rng_make(1, 0);
	signal(SIGCHLD, child_ended);
	begin = before = now_ns();
	end = opt.beside ? UINT64_MAX : begin + opt.seconds * NSEC_PER_SEC;
	if (opt.beside)
		pid = start();
	while (!ended && before < end) {
		u64 took, after;

		read_page(fd, rng_below(&rng, (u32)pages));
		after = now_ns();
		took = after - before;
		before = after;
		buckets[bucket_of(took)]++;
		if (took > worst)
			worst = took;
		reads++;
	}
	if (pid && (waitpid(pid, &status, 0) != pid || status))
		die("'%s' ended with %x", opt.beside, (unsigned int)status);
	j = json_line("neighbour");
	json_str(&j, "name", opt.name);
	json_u64(&j, "reads", reads);
	json_u64(&j, "took_ns", before - begin);
	json_u64(&j, "median_ns", quantile(reads, 500));
	json_u64(&j, "p99_ns", quantile(reads, 990));
	json_u64(&j, "p999_ns", quantile(reads, 999));
	json_u64(&j, "worst_ns", worst);
	json_end(&j);
	return 0;
}
