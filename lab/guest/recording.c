// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * recording - run a recorder, and tell when each frame was where
 *
 * The kernel's tracepoints tell it of every program alike: when the camera had
 * filled a buffer, when the program took it and gave it back, and when the disk
 * had written each part of the file. Nothing runs beside the recorder: the events
 * wait in the kernel's buffer, and are read when the recorder has ended and the
 * filesystem is synced. Frames lie in the file one after the other.
 *
 * One line {"type":"recording"}:
 *
 *   status     of the recorder, 128 and the signal if one ended it
 *   begin, settled, end   when it was started, had run for two seconds, and was
 *	        told to end
 *   cpu        ticks of /proc/stat between the last two: user, nice, system, idle,
 *	        iowait, irq, softirq
 *   ticks_per_s   of these
 *   idle_ns    how long the processor was idle between them, to the nanosecond; if
 *	        the kernel tells (Linux 6.12 does, 7.3 does not), or with --fill
 *   bytes      of the file
 *   cached     bytes that the processor copied into the page cache, of all
 *	        programs; with --cached only
 *   profile    samples of the processor at work (all), those of them in threads of
 *	        the recorder (own), and where these were: in its own instructions
 *	        (user), in a routine of the kernel that copies (copying); with
 *	        --profile only
 *   frames     a list for each that the program took: the camera's number, when
 *	        the buffer was full, how many buffers the camera had left then,
 *	        when the program took it, when it gave the buffer back, when the
 *	        disk had the last byte; 0 for never. With --late-us a number stands
 *	        for so many that came one after the other, and in time
 *   photos     how long each took, from the signal until the file was there; with
 *	        --photo only
 *   said       the last line of its output, if that is an object of JSON
 *
 * Times are microseconds of the monotonic clock. A recorder that ends by itself has
 * failed: nothing is told of it.
 *
 *   --command TEXT   of sh, with exec, so that signals reach the program
 *   --seconds N      SIGINT after so long, and SIGKILL if that does not help (10)
 *   --file PATH      what it writes; none if it is not there in the end
 *   --frame-bytes N  of a frame
 *   --camera N       number of the camera, as of /dev/video0 (0)
 *   --disk PATH      which the file is on
 *   --cached         count what is copied into the page cache
 *   --fill           what is left of the processor goes to a program that waits for
 *	        nothing, and its time is the idle time
 *   --late-us N      for hours: frames that are given back in N microseconds are
 *	        counted; the camera's events are read while the recorder runs, and
 *	        none of the disk; of the file only the last GiB stays, so that there
 *	        is room for it. That is as much as memory has: nothing that is
 *	        cached is dropped
 *   --photo PATH     ask for a photo every --photo-ms (5000), which appears there;
 *	        looks every millisecond whether it has
 *   --profile N      sample what the processor does, every N microseconds (0: not)
 *   --case NAME      repeated in the line
 */
#include "options.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define TRACING		"/sys/kernel/tracing/"
#define SECTOR		512u
#define BUFFERS_MAX	64u
#define EXTENTS_A_CALL	128u
/* how long a recorder may take to end in order, on a host that is busy */
#define GRACE_S		60u
/* what it takes to start is not looked at */
#define SETTLE_S	2u
/* frames of the end may be on their way; record_report.py leaves out as many */
#define TAIL_US		1000000u
/* how much of a file stays on the disk with --late-us, and how often the rest goes */
#define KEPT_BYTES	(1024ull * MIB)
#define TIDY_US		1000000u
/* where the words of the recorder go */
#define OUTPUT		"/tmp/said"
/* of the kernel's buffer for events */
#define BUFFER_KIB	"8192"

static struct {
	const char *command, *file, *disk, *name, *photo;
	u32 seconds, frame_bytes, camera, profile_us, late_us, photo_ms;
	bool cached, fill;
} opt = {
	.disk = "", .name = "", .seconds = 10, .photo_ms = 5000,
};

