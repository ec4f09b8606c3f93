// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a program can see of its files, scenario by scenario.
 *
 * Run in an empty directory: semantics SCENARIO. What it prints and the files it leaves must be the
 * same with and without the library. Streams are long enough to be taken with PDIO_SEQUENTIAL=256K
 * and PDIO_MIN_SIZE=1M.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <ulimit.h>
#include <unistd.h>
#include <utmp.h>
#include <wchar.h>
#include <wordexp.h>

#include "bare.h"

extern char **environ;

#define LONG (2 << 20)

static unsigned char pool[4 << 20];

static void fill_pool(void)
{
	uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < sizeof(pool); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pool[i] = x;
	}
}

/* A line of output: what was asked, what came, errno if it failed. */
static void say(const char *what, long result)
{
	int error = errno;

	printf("%s = %ld%s%s\n", what, result, result < 0 ? " " : "",
	       result < 0 ? strerror(error) : "");
	fflush(stdout);
}

#define SAY(call) (errno = 0, say(#call, (long)(call)))

static int create(const char *name)
{
	return open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
}

/* Writes `size` bytes in blocks of `block`, so that the stream is taken. */
static void stream(int fd, size_t size, size_t block)
{
	for (size_t done = 0; done < size;) {
		size_t n = size - done < block ? size - done : block;
		ssize_t got = write(fd, pool + done % (sizeof(pool) / 2), n);

		if (got != (ssize_t)n) {
			say("write in stream", got);
			if (got <= 0)
				return;
		}
		done += got;
	}
}

static int taken(const char *name)
{
	int fd = create(name);

	stream(fd, LONG, 7000);
	return fd;
}

/* A file to read, and a descriptor that has read half of it in sequence. */
static int reading(const char *name, int flags)
{
	static unsigned char buffer[9000];
	int fd = create(name);

	stream(fd, LONG, 65536);
	close(fd);
	fd = open(name, flags);
	for (int i = 0; i < 120; i++)
		if (read(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	return fd;
}

static uint32_t sum(const unsigned char *data, size_t n)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ data[i]) * 16777619u;
	return h;
}

static long size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) ? -1 : (long)st.st_size;
}

/* ------------------------------------------------------------------------------- plain data */

static void writes(void)
{
	int fd = create("file");
	size_t at = 0;

	for (size_t n = 1; n < 70000; n += 997) {
		SAY(write(fd, pool + n, n));
		at += n;
	}
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 100, SEEK_SET));
	SAY(write(fd, "header", 6));
	SAY(lseek(fd, 0, SEEK_END));
	stream(fd, 300000, 511);
	SAY(pwrite(fd, "patched", 7, 5000));
	SAY(pwrite(fd, "beyond", 6, at + 900000));
	SAY(lseek(fd, 0, SEEK_CUR));
	struct iovec parts[4] = { { pool, 10 }, { NULL, 0 }, { pool + 5, 70000 }, { pool, 3 } };
	SAY(writev(fd, parts, 4));
	SAY(pwritev(fd, parts, 4, 12345));
	SAY(pwritev2(fd, parts, 4, -1, 0));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, pool, 0));
	SAY(write(fd, pool, 3 << 20));
	SAY(pwritev2(fd, parts, 1, -1, RWF_DSYNC));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
	SAY(close(fd));
	SAY(write(fd, "x", 1));
}

static void reads(void)
{
	static unsigned char buffer[3 << 20];
	int fd = reading("file", O_RDONLY);
	struct iovec parts[3] = { { buffer, 100 }, { buffer + 100, 0 }, { buffer + 100, 5000 } };
	ssize_t n;

	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(read(fd, buffer, 1000));
	SAY(sum(buffer, 1000));
	SAY(pread(fd, buffer, 70000, 17));
	SAY(sum(buffer, 70000));
	SAY(readv(fd, parts, 3));
	SAY(sum(buffer, 5100));
	SAY(preadv(fd, parts, 3, LONG - 50));
	SAY(sum(buffer, 50));
	SAY(lseek(fd, -100, SEEK_END));
	SAY(read(fd, buffer, 1000));
	SAY(read(fd, buffer, 1000));
	SAY(lseek(fd, 5, SEEK_SET));
	SAY(read(fd, buffer, sizeof(buffer)));
	SAY(sum(buffer, LONG - 5));
	SAY(pread(fd, buffer, 10, LONG + 100));
	SAY(pread(fd, buffer, 10, -1));
	SAY(lseek(fd, 3, SEEK_DATA));
	SAY(lseek(fd, 3, SEEK_HOLE));
	SAY(lseek(fd, LONG + 5, SEEK_DATA));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, "x", 1));
	SAY(lseek(fd, 100, SEEK_SET));
	n = 0;
	for (uint32_t i = 0; i < 3000; i++)
		n += read(fd, buffer, 1 + i % 600) * (i + 1);
	say("small reads", n);
	SAY(preadv2(fd, parts, 1, -1, RWF_HIPRI * 0));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
}

/* Memory of a call of which the first `n` bytes were read: the rest must be as it was before. */
static void say_rest(const char *what, const unsigned char *memory, size_t len, ssize_t n)
{
	size_t changed = 0;

	for (size_t i = n < 0 ? 0 : n; i < len; i++)
		changed += memory[i] != 0xee;
	say(what, n);
	SAY(sum(memory, n < 0 ? 0 : n));
	SAY(changed);
}

#define REST(call, memory, len)                                                \
	do {                                                                   \
		memset(memory, 0xee, len);                                     \
		say_rest(#call, memory, len, call);                            \
	} while (0)

/* Of files that end within a block, with room behind the end, read in whole aligned blocks. */
static void behind_the_end(void)
{
	static unsigned char buffer[1 << 20] __attribute__((aligned(1 << 16)));
	struct iovec part = { buffer, sizeof(buffer) };
	struct iovec parts[2] = { { buffer, 1 << 19 }, { buffer + (1 << 19), 1 << 19 } };
	const size_t ends[] = { 3 * LONG, 3 * LONG + 1, 3 * LONG + 5000 };

	for (int i = 0; i < 3; i++) {
		int fd = create("file");

		stream(fd, ends[i], 65536);
		SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 5 * LONG));
		/* So that it comes from the disk. */
		SAY(fsync(fd));
		SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		SAY(close(fd));
		fd = open("file", O_RDONLY);
		for (int j = 0; j < 20; j++)
			REST(read(fd, buffer, 3 << 17), buffer, 3 << 17);
		REST(pread(fd, buffer, sizeof(buffer), 3 * LONG - 4096), buffer, sizeof(buffer));
		SAY(lseek(fd, 3 * LONG - (1 << 18), SEEK_SET));
		REST(readv(fd, &part, 1), buffer, sizeof(buffer));
		REST(preadv(fd, parts, 2, 3 * LONG - (1 << 19)), buffer, sizeof(buffer));
		SAY(close(fd));
	}
}

/* What a short read does not reach of its memory is not brought there: holes of a file stay holes. */
static void holes_in_memory(void)
{
	int fd = create("file"), holes = open("holes", O_RDWR | O_CREAT | O_TRUNC, 0600);
	static unsigned char buffer[1 << 16];
	unsigned char *map;

	stream(fd, LONG + 100, 65536);
	SAY(close(fd));
	fd = open("file", O_RDONLY);
	for (int i = 0; i < LONG / (1 << 16); i++)
		if (read(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(ftruncate(holes, 1 << 20));
	map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, holes, 0);
	SAY(read(fd, map, 1 << 20));
	SAY(lseek(holes, 4096, SEEK_DATA));
	SAY(munmap(map, 1 << 20));
	SAY(close(fd) | close(holes));
}

static void both_ways(void)
{
	static unsigned char buffer[10000];
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);

	stream(fd, LONG, 3000);
	SAY(lseek(fd, 500, SEEK_SET));
	SAY(read(fd, buffer, 10000));
	SAY(sum(buffer, 10000));
	SAY(write(fd, "between", 7));
	SAY(lseek(fd, 10500, SEEK_SET));
	SAY(read(fd, buffer, 100));
	SAY(sum(buffer, 100));
	SAY(lseek(fd, 0, SEEK_END));
	stream(fd, LONG, 3000);
	SAY(pread(fd, buffer, 10000, 2 * LONG - 5000));
	SAY(sum(buffer, 5000));
	SAY(close(fd));
}

/* -------------------------------------------------------------------------- offset and size */

static void offsets(void)
{
	int fd = taken("file");
	struct stat st;
	struct statx stx;

	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 0, SEEK_END));
	stream(fd, 12345, 100);
	SAY(fstat(fd, &st));
	SAY(st.st_size);
	stream(fd, 1, 1);
	SAY(size_of("file"));
	stream(fd, 1, 1);
	SAY(lstat("file", &st));
	SAY(st.st_size);
	stream(fd, 1, 1);
	SAY(fstatat(AT_FDCWD, "./file", &st, 0));
	SAY(st.st_size);
	stream(fd, 1, 1);
	SAY(statx(AT_FDCWD, "file", 0, STATX_SIZE, &stx));
	SAY(stx.stx_size);
	stream(fd, 1, 1);
	SAY(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx));
	SAY(stx.stx_size);
	stream(fd, 1, 1);
	SAY(fstatat(fd, "", &st, AT_EMPTY_PATH));
	SAY(st.st_size);
	SAY(lseek(fd, -1, SEEK_SET));
	SAY(lseek(fd, -5000000, SEEK_CUR));
	SAY(lseek(fd, 10, SEEK_CUR));
	SAY(lseek(fd, INT64_MAX, SEEK_CUR));
	SAY(lseek(fd, 0, 77));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 5 << 20, SEEK_SET));
	SAY(write(fd, "after a hole", 12));
	SAY(lseek(fd, 0, SEEK_END));
	SAY(lseek(fd, 3 << 20, SEEK_DATA) >= 0);
	SAY(lseek(fd, 7, SEEK_SET));
	SAY(close(fd));
}

static void sizes(void)
{
	int fd = taken("file");

	SAY(ftruncate(fd, 1000000));
	SAY(lseek(fd, 0, SEEK_CUR));
	stream(fd, 400000, 4096);
	SAY(ftruncate(fd, -1));
	SAY(fallocate(fd, 0, 5 << 20, 4096));
	SAY(size_of("file"));
	stream(fd, 3000, 1000);
	SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 300000));
	SAY(posix_fallocate(fd, 0, 6 << 20));
	stream(fd, 3000, 1000);
	SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	SAY(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	SAY(readahead(fd, 0, 100));
	stream(fd, 3000, 1000);
	SAY(truncate("file", 2500000));
	stream(fd, 3000, 1000);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(size_of("file"));
	SAY(close(fd));
}

static void syncs(void)
{
	int fd = taken("file");

	SAY(fsync(fd));
	stream(fd, 10, 1);
	SAY(fdatasync(fd));
	stream(fd, 10, 1);
	SAY(syncfs(fd));
	stream(fd, 10, 1);
	sync();
	SAY(size_of("file"));
	SAY(close(fd));
	SAY(fsync(fd));
}

static void locks(void)
{
	int fd = taken("file");
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = 10 };
	int status;

	SAY(fcntl(fd, F_SETLK, &lock));
	stream(fd, 5000, 500);
	lock = (struct flock){ .l_type = F_UNLCK, .l_whence = SEEK_SET };
	SAY(fcntl(fd, F_SETLK, &lock));
	SAY(lockf(fd, F_LOCK, 0));
	stream(fd, 5000, 500);
	SAY(lockf(fd, F_ULOCK, 0));
	SAY(close(fd));
	fd = taken("flocked");
	SAY(flock(fd, LOCK_EX));
	stream(fd, 5000, 500);
	SAY(flock(fd, LOCK_UN));
	/* Who gets the lock sees the data. */
	if (fork() == 0)
		_exit(size_of("flocked") == LONG + 5000 ? 0 : 1);
	wait(&status);
	SAY(status);
	fd = reading("other", O_RDONLY);
	SAY(flock(fd, LOCK_SH));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
}
/* ------------------------------------------------------- another process that does as it is told */

static int helper[2];

