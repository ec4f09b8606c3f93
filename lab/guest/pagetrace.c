// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * pagetrace - write down which pages are wanted, and what reclaim offers to GCMA
 *
 * Runs beside a load until SIGTERM, and sends what the kernel's tracepoints say
 * in lines {"type":"trace","r":"..."}. A record there is a letter, the number
 * of a cgroup, the number of a file, the first page, and how many pages:
 *
 *   R  read()                          mm_filemap_get_pages
 *   M  a fault in a mapping            mm_filemap_fault
 *   W  written to                      writeback_dirty_folio
 *   D  the file is deleted             ext4_evict_inode
 *   O  offered, of swap                gcma_store
 *   I  swapped in                      gcma_load
 *   A  allocated from the area         gcma_alloc, first page of the area and number
 *   F  given back                      cma_release, likewise
 *
 * A line {"type":"cgroup"} says what a number stands for, {"type":"recorded"}
 * how many pages of file each had at the end. Nothing may be missing: events
 * that the kernel had no room for are an error. For one CPU, whose events are
 * in order.
 *
 *   --base N     page frame that the area begins with (0)
 */
#include "options.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#define TRACING	"/sys/kernel/tracing/"
#define PAGE	4096
#define CGROUPS_MAX	16u
#define FILES_BITS	18
#define PIDS	1024u
#define BUFFER_KIB	"16384"	/* of the kernel, for events that wait to be read */

static u64 base;

enum { GET, FAULT, DIRTY, EVICT, STORE, LOAD, ALLOC, RELEASE, EVENTS };

/* What is read of an event, in this order. */
enum { WHAT, FROM, TO, FLAG, FIELDS };

static struct event {
	const char *system, *name, *field[FIELDS];
	u32 offset[FIELDS], size[FIELDS], id;
} event[EVENTS] = {
	[GET] = { "filemap", "mm_filemap_get_pages", { "i_ino", "index", "last_index" } },
	[FAULT] = { "filemap", "mm_filemap_fault", { "i_ino", "index" } },
	[DIRTY] = { "writeback", "writeback_dirty_folio", { "ino", "index" } },
	[EVICT] = { "ext4", "ext4_evict_inode", { "ino", [FLAG] = "nlink" } },
	[STORE] = { "gcma", "gcma_store", { "ino", "index", "pages", "dev" } },
	[LOAD] = { "gcma", "gcma_load", { "ino", "index", "pages", "dev" } },
	[ALLOC] = { "gcma", "gcma_alloc", { [FROM] = "pfn", [TO] = "count" } },
	[RELEASE] = { "cma", "cma_release", { [FROM] = "pfn", [TO] = "count" } },
};

static volatile sig_atomic_t stop;

static void on_term(int signal)
{
	(void)signal;
	stop = 1;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die("cannot write %s to %s: %s", text, path, strerror(errno));
	close(fd);
}

/* Where the fields of an event are. */
static void learn(struct event *e)
{
	char path[160], line[256], name[64];
	u32 i, offset, size;
	FILE *file;

	snprintf(path, sizeof(path), TRACING "events/%s/%s/format", e->system, e->name);
	file = fopen(path, "re");
	if (!file)
		die("no event %s; is CONFIG_GCMA on and ext4 there?", e->name);
	while (fgets(line, sizeof(line), file)) {
		char *at = strstr(line, "; offset:") ?: strstr(line, ";\toffset:");

		if (sscanf(line, "ID: %u", &e->id) == 1 || !at)
			continue;
		*at = 0;
		if (sscanf(at + 1, " offset:%u; size:%u", &offset, &size) != 2)
			continue;
		snprintf(name, sizeof(name), "%s", strrchr(line, ' ') + 1);
		for (i = 0; i < FIELDS; i++)
			if (e->field[i] && !strcmp(name, e->field[i])) {
				e->offset[i] = offset;
				e->size[i] = size;
			}
	}
	fclose(file);
	for (i = 0; i < FIELDS; i++)
		if (e->field[i] && !e->size[i])
			die("%s has no field %s", e->name, e->field[i]);
	snprintf(path, sizeof(path), TRACING "events/%s/%s/enable", e->system, e->name);
	put(path, "1");
}

static u64 field(const struct event *e, const u8 *record, u32 i)
{
	u64 v = 0;

	if (e->size[i] && e->size[i] <= sizeof(v))
		memcpy(&v, record + e->offset[i], e->size[i]);
	return v;
}

/* ---------------------------------------------------------------- names */