struct frame {
	u32 sequence, left;
	u64 full, taken, back, flash;	/* µs */
	u64 written;			/* bytes of it that the disk has */
};

static struct frame *frames;
static size_t nr_frames, room;

/* Buffers that are full and wait for the program, by their index. */
static struct {
	u64 full;
	u32 left;
} waiting[BUFFERS_MAX];
/* The frame in each buffer that the program has, counted from 1. */
static u32 in_buffer[BUFFERS_MAX];

struct extent {
	u64 physical, logical, bytes;
};

static struct extent *extents;
static size_t nr_extents;

/* ---------------------------------------------------------------- tracing */

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_TRUNC);

	if (fd < 0 || (*text && write(fd, text, strlen(text)) < 0))
		die("cannot write '%s' to %s: %s", text, path, strerror(errno));
	close(fd);
}

static void event(const char *name, const char *filter, bool on)
{
	char path[160];

	snprintf(path, sizeof(path), TRACING "events/%s/filter", name);
	put(path, on && *filter ? filter : "0");
	snprintf(path, sizeof(path), TRACING "events/%s/enable", name);
	put(path, on ? "1" : "0");
}

static void events(bool on)
{
	char camera[32], disk[64];
	struct stat st;

	snprintf(camera, sizeof(camera), "minor == %u", opt.camera);
	event("vb2/vb2_buf_done", "", on);	/* one camera is in use */
	event("v4l2/v4l2_dqbuf", camera, on);
	event("v4l2/v4l2_qbuf", camera, on);
	if (!*opt.disk || opt.late_us)
		return;
	if (stat(opt.disk, &st) || !S_ISBLK(st.st_mode))
		die("%s is no disk", opt.disk);
	snprintf(disk, sizeof(disk), "dev == %u && rwbs ~ \"*W*\"",
		 (u32)major(st.st_rdev) << 20 | (u32)minor(st.st_rdev));
	event("block/block_rq_complete", disk, on);
	if (opt.cached)
		event("ext4/ext4_da_write_end", "", on);
}

static void trace(void)
{
	put(TRACING "buffer_size_kb", BUFFER_KIB);
	put(TRACING "trace_clock", "mono");
	put(TRACING "trace", "");
	events(true);
	put(TRACING "tracing_on", "1");
}

/* The number behind a name in a line of the trace. */
static u64 number(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	if (!at)
		die("no '%s' in: %s", name, line);
	return strtoull(at + strlen(name), NULL, 10);
}

/* --------------------------------------------------------------- profiling */

/* a page of the kernel's words, and samples; a power of two */
#define SAMPLES_BYTES	(4u * MIB)
#define ROUTINES_MAX	64u

/* Routines of the kernel whose work is to copy; longer names that begin so as well. */
static const char *const copying[] = {
	"rep_movs", "memcpy", "__memcpy", "memmove", "__memmove", "copy_page",
	"copy_user", "copy_mc_", "copy_from_user", "copy_to_user", "_copy_",
	"csum_partial_copy", "bio_copy_",
};
/* These set up page tables. */
static const char *const no_copying[] = { "copy_page_range", "copy_page_regs" };

static struct {
	u64 from, to;
} routines[ROUTINES_MAX];
static u32 nr_routines;

static struct perf_event_mmap_page *samples;
static int sampler = -1;

static bool begins(const char *name, const char *const *with, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strncmp(name, with[i], strlen(with[i])))
			return true;
	return false;
}

/* Where the routines are; the kernel lists its symbols by address. */
static void find_routines(void)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	bool open_end = false;
	char name[512];
	u64 address;

	if (!file)
		die("no /proc/kallsyms");
	while (fscanf(file, "%" SCNx64 " %*c %511[^\n]", &address, name) == 2) {
		if (open_end && address != routines[nr_routines].from) {
			routines[nr_routines++].to = address;
			open_end = false;
		}
		if (open_end || !begins(name, copying, ARRAY_SIZE(copying)) ||
		    begins(name, no_copying, ARRAY_SIZE(no_copying)))
			continue;
		if (nr_routines == ROUTINES_MAX)
			die("more than %u routines that copy", ROUTINES_MAX);
		routines[nr_routines].from = address;
		open_end = true;
	}
	fclose(file);
	if (!nr_routines || !routines[0].from)
		die("/proc/kallsyms has no addresses");
}

