// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Carries out a sequence of operations on files, in up to four processes that take turns.
 *
 * sequences SCRIPT RESULTS, in an empty directory. Each line of the script is a step: who acts, what
 * it does, and the arguments. For each step a line goes to RESULTS: what the call returned, errno,
 * a sum of the bytes that were read. Without the library the results are the same in every run: what
 * no call promises is left out or decided.
 *
 * Processes 0 and 1 exist from the start and have no descriptor in common; 2 is a child of 0 and 3
 * one of 1 while there is one. They act strictly in turns, kept by a word in shared memory and bare
 * system calls, of which the library sees nothing. Where the script says "tell", a process also
 * learns through a pipe that it is its turn, by plain write() and read(), as programs do it, or
 * with "tell by socket" by send() and recv().
 *
 * With "late 0" process 0 sleeps whenever a step has come, as if the machine were busy.
 *
 * "0 thread write 1 4096" runs the step in a thread of its own. Descriptors are named by slots, which
 * children inherit; a slot keeps its number when it is closed, so that bad descriptors are used too.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bare.h"

extern char **environ;

#define ACTORS 4
#define SLOTS 12
#define STEPS 4096
#define WORDS 10
#define BLOCK (4 << 20)

/* Descriptors of this program's own, out of the way of those that the script opens. */
enum { RESULTS = 200, SHARED, SOCKET, PIPES = 204 };

struct shared {
	unsigned int turn;
	int alive[ACTORS];
	int pid[ACTORS];
	int told[ACTORS];
	int executing; /* who is about to become another program image, plus one */
};

struct step {
	int actor, threaded;
	char *word[WORDS]; /* the operation and its arguments */
};

static struct step steps[STEPS];
static int count, telling, sockets, bare_second, late = -1;
static struct shared *shared;
static const char *script, *self;
static int me;
static long parent;
static int slot[SLOTS];
static FILE *file[SLOTS];
static struct { unsigned char *at; size_t len; } map[SLOTS];
static unsigned char pool[BLOCK + (1 << 20)] __attribute__((aligned(4096)));
static unsigned char buffer[BLOCK] __attribute__((aligned(4096)));
static char extra[256];
static int now; /* the step that is carried out */

static void must(long result, const char *what)
{
	if (result < 0) {
		char line[100];
		int n = snprintf(line, sizeof(line), "sequences: %s: %ld\n", what, result);

		bare(SYS_write, 2, line, n);
		bare(SYS_exit_group, 3);
	}
}

static void say(const char *format, ...)
{
	char line[400];
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	must(bare(SYS_write, RESULTS, line, n), "results");
}

/* ----------------------------------------------------------------------------------- the script */

static void parse(void)
{
	static char text[1 << 18];
	long fd = bare(SYS_openat, AT_FDCWD, script, O_RDONLY, 0), n;

	must(fd, script);
	n = bare(SYS_read, fd, text, sizeof(text) - 1);
	must(n, script);
	bare(SYS_close, fd);
	for (char *line = text, *next; line && *line; line = next) {
		struct step *s = &steps[count];
		char *word, *rest = line;
		int words = 0;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		telling |= !strncmp(line, "tell", 4);
		sockets |= !strcmp(line, "tell by socket");
		bare_second |= !strcmp(line, "bare second");
		sscanf(line, "late %d", &late);
		if (*line < '0' || *line >= '0' + ACTORS)
			continue;
		s->actor = *line - '0';
		strsep(&rest, " ");
		while ((word = strsep(&rest, " ")) && words < WORDS - 1) {
			if (!strcmp(word, "thread"))
				s->threaded = 1;
			else
				s->word[words++] = word;
		}
		if (words && ++count == STEPS)
			break;
	}
}

static const char *word(int i)
{
	const char *text = i < WORDS ? steps[now].word[i] : NULL;

	return text ? text : "";
}

static int is(int i, const char *text)
{
	return !strcmp(word(i), text);
}

static long number(int i)
{
	return strtol(word(i), NULL, 0);
}

static int slot_of(int i)
{
	return (unsigned long)number(i) % SLOTS;
}

static int fd_of(int i)
{
	return slot[slot_of(i)];
}

static const struct { const char *name; long value; } names[] = {
	{ "r", O_RDONLY }, { "w", O_WRONLY }, { "rw", O_RDWR }, { "creat", O_CREAT },
	{ "trunc", O_TRUNC }, { "excl", O_EXCL }, { "append", O_APPEND }, { "direct", O_DIRECT },
	{ "sync", O_SYNC }, { "dsync", O_DSYNC }, { "cloexec", O_CLOEXEC }, { "tmpfile", O_TMPFILE },
	{ "nonblock", O_NONBLOCK }, { "nofollow", O_NOFOLLOW },
	{ "keep", FALLOC_FL_KEEP_SIZE }, { "punch", FALLOC_FL_PUNCH_HOLE },
	{ "zero", FALLOC_FL_ZERO_RANGE }, { "collapse", FALLOC_FL_COLLAPSE_RANGE },
	{ "insert", FALLOC_FL_INSERT_RANGE },
	{ "read", PROT_READ }, { "write", PROT_WRITE },
	{ "set", SEEK_SET }, { "cur", SEEK_CUR }, { "end", SEEK_END },
	{ "data", SEEK_DATA }, { "hole", SEEK_HOLE },
	{ "rd", F_RDLCK }, { "wr", F_WRLCK }, { "un", F_UNLCK },
};