static char cgroup_name[CGROUPS_MAX][64];
static u32 nr_cgroups;

static u32 cgroup_number(const char *name)
{
	struct json j;
	u32 i;

	for (i = 0; i < nr_cgroups; i++)
		if (!strcmp(cgroup_name[i], name))
			return i;
	if (i == CGROUPS_MAX)
		die("more than %u cgroups", CGROUPS_MAX);
	snprintf(cgroup_name[i], sizeof(cgroup_name[i]), "%s", name);
	nr_cgroups++;
	j = json_line("cgroup");
	json_u64(&j, "number", i);
	json_str(&j, "name", name);
	json_end(&j);
	return i;
}

/* Of a process, as soon as it is seen. Who is gone by then is of the first. */
static u32 cgroup_of(u32 pid)
{
	static struct { u32 pid, cgroup; } known[PIDS];
	char path[64], line[256];
	FILE *file;

	if (known[pid % PIDS].pid == pid)
		return known[pid % PIDS].cgroup;
	snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	known[pid % PIDS].pid = pid;
	known[pid % PIDS].cgroup = 0;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "0::", 3)) {
			line[strcspn(line, "\n")] = 0;
			known[pid % PIDS].cgroup = cgroup_number(line + 3);
		}
	fclose(file);
	return known[pid % PIDS].cgroup;
}

/* Files are counted in the order in which they are seen. */
static u32 file_number(u64 ino)
{
	static struct { u64 ino; u32 number; } known[1 << FILES_BITS];
	static u32 files;
	u32 at = (u32)(mix64(ino) >> (64 - FILES_BITS));

	while (known[at].number && known[at].ino != ino)
		at = (at + 1) % ARRAY_SIZE(known);
	if (!known[at].number) {
		if (++files == ARRAY_SIZE(known) - 1)
			die("too many files");
		known[at].ino = ino;
		known[at].number = files;
	}
	return known[at].number;
}

/* -------------------------------------------------------------- sending */

static char out[3000];
static size_t filled;
static u64 records;

static void flush(void)
{
	struct json j;

	if (!filled)
		return;
	j = json_line("trace");
	json_str(&j, "r", out);
	json_end(&j);
	filled = 0;
}

static struct { char kind; u32 cgroup, file; u64 first, nr; } last;

static void send_last(void)
{
	if (!last.kind)
		return;
	filled += (size_t)snprintf(out + filled, sizeof(out) - filled,
				   "%s%c %u %u %" PRIu64 " %" PRIu64, filled ? ";" : "",
				   last.kind, last.cgroup, last.file, last.first, last.nr);
	records++;
	last.kind = 0;
	if (filled > sizeof(out) - 100)
		flush();
}

static void emit(char kind, u32 cgroup, u32 file, u64 first, u64 nr)
{
	if (!nr)
		return;
	if (last.kind == kind && last.cgroup == cgroup && last.file == file &&
	    last.first + last.nr == first && !strchr("DAF", kind)) {
		last.nr += nr;
		return;
	}
	send_last();
	last.kind = kind;
	last.cgroup = cgroup;
	last.file = file;
	last.first = first;
	last.nr = nr;
}

/*
 * read() asks for what is left of its range again and again, as it gets a batch
 * at a time: what was asked for last is what it got up to the next question.
 */
static struct { u32 pid, file; u64 first, end; } asked;

static void answer(u64 up_to)
{
	if (asked.pid)
		emit('R', cgroup_of(asked.pid), asked.file, asked.first,
		     up_to - asked.first);
	asked.pid = 0;
}

static void take(const u8 *record)
{
	u32 id = *(const uint16_t *)record, pid = *(const u32 *)(record + 4), file;
	const struct event *e = event;
	u64 what, from, to, flag;

	while (e < event + EVENTS && e->id != id)
		e++;
	if (e == event + EVENTS)
		return;
	what = field(e, record, WHAT);
	from = field(e, record, FROM);
	to = field(e, record, TO);
	flag = field(e, record, FLAG);
	if (e == &event[GET]) {
		file = file_number(what);
		if (asked.pid == pid && asked.file == file && asked.end == to + 1 &&
		    from >= asked.first)
			answer(from);
		else
			answer(asked.end);
		asked.pid = pid;
		asked.file = file;
		asked.first = from;
		asked.end = to + 1;
		return;
	}
	if (e == &event[STORE] || e == &event[LOAD]) {
		/* The swap cache is of no device. */
		if (!flag)
			emit(e == &event[STORE] ? 'O' : 'I', cgroup_of(pid), 0, from, to);
		return;
	}
	answer(asked.end);
	if (e == &event[FAULT])
		emit('M', cgroup_of(pid), file_number(what), from, 1);
	else if (e == &event[DIRTY])
		emit('W', cgroup_of(pid), file_number(what), from, 1);
	else if (e == &event[EVICT] && !flag)
		emit('D', cgroup_of(pid), file_number(what), 0, 1);
	else if (e == &event[ALLOC] || e == &event[RELEASE])
		emit(e == &event[ALLOC] ? 'A' : 'F', 0, 0, from - base, to);
}