static void sample(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000ull * opt.profile_us,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID,
		.exclude_idle = 1, .disabled = 1,
	};
	size_t bytes = SAMPLES_BYTES + (size_t)sysconf(_SC_PAGESIZE);

	find_routines();
	sampler = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (sampler < 0)
		die("no samples: %s", strerror(errno));
	samples = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sampler, 0);
	if (samples == MAP_FAILED)
		die("no room for samples: %s", strerror(errno));
	if (ioctl(sampler, PERF_EVENT_IOC_ENABLE, 0))
		die("no samples: %s", strerror(errno));
}

struct one_sample {
	struct perf_event_header header;
	u64 ip;
	u32 pid, tid;
};

static void json_profile(struct json *j, pid_t recorder)
{
	const char *data = (const char *)samples + samples->data_offset;
	u64 head = __atomic_load_n(&samples->data_head, __ATOMIC_ACQUIRE);
	u64 all = 0, own = 0, user = 0, copies = 0, at;
	u32 i;

	if (head + sizeof(struct one_sample) > samples->data_size)
		die("more samples than there is room for; --profile");
	for (at = 0; at < head; at += sizeof(struct one_sample)) {
		const struct one_sample *s = (const void *)(data + at);

		if (s->header.type != PERF_RECORD_SAMPLE || s->header.size != sizeof(*s))
			die("samples are lost; --profile");
		all++;
		if (s->pid != (u32)recorder)
			continue;
		own++;
		if ((s->header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER)
			user++;
		for (i = 0; i < nr_routines; i++)
			if (s->ip >= routines[i].from && s->ip < routines[i].to)
				copies++;
	}
	json_open(j, "profile", "{");
	json_u64(j, "period_us", opt.profile_us);
	json_u64(j, "all", all);
	json_u64(j, "own", own);
	json_u64(j, "user", user);
	json_u64(j, "copying", copies);
	json_close(j, "}");
}

/* ---------------------------------------------------------- what happened */

static u64 cached;	/* bytes copied into the page cache */

static u64 now_us(void)
{
	return now_ns() / 1000;
}

static u32 buffer(const char *line)
{
	u64 index = number(line, "index = ");

	if (index >= BUFFERS_MAX)
		die("more than %u buffers", BUFFERS_MAX);
	return (u32)index;
}

static void fill(const char *line, u64 at)
{
	u32 index = buffer(line);

	waiting[index].full = at;
	waiting[index].left = (u32)number(line, "owned_by_drv = ");
}

static void take(const char *line, u64 at)
{
	u32 index = buffer(line);

	if (nr_frames == room) {
		room = room ? 2 * room : 1024;
		frames = realloc(frames, room * sizeof(*frames));
		if (!frames)
			die("out of memory");
	}
	frames[nr_frames++] = (struct frame){
		.sequence = (u32)number(line, "sequence = "),
		.full = waiting[index].full, .left = waiting[index].left, .taken = at,
	};
	in_buffer[index] = (u32)nr_frames;
}

static void give_back(const char *line, u64 at)
{
	u32 index = buffer(line);

	if (!in_buffer[index])
		return;		/* before the first frame */
	frames[in_buffer[index] - 1].back = at;
	in_buffer[index] = 0;
}

/* What a line of the trace tells, and when; null if it is no event. */
static const char *event_of(const char *line, u64 *at)
{
	const char *found = strstr(line, ": "), *stamp = found;
	u64 seconds, micros;

	if (*line == '#' || !found)
		return NULL;
	while (stamp > line && stamp[-1] != ' ')
		stamp--;
	if (sscanf(stamp, "%" SCNu64 ".%" SCNu64, &seconds, &micros) != 2)
		die("no time in: %s", line);
	*at = seconds * 1000000 + micros;
	return found + 2;
}

static void of_camera(const char *found, u64 at)
{
	if (!strncmp(found, "vb2_buf_done:", 13))
		fill(found, at);
	else if (!strncmp(found, "v4l2_dqbuf:", 11))
		take(found, at);
	else if (!strncmp(found, "v4l2_qbuf:", 10))
		give_back(found, at);
	else if (!strncmp(found, "ext4_da_write_end:", 18))
		cached += number(found, "copied ");
}

/* Reads the camera's events that have come since; lines may come in parts. */
static void follow_events(void)
{
	static char text[65536];
	static size_t have;
	static int pipe = -1;
	ssize_t got;

	if (pipe < 0)
		pipe = open(TRACING "trace_pipe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (pipe < 0)
		die("no trace_pipe: %s", strerror(errno));
	while ((got = read(pipe, text + have, sizeof(text) - 1 - have)) > 0) {
		char *line = text, *end;

		have += (size_t)got;
		text[have] = 0;
		while ((end = strchr(line, '\n'))) {
			const char *found;
			u64 at;

			*end = 0;
			found = event_of(line, &at);
			if (found)
				of_camera(found, at);
			line = end + 1;
		}
		have -= (size_t)(line - text);
		memmove(text, line, have);
	}
	if (got < 0 && errno != EAGAIN)
		die("trace_pipe: %s", strerror(errno));
}

/* ------------------------------------------------- while the recorder runs */

/* All of the file but what was written last goes. */
static void shorten(void)
{
	static int fd = -1;
	static u64 gone;
	struct stat st;
	u64 until;

	if (fd < 0)
		fd = open(opt.file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;		/* not yet */
	if (fstat(fd, &st))
		die("%s: %s", opt.file, strerror(errno));
	if ((u64)st.st_size < gone + KEPT_BYTES + MIB)
		return;
	until = ((u64)st.st_size - KEPT_BYTES) / MIB * MIB;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)gone,
		      (off_t)(until - gone)))
		die("%s: cannot give back its beginning: %s", opt.file, strerror(errno));
	gone = until;
}