/* Flags with commas between. */
static long flags(int i)
{
	char text[100], *rest = text, *one;
	long value = 0;

	snprintf(text, sizeof(text), "%s", word(i));
	while ((one = strsep(&rest, ","))) {
		for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
			if (!strcmp(one, names[k].name))
				value |= names[k].value;
	}
	return value;
}

/* ------------------------------------------------------------------------------------ the data */

static uint64_t sum(const unsigned char *data, size_t n, uint64_t h)
{
	for (; n >= 8; n -= 8, data += 8) {
		uint64_t x;

		memcpy(&x, data, 8);
		h = (h ^ x) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	while (n--)
		h = (h ^ *data++) * 0x100000001b3ull;
	return h;
}

static void fill(void)
{
	uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < sizeof(pool); i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(pool + i, &x, 8);
	}
}

/* What step `now` writes; aligned, since some of it is for O_DIRECT. */
static unsigned char *data(int salt)
{
	return pool + (now * 7 + salt) % 256 * 4096;
}

static size_t size_at(int i)
{
	size_t n = number(i);

	return n < BLOCK ? n : BLOCK;
}

static long heard(long n)
{
	if (n > 0)
		snprintf(extra, sizeof(extra), "sum %016lx", sum(buffer, n, 1));
	return n;
}

/* `size` bytes of memory in `parts`, some of which are empty. */
static int split(struct iovec *part, unsigned char *memory, size_t size, int parts)
{
	size_t done = 0;

	if (parts < 1 || parts > 64)
		parts = 3;
	for (int i = 0; i < parts; i++) {
		size_t n = i == parts - 1 ? size - done : i % 3 == 1 ? 0 : (size / parts) & ~511ul;

		part[i] = (struct iovec){ memory + done, n };
		done += n;
	}
	return parts;
}

/* Memory of which the kernel may use `good` bytes and no more. */
static unsigned char *bad(size_t good)
{
	static unsigned char *edge;

	if (!edge) {
		edge = (void *)bare(SYS_mmap, NULL, 1 << 20, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(edge, 7, 1 << 19);
		bare(SYS_mprotect, edge + (1 << 19), 1 << 19, PROT_NONE);
	}
	if (is(3, "small"))
		return (unsigned char *)64;
	if (is(3, "large"))
		return (unsigned char *)0xffff800000000000ul;
	return edge + (1 << 19) - (good < 1 << 19 ? good : 1 << 19);
}

/* ------------------------------------------------------------------------------ the operations */

static void write_all(int fd, const char *how, size_t n, size_t times)
{
	long total = 0, error = 0, got = 1;

	for (size_t i = 0; i < times && got > 0; i++) {
		unsigned char *from = data(i);
		size_t left = n;

		/* What is written in part is gone on with, as programs do: that says why. */
		do {
			struct iovec part[3];

			if (!strcmp(how, "writev"))
				got = writev(fd, part, split(part, from, left, 3));
			else if (!strcmp(how, "syscall"))
				got = syscall(SYS_write, fd, from, left);
			else
				got = write(fd, from, left);
			error = got < 0 ? errno : 0;
			if (got <= 0)
				break;
			total += got;
			from += got;
			left -= got;
		} while (left);
	}
	snprintf(extra, sizeof(extra), "in all %ld", total);
	errno = error;
}

static void read_all(int fd, const char *how, size_t n, size_t times)
{
	long total = 0, error = 0;
	uint64_t h = 1;

	for (size_t i = 0; i < times && !error; i++) {
		struct iovec part[3];
		long got;

		if (!strcmp(how, "readv"))
			got = readv(fd, part, split(part, buffer, n, 3));
		else if (!strcmp(how, "syscall"))
			got = syscall(SYS_read, fd, buffer, n);
		else
			got = read(fd, buffer, n);
		error = got < 0 ? errno : 0;
		total += got > 0 ? got : 0;
		if (got <= 0)
			break;
		h = sum(buffer, got, h);
	}
	snprintf(extra, sizeof(extra), "in all %ld sum %016lx", total, h);
	errno = error;
}

static long open_file(void)
{
	const char *name = word(2), *how = word(4);
	long mode = flags(3), fd;
	struct open_how at = { .flags = mode, .mode = 0644 };

	if (!(mode & (O_CREAT | __O_TMPFILE)))
		at.mode = 0;
	if (!strcmp(how, "openat"))
		fd = openat(AT_FDCWD, name, mode, 0644);
	else if (!strcmp(how, "openat2"))
		fd = syscall(SYS_openat2, AT_FDCWD, name, &at, sizeof(at));
	else if (!strcmp(how, "syscall"))
		fd = syscall(SYS_openat, AT_FDCWD, name, mode, 0644);
#ifdef SYS_open
	else if (!strcmp(how, "sysopen"))
		fd = syscall(SYS_open, name, mode, 0644);
#endif
	else if (!strcmp(how, "creat"))
		fd = creat(name, 0644);
	else
		fd = open(name, mode, 0644);
	if (fd >= 0)
		slot[slot_of(1)] = fd;
	return fd;
}

/* What a stat call said, but for what no two runs have in common. */
static void about(long size, long links, long mode, long changed)
{
	/* A time that "utimens" set is long ago. */
	snprintf(extra, sizeof(extra), "size %ld links %ld mode %lo%s", size, links, mode,
		 changed < 1000000000 ? " old" : "");
}

static long look(int fd, const char *name, const char *how)
{
	struct stat st;
	struct statx x;
	long result;

	if (!strcmp(how, "statx") || !strcmp(how, "sysstatx")) {
		int at = name ? AT_FDCWD : fd;
		int empty = name ? 0 : AT_EMPTY_PATH;
		const char *path = name ? name : "";

		result = *how == 's' && how[1] == 'y' ?
				 syscall(SYS_statx, at, path, empty, STATX_BASIC_STATS, &x) :
				 statx(at, path, empty, STATX_BASIC_STATS, &x);
		if (!result)
			about(x.stx_size, x.stx_nlink, x.stx_mode, x.stx_mtime.tv_sec);
		return result;
	}
	if (!strcmp(how, "fstatat"))
		result = name ? fstatat(AT_FDCWD, name, &st, 0) : fstatat(fd, "", &st, AT_EMPTY_PATH);
	else if (!strcmp(how, "newfstatat"))
		result = name ? syscall(SYS_newfstatat, AT_FDCWD, name, &st, 0) :
				syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH);
	else if (!strcmp(how, "syscall") && !name)
		result = syscall(SYS_fstat, fd, &st);
#ifdef SYS_stat
	else if (!strcmp(how, "syscall"))
		result = syscall(SYS_stat, name, &st);
#endif
	else if (!strcmp(how, "lstat") && name)
		result = lstat(name, &st);
	else
		result = name ? stat(name, &st) : fstat(fd, &st);
	if (!result)
		about(st.st_size, st.st_nlink, st.st_mode, st.st_mtime);
	return result;
}