/* A page of the ring buffer: time, length, events with a word before each. */
static void parse(const u8 *page, size_t size)
{
	u64 commit;
	size_t at = 16, end;

	memcpy(&commit, page + 8, sizeof(commit));
	end = at + (commit & 0xfffff);
	if (end > size)
		end = size;
	while (at + 4 <= end) {
		u32 head = *(const u32 *)(page + at), type = head & 31, length;

		at += 4;
		if (type == 29 && !(head >> 5))
			break;
		if (type == 30 || type == 31) {
			at += 4;
			continue;
		}
		if (type && type != 29) {
			length = type * 4;
		} else {
			length = *(const u32 *)(page + at) - (type ? 0 : 4);
			at += 4;
		}
		if (type != 29)
			take(page + at);
		at += (length + 3) & ~3u;
	}
}

static u64 counter(const char *path, const char *name)
{
	char line[128];
	FILE *file = fopen(path, "re");
	u64 v = 0;

	if (!file)
		die("cannot read %s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		size_t n = strlen(name);

		if (!strncmp(line, name, n) && strchr(": ", line[n]))
			v += strtoull(line + n + 1, NULL, 10);
	}
	fclose(file);
	return v;
}

static const struct setting settings[] = {
	{ "base", .large = &base },
	{ 0 },
};

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_term };
	static u8 page[PAGE] __attribute__((aligned(8)));
	struct json j;
	u64 lost;
	u32 i;
	int fd;

	settings_parse(argc, argv, settings);
	if (sysconf(_SC_NPROCESSORS_CONF) != 1)
		die("several CPUs: their events are in no order; use a board with one");
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	setpriority(PRIO_PROCESS, 0, -20);
	cgroup_number("/");
	put(TRACING "tracing_on", "0");
	put(TRACING "trace", "");
	put(TRACING "buffer_size_kb", BUFFER_KIB);
	put(TRACING "buffer_percent", "25");
	for (i = 0; i < EVENTS; i++)
		learn(&event[i]);
	fd = open(TRACING "per_cpu/cpu0/trace_pipe_raw", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		die("cannot open the trace: %s", strerror(errno));
	put(TRACING "tracing_on", "1");
	j = json_line("recording");
	json_end(&j);
	for (;;) {
		struct pollfd poller = { .fd = fd, .events = POLLIN };
		ssize_t got = read(fd, page, sizeof(page));

		if (got > 0) {
			parse(page, (size_t)got);
			continue;
		}
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			die("cannot read the trace: %s", strerror(errno));
		if (stop == 2)
			break;
		if (stop) {
			put(TRACING "tracing_on", "0");
			stop = 2;
			continue;
		}
		poll(&poller, 1, 200);
	}
	answer(asked.end);
	send_last();
	flush();
	put(TRACING "events/enable", "0");
	lost = counter(TRACING "per_cpu/cpu0/stats", "overrun") +
	       counter(TRACING "per_cpu/cpu0/stats", "dropped events");
	j = json_line("recorded");
	json_u64(&j, "records", records);
	json_u64(&j, "lost", lost);
	json_end(&j);
	for (i = 0; i < nr_cgroups; i++) {
		char path[160];
		bool root = !strcmp(cgroup_name[i], "/");

		snprintf(path, sizeof(path), "/cgroup%.63s/memory.stat", cgroup_name[i]);
		j = json_line("held");
		json_u64(&j, "cgroup", i);
		json_u64(&j, "pages", root ? counter("/proc/vmstat", "nr_active_file") +
					     counter("/proc/vmstat", "nr_inactive_file") :
			 (counter(path, "active_file") + counter(path, "inactive_file")) / PAGE);
		json_end(&j);
	}
	if (lost)
		die("%" PRIu64 " events are lost: a larger BUFFER_KIB?", lost);
	return 0;
}