static u64 *photos;		/* µs */
static size_t nr_photos;
static u64 asked;		/* when, for a photo that has not come; 0: none is wanted */

/* From time to time asks for a photo, and looks whether it is there. */
static void photograph(pid_t pid)
{
	static u64 next;

	if (!next)
		next = now_us() + SETTLE_S * 1000000ull;
	if (!asked && now_us() >= next) {
		if (unlink(opt.photo) && errno != ENOENT)
			die("%s is in the way: %s", opt.photo, strerror(errno));
		asked = now_us();
		next = asked + 1000ull * opt.photo_ms;
		if (kill(pid, SIGUSR2))
			asked = 0;	/* it has ended */
	} else if (asked && !access(opt.photo, F_OK)) {
		photos = realloc(photos, (nr_photos + 1) * sizeof(*photos));
		if (!photos)
			die("out of memory");
		photos[nr_photos++] = now_us() - asked;
		asked = 0;
	}
}

/* A moment of waiting, and what is to be done meanwhile. */
static void meanwhile(pid_t pid)
{
	static u64 tidied;

	sleep_ms(asked ? 1 : 10);
	if (opt.photo)
		photograph(pid);
	if (opt.late_us && now_us() >= tidied + TIDY_US) {
		follow_events();
		shorten();
		tidied = now_us();
	}
}

/* ------------------------------------------------------------ the recorder */

static pid_t start(void)
{
	pid_t pid = fork();
	int fd;

	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (pid)
		return pid;
	fd = open(OUTPUT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		die("cannot write " OUTPUT ": %s", strerror(errno));
	execl("/bin/sh", "sh", "-c", opt.command, (char *)NULL);
	die("no sh: %s", strerror(errno));
}

/* Waits so long for its end; its status if it came. */
static bool ended(pid_t pid, u64 until_us, int *status)
{
	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid)
			return true;
		if (got < 0 && errno != EINTR)
			die("cannot wait: %s", strerror(errno));
		if (now_us() >= until_us)
			return false;
		meanwhile(pid);
	}
}