/* Times of change, which the driver compares by their order. */
static long times(void)
{
	size_t at = 0;

	for (const char *name = word(1); *name; name++) {
		char path[2] = { *name };
		struct stat st;

		if (*name != ',' && !stat(path, &st))
			at += snprintf(extra + at, sizeof(extra) - at, " %s %ld.%09ld", path,
				       st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	}
	return 0;
}

/* Lets time pass, in milliseconds, without a call that others could notice. */
static long busy(long time)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < time);
	return 0;
}

static long lock(void)
{
	const char *how = word(2);
	int fd = fd_of(1), get = is(3, "get");
	struct flock l = { .l_type = get ? F_WRLCK : flags(3), .l_whence = SEEK_SET };
	long result;

	l.l_start = number(4);
	l.l_len = number(5);
	if (!strcmp(how, "flock"))
		return flock(fd, LOCK_NB | (is(3, "rd") ? LOCK_SH : is(3, "un") ? LOCK_UN : LOCK_EX));
	if (!strcmp(how, "lockf"))
		return lockf(fd, get ? F_TEST : is(3, "un") ? F_ULOCK : F_TLOCK, l.l_len);
	if (!strcmp(how, "ofd"))
		result = fcntl(fd, get ? F_OFD_GETLK : F_OFD_SETLK, &l);
	else if (!strcmp(how, "syscall"))
		result = syscall(SYS_fcntl, fd, get ? F_GETLK : F_SETLK, &l);
	else
		result = fcntl(fd, get ? F_GETLK : F_SETLK, &l);
	if (get && !result)
		snprintf(extra, sizeof(extra), "type %d from %ld for %ld", l.l_type,
			 (long)l.l_start, (long)l.l_len);
	return result;
}

static long map_file(void)
{
	int i = slot_of(1);
	size_t len = number(4);
	void *at = mmap(NULL, len, flags(3) | PROT_READ, is(6, "private") ? MAP_PRIVATE : MAP_SHARED,
			fd_of(2), number(5));

	if (at == MAP_FAILED)
		return -1;
	map[i].at = at;
	map[i].len = len;
	return 0;
}

/* The kernel copies, so that what lies behind the end of the file is an error and no signal. */
static long touch(int writing)
{
	int i = slot_of(1);
	struct iovec mine = { writing ? data(0) : buffer, size_at(3) };
	struct iovec theirs = { map[i].at + number(2), mine.iov_len };

	if (!map[i].at || (size_t)number(2) + mine.iov_len > map[i].len) {
		errno = ERANGE;
		return -1;
	}
	if (writing)
		return process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0);
	return heard(process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0));
}

/* Moves bytes in the kernel until there are no more or so many are moved. */
static long move(void)
{
	int from = fd_of(1), to = fd_of(2), pair[2] = { -1, -1 };
	long left = number(3), got = 0, total = 0;
	const char *how = word(0);

	if (!strcmp(how, "splice") && pipe(pair))
		return -1;
	while (left > 0) {
		if (!strcmp(how, "sendfile"))
			got = sendfile(to, from, NULL, left);
		else if (!strcmp(how, "copy_file_range"))
			got = copy_file_range(from, NULL, to, NULL, left, 0);
		else {
			long there = splice(from, NULL, pair[1], NULL, left < 65536 ? left : 65536, 0);

			for (got = there; there > 0 && got > 0; there -= got > 0 ? got : 0)
				got = splice(pair[0], NULL, to, NULL, there, 0);
		}
		if (got <= 0)
			break;
		total += got;
		left -= got;
	}
	if (pair[0] >= 0) {
		int error = errno;

		close(pair[0]);
		close(pair[1]);
		errno = error;
	}
	snprintf(extra, sizeof(extra), "in all %ld", total);
	return got < 0 ? -1 : 0;
}