/* Starts a process that calls `work` with each byte it gets and sends back what that returns. */
static void with_helper(int (*work)(char))
{
	char byte;

	SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, helper));
	if (fork() == 0) {
		close(helper[0]);
		while (read(helper[1], &byte, 1) == 1) {
			byte = work(byte);
			if (write(helper[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(helper[1]);
}

static int ask(char what)
{
	char byte = -1;

	if (write(helper[0], &what, 1) != 1 || read(helper[0], &byte, 1) != 1)
		return -1;
	return byte;
}

static void helper_gone(void)
{
	close(helper[0]);
	wait(NULL);
}

/* -------------------------------------------------------------- descriptions shared before a take */

/* Sends a descriptor with a byte if there is one, else receives one. */
static int pass(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'x';
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (fd >= 0) {
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
		return sendmsg(socket, &message, 0);
	}
	recvmsg(socket, &message, 0);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static int pass_to_self(int fd)
{
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	pass(pair[0], fd);
	fd = pass(pair[1], -1);
	close(pair[0]);
	close(pair[1]);
	return fd;
}

static int inherited;

static int read_inherited(char what)
{
	static unsigned char buffer[9000];

	(void)what;
	if (read(inherited, buffer, sizeof(buffer)) != sizeof(buffer))
		return -2;
	return sum(buffer, 9000) & 63;
}

static void shared_before(void)
{
	static unsigned char buffer[9000];
	int fd = create("file"), other = -1;

	stream(fd, LONG, 65536);
	close(fd);
	for (int how = 0; how < 8; how++) {
		fd = open("file", O_RDONLY);
		switch (how) {
		case 0: other = dup(fd); break;
		case 1: other = dup2(fd, 70); break;
		case 2: other = dup3(fd, 71, O_CLOEXEC); break;
		case 3: other = fcntl(fd, F_DUPFD, 72); break;
		case 4: other = fcntl(fd, F_DUPFD_CLOEXEC, 72); break;
		case 5: other = syscall(SYS_dup, fd); break;
		case 6: other = pass_to_self(fd); break;
		case 7: other = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, getpid(), 0), fd, 0);
		}
		SAY(other);
		for (int i = 0; i < 120; i++)
			if (read(fd, buffer, sizeof(buffer)) != sizeof(buffer))
				SAY(-1);
		SAY(lseek(other, 0, SEEK_CUR));
		SAY(read(other, buffer, sizeof(buffer)));
		SAY(sum(buffer, sizeof(buffer)));
		SAY(lseek(fd, 0, SEEK_CUR));
		SAY(close(fd) | close(other));
	}
	/* A process that was forked before. */
	inherited = open("file", O_RDONLY);
	with_helper(read_inherited);
	for (int i = 0; i < 120; i++)
		if (read(inherited, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(ask(0));
	SAY(lseek(inherited, 0, SEEK_CUR));
	helper_gone();
	/* Of which only one is left: as dd has it. */
	fd = open("file", O_RDONLY);
	other = dup(fd);
	close(fd);
	for (int i = 0; i < 120; i++)
		if (read(other, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(close(other));
	/* A number that the C library closed unseen, and that is another file's now. */
	fd = open(".", O_RDONLY);
	closedir(fdopendir(fd));
	inherited = pass_to_self(open("file", O_RDONLY));
	with_helper(read_inherited);
	for (int i = 0; i < 120; i++)
		if (read(inherited, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(ask(0));
	SAY(lseek(inherited, 0, SEEK_CUR));
	helper_gone();
	/* A number under which a child that shares the memory has another file. */
	inherited = pass_to_self(open("file", O_RDONLY));
	with_helper(read_inherited);
	if (vfork() == 0) {
		close(inherited);
		while (open("file", O_RDONLY) < inherited)
			;
		execlp("true", "true", (char *)NULL);
		_exit(127);
	}
	wait(NULL);
	for (int i = 0; i < 120; i++)
		if (read(inherited, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(ask(0));
	SAY(lseek(inherited, 0, SEEK_CUR));
	helper_gone();
}

/* --------------------------------------------------------------------------- record locks */

/* What another process gets that wants the lock on the file of that name. */
static int try_lock(char name)
{
	char path[2] = { name };
	int fd = open(path, O_RDWR);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int error = fcntl(fd, F_SETLK, &lock) ? errno : 0;

	close(fd);
	return error;
}

static int lock_all(int fd, int command, int type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	return fcntl(fd, command, &lock);
}

static void record_locks(void)
{
	static unsigned char buffer[70000] __attribute__((aligned(4096)));
	char name[2] = "a";
	int fd, other;

	with_helper(try_lock);
	for (; name[0] < 'a' + 12; name[0]++) {
		fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
		stream(fd, LONG, 7000);
		switch (name[0] % 4) {
		case 0: SAY(lockf(fd, F_LOCK, 0) | lockf(fd, F_TLOCK, 100000)); break;
		case 1: SAY(lock_all(fd, F_SETLK, F_WRLCK)); break;
		case 2: SAY(lock_all(fd, F_SETLKW, F_WRLCK)); break;
		case 3: SAY(lock_all(fd, F_OFD_SETLK, F_WRLCK)); break;
		}
		SAY(lseek(fd, 0, SEEK_END));
		stream(fd, LONG, 1000);
		switch (name[0] % 3) {
		case 0: SAY(pread(fd, buffer, 100, 5)); break;
		case 1: SAY(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED); break;
		case 2: SAY(system("true")); break;
		}
		SAY(ask(name[0]));
		stream(fd, 1000, 10);
		SAY(ask(name[0]));
		SAY(close(fd));
		SAY(ask(name[0]));
	}
	/* Locked through another descriptor, before and after the take. */
	for (int first = 0; first < 2; first++) {
		close(create("m"));
		SAY(truncate("m", LONG));
		other = open("m", O_RDONLY);
		if (first)
			SAY(lock_all(other, F_SETLK, F_RDLCK));
		fd = open("m", O_RDONLY);
		for (int i = 0; i < 100; i++)
			if (read(fd, buffer, 9000) != 9000)
				SAY(-1);
		if (!first)
			SAY(lock_all(other, F_SETLK, F_RDLCK));
		for (int i = 0; i < 10; i++)
			if (read(fd, buffer, 9000) != 9000)
				SAY(-1);
		SAY(system("true"));
		SAY(ask('m'));
		SAY(close(fd) | close(other));
	}
	/* Direct I/O that is done over. */
	fd = open("n", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	SAY(write(fd, buffer, 8192));
	SAY(lock_all(fd, F_SETLK, F_WRLCK));
	ssize_t done = write(fd, buffer + 1, 5000);
	SAY(done == 5000 || done == -1);
	SAY(ask('n'));
	SAY(close(fd));
	unlink("n");
	/* The lock was taken through another descriptor, before and after a call that is done over. */
	for (int first = 0; first < 2; first++) {
		fd = open("o", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
		SAY(write(fd, buffer, 8192));
		other = open("o", O_RDWR);
		if (first)
			SAY(lock_all(other, F_SETLK, F_WRLCK));
		done = write(fd, buffer + 1, 5000);
		SAY(done == 5000 || done == -1);
		if (!first)
			SAY(lock_all(other, F_SETLK, F_WRLCK));
		SAY(ask('o'));
		SAY(system("true"));
		SAY(ask('o'));
		SAY(close(other));
		SAY(ask('o'));
		SAY(close(fd));
		unlink("o");
	}
	helper_gone();
}

/* ------------------------------------------------------------------------------ duplicates */

static void duplicates(void)
{
	int fd = taken("file"), other, third;

	SAY(other = dup(fd));
	stream(other, 5000, 700);
	stream(fd, 5000, 700);
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(third = fcntl(fd, F_DUPFD, 50));
	stream(third, 5000, 700);
	SAY(close(fd));
	stream(other, 5000, 700);
	SAY(lseek(third, 0, SEEK_CUR));
	SAY(dup2(other, 60));
	SAY(dup3(other, 61, O_CLOEXEC));
	SAY(dup2(other, other));
	SAY(dup3(other, other, 0));
	stream(60, 5000, 700);
	SAY(close(60));
	SAY(lseek(61, -3, SEEK_CUR));
	stream(other, 5000, 700);
	/* A taken stream is closed by dup2 onto it. */
	fd = taken("second");
	SAY(dup2(other, fd));
	SAY(size_of("second"));
	stream(fd, 100, 10);
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(dup2(999, fd));
	stream(fd, 100, 10);
	SAY(close(other) | close(third) | close(61) | close(fd));
	SAY(size_of("file"));
}

/* The C library goes on with a FILE on the number, unseen. */
static void onto_a_file(void)
{
	FILE *log = fopen("log", "w");
	int fd = taken("file");

	SAY(dup2(fd, fileno(log)));
	fprintf(log, "trailer");
	SAY(fflush(log));
	stream(fd, 5000, 700);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(fclose(log));
	SAY(close(fd));
	SAY(size_of("file"));
}

/* Calls that close nothing leave descriptors what they were: of one stream. */
static void not_closed(void)
{
	int fd = taken("file"), other;

	SAY(other = dup(fd));
	SAY(dup3(0, other, 0x1234));
	stream(other, 100, 10);
	stream(fd, 100, 10);
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(close(fd) | close(other));
	fd = taken("second");
	SAY(other = dup(fd));
	SAY(close_range(other, other, 0x1230));
	stream(other, 100, 10);
	stream(fd, 100, 10);
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(close(fd) | close(other));
	SAY(size_of("file") + size_of("second"));
}

static long size_walked;

static int walked(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)kind, (void)where;
	if (strstr(path, "file"))
		size_walked = st->st_size;
	return 0;
}

static int walked_simply(const char *path, const struct stat *st, int kind)
{
	return walked(path, st, kind, NULL);
}

/* What the C library looks at by itself, and whom it starts. */
static void looks_by_itself(void)
{
	char *here[] = { ".", NULL };
	int fd = taken("file");
	FTSENT *entry;
	wordexp_t words;
	FTS *walk;

	SAY(nftw(".", walked, 9, FTW_PHYS));
	SAY(size_walked);
	stream(fd, 5000, 700);
	SAY(ftw(".", walked_simply, 9));
	SAY(size_walked);
	stream(fd, 5000, 700);
	walk = fts_open(here, FTS_PHYSICAL, NULL);
	while ((entry = fts_read(walk)))
		if (!strcmp(entry->fts_name, "file"))
			SAY(entry->fts_statp->st_size);
	fts_close(walk);
	stream(fd, 5000, 700);
	/* The child writes to the same file. */
	SAY(dup2(fd, 9));
	SAY(wordexp("$(echo child >&9; wc -c <file)", &words, 0));
	say(words.we_wordv[0], words.we_wordc);
	stream(fd, 5000, 700);
	SAY(close(fd) | close(9));
	SAY(size_of("file"));
}

/* Which numbers are open, of those that the program does not use. */
static void open_numbers(void)
{
	int fd = taken("file"), flags = 0, stats = 0, copies = 0, onto = 0, others = 0;
	struct stat st;

	for (int i = fd + 1; i < 70000; i++) {
		int copy;

		flags += fcntl(i, F_GETFD) >= 0;
		stats += fstat(i, &st) == 0;
		copy = dup(i);
		copies += copy >= 0;
		if (i != 60)
			onto += dup2(i, 60) >= 0;
		if (copy >= 0)
			close(copy);
		others += lseek(i, 0, SEEK_CUR) >= 0 || errno != EBADF;
		others += read(i, &st, 0) >= 0 || errno != EBADF;
		others += fsync(i) == 0 || errno != EBADF;
		others += posix_fallocate(i, 0, 1) != EBADF;
		copy = fcntl(i, F_DUPFD_CLOEXEC, 0);
		copies += copy >= 0;
		if (copy >= 0)
			close(copy);
	}
	SAY(flags);
	SAY(stats);
	SAY(copies);
	SAY(onto);
	SAY(others);
	stream(fd, 5000, 700);
	SAY(close(fd));
	close(60);
}

static void numbers(void)
{
	int fd = taken("file"), other;

	SAY(fd);
	SAY(other = open("/dev/null", O_RDONLY));
	SAY(close(fd));
	SAY(open("/dev/null", O_RDONLY));
	SAY(dup(other));
	fd = taken("second");
	SAY(fd);
	SAY(close_range(fd, ~0u, 0));
	SAY(size_of("second"));
	fd = taken("third");
	SAY(fd);
	stream(fd, 777, 7);
	closefrom(fd);
	SAY(size_of("third"));
	SAY(open("/dev/null", O_RDONLY));
	fd = taken("fourth");
	for (int i = 3; i < 1024; i++)
		if (i != fd)
			close(i);
	stream(fd, 777, 7);
	SAY(close(fd));
}

static void few_descriptors(void)
{
	struct rlimit limit = { 256, 256 };
	int fd[256], n = 0;

	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < 4; i++) {
		char name[8] = { 'a' + i };

		taken(name);
	}
	while (n < 256 && (fd[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	/* The library keeps one for itself once it has taken something. */
	SAY(n >= 256 - 3 - 4 - 1);
	SAY(errno == EMFILE);
}

static void standard_output(void)
{
	int keep = dup(1), fd = create("file");

	dup2(fd, 1);
	close(fd);
	stream(1, LONG, 5000);
	printf("printed by the C library\n");
	fflush(stdout);
	stream(1, 5000, 100);
	puts("and again");
	fflush(stdout);
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("unbuffered");
	stream(1, 5000, 100);
	lseek(1, 3, SEEK_SET);
	printf("back");
	stream(1, 10, 10);
	dprintf(1, "%d %s %.2f", 7, "formatted", 1.5);
	stream(1, 10, 10);
	lseek(1, 0, SEEK_END);
	printf("last");
	dup2(keep, 1);
	SAY(size_of("file"));
}

/* The C library has standard output lead to a terminal. */
static void terminal(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), fd, status = 0;
	char text[8] = "";

	grantpt(master);
	unlockpt(master);
	if (fork() == 0) {
		int tty = open(ptsname(master), O_RDWR | O_NOCTTY);

		close(master);
		/* Whoever is not answered ends: late, as the disk may be busy. */
		alarm(300);
		signal(SIGHUP, SIG_IGN);
		fd = create("file");
		dup2(fd, 1);
		close(fd);
		stream(1, LONG, 5000);
		if (login_tty(tty) != 0)
			_exit(1);
		if (write(1, "hello\n", 6) != 6)
			_exit(2);
		/* Until the other end has read it, and is closed. */
		(void)!read(0, text, 1);
		_exit(0);
	}
	/* The terminal hands a line on in parts. */
	for (size_t had = 0; had < 7;) {
		ssize_t got = read(master, text + had, 7 - had);

		if (got <= 0) {
			say("read of the terminal", got);
			break;
		}
		had += got;
	}
	SAY(strcmp(text, "hello\r\n"));
	close(master);
	wait(&status);
	/* Where it failed, this says how. */
	SAY(status);
	SAY(size_of("file"));
}

/* Each of these moves, or looks at, an offset that the stream has moved. */
static void offsets_of_standard_output(void)
{
	int keep = dup(1);
	fpos_t place;

	for (int way = 0; way < 9; way++) {
		char name[] = "file0";

		name[4] += way;
		int fd = create(name);
		long told = 0;

		dup2(fd, 1);
		close(fd);
		stream(1, LONG, 5000);
		switch (way) {
		case 0: told = ftell(stdout); break;
		case 1: told = ftello(stdout); break;
		case 2: told = fseek(stdout, 10, SEEK_CUR); break;
		case 3: told = fseeko(stdout, -10, SEEK_CUR); break;
		case 4: told = fgetpos(stdout, &place) || fsetpos(stdout, &place); break;
		case 5: rewind(stdout); break;
		case 6: told = fputs("standard", stdout); break;
		case 7: told = fprintf(stdout, "%d", 7); break;
		case 8: told = fwrite("standard", 1, 8, stdout); break;
		}
		fflush(stdout);
		stream(1, 5000, 100);
		fputs("not standard", stderr);
		stream(1, 5000, 100);
		putchar('x');
		fflush(stdout);
		stream(1, 5000, 100);
		dup2(keep, 1);
		SAY(told);
		SAY(size_of(name));
	}
}

static void wide_standard_output(void)
{
	int keep = dup(1), fd = create("file");

	dup2(fd, 1);
	close(fd);
	stream(1, LONG, 5000);
	wprintf(L"wide %d\n", 5);
	fflush(stdout);
	stream(1, 5000, 100);
	fputws(L"wide", stdout);
	fputwc(L'c', stdout);
	fflush(stdout);
	stream(1, 5000, 100);
	dup2(keep, 1);
	fprintf(stderr, "%ld\n", size_of("file"));
}

/* Reads by the stream and by the C library, in turns. */
static void standard_input(void)
{
	static unsigned char buffer[9000];
	char line[4096];
	int n;

	for (int way = 0; way < 10; way++) {
		int fd = reading("file", O_RDONLY);
		long told = 0;

		dup2(fd, 0);
		close(fd);
		setvbuf(stdin, NULL, way & 1 ? _IONBF : _IOFBF, 0);
		SAY(read(0, buffer, sizeof(buffer)));
		switch (way) {
		case 0: case 1: told = getchar(); break;
		case 2: told = fread(line, 1, sizeof(line), stdin); break;
		case 3: told = fread(line, 7, 9, stdin); break;
		case 4: told = scanf("%c%n", line, &n); break;
		case 5: told = ftell(stdin); break;
		case 6: told = fseek(stdin, 4321, SEEK_CUR); break;
		case 7: told = fgets(line, sizeof(line), stdin) != NULL; break;
		case 8: told = ungetc(getc(stdin), stdin); break;
		case 9: rewind(stdin); break;
		}
		SAY(told);
		SAY(lseek(0, 0, SEEK_CUR));
		SAY(read(0, buffer, sizeof(buffer)));
		SAY(sum(buffer, sizeof(buffer)));
		SAY(fflush(stdin));
		SAY(getchar());
		SAY(read(0, buffer, sizeof(buffer)));
		SAY(sum(buffer, sizeof(buffer)));
		SAY(lseek(0, 0, SEEK_CUR));
		SAY(lseek(0, 50, SEEK_SET));
		SAY(fseek(stdin, 60, SEEK_SET));
		SAY(getchar());
		SAY(read(0, buffer, sizeof(buffer)));
		SAY(sum(buffer, sizeof(buffer)));
	}
}

/* A child that runs at the offset where the stream is, and the parent that looks at it after. */
static void standard_shared(void)
{
	int keep = dup(1), fd = create("file"), status = 0;

	dup2(fd, 1);
	close(fd);
	stream(1, LONG, 5000);
	if (fork() == 0) {
		stream(1, LONG, 3000);
		_exit(0);
	}
	wait(&status);
	stream(1, 500, 100);
	long at = lseek(1, 0, SEEK_CUR);

	dup2(keep, 1);
	SAY(status);
	SAY(at);
}

static void file_pointers(void)
{
	char *text;
	size_t size;
	FILE *in_memory = open_memstream(&text, &size);

	errno = 0;
	fclose(in_memory);
	say("errno", errno);

	int fd = taken("file");
	FILE *file = fdopen(fd, "w");

	SAY(ftell(file));
	fputs("by the C library", file);
	SAY(fclose(file));
	fd = taken("second");
	stream(fd, 100, 10);
	file = fopen("second", "r");
	SAY(fseek(file, 0, SEEK_END));
	SAY(ftell(file));
	stream(fd, 100, 10);
	fseek(file, 0, SEEK_END);
	SAY(ftell(file));
	fclose(file);
	SAY(close(fd));
	fd = taken("third");
	file = fopen("third", "w");
	SAY(size_of("third"));
	stream(fd, 100, 10);
	SAY(size_of("third"));
	SAY(fclose(file) | close(fd));
}

/* The C library closes a stream's descriptor, and its number becomes another file's. */
static void closed_unseen(void)
{
	static unsigned char buffer[9000];
	int fd = reading("file", O_RDONLY), keep = dup(1);

	close(create("other"));
	truncate("other", 5000);
	dup2(fd, 0);
	close(fd);
	SAY(read(0, buffer, sizeof(buffer)));
	SAY(fclose(stdin));
	SAY(open("other", O_RDONLY | O_APPEND));
	SAY(read(0, buffer, sizeof(buffer)));
	SAY(sum(buffer, sizeof(buffer)));
	SAY(lseek(0, 0, SEEK_CUR));
	fd = taken("second");
	dup2(fd, 1);
	close(fd);
	stream(1, 5000, 100);
	printf("last words");
	fclose(stdout);
	fd = open("third", O_WRONLY | O_CREAT | O_APPEND, 0600);
	dprintf(keep, "%d %ld\n", fd, size_of("second"));
	stream(fd, 5000, 100);
	close(fd);
	dprintf(keep, "%ld %ld\n", size_of("second"), size_of("third"));
}

/* A stream's descriptor is closed where nobody sees it, and its number becomes another file's. */
static void closed_past(void)
{
	static unsigned char buffer[9000];
	int fd = taken("first"), next;

	stream(fd, 100, 10);
	SAY(bare(SYS_close, fd));
	next = open("second", O_WRONLY | O_CREAT | O_APPEND, 0600);
	SAY(next == fd);
	stream(next, 5000, 100);
	SAY(size_of("first"));
	SAY(close(next));
	fd = reading("third", O_RDONLY);
	SAY(bare(SYS_close, fd));
	truncate("second", 5500);
	next = open("second", O_RDONLY);
	SAY(next == fd);
	SAY(read(next, buffer, sizeof(buffer)));
	SAY(sum(buffer, sizeof(buffer)));
	SAY(close(next));
	fd = open("fourth", O_RDONLY | O_CREAT, 0600);
	stream(taken("fifth"), 10, 1);
}

/* Calls by the other names that the C library has for them. */
#define ABSENT __attribute__((weak))
extern ssize_t __write(int, const void *, size_t) ABSENT;
extern ssize_t __read(int, void *, size_t) ABSENT;
extern ssize_t __pwrite64(int, const void *, size_t, off_t) ABSENT;
extern ssize_t __pread64(int, void *, size_t, off_t) ABSENT;
extern off_t __lseek(int, off_t, int) ABSENT;
extern int __open(const char *, int, ...) ABSENT;
extern int __open64(const char *, int, ...) ABSENT;
extern int __close(int) ABSENT;
extern int __dup2(int, int) ABSENT;
extern int __fcntl(int, int, ...) ABSENT;
extern int __sigaction(int, const struct sigaction *, struct sigaction *) ABSENT;
extern int __clone(int (*)(void *), void *, int, void *) ABSENT;
extern pid_t __vfork(void) ABSENT __attribute__((returns_twice));
extern int pidfd_getfd(int, int, unsigned int) ABSENT;

static int clone_writes(void *fd)
{
	return bare(SYS_write, *(int *)fd, "a clone", 7) != 7;
}

static void other_names(void)
{
	static unsigned char buffer[9000], stack[65536] __attribute__((aligned(64)));
	int fd, other, status;
	struct sigaction action;

	if (!__write || !__open64 || !__vfork)
		return;
	fd = __open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 200; i++)
		if (__write(fd, pool + i * 7000, 7000) != 7000)
			SAY(-1);
	SAY(__lseek(fd, 0, SEEK_CUR));
	SAY(__pwrite64(fd, "patched", 7, 5000));
	SAY(__dup2(fd, 50));
	stream(50, 100, 10);
	other = __fcntl(fd, F_DUPFD, 60);
	stream(other, 100, 10);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(__sigaction(SIGTERM, NULL, &action));
	SAY(action.sa_handler == SIG_DFL);
	SAY(__close(other) | __close(50));
	stream(fd, 100, 10);
	SAY(__close(fd));
	other = open("next", O_WRONLY | O_CREAT | O_APPEND, 0600);
	SAY(other == fd);
	stream(other, 1000, 10);
	SAY(size_of("file"));
	SAY(close(other));
	fd = __open64("file", O_RDONLY);
	for (int i = 0; i < 100; i++)
		if (__read(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
	SAY(sum(buffer, sizeof(buffer)));
	SAY(__pread64(fd, buffer, 8000, 1234));
	SAY(sum(buffer, sizeof(buffer)));
	SAY(__lseek(fd, 0, SEEK_CUR));
	SAY(__close(fd));
	/* Other processes, which share the offset. */
	fd = taken("second");
	stream(fd, 100, 10);
	if (__vfork() == 0) {
		bare(SYS_write, fd, "a child", 7);
		_exit(3);
	}
	wait(&status);
	SAY(status);
	stream(fd, 100, 10);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
	fd = taken("third");
	stream(fd, 100, 10);
	SAY(__clone(clone_writes, stack + sizeof(stack), SIGCHLD, &fd) > 0);
	wait(&status);
	SAY(status);
	stream(fd, 100, 10);
	SAY(close(fd));
	/* Another descriptor of this one's. */
	fd = taken("fourth");
	stream(fd, 100, 10);
	other = syscall(SYS_pidfd_open, getpid(), 0);
	SAY(pidfd_getfd ? pidfd_getfd(other, fd, 0) : (int)syscall(SYS_pidfd_getfd, other, fd, 0));
	stream(other + 1, 100, 10);
	stream(fd, 100, 10);
	SAY(lseek(other + 1, 0, SEEK_CUR));
	SAY(close(fd) | close(other + 1) | close(other));
}

/* ------------------------------------------------------------------- the same file elsewhere */

static void again(void)
{
	static unsigned char buffer[LONG + 10000];
	int fd = taken("file"), other;

	stream(fd, 100, 10);
	other = open("file", O_RDONLY);
	SAY(read(other, buffer, sizeof(buffer)));
	SAY(sum(buffer, LONG + 100));
	stream(fd, 100, 10);
	SAY(read(other, buffer, sizeof(buffer)));
	SAY(close(other) | close(fd));

	fd = taken("second");
	SAY(close(open("second", O_WRONLY | O_TRUNC)));
	SAY(size_of("second"));
	stream(fd, 100, 10);
	SAY(size_of("second"));
	SAY(close(fd));

	/* Two writers from the start. */
	fd = create("third");
	other = open("third", O_WRONLY);
	stream(fd, LONG, 4000);
	SAY(write(other, "first", 5));
	stream(fd, LONG, 4000);
	SAY(close(other) | close(fd));

	/* Read while it is changed. */
	fd = reading("fourth", O_RDONLY);
	other = open("fourth", O_WRONLY);
	SAY(pwrite(other, "changed", 7, 120 * 9000 + 5));
	SAY(read(fd, buffer, 9000));
	SAY(sum(buffer, 9000));
	SAY(pwrite(other, "changed", 7, 121 * 9000 + 5));
	SAY(read(fd, buffer, 9000));
	SAY(sum(buffer, 9000));
	SAY(close(other) | close(fd));
}

/* Another process changes what was read ahead. */
static int change(char what)
{
	static unsigned char other[LONG];
	int fd = open("file", O_WRONLY);

	memset(other, what, sizeof(other));
	if (what == 't' && ftruncate(fd, 1000000))
		return -1;
	if (pwrite(fd, other, 600000, 1300000) != 600000)
		return -1;
	return close(fd);
}

static void stale_reads(void)
{
	static unsigned char buffer[9000];
	const char what[] = "atb";
	int fd;

	with_helper(change);
	for (int i = 0; i < 3; i++) {
		fd = reading("file", O_RDONLY);
		SAY(ask(what[i]));
		/* Longer than anything may linger. */
		usleep(200000);
		for (int j = 0; j < 100; j++) {
			ssize_t n = read(fd, buffer, sizeof(buffer));

			SAY(n);
			SAY(sum(buffer, n > 0 ? n : 0));
		}
		/* And once more while the file is still young. */
		SAY(lseek(fd, 1250000, SEEK_SET));
		for (int j = 0; j < 9; j++)
			SAY(read(fd, buffer, sizeof(buffer)));
		SAY(ask('x'));
		usleep(200000);
		for (int j = 0; j < 30; j++) {
			SAY(read(fd, buffer, sizeof(buffer)));
			SAY(sum(buffer, sizeof(buffer)));
		}
		SAY(close(fd));
	}
	helper_gone();
}

/* As `change`, with the file locked; then reads that begin with a lock through another descriptor. */
static int change_locked(char what)
{
	static unsigned char other[LONG];
	int fd = open("file", O_WRONLY);

	memset(other, what, sizeof(other));
	if (flock(fd, LOCK_EX) || pwrite(fd, other, LONG, 0) != LONG || flock(fd, LOCK_UN))
		return -1;
	return close(fd);
}

static void locked_elsewhere(void)
{
	static unsigned char buffer[9000];
	int fd, other;

	with_helper(change_locked);
	fd = reading("file", O_RDONLY);
	other = open("file", O_RDONLY);
	SAY(ask('a'));
	SAY(flock(other, LOCK_SH));
	SAY(lseek(fd, 0, SEEK_CUR));
	for (int i = 0; i < 20; i++) {
		SAY(read(fd, buffer, sizeof(buffer)));
		SAY(sum(buffer, sizeof(buffer)));
	}
	SAY(close(other) | close(fd));
	helper_gone();
}

/* Up to the largest file that ext2 has with blocks of 1 KiB. Other filesystems take more. */
static void farthest(void)
{
	int fd = create("file");
	long size;

	SAY(lseek(fd, 17247252480 - (4 << 20), SEEK_SET));
	for (int i = 0; i < 1000; i++) {
		ssize_t n = write(fd, pool, 7000);

		if (n != 7000)
			SAY(n);
	}
	SAY(lseek(fd, 0, SEEK_CUR));
	size = lseek(fd, 0, SEEK_END);
	SAY(size);
	SAY(close(fd));
	/* Too large to be compared. */
	unlink("file");
}

static void names(void)
{
	int fd = taken("old"), status;

	stream(fd, 100, 10);
	SAY(rename("old", "new"));
	if (fork() == 0)
		_exit(size_of("new") == LONG + 100 ? 0 : 1);
	wait(&status);
	SAY(status);
	SAY(close(fd));
	fd = taken("linked");
	stream(fd, 100, 10);
	SAY(link("linked", "hard"));
	SAY(unlink("linked"));
	stream(fd, 100, 10);
	SAY(close(fd));
	fd = taken("deleted");
	SAY(unlink("deleted"));
	stream(fd, 100, 10);
	SAY(lseek(fd, 0, SEEK_END));
	SAY(close(fd));

	/* What succeeds leaves errno alone, whatever was looked up for it. */
	fd = taken("file");
	symlink("nowhere", "dangling");
	stream(fd, 100, 10);
	errno = 0;
	status = open("dangling", O_PATH | O_NOFOLLOW);
	say("errno", errno);
	SAY(close(status));
	SAY(unlink("dangling"));
	SAY(close(fd));
}

static void attributes(void)
{
	struct timespec times[2] = { { 1000, 0 }, { 2000, 0 } };
	struct stat st;
	int fd = taken("file");

	stream(fd, 100, 10);
	SAY(futimens(fd, times));
	SAY(close(fd));
	stat("file", &st);
	SAY(st.st_mtime);
	fd = taken("second");
	stream(fd, 100, 10);
	SAY(utimensat(AT_FDCWD, "second", times, 0));
	SAY(close(fd));
	stat("second", &st);
	SAY(st.st_mtime);
	fd = taken("third");
	stream(fd, 100, 10);
	SAY(fchmod(fd, 06755));
	SAY(close(fd));
	stat("third", &st);
	SAY(st.st_mode);
	fd = taken("fourth");
	stream(fd, 100, 10);
	SAY(lchmod("fourth", 06755));
	/* Where the library does not see it. */
	bare(SYS_fstat, fd, &st);
	SAY(st.st_mode);
	SAY(st.st_size);
	SAY(close(fd));
}

/* A write takes the file's capabilities away. */
static void capabilities(void)
{
	struct vfs_cap_data set = { VFS_CAP_REVISION_2, { { 1, 0 }, { 0, 0 } } };
	const char *name = "security.capability";
	char got[64];

	for (int how = 0; how < 4; how++) {
		char path[2] = { 'a' + how };
		int fd = taken(path);

		SAY(how == 0 ? fsetxattr(fd, name, &set, sizeof(set), 0) :
		    how == 1 ? setxattr(path, name, &set, sizeof(set), 0) :
		    how == 2 ? lsetxattr(path, name, &set, sizeof(set), 0) :
			       syscall(SYS_setxattr, path, name, &set, sizeof(set), 0));
		SAY(getxattr(path, name, got, sizeof(got)));
		stream(fd, 100, 10);
		SAY(how % 2 ? fgetxattr(fd, name, got, sizeof(got)) :
			      getxattr(path, name, got, sizeof(got)));
		SAY(close(fd));
	}
}

static void flags(void)
{
	int fd = open("append", O_WRONLY | O_CREAT | O_APPEND, 0600);

	stream(fd, LONG, 5000);
	SAY(close(fd));
	fd = open("sync", O_WRONLY | O_CREAT | O_TRUNC | O_DSYNC, 0600);
	stream(fd, LONG, 1 << 20);
	SAY(close(fd));
	fd = taken("later");
	SAY(fcntl(fd, F_SETFL, O_APPEND));
	SAY(lseek(fd, 0, SEEK_SET));
	stream(fd, 1000, 100);
	SAY(close(fd));
}

/* -------------------------------------------------------------------------- other processes */

static void forks(void)
{
	static unsigned char buffer[9000];
	int fd = taken("file"), status;

	if (fork() == 0) {
		SAY(lseek(fd, 0, SEEK_CUR));
		stream(fd, 100, 10);
		stream(fd, LONG, 1000);
		exit(0);
	}
	wait(&status);
	SAY(status);
	SAY(lseek(fd, 0, SEEK_CUR));
	stream(fd, 100, 10);
	SAY(close(fd));
	fd = reading("second", O_RDONLY);
	if (fork() == 0) {
		SAY(read(fd, buffer, 1000));
		SAY(sum(buffer, 1000));
		int own = taken("third");
		stream(own, 12345, 11);
		_exit(0);
	}
	wait(&status);
	SAY(read(fd, buffer, 1000));
	SAY(sum(buffer, 1000));
	SAY(size_of("third"));
	SAY(close(fd));
}

static void spawns(void)
{
	char *words[] = { "sh", "-c", "echo child >&9; cat file second | wc -c", NULL };
	int fd = taken("file"), status;
	pid_t child;

	dup2(fd, 9);
	stream(9, 100, 10);
	int error = posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ);
	waitpid(child, &status, 0);
	SAY(error);
	stream(9, 100, 10);
	close(fd);
	close(9);
	fd = taken("second");
	dup2(fd, 9);
	stream(fd, 10, 1);
	SAY(system("echo system >&9; wc -c <second"));
	stream(fd, 10, 1);
	close(fd);
	close(9);
	fd = taken("third");
	dup2(fd, 9);
	stream(fd, 10, 1);
	char line[50] = "";
	FILE *output = popen("echo popen >&9; wc -c <third", "r");
	SAY(fgets(line, sizeof(line), output) != NULL);
	SAY(atol(line));
	SAY(pclose(output));
	stream(fd, 10, 1);
	close(fd);
	close(9);
	fd = taken("fourth");
	dup2(fd, 9);
	stream(fd, 10, 1);
	child = vfork();
	if (child == 0) {
		execv("/bin/sh", words);
		_exit(127);
	}
	waitpid(child, &status, 0);
	SAY(status);
	stream(fd, 10, 1);
	SAY(lseek(fd, 0, SEEK_CUR));
	close(fd);
	close(9);
	/* A child that closes everything before it executes something. */
	fd = taken("fifth");
	child = vfork();
	if (child == 0) {
		for (int i = 3; i < 1000; i++)
			close(i);
		execlp("true", "true", (char *)NULL);
		_exit(127);
	}
	waitpid(child, &status, 0);
	SAY(status);
	stream(fd, 10, 1);
	SAY(close(fd));
}

/* What another thread does while a child has this process's memory, but numbers of its own. */
static volatile int stage;
static volatile long failures;

static void *beside(void *unused)
{
	int fd;

	while (stage == 0)
		bare(SYS_sched_yield);
	fd = create("beside");
	stream(fd, LONG, 7000);
	stage = 2;
	while (stage == 2)
		failures += write(fd, pool, 100) != 100;
	failures += ftruncate(fd, LONG) + close(fd);
	return unused;
}

static void beside_a_child(void)
{
	int aligned = open("aligned", O_RDWR | O_CREAT | O_DIRECT, 0600), fd;
	static unsigned char buffer[8192] __attribute__((aligned(4096)));
	pthread_t thread;
	struct stat st;
	pid_t child;

	SAY(write(aligned, buffer, sizeof(buffer)));
	pthread_create(&thread, NULL, beside, NULL);
	child = vfork();
	if (child == 0) {
		stage = 1;
		while (stage == 1)
			bare(SYS_sched_yield);
		for (int i = 0; i < 100; i++) {
			if (stat("beside", &st) || lstat("beside", &st) || kill(getpid(), 0) ||
			    chmod("beside", 0600))
				failures++;
			sync_file_range(aligned, 0, 0, 0);
		}
		syncfs(aligned);
		/* The number that the other thread has for its file. */
		fd = open("child", O_WRONLY | O_CREAT, 0600);
		failures += write(fd, "child", 5) != 5;
		failures += lseek(fd, 0, SEEK_CUR) != 5;
		failures += fcntl(fd, F_SETFL, O_APPEND) != 0;
		failures += write(fd, "child", 5) != 5;
		failures += ftruncate(fd, 7) + fsync(fd) + close(fd);
		/* Copies of the child's own. */
		for (int i = 0; i < 10; i++)
			dup(aligned);
		fcntl(aligned, F_DUPFD, 70);
		_exit(fd);
	}
	stage = 3;
	pthread_join(thread, NULL);
	SAY(failures);
	SAY(size_of("child"));
	SAY(lseek(aligned, 0, SEEK_CUR));
	SAY(close(aligned));
	SAY(waitpid(child, NULL, 0) == child);
}

/* A process with memory of its own, but the same descriptors. */
static int ask_it[2], told_by[2];

static int replaces(void *numbers)
{
	const int *fd = numbers;
	char byte;

	if (bare(SYS_read, ask_it[0], &byte, 1) == 1)
		bare(SYS_dup3, fd[1], fd[0], 0);
	bare(SYS_write, told_by[1], &byte, 1);
	return 0;
}

static void descriptors_of_two(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	static int numbers[2] = { 70, 71 };
	char byte = 0;
	int fd;

	SAY(pipe(ask_it) | pipe(told_by));
	fd = create("second");
	SAY(dup2(fd, 71));
	close(fd);
	SAY(clone(replaces, stack + sizeof(stack), CLONE_FILES | SIGCHLD, numbers) > 0);
	fd = create("file");
	SAY(dup2(fd, 70));
	close(fd);
	stream(70, LONG, 7000);
	SAY(write(ask_it[1], &byte, 1));
	SAY(read(told_by[0], &byte, 1));
	SAY(write(70, pool, 5000));
	SAY(close(70) | close(71));
	SAY(wait(NULL) > 0);
	SAY(size_of("file"));
	SAY(size_of("second"));
}

static void executes(void)
{
	int fd = taken("file");

	stream(fd, 10, 1);
	SAY(execl("/nonexistent", "no", "such", "program", (char *)NULL));
	stream(fd, 10, 1);
	dup2(fd, 9);
	fd = taken("second");
	stream(fd, 10, 1);
	execl("/bin/sh", "sh", "-c", "printf '%s ' \"$@\" >&9; wc -c file second", "sh", "a", "b",
	      "c", "d", "e", "f", "g", (char *)NULL);
}

/* What a shell does that looks for a program. */
static void executes_nothing(void)
{
	char *words[] = { "nothing", NULL };

	close(taken("first"));
	for (int i = 0; i < 3; i++)
		SAY(execve("/nonexistent/nothing", words, environ));
	close(taken("second"));
}

static void passes_one(int duplicate)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { "x", 1 };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int pair[2], fd, status;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	if (fork() == 0) {
		char byte[1];

		part.iov_base = byte;
		recvmsg(pair[1], &message, 0);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
		if (duplicate)
			SAY(read(pair[1], byte, 1));
		SAY(lseek(fd, 0, SEEK_CUR));
		stream(fd, 1000, 10);
		exit(0);
	}
	fd = duplicate ? open("file", O_CREAT | O_TRUNC | O_WRONLY, 0600) : taken("file");
	stream(fd, 10, 1);
	int sent_one = duplicate ? dup(fd) : fd;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &sent_one, sizeof(fd));
	ssize_t sent = sendmsg(pair[0], &message, 0);
	if (duplicate) {
		/* By now it would be taken. */
		close(sent_one);
		stream(fd, LONG, 1000);
		if (write(pair[0], "x", 1) != 1)
			say("write", errno);
	}
	wait(&status);
	SAY(sent);
	SAY(lseek(fd, 0, SEEK_CUR));
	stream(fd, 10, 1);
	SAY(close(fd));
}

static void passes(void)
{
	passes_one(0);
}

static void passes_a_duplicate(void)
{
	passes_one(1);
}

/* --------------------------------------------------------------------- other ways to the data */

static int send_it(char unused)
{
	int fd = open("file", O_RDWR);

	(void)unused;
	pass(helper[1], fd);
	close(fd);
	return 0;
}

static int asked_for(void)
{
	char byte = 'x';
	int fd;

	if (write(helper[0], &byte, 1) != 1)
		return -1;
	fd = pass(helper[0], -1);
	SAY(read(helper[0], &byte, 1));
	return fd;
}

/* A descriptor of a stream's file that another process has opened. */
static void receives(void)
{
	static unsigned char buffer[9000];
	int fd, other;

	with_helper(send_it);
	fd = taken("file");
	other = asked_for();
	stream(fd, 100, 10);
	SAY(pread(other, buffer, 200, LONG));
	SAY(sum(buffer, 200));
	SAY(lseek(other, 0, SEEK_END));
	SAY(close(other));
	SAY(close(fd));
	fd = reading("file", O_RDONLY);
	other = asked_for();
	SAY(read(fd, buffer, sizeof(buffer)));
	SAY(pwrite(other, "new", 3, 121 * sizeof(buffer)));
	SAY(read(fd, buffer, sizeof(buffer)));
	SAY(sum(buffer, sizeof(buffer)));
	SAY(close(other));
	SAY(close(fd));
	helper_gone();
}

static void maps(void)
{
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned char *map;

	stream(fd, LONG, 1000);
	map = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	SAY(sum(map, LONG));
	stream(fd, 100, 10);
	map[LONG - 1] = 'x';
	map[0] = 'x';
	SAY(size_of("file"));
	SAY(close(fd));
	/* Through another descriptor. */
	fd = taken("second");
	stream(fd, 100, 10);
	int other = open("second", O_RDONLY);
	map = mmap(NULL, LONG + 4096, PROT_READ, MAP_SHARED, other, 0);
	SAY(sum(map, LONG + 100));
	stream(fd, 100, 10);
	SAY(sum(map, LONG + 200));
	SAY(close(fd));
}

/* Mappings made before the stream, through descriptors that are closed since. */
static void mapped_before(void)
{
	static unsigned char buffer[9000];
	int fd = open("file", O_RDWR | O_CREAT, 0600);
	unsigned char *map;

	ftruncate(fd, LONG);
	map = mmap(NULL, LONG, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	fd = open("file", O_WRONLY | O_CREAT, 0600);
	stream(fd, LONG / 2, 7000);
	SAY(sum(map, LONG));
	stream(fd, 100, 10);
	SAY(sum(map, LONG));
	SAY(close(fd));
	munmap(map, LONG);
	fd = open("file", O_WRONLY | O_CREAT, 0600);
	stream(fd, LONG / 2, 6000);
	SAY(close(fd));
	close(taken("second"));
	fd = open("second", O_RDWR);
	map = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	fd = open("second", O_RDONLY);
	for (int i = 0; i < 200; i++) {
		if (i > 50)
			memset(map + i * sizeof(buffer), i, 7000);
		if (read(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			SAY(-1);
		if (i > 45)
			SAY(sum(buffer, sizeof(buffer)));
	}
	SAY(close(fd));
}

static void copies(void)
{
	int from = reading("from", O_RDONLY), to = taken("to"), pipes[2];
	off_t at = 5;

	stream(to, 10, 1);
	SAY(sendfile(to, from, NULL, 5000));
	SAY(sendfile(to, from, &at, 5000));
	SAY(lseek(from, 0, SEEK_CUR));
	SAY(lseek(to, 0, SEEK_CUR));
	SAY(close(to));
	to = taken("second");
	from = reading("third", O_RDONLY);
	stream(to, 10, 1);
	/* How much one call copies depends on what the page cache holds. */
	ssize_t copied = 0, some;
	while (copied < 70000 && (some = copy_file_range(from, NULL, to, NULL, 70000 - copied, 0)) > 0)
		copied += some;
	SAY(copied);
	SAY(lseek(to, 0, SEEK_CUR));
	SAY(lseek(from, 0, SEEK_CUR));
	SAY(close(to));
	to = taken("fourth");
	from = reading("fifth", O_RDONLY);
	SAY(pipe(pipes));
	SAY(splice(from, NULL, pipes[1], NULL, 5000, 0));
	SAY(splice(pipes[0], NULL, to, NULL, 5000, 0));
	SAY(lseek(to, 0, SEEK_CUR));
	SAY(lseek(from, 0, SEEK_CUR));
	SAY(close(to));
	from = taken("sixth");
	stream(from, 10, 1);
	to = create("seventh");
	if (ioctl(to, FICLONE, from) < 0)
		SAY(size_of("sixth"));
	else
		SAY(size_of("seventh") - 0);
	SAY(close(from));
	from = reading("eighth", O_RDONLY);
	int left = 0;
	SAY(ioctl(from, FIONREAD, &left));
	SAY(left);
}

static void watches(void)
{
	char events[4096];
	int fd, watch, count = 0;
	struct pollfd first;

	/* Nothing waits when the program begins to watch. */
	watch = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(watch, ".", IN_MODIFY);
	fd = taken("file");
	SAY(read(watch, events, sizeof(events)) > 0);
	stream(fd, 100, 10);
	first = (struct pollfd){ .fd = watch, .events = POLLIN };
	SAY(poll(&first, 1, 0));
	close(watch);
	stream(fd, 100, 10);
	/* What was written before is no news. */
	watch = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(watch, "file", IN_MODIFY);
	SAY(read(watch, events, sizeof(events)) > 0);
	stream(fd, 100, 10);
	SAY(ioctl(watch, FIONREAD, &count));
	SAY(count > 0);
	SAY(read(watch, events, sizeof(events)) > 0);
	/* Without waiting. */
	for (int how = 0; how < 3; how++) {
		struct pollfd one = { .fd = watch, .events = POLLIN };
		struct epoll_event event = { .events = EPOLLIN };
		struct timeval none = { 0 };
		int queue = epoll_create1(0);
		fd_set set;

		FD_ZERO(&set);
		FD_SET(watch, &set);
		epoll_ctl(queue, EPOLL_CTL_ADD, watch, &event);
		stream(fd, 100, 10);
		SAY(how == 0 ? poll(&one, 1, 0) : how == 1 ? select(watch + 1, &set, NULL, NULL, &none)
			: epoll_wait(queue, &event, 1, 0));
		SAY(read(watch, events, sizeof(events)) > 0);
		close(queue);
	}
	SAY(close(fd));
	close(watch);
}

static void asynchronous(void)
{
	int fd = taken("file");
	struct aiocb block = { .aio_fildes = fd, .aio_buf = pool, .aio_nbytes = 5000, .aio_offset = 77 };
	const struct aiocb *list[1] = { &block };

	stream(fd, 10, 1);
	SAY(aio_write(&block));
	while (aio_error(&block) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	SAY(aio_return(&block));
	stream(fd, 10, 1);
	SAY(close(fd));
	fd = taken("second");
	char setup[120] = { 0 };
	SAY(syscall(SYS_io_uring_setup, 4, setup) >= 0);
	SAY(lseek(fd, 0, SEEK_CUR));
	stream(fd, 10, 1);
	SAY(close(fd));
	fd = taken("third");
	SAY(close(fd));
}

static void bare_calls(void)
{
	int fd = taken("file"), status;

	SAY(syscall(SYS_write, fd, "bare", 4));
	SAY(syscall(SYS_lseek, fd, 0, SEEK_CUR));
	SAY(syscall(SYS_pwrite64, fd, "bare", 4, 100));
	SAY(syscall(SYS_fsync, fd));
	stream(fd, 10, 1);
	pid_t child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0) {
		stream(fd, LONG, 1000);
		syscall(SYS_exit_group, 0);
	}
	waitpid(child, &status, 0);
	SAY(status);
	SAY(syscall(SYS_lseek, fd, 0, SEEK_CUR));
	SAY(syscall(SYS_close, fd));
	fd = taken("second");
	stream(fd, 10, 1);
	syscall(SYS_exit_group, 3);
}

static void bare_files(void)
{
	static unsigned char buffer[LONG];
	struct stat st;
	struct statx stx;
	struct open_how how = { .flags = O_RDONLY };
	struct timespec times[2] = { { 1000, 0 }, { 2000, 0 } };
	struct iovec part = { buffer, 5000 };
	int fd = taken("file"), other;
	long n, total;

	stream(fd, 10, 1);
	SAY(syscall(SYS_newfstatat, AT_FDCWD, "file", &st, 0));
	SAY(st.st_size);
	stream(fd, 10, 1);
	SAY(syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH));
	SAY(st.st_size);
	stream(fd, 10, 1);
	SAY(syscall(SYS_statx, AT_FDCWD, "file", 0, STATX_SIZE, &stx));
	SAY(stx.stx_size);
	stream(fd, 10, 1);
	SAY(syscall(SYS_fstat, fd, &st));
	SAY(st.st_size);
#ifdef SYS_stat
	stream(fd, 10, 1);
	SAY(syscall(SYS_stat, "file", &st));
	SAY(st.st_size);
	stream(fd, 10, 1);
	SAY(syscall(SYS_lstat, "file", &st));
	SAY(st.st_size);
#endif
	stream(fd, 10, 1);
	SAY(syscall(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED));
	SAY(other = syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof(how)));
	for (total = 0; (n = syscall(SYS_read, other, buffer, 70000)) > 0;)
		total += n;
	SAY(total);
	SAY(syscall(SYS_close, other));
	stream(fd, 10, 1);
	SAY(syscall(SYS_truncate, "file", 1500000));
	stream(fd, 10, 1);
	SAY(syscall(SYS_close, fd));
	SAY(size_of("file"));

	/* Emptied by another open. */
	how = (struct open_how){ .flags = O_WRONLY | O_TRUNC };
	fd = taken("second");
	SAY(syscall(SYS_close, syscall(SYS_openat2, AT_FDCWD, "second", &how, sizeof(how))));
	SAY(size_of("second"));
	stream(fd, 10, 1);
	SAY(syscall(SYS_openat2, AT_FDCWD, "second", (void *)8, sizeof(how)));
	SAY(syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, "second", O_WRONLY | O_TRUNC)));
	SAY(size_of("second"));
	stream(fd, 10, 1);
	SAY(close(fd));

	/* What was opened so is taken as well. */
	how = (struct open_how){ .flags = O_RDWR | O_CREAT | O_TRUNC, .mode = 0600 };
	fd = syscall(SYS_openat2, AT_FDCWD, "third", &how, sizeof(how));
	stream(fd, LONG, 7000);
	SAY(syscall(SYS_preadv, fd, &part, 1, LONG - 5000, 0));
	SAY(syscall(SYS_preadv2, fd, &part, 1, LONG - 3000, 0, 0));
	SAY(syscall(SYS_preadv2, fd, &part, 1, -1, 0, 0));
	SAY(syscall(SYS_preadv2, fd, &part, 1, 0, 0, 1 << 30));
	SAY(sum(buffer, 5000));
	SAY(close(fd));

	/* Times and modes come after the data. */
	fd = taken("fourth");
	stream(fd, 10, 1);
	SAY(syscall(SYS_utimensat, AT_FDCWD, "fourth", times, 0));
	SAY(close(fd));
	stat("fourth", &st);
	SAY(st.st_mtime);
	fd = taken("fifth");
	stream(fd, 10, 1);
	SAY(syscall(SYS_utimensat, fd, NULL, times, 0));
	SAY(close(fd));
	stat("fifth", &st);
	SAY(st.st_mtime);
	fd = taken("sixth");
	stream(fd, 10, 1);
	SAY(syscall(SYS_fchmod, fd, 06755));
	SAY(close(fd));
	stat("sixth", &st);
	SAY(st.st_mode);

	/* Asynchronous I/O without a library. */
	aio_context_t context = 0;
	struct iocb block = { .aio_fildes = open("seventh", O_RDWR | O_CREAT | O_TRUNC, 0600),
			      .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)buffer,
			      .aio_nbytes = 70000, .aio_offset = LONG - 70000 };
	struct iocb *blocks[1] = { &block };
	struct io_event event;
	stream(block.aio_fildes, LONG, 7000);
	SAY(syscall(SYS_io_setup, 4, &context));
	SAY(syscall(SYS_io_submit, context, 1, blocks));
	SAY(syscall(SYS_io_getevents, context, 1, 1, &event, NULL));
	SAY(event.res);
	SAY(syscall(SYS_io_destroy, context));
	SAY(close(block.aio_fildes));

	/* A mapping, a lock, a kernel's copy, a passed descriptor. */
	fd = open("eighth", O_RDWR | O_CREAT | O_TRUNC, 0600);
	stream(fd, LONG, 7000);
	unsigned char *map = (void *)syscall(SYS_mmap, NULL, LONG, PROT_READ, MAP_SHARED, fd, 0);
	SAY(sum(map, LONG));
	SAY(close(fd));
	fd = taken("ninth");
	other = open("tenth", O_RDWR | O_CREAT | O_TRUNC, 0600);
	SAY(syscall(SYS_copy_file_range, other, NULL, fd, NULL, 5000, 0));
	SAY(syscall(SYS_lseek, fd, 0, SEEK_CUR));
	SAY(syscall(SYS_sendfile, fd, other, NULL, 5000));
	SAY(close(fd) | close(other));
	/* One that nothing is known of. */
	fd = taken("eleventh");
	stream(fd, 10, 1);
	SAY(syscall(100000, fd));
	SAY(close(fd));
}

static long tasks(void)
{
	DIR *directory = opendir("/proc/self/task");
	long n = 0;

	while (readdir(directory))
		n++;
	closedir(directory);
	return n - 2;
}

static void namespaces(void)
{
	static unsigned char buffer[9000];

	for (int how = 0; how < 6; how++) {
		char name[8] = { 'a' + how };

		if (fork() == 0) {
			/* What the page cache has not written yet makes direct reads wait, in a worker. */
			int dirty = open("dirty", O_RDWR | O_CREAT | O_TRUNC, 0600);

			for (int i = 0; i < 1000; i++)
				pwrite(dirty, pool, 5000, i * 20000);
			close(dirty);
			dirty = open("dirty", O_RDONLY);
			for (int i = 0; i < 1000; i++)
				read(dirty, buffer, sizeof(buffer));
			SAY(lseek(dirty, 0, SEEK_CUR));
			/* A writer that grows, one that overwrites, and a reader. */
			int grows = taken(name), overwrites = open(name, O_WRONLY), reads = reading("r", O_RDONLY);

			stream(overwrites, LONG, 5000);
			stream(grows, 100, 10);
			switch (how) {
			case 0: SAY(unshare(CLONE_NEWUSER)); break;
			case 1: SAY(syscall(SYS_unshare, CLONE_NEWUSER)); break;
			case 2: SAY(unshare(CLONE_FILES | CLONE_FS)); break;
			case 3: SAY(unshare(CLONE_SIGHAND)); break;
			case 4: SAY(setns(open("/proc/self/ns/user", O_RDONLY), CLONE_NEWUSER)); break;
			case 5: SAY(setns(open("/proc/self/ns/mnt", O_RDONLY), CLONE_NEWNS)); break;
			}
			SAY(tasks());
			stream(grows, 100, 10);
			SAY(lseek(reads, 0, SEEK_CUR));
			SAY(close(grows) | close(overwrites) | close(reads));
			exit(0);
		}
		wait(NULL);
		SAY(size_of(name));
	}
}

/* Nothing of a closed file is left that keeps its filesystem. */
static void unmounts(void)
{
	SAY(mkdir("from", 0700) | mkdir("mnt", 0700));
	for (int i = 0; i < 40; i++) {
		int fd, bound = mount("from", "mnt", NULL, MS_BIND, NULL) == 0;

		if (i % 2) {
			fd = reading("mnt/file", O_RDONLY);
		} else {
			fd = taken("mnt/file");
			stream(fd, 200000, 1000);
			/* The thread that hands over what idles is at it. */
			usleep(i * 1000);
			stream(fd, 5000, 1000);
		}
		SAY(close(fd));
		SAY(bound ? umount2("mnt", 0) : 0);
		umount2("mnt", MNT_DETACH);
		SAY(bound ? size_of("from/file") : LONG);
		unlink(bound ? "from/file" : "mnt/file");
	}
	SAY(rmdir("from") | rmdir("mnt"));
}

/* What a process may do changes between the take and the end. */
static void rights(void)
{
	for (int how = 0; how < 4; how++) {
		char name[3] = { 'a' + how };

		if (fork() == 0) {
			int fd = taken(name), other = reading("r", O_RDONLY);
			static unsigned char buffer[9000];

			switch (how) {
			case 0: SAY(setresgid(65534, 65534, 65534) | setresuid(65534, 65534, 65534)); break;
			case 1: SAY(chroot(".") | chdir("/")); break;
			case 2: SAY(fcntl(fd, F_SETLEASE, F_WRLCK)); break;
			case 3: SAY(fchmod(fd, 0) | fchmod(other, 0)); break;
			}
			stream(fd, 300000, 1000);
			SAY(lseek(fd, 0, SEEK_CUR));
			SAY(read(other, buffer, sizeof(buffer)));
			SAY(sum(buffer, sizeof(buffer)));
			SAY(lseek(other, 0, SEEK_SET));
			for (int i = 0; i < 200; i++)
				if (read(other, buffer, sizeof(buffer)) != sizeof(buffer))
					SAY(-1);
			SAY(close(fd) | close(other));
			name[1] = 'x';
			fd = taken(name);
			if (fd >= 0)
				SAY(close(fd));
			exit(0);
		}
		wait(NULL);
		SAY(size_of(name));
		chmod(name, 0600);
		unlink("r");
	}
}

int capset(cap_user_header_t header, const cap_user_data_t data);

/* What is written by whom takes set-user-ID bits away, or not. */
static void rights_of_writes(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2];
	struct stat about;

	for (int how = 0; how < 12; how++) {
		char name[2] = { 'a' + how };

		if (fork() == 0) {
			int fd = taken(name), later = how % 2;

			SAY(fchmod(fd, 04755));
			stream(fd, 300000, 1000);
			switch (how / 2) {
			case 0: SAY(setresuid(1, 1, 0)); break;
			case 1: SAY(seteuid(1)); break;
			case 2: setfsuid(1); break;
			case 3: SAY(syscall(SYS_setresuid, 1, 1, 0)); break;
			case 4:
				syscall(SYS_capget, &header, sets);
				sets[0].effective = 0;
				SAY(capset(&header, sets));
				break;
			case 5:
				SAY(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP));
				SAY(setresuid(1, 1, 0));
				break;
			}
			/* Here the library's threads have time to write what waits, or they are given more. */
			if (later)
				stream(fd, 300000, 1000);
			else
				usleep(100000);
			if (how / 2 >= 2)
				SAY(tasks());
			SAY(close(fd));
			exit(0);
		}
		wait(NULL);
		SAY(stat(name, &about) ? -1 : (long)about.st_mode);
	}
}

/* What programs rarely do with a long stream. */
static void odds(void)
{
	static unsigned char buffer[70000] __attribute__((aligned(4096)));
	char path[64];
	struct stat st;
	int fd = taken("a"), other, flags = 0;

	/* Flags. */
	SAY(fcntl(fd, F_SETFL, O_APPEND));
	SAY(lseek(fd, 0, SEEK_SET));
	stream(fd, 1000, 10);
	SAY(fcntl(fd, F_SETFL, 0));
	stream(fd, 1000, 10);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
	fd = reading("b", O_RDONLY);
	SAY(fcntl(fd, F_SETFL, O_NOATIME));
	SAY(read(fd, buffer, 5000));
	SAY(sum(buffer, 5000));
	SAY(close(fd));

	/* The file anew, by its descriptor. */
	fd = taken("c");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	stream(fd, 10, 1);
	SAY(size_of(path));
	other = open(path, O_RDONLY);
	SAY(lseek(other, 0, SEEK_END));
	close(other);
	close(fd);
	fd = taken("c");
	stream(fd, 10, 1);
	close(open(path, O_WRONLY | O_TRUNC));
	stream(fd, 10, 1);
	SAY(size_of("c"));
	SAY(close(fd));
	fd = taken("d");
	other = open("d", O_PATH);
	stream(fd, 10, 1);
	SAY(fstat(other, &st));
	SAY(st.st_size);
	close(other);
	SAY(close(fd));

	/* Names. */
	fd = taken("e");
	close(create("f"));
	stream(fd, 10, 1);
	SAY(rename("f", "e"));
	stream(fd, 10, 1);
	SAY(fstat(fd, &st));
	SAY(st.st_nlink);
	SAY(st.st_size);
	SAY(size_of("e"));
	SAY(close(fd));
	fd = taken("g");
	stream(fd, 10, 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	SAY(linkat(AT_FDCWD, path, AT_FDCWD, "h", AT_SYMLINK_FOLLOW));
	SAY(unlink("g"));
	stream(fd, 10, 1);
	SAY(close(fd));
	fd = open(".", O_TMPFILE | O_RDWR, 0600);
	stream(fd, LONG, 7000);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	SAY(linkat(AT_FDCWD, path, AT_FDCWD, "tmpfile", AT_SYMLINK_FOLLOW));
	SAY(close(fd));

	/* Far away. */
	fd = taken("i");
	SAY(pwrite(fd, pool, 5000, (3ll << 30) + 5));
	SAY(lseek(fd, (5ll << 32) + 7, SEEK_SET));
	stream(fd, 300000, 1000);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 1ll << 41, SEEK_SET));
	SAY(write(fd, pool, 10));
	SAY(pwrite(fd, pool, 100, INT64_MAX - 10));
	SAY(pwrite(fd, pool, 100, 1ll << 45));
	SAY(size_of("i"));
	SAY(ftruncate(fd, 1000));
	SAY(close(fd));

	/* Nothing at all, and what is not for readers. */
	fd = reading("j", O_RDONLY);
	SAY(read(fd, NULL, 0));
	SAY(pread(fd, NULL, 0, 5));
	SAY(ftruncate(fd, 0));
	SAY(fsync(fd));
	SAY(fallocate(fd, 0, 0, 5000));
	SAY(readahead(fd, 0, 100000));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(truncate("j", 1500000));
	for (int i = 0; i < 60; i++)
		SAY(read(fd, buffer, 9000));
	SAY(close(fd));

	/* Shapes of the file. */
	fd = taken("k");
	stream(fd, 10, 1);
	SAY(fallocate(fd, FALLOC_FL_ZERO_RANGE, 100000, 500000));
	stream(fd, 10, 1);
	if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 65536, 65536) == 0)
		fallocate(fd, FALLOC_FL_INSERT_RANGE, 131072, 65536);
	stream(fd, 10, 1);
	SAY(size_of("k"));
	SAY(close(fd));

	/* A private mapping, of which some is written. */
	fd = open("l", O_RDWR | O_CREAT | O_TRUNC, 0600);
	stream(fd, LONG, 7000);
	unsigned char *map = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	map[100] ^= 1;
	stream(fd, 10, 1);
	SAY(pwrite(fd, "changed", 7, 5000));
	SAY(sum(map, LONG));
	SAY(close(fd));

	/* Unchangeable from now on. */
	fd = taken("m");
	stream(fd, 10, 1);
	other = open("m", O_RDONLY);
	if (ioctl(other, FS_IOC_GETFLAGS, &flags) == 0) {
		flags |= FS_IMMUTABLE_FL;
		ioctl(other, FS_IOC_SETFLAGS, &flags);
	}
	SAY(write(fd, pool, 10));
	flags &= ~FS_IMMUTABLE_FL;
	ioctl(other, FS_IOC_SETFLAGS, &flags);
	SAY(write(fd, pool, 10));
	SAY(close(fd) | close(other));

	/* A copy between two that are taken, by offsets. */
	fd = reading("n", O_RDONLY);
	other = taken("o");
	off_t from = 70000, to = 100;
	stream(other, 10, 1);
	SAY(copy_file_range(fd, &from, other, &to, 4096, 0) > 0);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(close(fd) | close(other));
	truncate("o", 100);

	/* One onto the other. */
	fd = taken("p");
	other = taken("q");
	stream(fd, 10, 1);
	stream(other, 20, 1);
	SAY(dup3(fd, other, O_CLOEXEC) == other);
	stream(other, 30, 1);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close_range(fd, fd, 0));
	stream(other, 30, 1);
	SAY(close_range(other, other, 4));
	stream(other, 30, 1);
	SAY(close_range(other, other, 2));
	SAY(write(other, pool, 10));
	SAY(size_of("p"));
	SAY(size_of("q"));
}

/* ------------------------------------------------------------------------------- the end */

static int last;

static void at_the_end(void)
{
	stream(last, 5000, 70);
}

__attribute__((destructor)) static void even_later(void)
{
	if (last)
		stream(last, 3000, 70);
}

extern void __assert(const char *, const char *, int);
extern void __stack_chk_fail(void);

/* Which does not end the process. */
static void aborted(int number)
{
	(void)number;
}

static void ends(const char *how)
{
	last = taken("file");
	stream(last, 10, 1);
	if (!strcmp(how, "return"))
		return;
	if (!strcmp(how, "exit")) {
		atexit(at_the_end);
		exit(3);
	}
	if (!strcmp(how, "_exit"))
		_exit(4);
	if (!strcmp(how, "_Exit"))
		_Exit(5);
	if (!strcmp(how, "quick_exit")) {
		at_quick_exit(at_the_end);
		quick_exit(6);
	}
	if (!strcmp(how, "abort"))
		abort();
	signal(SIGABRT, aborted);
	if (!strcmp(how, "assert"))
		assert(!how);
	if (!strcmp(how, "assert_perror"))
		assert_perror(EIO);
	if (!strcmp(how, "__assert"))
		__assert("an assertion", "file", 1);
	if (!strcmp(how, "__stack_chk_fail")) {
		/* Not to the terminal. */
		setenv("LIBC_FATAL_STDERR_", "1", 1);
		__stack_chk_fail();
	}
	if (!strcmp(how, "raise"))
		raise(SIGTERM);
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "pthread_kill"))
		pthread_kill(pthread_self(), SIGKILL);
	if (!strcmp(how, "pthread_exit"))
		pthread_exit(NULL);
}

/* ------------------------------------------------------------------------ threads and signals */

static int shared;

static void *records(void *argument)
{
	char record[64];

	memset(record, 'a' + (intptr_t)argument, sizeof(record));
	record[63] = '\n';
	for (int i = 0; i < 20000; i++)
		if (write(shared, record, sizeof(record)) != sizeof(record))
			SAY(-1);
	return NULL;
}

static void *places(void *argument)
{
	for (int i = (intptr_t)argument; i < 2000; i += 4)
		if (pwrite(shared, pool + i, 1000, i * 1000L) != 1000)
			SAY(-1);
	return NULL;
}

static void *fetches(void *argument)
{
	uint64_t total = 0;
	unsigned char buffer[1000];
	ssize_t n;

	while ((n = read(shared, buffer, sizeof(buffer))) > 0)
		total += sum(buffer, n);
	*(uint64_t *)argument = total;
	return NULL;
}

static void four(void *(*work)(void *), uint64_t *results)
{
	pthread_t threads[4];

	for (intptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, results ? (void *)&results[i] : (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void threads(void)
{
	static char text[4 * 20000 * 64];
	long count[4] = { 0 }, torn = 0;
	uint64_t sums[4];

	shared = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	four(records, NULL);
	SAY(lseek(shared, 0, SEEK_CUR));
	SAY(pread(shared, text, sizeof(text), 0));
	for (size_t i = 0; i < sizeof(text); i += 64) {
		count[(text[i] - 'a') & 3]++;
		for (int j = 1; j < 63; j++)
			torn += text[i + j] != text[i];
	}
	for (int i = 0; i < 4; i++)
		SAY(count[i]);
	SAY(torn);
	SAY(close(shared));
	SAY(unlink("file"));
	shared = taken("places");
	four(places, NULL);
	SAY(close(shared));
	shared = open("places", O_RDONLY);
	four(fetches, sums);
	SAY(sums[0] + sums[1] + sums[2] + sums[3]);
	SAY(close(shared));
}

static volatile sig_atomic_t ticks;
static int tick_fd;
static sigjmp_buf out;

static void tick(int signal)
{
	int error = errno;

	(void)signal;
	if (ticks < 500) {
		if (write(tick_fd, "\377\377\377\377", 4) != 4)
			abort();
		ticks++;
	}
	errno = error;
}

static void leap(int signal)
{
	(void)signal;
	if (++ticks < 300)
		siglongjmp(out, 1);
}

static void signals(void)
{
	static unsigned char buffer[400 * 1000 + 5000];
	struct itimerval timer = { { 0, 500 }, { 0, 500 } }, off = { 0 };
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	long marks = 0, n;

	for (size_t i = 0; i < sizeof(pool); i++)
		pool[i] &= 127;
	tick_fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	stream(tick_fd, LONG, 1000);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (long total = 0; ticks < 500; total++)
		stream(tick_fd, total < 20000 ? 100 : 0, 100);
	setitimer(ITIMER_REAL, &off, NULL);
	SAY(ticks);
	lseek(tick_fd, 0, SEEK_SET);
	while ((n = read(tick_fd, buffer, sizeof(buffer))) > 0)
		for (long i = 0; i < n; i++)
			marks += buffer[i] == 255;
	SAY(marks);
	unlink("file");
	/* Out of whatever was interrupted; the stream still works. */
	tick_fd = taken("second");
	ticks = 0;
	signal(SIGALRM, leap);
	if (!sigsetjmp(out, 1))
		setitimer(ITIMER_REAL, &timer, NULL);
	while (ticks < 300)
		pwrite(tick_fd, pool, 1000, 0);
	setitimer(ITIMER_REAL, &off, NULL);
	SAY(lseek(tick_fd, 100, SEEK_SET));
	stream(tick_fd, 1000, 10);
	SAY(close(tick_fd));
}

static long ticks_seen, ticks_odd;

/* What a handler is given, and what is blocked in it. */
static void count(int number, siginfo_t *info, void *context)
{
	sigset_t now;

	(void)context;
	ticks_seen++;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	if (info->si_signo != number || info->si_code != SI_TIMER || info->si_value.sival_int != 77 ||
	    !sigismember(&now, number) || !sigismember(&now, SIGUSR2) || sigismember(&now, SIGTERM) ||
	    sigismember(&now, SIGHUP))
		ticks_odd++;
}

static volatile sig_atomic_t inner, outer;

static void within(int number)
{
	(void)number;
	inner++;
}

static void around(int number)
{
	int before = inner;

	(void)number;
	raise(SIGUSR2);
	outer += inner == before + 1;
	if (write(tick_fd, "\377", 1) != 1)
		abort();
}

static int shown(int number)
{
	struct sigaction now;

	sigaction(number, NULL, &now);
	return now.sa_handler == SIG_DFL ? 0 : now.sa_handler == within ? 1 :
	       now.sa_handler == around ? 2 : now.sa_handler == (void *)count ? 3 : 4;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void handlers(void)
{
	struct sigaction action = { .sa_sigaction = count, .sa_flags = SA_SIGINFO }, old;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec often = { { 0, 300000 }, { 0, 300000 } }, off = { 0 };
	timer_t timer;
	sigset_t now;

	sigaddset(&action.sa_mask, SIGUSR2);
	sigaction(SIGUSR1, &action, NULL);
	tick_fd = taken("file");
	event.sigev_value.sival_int = 77;
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &often, NULL);
	while (ticks_seen < 500)
		pwrite(tick_fd, pool, 3000, 0);
	timer_settime(timer, 0, &off, NULL);
	SAY(ticks_odd);
	sigprocmask(SIG_BLOCK, NULL, &now);
	SAY(sigismember(&now, SIGUSR1) + sigismember(&now, SIGUSR2) + sigismember(&now, SIGTERM));
	SAY(shown(SIGUSR1));
	SAY(sigaction(SIGUSR1, NULL, &old));
	SAY((old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_NODEFER | SA_RESETHAND)) == SA_SIGINFO);
	SAY(sigismember(&old.sa_mask, SIGUSR2));
	/* One handler within the other, both with a stream. */
	SAY(signal(SIGUSR2, within) == SIG_DFL);
	SAY(signal(SIGUSR1, around) == (void *)count);
	event.sigev_signo = SIGUSR1;
	timer_settime(timer, 0, &often, NULL);
	while (outer < 200)
		pwrite(tick_fd, pool, 3000, 0);
	timer_settime(timer, 0, &off, NULL);
	SAY(inner >= outer);
	SAY(shown(SIGUSR1) * 10 + shown(SIGUSR2));
	/* Once only. */
	action = (struct sigaction){ .sa_handler = within, .sa_flags = SA_RESETHAND | SA_NODEFER };
	SAY(sigaction(SIGUSR2, &action, &old));
	SAY(old.sa_handler == within);
	SAY(shown(SIGUSR2));
	inner = 0;
	raise(SIGUSR2);
	SAY(inner);
	SAY(shown(SIGUSR2));
	SAY(sigaction(SIGUSR2, NULL, &old));
	SAY(old.sa_flags & (SA_RESETHAND | SA_NODEFER | SA_SIGINFO));
	SAY(sysv_signal(SIGUSR2, within) == SIG_DFL);
	raise(SIGUSR2);
	SAY(inner * 10 + shown(SIGUSR2));
	SAY(sigset(SIGUSR2, within) == SIG_DFL);
	SAY(sigset(SIGUSR2, SIG_HOLD) == within);
	raise(SIGUSR2);
	SAY(inner);
	SAY(sigset(SIGUSR2, within) == SIG_HOLD);
	SAY(inner);
	SAY(siginterrupt(SIGUSR2, 1));
	SAY(sigaction(SIGUSR2, NULL, &old));
	SAY(old.sa_flags & SA_RESTART);
	SAY(signal(SIGUSR2, around) == within);
	SAY(sigaction(SIGUSR2, NULL, &old));
	SAY(old.sa_flags & (SA_RESTART | SA_RESETHAND | SA_NODEFER));
	SAY(siginterrupt(SIGUSR2, 0));
	SAY(sigaction(SIGUSR2, NULL, &old));
	SAY(old.sa_flags & SA_RESTART);
	SAY(signal(SIGUSR2, SIG_IGN) == around);
	raise(SIGUSR2);
	SAY(signal(SIGUSR2, SIG_DFL) == SIG_IGN);
	SAY(signal(SIGKILL, within) == SIG_ERR);
	SAY(signal(77, within) == SIG_ERR);
	SAY(sigaction(SIGSTOP, &action, NULL));
	/* For real time: with the information, in order. */
	action = (struct sigaction){ .sa_sigaction = count, .sa_flags = SA_SIGINFO };
	SAY(sigaction(SIGRTMIN + 3, &action, NULL));
	stream(tick_fd, 5000, 100);
	SAY(close(tick_fd));
	unlink("file");
}

#pragma GCC diagnostic pop

static void *endless(void *argument)
{
	(void)argument;
	for (;;)
		pwrite(shared, pool, 1000, 0);
	return NULL;
}

/* As many values of each thread as there can be. */
static void keys(void)
{
	int fd = taken("file"), count = 0, again;
	pthread_key_t key;

	stream(fd, 1000, 10);
	while (!pthread_key_create(&key, NULL))
		count++;
	again = pthread_key_create(&key, NULL);
	SAY(count);
	SAY(again);
	stream(fd, 1000, 10);
	SAY(close(fd));
}

/* A thread that is to end, and meets no point where it does. */
static void *outlives(void *argument)
{
	int pair[2], fd = taken("second");

	SAY(pipe(pair));
	pthread_cancel(pthread_self());
	SAY(lseek(fd, 100, SEEK_CUR));
	SAY(syscall(SYS_write, fd, pool, 1000));
	SAY(syscall(SYS_pwrite64, fd, pool, 1000, 0));
	SAY(syscall(SYS_pread64, fd, pool, 1000, 0));
	SAY(syscall(SYS_write, pair[1], pool, 10));
	SAY(syscall(SYS_read, pair[0], pool, 10));
	SAY(syscall(SYS_fsync, fd));
	SAY(syscall(SYS_close, fd));
	return argument;
}

static sigjmp_buf away;
static volatile int arrived;
static int pipes[2];

static void leave(int number)
{
	(void)number;
	siglongjmp(away, 1);
}

/* Is in a bare call when the handler jumps out of it; then in one in which it is cancelled. */
static void *jumps_out(void *argument)
{
	char byte;

	if (!sigsetjmp(away, 1)) {
		arrived = 1;
		syscall(SYS_read, pipes[0], &byte, 1);
	}
	arrived = 2;
	read(pipes[0], &byte, 1);
	return argument;
}

/* A call is left, or its process ended in it: nothing of it stays. */
static void left_calls(void)
{
	int fd = taken("file"), state, status;
	pthread_t thread;
	void *result;
	pid_t child;

	SAY(pipe(pipes));
	signal(SIGUSR1, leave);
	pthread_create(&thread, NULL, jumps_out, NULL);
	while (arrived < 1)
		usleep(1000);
	usleep(20000);
	pthread_kill(thread, SIGUSR1);
	while (arrived < 2)
		usleep(1000);
	usleep(20000);
	pthread_cancel(thread);
	SAY(pthread_join(thread, &result));
	SAY(result == PTHREAD_CANCELED);
	stream(fd, 1000, 10);
	close(pipes[0]);
	signal(SIGPIPE, SIG_DFL);
	child = vfork();
	if (!child) {
		syscall(SYS_write, pipes[1], "x", 1);
		_exit(1);
	}
	SAY(waitpid(child, &status, 0) == child);
	SAY(status);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	SAY(state == PTHREAD_CANCEL_ENABLE);
	SAY(close(fd));
}

static void cancels(void)
{
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, outlives, NULL);
	SAY(pthread_join(thread, &result));
	SAY(result == PTHREAD_CANCELED);
	shared = taken("file");
	pthread_create(&thread, NULL, endless, NULL);
	usleep(20000);
	pthread_cancel(thread);
	SAY(pthread_join(thread, &result));
	SAY(result == PTHREAD_CANCELED);
	stream(shared, 1000, 10);
	SAY(close(shared));
}

/* ------------------------------------------------------------------------------- errors */

static void faults(void)
{
	int fd = taken("file");
	struct iovec bad[1] = { { pool, (size_t)-5 } };

	void *volatile null = NULL;
	volatile int negative = -1, many = 5000;

	SAY(write(fd, null, 10));
	SAY(write(fd, (void *)-4096L, 10));
	SAY(writev(fd, bad, 1));
	SAY(writev(fd, bad, negative));
	SAY(writev(fd, bad, many));
	SAY(pwrite(fd, pool, 10, -5));
	SAY(read(fd, pool + 100, 10));
	stream(fd, 100, 10);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
	fd = reading("second", O_RDONLY);
	SAY(read(fd, null, 10));
	SAY(read(fd, (void *)-4096L, 10));
	SAY(write(fd, pool, 10));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
}

/* Memory that is not there, or not all of it: what the kernel makes of it. */
static void bad_memory(void)
{
	const long page = sysconf(_SC_PAGESIZE);
	unsigned char *good = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	unsigned char *none = good + 2 * page, *fixed = good + 5 * page;
	struct rlimit *limit = (void *)none;
	struct msghdr *message = (void *)none;
	int fd = taken("file"), pair[2];

	mprotect(none, page, PROT_NONE);
	mprotect(fixed, page, PROT_READ);
	for (int way = 0; way < 10; way++) {
		struct iovec parts[3] = { { good, 100 }, { none, 100 }, { good, 100 } };
		struct iovec over[2] = { { good, 100 }, { none - 100, 200 } };
		char name[2] = { 'a' + way };
		fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
		stream(fd, LONG, 7000);
		switch (way) {
		case 0: SAY(write(fd, none, 10)); break;
		case 1: SAY(write(fd, none - 100, 200)); break;
		case 2: SAY(writev(fd, parts, 3)); break;
		case 3: SAY(writev(fd, over, 2)); break;
		case 4: SAY(writev(fd, (void *)none, 2)); break;
		case 5: SAY(pwrite(fd, none - 5000, 10000, 77)); break;
		case 6: SAY(write(fd, good, 9000 * page)); break;
		case 7:
			/* Gone since it was last used. */
			SAY(write(fd, good + 7 * page, 100));
			munmap(good + 7 * page, page);
			SAY(write(fd, good + 7 * page, 100));
			break;
		case 8:
			SAY(write(fd, fixed, page));
			mprotect(fixed, page, PROT_NONE);
			SAY(write(fd, fixed, page));
			mprotect(fixed, page, PROT_READ);
			break;
		case 9: {
			/* A mapping that reaches beyond its file. */
			int small = create("small");
			ftruncate(small, 10);
			close(small);
			small = open("small", O_RDONLY);
			unsigned char *map = mmap(NULL, 2 * page, PROT_READ, MAP_SHARED, small, 0);
			SAY(write(fd, map, 2 * page));
			SAY(write(fd, map + page, 10));
			close(small);
		}
		}
		SAY(lseek(fd, 0, SEEK_CUR));
		stream(fd, 100, 10);
		SAY(close(fd));
	}
	for (int way = 0; way < 7; way++) {
		struct iovec parts[3] = { { good, 100 }, { none, 100 }, { good, 100 } };

		fd = reading("second", O_RDONLY);
		switch (way) {
		case 0: SAY(read(fd, none, 10)); break;
		case 1: SAY(read(fd, none - 100, 200)); break;
		case 2: SAY(read(fd, fixed, 200)); break;
		case 3: SAY(read(fd, good + 4 * page, 2 * page)); break;
		case 4: SAY(readv(fd, parts, 3)); break;
		case 5: SAY(readv(fd, (void *)none, 2)); break;
		case 6: SAY(pread(fd, none - 100, 200, 5)); break;
		}
		SAY(lseek(fd, 0, SEEK_CUR));
		SAY(sum(good, 2 * page));
		SAY(read(fd, pool, 1000));
		SAY(sum(pool, 1000));
		SAY(close(fd));
	}
	/* Calls that are looked into before the kernel has them. */
	fd = taken("third");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	SAY(sendmsg(pair[0], message, 0));
	SAY(sendmmsg(pair[0], (void *)none, 1, 0));
	SAY(setrlimit(RLIMIT_FSIZE, limit));
	SAY(prlimit(0, RLIMIT_FSIZE, limit, NULL));
	SAY(syscall(SYS_io_submit, 0, 1, none));
	SAY(ioctl(fd, FICLONERANGE, none));
	SAY(fcntl(fd, F_SETLK, none));
	SAY(stat((char *)none, (void *)good));
	SAY(rename((char *)none, "x"));
	SAY(open((char *)none, O_RDONLY));
	SAY(close(fd));
}

/* As many descriptors as the limit allows, of every kind. */
/* The C library's, from glibc 2.36 on, or the library's. */
extern int pidfd_open(pid_t, unsigned int) __attribute__((weak));

static void all_descriptors(void)
{
	static const char *const kinds[] = { "dup", "F_DUPFD", "socket", "eventfd", "epoll", "timerfd",
					     "inotify", "memfd", "open", "fopen", "opendir", "pipe",
					     "socketpair", "syscall dup", "mkstemp", "pidfd",
					     "mq" };
	struct rlimit limit = { 64, 64 };
	int keep = open("/dev/null", O_RDONLY), taken_ones[2], pairs[2];
	char queue[40];

	snprintf(queue, sizeof(queue), "/pdio-semantics-%d", getpid());
	setrlimit(RLIMIT_NOFILE, &limit);
	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
		int fd = -1, n = 0, error;

		taken_ones[0] = taken("one");
		taken_ones[1] = taken("two");
		do {
			char name[] = "XXXXXX";
			DIR *directory;
			FILE *file;

			errno = 0;
			switch (kind) {
			case 0: fd = dup(keep); break;
			case 1: fd = fcntl(keep, F_DUPFD, 0); break;
			case 2: fd = socket(AF_UNIX, SOCK_STREAM, 0); break;
			case 3: fd = eventfd(0, 0); break;
			case 4: fd = epoll_create1(0); break;
			case 5: fd = timerfd_create(CLOCK_MONOTONIC, 0); break;
			case 6: fd = inotify_init1(0); break;
			case 7: fd = memfd_create("x", 0); break;
			case 8: fd = open("/dev/null", O_RDONLY); break;
			case 9: fd = (file = fopen("/dev/null", "r")) ? fileno(file) : -1; break;
			case 10: fd = (directory = opendir(".")) ? dirfd(directory) : -1; break;
			case 11: fd = pipe(pairs); break;
			case 12: fd = socketpair(AF_UNIX, SOCK_STREAM, 0, pairs); break;
			case 13: fd = syscall(SYS_dup, keep); break;
			case 14:
				if ((fd = mkstemp(name)) >= 0)
					unlink(name);
				break;
			case 15: fd = pidfd_open ? pidfd_open(getpid(), 0) :
					     syscall(SYS_pidfd_open, getpid(), 0); break;
			case 16: fd = mq_open(queue, O_RDWR | O_CREAT, 0600, NULL); break;
			}
			error = errno;
			n++;
		} while (fd >= 0);
		errno = error;
		say(kinds[kind], n);
		say("failed", error == EMFILE);
		stream(taken_ones[0], 100, 10);
		for (int i = 3; i < 64; i++)
			if (i != keep)
				close(i);
		SAY(size_of("one"));
	}
	mq_unlink(queue);
}

static void limit(const char *how)
{
	struct rlimit limit = { LONG + 100500, LONG + 100500 };
	int fd;

	signal(SIGXFSZ, SIG_IGN);
	if (!strcmp(how, "before"))
		setrlimit(RLIMIT_FSIZE, &limit);
	fd = taken("file");
	if (!strcmp(how, "after"))
		setrlimit(RLIMIT_FSIZE, &limit);
	if (!strcmp(how, "ulimit"))
		SAY(ulimit(UL_SETFSIZE, LONG / 512 + 197l));
	for (int i = 0; i < 120; i++) {
		ssize_t n = write(fd, pool, 1000);

		if (n != 1000)
			say("write", n);
	}
	SAY(close(fd));
	signal(SIGXFSZ, SIG_DFL);
	fd = open("file", O_WRONLY);
	lseek(fd, 0, SEEK_END);
	int status;
	if (fork() == 0) {
		SAY(write(fd, pool, 1000));
		_exit(0);
	}
	wait(&status);
	SAY(WTERMSIG(status));
}

/* What the library has of memory and threads would count. */
static void memory_limit(void)
{
	struct rlimit limit = { 1l << 40, 1l << 40 };
	int fd = taken("file"), threads = 0;
	DIR *tasks;

	stream(fd, 5000, 700);
	SAY(setrlimit(RLIMIT_AS, &limit));
	stream(fd, 5000, 700);
	/* What was waited for is the kernel's for a moment longer. */
	for (int i = 0; i < 10000 && threads != 3; i++) {
		tasks = opendir("/proc/self/task");
		for (threads = 0; readdir(tasks);)
			threads++;
		closedir(tasks);
		usleep(1000);
	}
	SAY(threads);
	SAY(close(fd));
	SAY(close(taken("second")));
	SAY(size_of("file") + size_of("second"));
}

/* Until the disk is full: every count and every error. */
static void full(void)
{
	int fd = create("file");
	long total = 0, failures = 0;
	ssize_t n;

	while (failures < 3 && total < 600 << 20) {
		n = write(fd, pool, 100000);
		if (n == 100000) {
			total += n;
			continue;
		}
		say("write", n > 0);
		failures++;
		if (n > 0)
			total += n;
	}
	SAY(size_of("file") == total);
	SAY(close(fd));
	SAY(size_of("file") == total);
	unlink("file");
}

/* Direct I/O as no alignment allows it. UNALIGNED=0 asks for none, for the comparison. */
static void direct(void)
{
	const char *unaligned = getenv("UNALIGNED");
	const int directly = unaligned && *unaligned == '0' ? 0 : O_DIRECT;
	static unsigned char buffer[400000] __attribute__((aligned(4096)));
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | directly, 0600);
	struct iovec parts[3] = { { pool + 1, 777 }, { pool + 3, 70001 }, { pool, 4096 } };

	SAY(write(fd, pool + 1, 70001));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, pool + 1, 100000));
	SAY(writev(fd, parts, 3));
	SAY(pwrite(fd, pool + 1, 4097, 8192));
	SAY(pwrite(fd, pool + 1, 8192, 12289));
	SAY(write(fd, pool + 7, 3));
	SAY(lseek(fd, 0, SEEK_END));
	SAY(lseek(fd, 5, SEEK_SET));
	SAY(read(fd, buffer + 1, 100001));
	SAY(sum(buffer + 1, 100001));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(pread(fd, buffer + 3, 4097, 8191));
	SAY(sum(buffer + 3, 4097));
	SAY(readv(fd, parts + 1, 1));
	SAY(pread(fd, buffer, 300000, 100000));
	SAY(read(fd, buffer, 300000));
	SAY(read(fd, buffer + 1, 300000));
	SAY(pread(fd, buffer + 1, 100, 1 << 30));
	SAY(pread(fd, buffer + 1, 100, -1));
	memset(buffer, 7, sizeof(buffer));
	SAY(pwrite(fd, buffer, 8192, 8192));
	SAY(close(fd));
	fd = open("append", O_WRONLY | O_CREAT | O_APPEND | directly, 0600);
	SAY(write(fd, pool + 1, 5001));
	SAY(write(fd, pool + 1, 5001));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(close(fd));
	fd = open("append", O_RDONLY);
	SAY(fcntl(fd, F_SETFL, directly));
	SAY(read(fd, buffer + 1, 7777));
	SAY(sum(buffer + 1, 7777));
	if (fork() == 0) {
		SAY(read(fd, buffer + 1, 7777));
		exit(0);
	}
	wait(NULL);
	SAY(fcntl(fd, F_SETFL, 0));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, pool + 1, 1));
	SAY(close(fd));
}