/* As a shell tells it. */
static int status_of(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct ticks {
	u64 user, nice, system, idle, iowait, irq, softirq;
};

static struct ticks ticks_now(void)
{
	FILE *file = fopen("/proc/stat", "re");
	struct ticks t;

	if (!file || fscanf(file, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			    " %" SCNu64 " %" SCNu64 " %" SCNu64, &t.user, &t.nice,
			    &t.system, &t.idle, &t.iowait, &t.irq, &t.softirq) != 7)
		die("no /proc/stat");
	fclose(file);
	return t;
}

/* Has what nobody else wants of the only processor; 0: there is none. */
static pid_t filler;

static void fill_up(void)
{
	struct sched_param lowest = { 0 };

	filler = fork();
	if (filler < 0)
		die("cannot fork: %s", strerror(errno));
	if (filler)
		return;
	if (sched_setscheduler(0, SCHED_IDLE, &lowest))
		die("no lowest priority: %s", strerror(errno));
	for (;;)
		__asm__ volatile("" ::: "memory");
}

/* How long the processor has been idle, by /proc/timer_list; false if it does not say. */
static bool idle_told(u64 *ns)
{
	static const char *const names[] = { ".idle_sleeptime", ".iowait_sleeptime" };
	FILE *file = fopen("/proc/timer_list", "re");
	char line[256];
	u32 seen = 0;
	size_t i;

	*ns = 0;
	while (file && fgets(line, sizeof(line), file)) {
		const char *at = line + strspn(line, " ");

		for (i = 0; i < ARRAY_SIZE(names); i++)
			if (!strncmp(at, names[i], strlen(names[i]))) {
				*ns += number(at, ": ");
				seen++;
			}
	}
	if (file)
		fclose(file);
	return seen == ARRAY_SIZE(names);
}

/* The same, or what the filler had. */
static bool idle_now(u64 *ns)
{
	struct timespec taken;
	clockid_t clock;

	if (!filler)
		return idle_told(ns);
	if (clock_getcpuclockid(filler, &clock) || clock_gettime(clock, &taken))
		die("the filler is gone");
	*ns = (u64)taken.tv_sec * 1000000000 + (u64)taken.tv_nsec;
	return true;
}

/* ------------------------------------------------------- where the file is */

static int by_place(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return x->physical < y->physical ? -1 : x->physical > y->physical;
}

/* Where the file lies on the disk. */
static u64 find_extents(void)
{
	struct fiemap *map = xalloc(sizeof(*map) + EXTENTS_A_CALL * sizeof(map->fm_extents[0]));
	int fd = opt.file ? open(opt.file, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	bool last = false;
	u64 from = 0;
	u32 i;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st))
		die("%s: %s", opt.file, strerror(errno));
	while (!last) {
		*map = (struct fiemap){
			.fm_start = from, .fm_length = FIEMAP_MAX_OFFSET - from,
			.fm_extent_count = EXTENTS_A_CALL,
		};
		if (ioctl(fd, FS_IOC_FIEMAP, map))
			die("%s: where it lies is not known: %s", opt.file, strerror(errno));
		last = !map->fm_mapped_extents;
		extents = realloc(extents, (nr_extents + EXTENTS_A_CALL) * sizeof(*extents));
		if (!extents)
			die("out of memory");
		for (i = 0; i < map->fm_mapped_extents; i++) {
			const struct fiemap_extent *e = &map->fm_extents[i];

			extents[nr_extents++] = (struct extent){
				e->fe_physical, e->fe_logical, e->fe_length,
			};
			from = e->fe_logical + e->fe_length;
			last |= !!(e->fe_flags & FIEMAP_EXTENT_LAST);
		}
	}
	qsort(extents, nr_extents, sizeof(*extents), by_place);
	free(map);
	close(fd);
	return (u64)st.st_size;
}