/* One request that another thread, or the kernel, carries out: SLOT r|w SIZE AT. */
static long by_aio(int fd)
{
	struct aiocb block = { .aio_fildes = fd, .aio_nbytes = size_at(3), .aio_offset = number(4),
			       .aio_buf = is(2, "w") ? data(0) : buffer };
	const struct aiocb *list[] = { &block };
	long result;
	int error;

	if (is(2, "w") ? aio_write(&block) : aio_read(&block))
		return -1;
	while ((error = aio_error(&block)) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	result = aio_return(&block);
	errno = error;
	return result;
}

static long by_kernel_aio(int fd)
{
	struct iocb block = { .aio_fildes = fd, .aio_nbytes = size_at(3), .aio_offset = number(4),
			      .aio_lio_opcode = is(2, "w") ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			      .aio_buf = (uintptr_t)(is(2, "w") ? data(0) : buffer) };
	struct iocb *blocks[] = { &block };
	struct io_event event = { 0 };
	aio_context_t context = 0;
	long result = syscall(SYS_io_setup, 1, &context);
	int error;

	if (result < 0)
		return result;
	result = syscall(SYS_io_submit, context, 1, blocks);
	error = errno;
	if (result == 1) {
		while (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
			;
		result = event.res;
	}
	syscall(SYS_io_destroy, context);
	errno = error;
	if (result < -1) {
		errno = -result;
		result = -1;
	}
	return result;
}

static long by_ring(int fd)
{
	struct io_uring_params about = { 0 };
	int ring = syscall(SYS_io_uring_setup, 1, &about);
	struct io_uring_sqe *request;
	struct io_uring_cqe *done;
	unsigned char *queues;
	unsigned int *tail;
	size_t len, more;
	long result;

	if (ring < 0)
		return -1;
	len = about.sq_off.array + about.sq_entries * sizeof(unsigned int);
	more = about.cq_off.cqes + about.cq_entries * sizeof(*done);
	len = more > len ? more : len;
	queues = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	request = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	if (queues == MAP_FAILED || request == MAP_FAILED || !(about.features & IORING_FEAT_SINGLE_MMAP))
		must(-1, "a ring");
	*request = (struct io_uring_sqe){ .opcode = is(2, "w") ? IORING_OP_WRITE : IORING_OP_READ,
					  .fd = fd, .len = size_at(3), .off = number(4),
					  .addr = (uintptr_t)(is(2, "w") ? data(0) : buffer) };
	tail = (void *)(queues + about.sq_off.tail);
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	while (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
	       errno == EINTR)
		;
	done = (void *)(queues + about.cq_off.cqes);
	result = done->res;
	munmap(queues, len);
	munmap(request, 4096);
	close(ring);
	errno = 0;
	if (result < 0) {
		errno = -result;
		result = -1;
	}
	return result;
}

/* Gives pages to a pipe, and these to a file. */
static long gift(int fd)
{
	size_t n = size_at(2) < 65536 ? size_at(2) : 65536;
	struct iovec part = { data(0), n };
	int pair[2], error;
	long got;

	if (pipe(pair))
		return -1;
	got = vmsplice(pair[1], &part, 1, 0);
	if (got > 0)
		got = splice(pair[0], NULL, fd, NULL, got, 0);
	error = errno;
	close(pair[0]);
	close(pair[1]);
	errno = error;
	return got;
}

/* What another program makes of a file. */
static long hear(const char *name)
{
	char command[100];
	FILE *said;

	snprintf(command, sizeof(command), "cat %s 2>&1 | cksum", name);
	said = popen(command, "r");
	if (!said)
		return -1;
	if (!fgets(extra, sizeof(extra), said))
		*extra = 0;
	extra[strcspn(extra, "\n")] = 0;
	return pclose(said);
}

/* Another descriptor of a file, by a name that the kernel gives it. */
static long open_again(int fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags(3));
}

static long from_itself(int fd)
{
	int self_fd = pidfd_open(getpid(), 0), error;
	long got;

	if (self_fd < 0)
		return -1;
	got = is(3, "syscall") ? syscall(SYS_pidfd_getfd, self_fd, fd, 0) : pidfd_getfd(self_fd, fd, 0);
	error = errno;
	close(self_fd);
	errno = error;
	return got;
}

static long pass_on(int receive)
{
	char byte = 'x', space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	long result;
	int fd = fd_of(1);

	if (receive) {
		result = recvmsg(SOCKET + 1, &message, MSG_DONTWAIT);
		header = CMSG_FIRSTHDR(&message);
		if (result <= 0 || !header)
			return result;
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
		slot[slot_of(1)] = fd;
		return fd;
	}
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(SOCKET, &message, MSG_DONTWAIT);
}

static long stdio(void)
{
	int i = slot_of(1);
	FILE *f = file[i];
	const char *how = word(0);

	if (!strcmp(how, "fdopen") || !strcmp(how, "fopen")) {
		if (f)
			return -2;
		file[i] = *how == 'f' && how[1] == 'd' ? fdopen(fd_of(2), word(3)) : fopen(word(2), word(3));
		return file[i] ? fileno(file[i]) : -1;
	}
	if (!f)
		return -2;
	if (!strcmp(how, "fwrite"))
		return fwrite(data(0), 1, size_at(2), f);
	if (!strcmp(how, "fread"))
		return heard(fread(buffer, 1, size_at(2), f));
	if (!strcmp(how, "fflush"))
		return fflush(f);
	file[i] = NULL;
	return fclose(f);
}

/* How many descriptors are left. */
static long exhaust(void)
{
	static int had[4096];
	int n = 0;

	while (n < 4096 && (had[n] = dup(RESULTS)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(had[i]);
	return n;
}

/* --------------------------------------------------------------------------------- processes */

static int parent_of(int actor)
{
	return actor == 1 ? 0 : actor - 2;
}

static char **arguments(int actor, int from)
{
	static char number[3][200], *list[] = { NULL, NULL, number[0], number[1], number[2], NULL };
	int at = 0;

	list[0] = (char *)self;
	list[1] = (char *)script;
	sprintf(number[0], "%d", actor);
	sprintf(number[1], "%d", from);
	for (int i = 0; i < SLOTS; i++)
		at += sprintf(number[2] + at, "%d,", slot[i]);
	return list;
}

static void serve(int from);

static void become(int actor)
{
	me = actor;
	parent = bare(SYS_getppid);
	shared->pid[actor] = bare(SYS_getpid);
}

/* A child, which goes on with the next step. */
static long start_child(void)
{
	int actor = me + 2, from = now + 1;
	char **list = arguments(actor, from);
	long pid;

	if (me > 1 || shared->alive[actor]) {
		errno = EAGAIN;
		return -1;
	}
	shared->alive[actor] = 1;
	fflush(NULL);
	if (is(1, "posix_spawn")) {
		pid_t child;
		int error = posix_spawn(&child, self, NULL, NULL, list, environ);

		pid = error ? -1 : child;
		errno = error;
	} else if (is(1, "vfork")) {
		pid = vfork();
		if (!pid) {
			execve(self, list, environ);
			_exit(127);
		}
	} else if (is(1, "clone")) {
		pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	} else if (is(1, "_Fork")) {
		pid = _Fork();
	} else {
		pid = fork();
	}
	if (pid < 0) {
		shared->alive[actor] = 0;
		return -1;
	}
	if (!pid) {
		become(actor);
		memset(file, 0, sizeof(file));
		serve(from);
	}
	shared->pid[actor] = pid;
	return 0;
}

static void leave(void)
{
	const char *how = word(1);

	if (!strcmp(how, "_exit"))
		_exit(7);
	if (!strcmp(how, "quick_exit"))
		quick_exit(7);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "raise"))
		raise(number(2));
	if (!strcmp(how, "kill"))
		kill(getpid(), number(2));
	if (!strcmp(how, "bare"))
		bare(SYS_kill, getpid(), number(2));
	if (!strcmp(how, "fault"))
		*(volatile unsigned char *)bad(0) = 0;
	if (!strcmp(how, "syscall"))
		syscall(SYS_exit_group, 7);
	exit(7);
}

static int ends(const struct step *s)
{
	return !strcmp(s->word[0], "exit");
}

/* Waits for the end of a child. */
static void reap(int actor)
{
	int status = 0;

	must(waitpid(shared->pid[actor], &status, 0), "wait");
	say("%d ended %x\n", now, status);
	shared->alive[actor] = 0;
}

/* Ends a child, wherever it is. */
static long end_child(void)
{
	int actor = number(1) % ACTORS;

	if (!actor || parent_of(actor) != me || !shared->alive[actor] ||
	    (actor < 2 && shared->alive[actor + 2]))
		return -2;
	if (kill(shared->pid[actor], number(2)))
		return -1;
	reap(actor);
	return 0;
}

static long operation(void)
{
	const char *op = word(0);
	struct iovec part[64];
	int fd = fd_of(1);
	long n, at;

	if (is(0, "open"))
		return open_file();
	if (is(0, "write")) {
		write_all(fd, word(4), size_at(2), number(3) ? number(3) : 1);
		return errno ? -1 : 0;
	}
	if (is(0, "read")) {
		read_all(fd, word(4), size_at(2), number(3) ? number(3) : 1);
		return errno ? -1 : 0;
	}
	n = size_at(2);
	at = number(3);
	if (is(0, "pwrite"))
		return is(4, "syscall") ? syscall(SYS_pwrite64, fd, data(0), n, at) :
					  pwrite(fd, data(0), n, at);
	if (is(0, "pread"))
		return heard(is(4, "syscall") ? syscall(SYS_pread64, fd, buffer, n, at) :
						pread(fd, buffer, n, at));
	if (is(0, "pwritev"))
		return pwritev(fd, part, split(part, data(0), n, number(4)), at);
	if (is(0, "preadv"))
		return heard(preadv(fd, part, split(part, buffer, n, number(4)), at));
	if (is(0, "pwritev2"))
		return pwritev2(fd, part, split(part, data(0), n, number(4)), at,
				is(5, "dsync") ? RWF_DSYNC : is(5, "append") ? RWF_APPEND : 0);
	if (is(0, "preadv2"))
		return heard(preadv2(fd, part, split(part, buffer, n, number(4)), at, 0));
	if (is(0, "writebad"))
		return write(fd, bad(number(4)), n);
	if (is(0, "readbad"))
		return read(fd, bad(number(4)), n);
	if (is(0, "lseek"))
		return is(4, "syscall") ? syscall(SYS_lseek, fd, number(2), flags(3)) :
					  lseek(fd, number(2), flags(3));
	if (is(0, "ftruncate"))
		return is(3, "syscall") ? syscall(SYS_ftruncate, fd, number(2)) :
					  ftruncate(fd, number(2));
	if (is(0, "truncate"))
		return is(3, "syscall") ? syscall(SYS_truncate, word(1), number(2)) :
					  truncate(word(1), number(2));
	if (is(0, "fallocate"))
		return fallocate(fd, flags(2), number(3), number(4));
	if (is(0, "close")) {
		/* "gone" forgets the number, or else it is used again. */
		if (is(2, "gone"))
			slot[slot_of(1)] = -1;
		return is(3, "syscall") ? syscall(SYS_close, fd) : close(fd);
	}
	if (is(0, "dup") || is(0, "dupfd") || is(0, "dup2") || is(0, "dup3")) {
		n = is(0, "dup")   ? (is(3, "syscall") ? syscall(SYS_dup, fd) : dup(fd)) :
		    is(0, "dupfd") ? fcntl(fd, is(4, "cloexec") ? F_DUPFD_CLOEXEC : F_DUPFD, number(3)) :
		    is(0, "dup2")  ? dup2(fd, number(3)) :
				     dup3(fd, number(3), is(4, "cloexec") ? O_CLOEXEC : 0);
		if (n >= 0)
			slot[slot_of(2)] = n;
		return n;
	}
	if (is(0, "close_range"))
		return close_range(number(1), number(2), 0);
	if (is(0, "fsync"))
		return fsync(fd);
	if (is(0, "fdatasync"))
		return is(2, "syscall") ? syscall(SYS_fdatasync, fd) : fdatasync(fd);
	if (is(0, "sync_file_range"))
		return sync_file_range(fd, number(2), number(3), SYNC_FILE_RANGE_WRITE);
	if (is(0, "syncfs"))
		return syncfs(fd);
	if (is(0, "fadvise"))
		return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (is(0, "rename"))
		return is(3, "syscall") ? syscall(SYS_renameat2, AT_FDCWD, word(1), AT_FDCWD, word(2), 0) :
					  rename(word(1), word(2));
	if (is(0, "link"))
		return link(word(1), word(2));
	if (is(0, "linkfd")) {
		char path[40];

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		return linkat(AT_FDCWD, path, AT_FDCWD, word(2), AT_SYMLINK_FOLLOW);
	}
	if (is(0, "symlink"))
		return symlink(word(1), word(2));
	if (is(0, "unlink"))
		return unlink(word(1));
	if (is(0, "stat"))
		return look(-1, word(1), word(2));
	if (is(0, "fstat"))
		return look(fd, NULL, word(2));
	if (is(0, "times"))
		return times();
	if (is(0, "fchmod"))
		return fchmod(fd, number(2));
	if (is(0, "chmod"))
		return chmod(word(1), number(2));
	if (is(0, "utimens")) {
		struct timespec old[2] = { { 1000000, 0 }, { 1000000, 0 } };

		return utimensat(AT_FDCWD, word(1), old, 0);
	}
	if (is(0, "futimens")) {
		struct timespec old[2] = { { 1000000, 0 }, { 1000000, 0 } };

		return futimens(fd, old);
	}
	if (is(0, "rights"))
		return is(2, "fs")	? setfsuid(number(1)) :
		       is(2, "syscall") ? syscall(SYS_setresuid, -1, number(1), -1) :
					  seteuid(number(1));
	if (is(0, "getfl"))
		return fcntl(fd, F_GETFL);
	if (is(0, "setfl"))
		return fcntl(fd, F_SETFL, flags(2));
	if (is(0, "lock"))
		return lock();
	if (is(0, "map"))
		return map_file();
	if (is(0, "peek"))
		return touch(0);
	if (is(0, "poke"))
		return touch(1);
	if (is(0, "msync"))
		return map[slot_of(1)].at ? msync(map[slot_of(1)].at, map[slot_of(1)].len, MS_SYNC) : -2;
	if (is(0, "unmap")) {
		int i = slot_of(1);
		void *start = map[i].at;

		map[i].at = NULL;
		return start ? munmap(start, map[i].len) : -2;
	}
	if (is(0, "sendfile") || is(0, "copy_file_range") || is(0, "splice"))
		return move();
	if (is(0, "clone"))
		return ioctl(fd_of(2), FICLONE, fd);
	if (is(0, "aio") || is(0, "submit") || is(0, "ring")) {
		n = is(0, "aio") ? by_aio(fd) : is(0, "submit") ? by_kernel_aio(fd) : by_ring(fd);
		return is(2, "r") ? heard(n) : n;
	}
	if (is(0, "vmsplice"))
		return gift(fd);
	if (is(0, "popen"))
		return hear(word(1));
	if (is(0, "again") || is(0, "itself")) {
		n = is(0, "again") ? open_again(fd) : from_itself(fd);
		if (n >= 0)
			slot[slot_of(2)] = n;
		return n;
	}
	if (is(0, "exchange"))
		return renameat2(AT_FDCWD, word(1), AT_FDCWD, word(2), RENAME_EXCHANGE);
	if (is(0, "allocate"))
		return (errno = posix_fallocate(fd, number(2), number(3))) ? -1 : 0;
	if (is(0, "attribute"))
		return fsetxattr(fd, "user.sequences", "x", 1, 0);
	if (is(0, "send"))
		return pass_on(0);
	if (is(0, "receive"))
		return pass_on(1);
	if (op[0] == 'f' && (is(0, "fopen") || is(0, "fdopen") || is(0, "fwrite") || is(0, "fread") ||
			     is(0, "fflush") || is(0, "fclose")))
		return stdio();
	if (is(0, "printf")) {
		n = printf("%.*s", (int)number(1), "a line that the C library prints by itself, unseen\n");
		return fflush(stdout) ? -1 : n;
	}
	if (is(0, "reopen"))
		return freopen(word(1), word(2), stdout) ? fileno(stdout) : -1;
	if (is(0, "input"))
		return heard(fread(buffer, 1, size_at(1), stdin));
	if (is(0, "dprintf"))
		return dprintf(fd, "%d %s\n", now, "formatted");
	if (is(0, "exhaust"))
		return exhaust();
	if (is(0, "unshare"))
		return unshare(CLONE_NEWUSER);
	if (is(0, "system")) {
		char command[100];

		snprintf(command, sizeof(command), "cat %s >%s", word(1), word(2));
		return system(command);
	}
	if (is(0, "pause"))
		return usleep(number(1) * 1000);
	if (is(0, "busy"))
		return busy(number(1));
	if (is(0, "child"))
		return start_child();
	if (is(0, "kill"))
		return end_child();
	if (is(0, "exec")) {
		fflush(NULL);
		shared->executing = me + 1;
		execve(self, arguments(me, now + 1), environ);
		shared->executing = 0;
		return -1;
	}
	if (ends(&steps[now]))
		leave();
	return -3;
}

/*
 * What the file holds after some failures is decided here, as no two runs have it alike. A write past
 * the page cache may fail with a part of it done: how much depends on where the file's extents end. One
 * from memory that ends is short: behind it, XFS of Linux 6.18 leaves in the block what was in the page.
 * Which error misaligned calls with bad memory have past the page cache depends on the extents, too:
 * whether the first one ends before the misaligned end. Returns the error to be told.
 */
static int settle(long result, int error)
{
	int moves = is(0, "sendfile") || is(0, "copy_file_range") || is(0, "splice");
	int asks = (is(0, "aio") || is(0, "submit") || is(0, "ring")) && is(2, "w");
	int fd = fd_of(moves ? 2 : 1);
	struct statfs about;
	long flags;

	if (!moves && !asks && strncmp(word(0), "write", 5) && strncmp(word(0), "pwrite", 6) &&
	    !is(0, "vmsplice") && !is(0, "readbad"))
		return error;
	flags = bare(SYS_fcntl, fd, F_GETFL);
	if ((error == EINVAL || error == EFAULT) && flags >= 0 && flags & O_DIRECT) {
		if (!is(0, "readbad"))
			(void)!ftruncate(fd, 0);
		if (is(0, "readbad") || is(0, "writebad"))
			error = EFAULT;
	}
	if (is(0, "writebad") && result >= 0 && !bare(SYS_fstatfs, fd, &about) &&
	    about.f_type == XFS_SUPER_MAGIC)
		(void)!ftruncate(fd, 0);
	return error;
}

/* Carries out the step, and says how it went. */
static long act(void)
{
	long result;
	int error;

	extra[0] = 0;
	errno = 0;
	result = operation();
	error = settle(result, errno);
	say("%d %s = %ld%s%s%s%s\n", now, word(0), result, result == -1 ? " " : "",
	    result == -1 ? strerrorname_np(error) : "", *extra ? " " : "", extra);
	return result;
}

static void *in_thread(void *unused)
{
	act();
	return unused;
}

/*
 * The first step from `i` on that somebody can carry out. Who is alive is known to nobody but the
 * process whose turn it is: when the others look, the next may have come and gone.
 */
static int possible(int i)
{
	for (; i < count; i++) {
		int actor = steps[i].actor;

		if (!shared->alive[actor])
			continue;
		/* A process lives until its children have ended, and the first until all is done. */
		if (!ends(&steps[i]) || actor > 1 ||
		    (!shared->alive[actor + 2] && (actor == 1 || i + 1 == count)))
			break;
	}
	return i;
}

/* The next step may begin; whoever carries it out is told. Only for the process whose turn it is. */
static void advance(int next)
{
	next = possible(next);
	if (telling && next < count && steps[next].actor != me) {
		int to = PIPES + 2 * steps[next].actor + 1;

		__atomic_fetch_add(&shared->told[steps[next].actor], 1, __ATOMIC_SEQ_CST);
		must(sockets ? send(to, "x", 1, 0) : write(to, "x", 1), "telling");
	}
	__atomic_store_n(&shared->turn, next, __ATOMIC_SEQ_CST);
	bare(SYS_futex, &shared->turn, FUTEX_WAKE, 100);
}

/* Ends everything if the process whose turn it is has died of itself, or nobody is left to wait. */
static void look_after(unsigned int turn)
{
	char path[40], text[600] = "", died[100], *state;
	const struct step *s = &steps[turn];
	long fd, n;

	if (bare(SYS_getppid) != parent)
		bare(SYS_exit_group, 3);
	if (turn >= (unsigned int)count || ends(s))
		return;
	snprintf(path, sizeof(path), "/proc/%d/stat", shared->pid[s->actor]);
	n = fd = bare(SYS_openat, AT_FDCWD, path, O_RDONLY);
	if (fd >= 0) {
		n = bare(SYS_read, fd, text, sizeof(text) - 1);
		bare(SYS_close, fd);
	}
	state = n > 0 ? strrchr(text, ')') : NULL;
	if (state && state[2] == 'Z') /* its exit code is the last in the line */
		snprintf(died, sizeof(died), "a zombie that ended %x", atoi(strrchr(state, ' ')));
	else if (n == -ENOENT || n == -ESRCH)
		snprintf(died, sizeof(died), "not there, %s", strerrorname_np(-n));
	else
		return; /* it lives, or nothing is known of it */
	if (turn == __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST)) {
		say("%d process %d died: it is %s\n", turn, s->actor, died);
		bare(SYS_kill, 0, SIGKILL);
	}
}

