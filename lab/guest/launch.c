// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * launch - applications are started in turn, as on a phone
 *
 * Each is a program of its own that maps a file of code and a file of data,
 * touches all of their pages and fills memory. Then it is frozen, and the one
 * that was frozen first is killed: the next time it starts cold. Code is
 * touched in pieces here and there, data from end to end. Each page says at its
 * start which file and which page it is, and is looked at.
 *
 *   --dir D        where the files are (/mnt)
 *   --apps N       (18)
 *   --code-mib N   of each (16)
 *   --data-mib N   of each (24)
 *   --anon-mib N   of memory that each fills (24)
 *   --alive N      frozen ones at a time (6)
 *   --prepare      write the files, sync them and end
 *   --warm N       rounds before those that are timed (2)
 *   --rounds N     each starts all applications once (2)
 *
 * Prints a line {"type":"launch"} for each start, with the time from exec to
 * the last page, and at the end {"type":"launches"}.
 */
#include "options.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE		4096u
#define PAGE_WORDS	(PAGE / 8)
#define PIECE		8u	/* pages of code that are touched one by one */
#define DENSE_WORDS	128u	/* words of a page that do not compress */
#define APPS_MAX	100

static struct {
	const char *dir;
	u32 apps, code_mib, data_mib, anon_mib, alive, warm, rounds;
	u64 app, since;
	bool prepare;
} opt = {
	.dir = "/mnt", .apps = 18, .code_mib = 16, .data_mib = 24,
	.anon_mib = 24, .alive = 6, .warm = 2, .rounds = 2, .app = UINT64_MAX,
};

/* what = 0: code, 1: data */
static u32 file_pages(u32 what)
{
	return (what ? opt.data_mib : opt.code_mib) * (MIB / PAGE);
}

static const char *file_name(u32 app, u32 what)
{
	static char name[512];

	snprintf(name, sizeof(name), "%s/app.%02u.%s", opt.dir, app,
		 what ? "data" : "code");
	return name;
}

static u64 header(u32 app, u32 what, u32 page)
{
	return mix64(0x6c61756e63680000ULL ^ (u64)app << 40 ^ (u64)what << 32 ^ page);
}

static void fill(word *w, u64 first)
{
	u32 i;

	for (i = 0; i < DENSE_WORDS; i++)
		w[i] = first * (2 * i + 1);
	for (; i < PAGE_WORDS; i++)
		w[i] = first;
}

static void prepare(void)
{
	u32 chunk = 64, app, what, page, i;
	word *buf = xalloc(chunk * PAGE);
	struct json j;

	for (app = 0; app < opt.apps; app++) {
		for (what = 0; what < 2; what++) {
			const char *name = file_name(app, what);
			int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

			if (fd < 0)
				die("cannot create %s: %s", name, strerror(errno));
			for (page = 0; page < file_pages(what); page += chunk) {
				for (i = 0; i < chunk; i++)
					fill(buf + i * PAGE_WORDS,
					     header(app, what, page + i));
				if (write(fd, buf, chunk * PAGE) != (ssize_t)(chunk * PAGE))
					die("cannot write %s: %s", name, strerror(errno));
			}
			if (fsync(fd))
				die("cannot sync %s: %s", name, strerror(errno));
			close(fd);
		}
	}
	free(buf);
	j = json_line("prepared");
	json_u64(&j, "files", 2 * opt.apps);
	json_end(&j);
}

/* ------------------------------------------------------- an application */

static u64 touch(u32 app, u32 what)
{
	const char *name = file_name(app, what);
	u32 pages = file_pages(what), pieces = pages / PIECE, i, k;
	u64 wrong = 0;
	const word *map;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s: %s (write it with --prepare)", name,
		    strerror(errno));
	map = mmap(NULL, (size_t)pages * PAGE,
		   what ? PROT_READ : PROT_READ | PROT_EXEC,
		   what ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	if ((const void *)map == MAP_FAILED)
		die("cannot map %s: %s", name, strerror(errno));
	close(fd);
	for (i = 0; i < pieces; i++) {
		/* A prime scatters all pieces. */
		u32 piece = what ? i : (u32)(i * 2654435761ULL % pieces);

		for (k = 0; k < PIECE; k++) {
			u32 page = piece * PIECE + k;

			if (*(const volatile word *)(map + (size_t)page * PAGE_WORDS) !=
			    header(app, what, page))
				wrong++;
		}
	}
	return wrong;
}