static u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

static u64 max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* The disk has these bytes of the file. */
static void on_disk(u64 from, u64 to, u64 at)
{
	u64 n;

	for (n = from / opt.frame_bytes; n < nr_frames && n * opt.frame_bytes < to; n++) {
		u64 first = n * opt.frame_bytes, end = first + opt.frame_bytes;

		frames[n].written += min_u64(to, end) - max_u64(from, first);
		if (frames[n].written >= opt.frame_bytes)
			frames[n].flash = at;
	}
}

/* The disk has these bytes of its own. */
static void completed(u64 from, u64 to, u64 at)
{
	size_t low = 0, high = nr_extents;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (extents[middle].physical + extents[middle].bytes <= from)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < nr_extents && extents[low].physical < to; low++) {
		const struct extent *e = &extents[low];
		u64 first = max_u64(from, e->physical), end = min_u64(to, e->physical + e->bytes);

		on_disk(e->logical + first - e->physical, e->logical + end - e->physical, at);
	}
}

/* Reads the events: of the camera, or of the disk when all frames are known. */
static void read_events(bool disk)
{
	FILE *file = fopen(TRACING "trace", "re");
	char *line = NULL;
	size_t size = 0;

	if (!file)
		die("no trace: %s", strerror(errno));
	while (getline(&line, &size, file) > 0) {
		u64 at, sector, sectors;
		const char *found = event_of(line, &at), *place;

		if (!found)
			continue;
		if (!disk) {
			of_camera(found, at);
		} else if (!strncmp(found, "block_rq_complete:", 18)) {
			place = strstr(found, ") ");
			if (!place || sscanf(place, ") %" SCNu64 " + %" SCNu64, &sector, &sectors) != 2)
				die("no place in: %s", line);
			completed(sector * SECTOR, (sector + sectors) * SECTOR, at);
		}
	}
	free(line);
	fclose(file);
}

/* Events that the buffer had no room for would be frames that nobody knows of. */
static void none_missing(void)
{
	char stats[4096];
	const char *at;

	if (!read_text(TRACING "per_cpu/cpu0/stats", stats, sizeof(stats)))
		die("no statistics of the trace");
	at = strstr(stats, "overrun: ");
	if (!at || strtoull(at + 9, NULL, 10))
		die("the trace is not whole: a larger BUFFER_KIB?");
}

/* Whether a frame was in time, and none is missing before or after it. */
static bool counted_only(size_t i, u64 from, u64 until)
{
	const struct frame *f = &frames[i];

	return opt.late_us && i && i + 1 < nr_frames && f->full >= from && f->full < until &&
	       f->back && f->back - f->full <= opt.late_us &&
	       f[-1].sequence + 1 == f->sequence && f->sequence + 1 == f[1].sequence;
}

static void json_frames(struct json *j, u64 from, u64 until)
{
	u64 count = 0;
	size_t i;

	json_open(j, "frames", "[");
	for (i = 0; i < nr_frames; i++) {
		const struct frame *f = &frames[i];

		if (counted_only(i, from, until)) {
			count++;
			continue;
		}
		if (count)
			json_u64(j, NULL, count);
		count = 0;
		json_open(j, NULL, "[");
		json_u64(j, NULL, f->sequence);
		json_u64(j, NULL, f->full);
		json_u64(j, NULL, f->left);
		json_u64(j, NULL, f->taken);
		json_u64(j, NULL, f->back);
		json_u64(j, NULL, f->flash);
		json_close(j, "]");
	}
	json_close(j, "]");
}

static void json_said(struct json *j)
{
	static char text[65536];
	char *last;

	if (!read_text(OUTPUT, text, sizeof(text)))
		return;
	last = strrchr(text, '\n');
	last = last ? last + 1 : text;
	if (*last == '{' && last[strlen(last) - 1] == '}')
		json_raw(j, "said", last);
}