/* Waits until a step has come. Returns the step that it is then, maybe a later one. */
static unsigned int wait_for(unsigned int step)
{
	const struct timespec time = { .tv_sec = 1 };
	unsigned int turn;

	while ((turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST)) < step)
		if (bare(SYS_futex, &shared->turn, FUTEX_WAIT, turn, &time) == -ETIMEDOUT)
			look_after(turn);
	return turn;
}

static void listen_to_others(void)
{
	while (telling && __atomic_load_n(&shared->told[me], __ATOMIC_SEQ_CST) > 0) {
		char byte;

		must(sockets ? recv(PIPES + 2 * me, &byte, 1, 0) : read(PIPES + 2 * me, &byte, 1),
		     "listening");
		__atomic_fetch_sub(&shared->told[me], 1, __ATOMIC_SEQ_CST);
	}
}

/* Takes this process's turns, from a step on. */
static void serve(int from)
{
	const struct timespec lateness = { .tv_nsec = 100000000 };

	for (now = from; now < count; now++) {
		struct step *s = &steps[now];

		if (wait_for(now) > (unsigned int)now)
			continue; /* it was another's */
		if (me == late)
			bare(SYS_nanosleep, &lateness, NULL);
		if (s->actor == me) {
			listen_to_others();
			if (s->threaded && !ends(s) && !is(0, "exec") && !is(0, "child")) {
				pthread_t thread;

				must(-pthread_create(&thread, NULL, in_thread, NULL), "thread");
				pthread_join(thread, NULL);
			} else {
				act();
			}
			advance(now + 1);
		} else if (ends(s) && parent_of(s->actor) == me) {
			reap(s->actor);
			advance(now + 1);
		}
	}
	wait_for(count);
	/* Whoever is left ends, the children first. */
	for (int actor = ACTORS - 1; actor > 0; actor--)
		if (parent_of(actor) == me && shared->alive[actor])
			reap(actor);
	exit(0);
}