/* What a misaligned call says of memory that is gone since the last one. */
static void direct_gone(void)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_DIRECT, 0600);
	unsigned char *map = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t n = write(fd, map + 1, 5001);

	SAY(n == 5001 || n == -1);
	munmap(map, 3 << 20);
	SAY(write(fd, map + 1, 5001));
	SAY(ftruncate(fd, 0));
	SAY(close(fd));
}

/* What flags ask of a misaligned call only the kernel can do. */
static void direct_flags(void)
{
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	static unsigned char buffer[8192] __attribute__((aligned(4096)));
	struct iovec part = { buffer + 1, 777 };

	memset(buffer, 7, sizeof(buffer));
	SAY(write(fd, buffer, sizeof(buffer)));
	SAY(pwritev2(fd, &part, 1, 0, RWF_APPEND));
	SAY(pwritev2(fd, &part, 1, -1, RWF_DSYNC));
	SAY(pwritev2(fd, &part, 1, 0, RWF_NOWAIT));
	SAY(preadv2(fd, &part, 1, 0, RWF_NOWAIT));
	SAY(preadv2(fd, &part, 1, 0, RWF_HIPRI));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 0, SEEK_END));
	SAY(close(fd));
}

/* Where a misaligned call begins to append, and where it no longer does. */
static void direct_appends(void)
{
	const char *unaligned = getenv("UNALIGNED");
	const int directly = unaligned && *unaligned == '0' ? 0 : O_DIRECT;

	for (int before = 0; before < 2; before++) {
		const int append = before ? O_APPEND : 0;
		int fd = open(before ? "appended" : "file", O_RDWR | O_CREAT | directly | append, 0600);

		SAY(write(fd, pool + 1, 1000));
		SAY(fcntl(fd, F_SETFL, directly | (O_APPEND ^ append)));
		SAY(pwrite(fd, pool + 5, 300, 100));
		SAY(write(fd, pool + 9, 200));
		SAY(lseek(fd, 0, SEEK_CUR));
		SAY(fcntl(fd, F_SETFL, directly | append));
		SAY(pwrite(fd, pool + 13, 70, 10));
		SAY(lseek(fd, 0, SEEK_END));
		SAY(close(fd));
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{ "writes", writes },
		{ "reads", reads },
		{ "behind_the_end", behind_the_end },
		{ "holes_in_memory", holes_in_memory },
		{ "both_ways", both_ways },
		{ "offsets", offsets },
		{ "sizes", sizes },
		{ "syncs", syncs },
		{ "locks", locks },
		{ "shared_before", shared_before },
		{ "record_locks", record_locks },
		{ "duplicates", duplicates },
		{ "onto_a_file", onto_a_file },
		{ "memory_limit", memory_limit },
		{ "not_closed", not_closed },
		{ "looks_by_itself", looks_by_itself },
		{ "open_numbers", open_numbers },
		{ "numbers", numbers },
		{ "few_descriptors", few_descriptors },
		{ "standard_output", standard_output },
		{ "terminal", terminal },
		{ "offsets_of_standard_output", offsets_of_standard_output },
		{ "wide_standard_output", wide_standard_output },
		{ "standard_input", standard_input },
		{ "standard_shared", standard_shared },
		{ "file_pointers", file_pointers },
		{ "closed_unseen", closed_unseen },
		{ "closed_past", closed_past },
		{ "other_names", other_names },
		{ "again", again },
		{ "stale_reads", stale_reads },
		{ "locked_elsewhere", locked_elsewhere },
		{ "farthest", farthest },
		{ "names", names },
		{ "attributes", attributes },
		{ "capabilities", capabilities },
		{ "flags", flags },
		{ "forks", forks },
		{ "spawns", spawns },
		{ "beside_a_child", beside_a_child },
		{ "descriptors_of_two", descriptors_of_two },
		{ "executes", executes },
		{ "executes_nothing", executes_nothing },
		{ "passes", passes },
		{ "passes_a_duplicate", passes_a_duplicate },
		{ "receives", receives },
		{ "maps", maps },
		{ "mapped_before", mapped_before },
		{ "copies", copies },
		{ "watches", watches },
		{ "asynchronous", asynchronous },
		{ "bare_calls", bare_calls },
		{ "bare_files", bare_files },
		{ "namespaces", namespaces },
		{ "odds", odds },
		{ "unmounts", unmounts },
		{ "rights", rights },
		{ "rights_of_writes", rights_of_writes },
		{ "threads", threads },
		{ "signals", signals },
		{ "handlers", handlers },
		{ "cancels", cancels },
		{ "left_calls", left_calls },
		{ "keys", keys },
		{ "faults", faults },
		{ "bad_memory", bad_memory },
		{ "all_descriptors", all_descriptors },
		{ "full", full },
		{ "direct", direct },
		{ "direct_gone", direct_gone },
		{ "direct_flags", direct_flags },
		{ "direct_appends", direct_appends },
	};

	if (argc < 2)
		return 2;
	fill_pool();
	umask(022);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(argv[1], all[i].name)) {
			all[i].run();
			return 0;
		}
	if (argc > 2 && !strcmp(argv[1], "ends")) {
		ends(argv[2]);
		return 7;
	}
	if (argc > 2 && !strcmp(argv[1], "limit")) {
		limit(argv[2]);
		return 0;
	}
	return 2;
}