static void use_memory(u32 app)
{
	u32 pages = opt.anon_mib * (MIB / PAGE), i;
	word *map = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if ((void *)map == MAP_FAILED)
		die("cannot map %u MiB", opt.anon_mib);
	for (i = 0; i < pages; i++)
		fill(map + (size_t)i * PAGE_WORDS, header(app, 2, i));
}

static void run_app(u32 app)
{
	u64 began = now_ns(), wrong, code, data, all;
	struct json j;

	wrong = touch(app, 0);
	code = now_ns();
	wrong += touch(app, 1);
	data = now_ns();
	use_memory(app);
	all = now_ns();
	j = json_line("launch");
	json_u64(&j, "app", app);
	json_u64(&j, "exec_ns", began - opt.since);
	json_u64(&j, "code_ns", code - began);
	json_u64(&j, "data_ns", data - code);
	json_u64(&j, "anon_ns", all - data);
	json_u64(&j, "ns", all - opt.since);
	json_end(&j);
	if (wrong)
		die("%" PRIu64 " pages of application %u are wrong", wrong, app);
	raise(SIGSTOP);
}

/* ------------------------------------------------------ who starts them */

static pid_t start(char **argv, u32 app)
{
	pid_t pid = fork();
	char words[2][32], *args[32];
	int n, status;

	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (!pid) {
		for (n = 0; argv[n]; n++)
			args[n] = argv[n];
		snprintf(words[0], sizeof(words[0]), "--app=%u", app);
		snprintf(words[1], sizeof(words[1]), "--since=%" PRIu64, now_ns());
		args[n] = words[0];
		args[n + 1] = words[1];
		args[n + 2] = NULL;
		execv("/proc/self/exe", args);
		die("cannot exec: %s", strerror(errno));
	}
	if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
		die("application %u ended", app);
	return pid;
}

static const struct setting settings[] = {
	{ "dir", .text = &opt.dir },
	{ "apps", .number = &opt.apps },
	{ "code-mib", .number = &opt.code_mib },
	{ "data-mib", .number = &opt.data_mib },
	{ "anon-mib", .number = &opt.anon_mib },
	{ "alive", .number = &opt.alive },
	{ "prepare", .flag = &opt.prepare },
	{ "warm", .number = &opt.warm },
	{ "rounds", .number = &opt.rounds },
	{ "app", .large = &opt.app },
	{ "since", .large = &opt.since },
	{ 0 },
};

int main(int argc, char **argv)
{
	static struct fields vm[2], gcma[2];
	pid_t alive[APPS_MAX] = { 0 };
	u32 starts, n;
	struct json j;

	settings_parse(argc, argv, settings);
	if (!opt.apps || !opt.alive || opt.alive >= opt.apps || opt.apps > APPS_MAX)
		die("--alive is at least 1 and less than --apps, which is at most %d",
		    APPS_MAX);
	if (opt.prepare) {
		prepare();
		return 0;
	}
	if (opt.app != UINT64_MAX) {
		run_app((u32)opt.app);
		return 0;
	}
	starts = (opt.warm + opt.rounds) * opt.apps;
	for (n = 0; n < starts; n++) {
		pid_t *place = &alive[n % opt.alive];

		if (*place) {
			kill(*place, SIGKILL);
			waitpid(*place, NULL, 0);
		}
		if (n == opt.warm * opt.apps) {
			fields_read_vmstat(&vm[0]);
			fields_read_gcma(&gcma[0]);
		}
		*place = start(argv, n % opt.apps);
	}
	fields_read_vmstat(&vm[1]);
	fields_read_gcma(&gcma[1]);
	j = json_line("launches");
	json_u64(&j, "starts", opt.rounds * opt.apps);
	json_deltas(&j, "vmstat_delta", &vm[0], &vm[1], pressure_fields);
	json_deltas(&j, "gcma_delta", &gcma[0], &gcma[1], NULL);
	json_end(&j);
	for (n = 0; n < opt.alive; n++)
		kill(alive[n], SIGKILL);
	return 0;
}