int main(int argc, char **argv)
{
	struct rlimit limit = { 1024, 4096 }, none = { 0, 0 };
	long fd;

	self = "/proc/self/exe";
	script = argv[1];
	parse();
	fill();
	for (int i = 0; i < SLOTS; i++)
		slot[i] = -1;
	if (argc == 5) {
		char *rest = argv[4];

		shared = (void *)bare(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
		become(atoi(argv[2]));
		for (int i = 0; i < SLOTS && rest && *rest; i++)
			slot[i] = atoi(strsep(&rest, ","));
		/* The turn of the step that executed this image goes on here. */
		if (shared->executing == me + 1) {
			shared->executing = 0;
			now = atoi(argv[3]) - 1;
			say("%d exec = 0\n", now);
			advance(now + 1);
		}
		serve(atoi(argv[3]));
	}
	if (argc != 3)
		must(-1, "usage: sequences SCRIPT RESULTS");
	bare(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
	bare(SYS_prlimit64, 0, RLIMIT_CORE, &none, NULL);
	fd = bare(SYS_openat, AT_FDCWD, argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
	must(fd, argv[2]);
	must(bare(SYS_dup3, fd, RESULTS, 0), "dup3");
	bare(SYS_close, fd);
	fd = bare(SYS_memfd_create, "shared", 0);
	must(fd, "memfd");
	must(bare(SYS_ftruncate, fd, 4096), "memfd");
	must(bare(SYS_dup3, fd, SHARED, 0), "dup3");
	bare(SYS_close, fd);
	shared = (void *)bare(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
	for (int i = -1; i < ACTORS; i++) {
		int pair[2];

		must(i < 0 || sockets ? bare(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair) :
			     bare(SYS_pipe2, pair, 0), "a pair");
		for (int end = 0; end < 2; end++) {
			must(bare(SYS_dup3, pair[end], i < 0 ? SOCKET + end : PIPES + 2 * i + end, 0), "dup3");
			bare(SYS_close, pair[end]);
		}
	}
	become(0);
	shared->alive[0] = shared->alive[1] = 1;
	shared->turn = possible(0);
	fd = bare(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	must(fd, "clone");
	if (!fd) {
		if (bare_second)
			unsetenv("LD_PRELOAD");
		bare(SYS_execve, self, arguments(1, 0), environ);
		must(-1, "execve");
	}
	shared->pid[1] = fd;
	serve(0);
}