static const struct setting settings[] = {
	{ "command", .text = &opt.command },
	{ "seconds", .number = &opt.seconds },
	{ "file", .text = &opt.file },
	{ "frame-bytes", .number = &opt.frame_bytes },
	{ "camera", .number = &opt.camera },
	{ "disk", .text = &opt.disk },
	{ "cached", .flag = &opt.cached },
	{ "fill", .flag = &opt.fill },
	{ "profile", .number = &opt.profile_us },
	{ "late-us", .number = &opt.late_us },
	{ "photo", .text = &opt.photo },
	{ "photo-ms", .number = &opt.photo_ms },
	{ "case", .text = &opt.name },
	{ 0 },
};

int main(int argc, char **argv)
{
	struct ticks before, after;
	u64 begin, settled, end, bytes, idle_before, idle_after;
	struct json j;
	bool early, idle_known;
	int status;
	pid_t pid;
	size_t i;

	settings_parse(argc, argv, settings);
	if (!opt.command || !opt.frame_bytes)
		die("nothing to do: --command, --frame-bytes");
	if (opt.seconds <= SETTLE_S)
		die("--seconds is more than %u", SETTLE_S);
	if (opt.late_us && !opt.file)
		die("--late-us wants --file");
	trace();
	if (opt.fill)
		fill_up();
	begin = now_us();
	pid = start();
	early = ended(pid, begin + SETTLE_S * 1000000ull, &status);
	before = ticks_now();
	idle_now(&idle_before);
	settled = now_us();
	if (opt.profile_us)
		sample();
	early = early || ended(pid, begin + opt.seconds * 1000000ull, &status);
	if (early)
		die("%s: the recorder ended by itself, status %d", opt.name, status_of(status));
	end = now_us();
	if (sampler >= 0 && ioctl(sampler, PERF_EVENT_IOC_DISABLE, 0))
		die("the samples do not end: %s", strerror(errno));
	after = ticks_now();
	idle_known = idle_now(&idle_after);
	if (filler)
		kill(filler, SIGKILL);
	kill(pid, SIGINT);
	if (!ended(pid, end + GRACE_S * 1000000ull, &status)) {
		kill(pid, SIGKILL);
		ended(pid, UINT64_MAX, &status);
	}
	sync();
	put(TRACING "tracing_on", "0");
	events(false);
	none_missing();
	bytes = find_extents();
	if (opt.late_us)
		follow_events();
	else
		read_events(false);
	read_events(true);

	j = json_line("recording");
	json_str(&j, "case", opt.name);
	json_s64(&j, "status", status_of(status));
	json_u64(&j, "begin", begin);
	json_u64(&j, "settled", settled);
	json_u64(&j, "end", end);
	json_open(&j, "cpu", "{");
	json_u64(&j, "user", after.user - before.user);
	json_u64(&j, "nice", after.nice - before.nice);
	json_u64(&j, "system", after.system - before.system);
	json_u64(&j, "idle", after.idle - before.idle);
	json_u64(&j, "iowait", after.iowait - before.iowait);
	json_u64(&j, "irq", after.irq - before.irq);
	json_u64(&j, "softirq", after.softirq - before.softirq);
	json_close(&j, "}");
	json_u64(&j, "ticks_per_s", (u64)sysconf(_SC_CLK_TCK));
	if (idle_known)
		json_u64(&j, "idle_ns", idle_after - idle_before);
	json_u64(&j, "bytes", bytes);
	if (opt.cached)
		json_u64(&j, "cached", cached);
	if (samples)
		json_profile(&j, pid);
	json_frames(&j, settled, end - TAIL_US);
	if (opt.photo) {
		json_open(&j, "photos", "[");
		for (i = 0; i < nr_photos; i++)
			json_u64(&j, NULL, photos[i]);
		json_close(&j, "]");
	}
	json_said(&j);
	json_end(&j);
	return 0;
}
