// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What others can see of a program's files when it tells them, waits for them, or is killed.
 *
 * Run in an empty directory: tells SCENARIO. Files are streams from their second write on with
 * PDIO_SEQUENTIAL=0; with a long PDIO_LINGER nothing reaches the kernel by itself in time.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "bare.h"

#define BLOCK 4096

static char pool[1 << 20];

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(3);
	}
}

static int create(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	check(fd >= 0, name);
	return fd;
}

static void put(int fd, size_t n)
{
	check(write(fd, pool, n) == (ssize_t)n, "write");
}

static long size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) ? -1 : (long)st.st_size;
}

/* Processor time, which no call spends, so that later writes have later times. */
static void spin(void)
{
	struct timespec from, now;

	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000l + now.tv_nsec - from.tv_nsec < 20000000);
}

/* ------------------------------------------------------------------------------------ telling */

#define KINDS 12

static int words[2], events, line[2], seen[2];
static FILE *out;

static void tell(int kind, int round, pid_t child)
{
	struct iovec part = { pool, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct mmsghdr messages = { .msg_hdr = message };
	uint64_t one = 1;
	char name[32];

	switch (kind) {
	case 0: check(write(words[1], pool, 1) == 1, "write"); break;
	case 1: check(writev(words[1], &part, 1) == 1, "writev"); break;
	case 2: check(send(line[1], pool, 1, 0) == 1, "send"); break;
	case 3: check(sendto(line[1], pool, 1, 0, NULL, 0) == 1, "sendto"); break;
	case 4: check(sendmsg(line[1], &message, 0) == 1, "sendmsg"); break;
	case 5: check(sendmmsg(line[1], &messages, 1, 0) == 1, "sendmmsg"); break;
	case 6: check(write(events, &one, 8) == 8, "eventfd"); break;
	case 7: check(eventfd_write(events, 1) == 0, "eventfd_write"); break;
	case 8: check(fprintf(out, ".") == 1 && fflush(out) == 0, "fprintf"); break;
	case 9: check(putc('\n', out) == '\n', "putc"); break;
	case 10: check(kill(child, SIGUSR1) == 0, "kill"); break;
	case 11:
		snprintf(name, sizeof(name), "made-%d", round);
		check(mkdir(name, 0700) == 0, "mkdir");
		break;
	}
}

static void hear(int kind, int round, const sigset_t *signals)
{
	char name[32], byte;
	uint64_t count;

	switch (kind) {
	case 0: case 1: case 8: case 9:
		check(read(words[0], &byte, 1) == 1, "read");
		break;
	case 2: case 3: case 4: case 5:
		check(read(line[0], &byte, 1) == 1, "read");
		break;
	case 6: case 7:
		check(read(events, &count, 8) == 8, "read");
		break;
	case 10:
		check(sigwaitinfo(signals, NULL) == SIGUSR1, "sigwaitinfo");
		break;
	case 11:
		snprintf(name, sizeof(name), "made-%d", round);
		while (rmdir(name))
			usleep(50);
		break;
	}
}

/*
 * Writes, tells a running child, which looks at the file's size; how often that is too short. A
 * stream in which others are told too often is given up, so there is a new one after a few.
 */
static void tells(int rounds, size_t first)
{
	const int each = 7;
	long size = 0, shorter = 0;
	sigset_t signals;
	pid_t child;
	int fd = -1;
	char byte;

	check(!pipe(words) && !pipe(seen) && !socketpair(AF_UNIX, SOCK_STREAM, 0, line), "pipe");
	events = eventfd(0, 0);
	out = fdopen(dup(words[1]), "w");
	setvbuf(out, NULL, _IOLBF, 0);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	child = fork();
	for (int round = 0; round < rounds; round++) {
		size_t n = 100 + round * 37 % 4000;

		if (round % each == 0)
			size = first;
		size += n;
		if (child == 0) {
			hear(round % KINDS, round, &signals);
			byte = size_of("file") < size;
			check(write(seen[1], &byte, 1) == 1, "write");
			continue;
		}
		if (round % each == 0) {
			if (fd >= 0)
				close(fd);
			fd = create("file");
			for (size_t done = 0; done < first; done += 1000)
				put(fd, 1000);
		}
		put(fd, n);
		tell(round % KINDS, round, child);
		/* Past the library, which would hand over before it waits, and hide a call that did not. */
		check(bare(SYS_read, seen[0], (long)&byte, 1) == 1, "read");
		shorter += byte;
	}
	if (child == 0)
		_exit(0);
	close(fd);
	waitpid(child, NULL, 0);
	printf("%ld short of %d\n", shorter, rounds);
}

/* ------------------------------------------------------------------------------------ waiting */

/*
 * Writes, then waits; a child looks whether the file is whole meanwhile, and wakes it. Nobody is
 * told anything but by the wait itself.
 */
static void nothing(int signal)
{
	(void)signal;
}

static void waits(void)
{
	static const char *const names[] = {
		"read", "recv", "poll", "ppoll", "select", "epoll_wait", "fgets", "getchar",
		"waitpid", "wait", "nanosleep", "usleep", "sigwaitinfo", "msgrcv", "flock", "open",
	};
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGUSR2, nothing);
	mkfifo("fifo", 0600);
	for (int kind = 0; kind < 16; kind++) {
		int pair[2], queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
		struct { long type; char text[1]; } message = { 1, "" };
		pid_t parent = getpid(), child;
		int lock = create("lock"), fd, epoll = epoll_create1(0), status = 9;
		char text[10];
		fd_set set;

		check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
		unlink("file");
		child = fork();
		if (child == 0) {
			int late = 0;

			if (kind == 14)
				flock(open("lock", O_RDONLY), LOCK_EX);
			check(write(pair[1], "", 1) == 1, "write");
			for (int i = 0; i < 10000 && size_of("file") < 6000; i++)
				usleep(1000);
			late = size_of("file") < 6000;
			check(write(pair[1], late ? "late\n" : "good\n", 5) == 5, "write");
			kill(parent, SIGUSR1);
			/* Until the sleep has certainly begun. */
			for (int i = 0; i < 20 && (kind == 10 || kind == 11); i++) {
				kill(parent, SIGUSR2);
				usleep(50000);
			}
			msgsnd(queue, &message, 1, 0);
			if (kind == 15)
				close(open("fifo", O_WRONLY));
			_exit(late);
		}
		check(read(pair[0], text, 1) == 1, "read");
		dup2(pair[0], 0);
		fd = create("file");
		put(fd, 5000);
		put(fd, 1000);
		struct pollfd one = { pair[0], POLLIN, 0 };
		struct timespec minute = { 60, 0 };
		struct epoll_event event = { .events = EPOLLIN };

		FD_ZERO(&set);
		FD_SET(pair[0], &set);
		epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event);
		switch (kind) {
		case 0: check(read(pair[0], text, 5) == 5, "read"); break;
		case 1: check(recv(pair[0], text, 5, 0) == 5, "recv"); break;
		case 2: check(poll(&one, 1, -1) == 1, "poll"); break;
		case 3: check(ppoll(&one, 1, NULL, NULL) == 1, "ppoll"); break;
		case 4: check(select(pair[0] + 1, &set, NULL, NULL, NULL) == 1, "select"); break;
		case 5: check(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait"); break;
		case 6: check(fgets(text, sizeof(text), stdin) == text, "fgets"); break;
		case 7: check(getchar() != EOF, "getchar"); break;
		case 8: waitpid(child, &status, 0); break;
		case 9: wait(&status); break;
		case 10: nanosleep(&minute, NULL); break;
		case 11: usleep(60000000); break;
		case 12: sigwaitinfo(&signals, NULL); break;
		case 13: check(msgrcv(queue, &message, 1, 0, 0) >= 0, "msgrcv"); break;
		case 14: check(flock(lock, LOCK_EX) == 0, "flock"); break;
		case 15: close(open("fifo", O_RDONLY)); break;
		}
		if (status == 9)
			waitpid(child, &status, 0);
		struct timespec none = { 0, 0 };

		while (sigtimedwait(&signals, NULL, &none) > 0)
			;
		printf("%s: %s\n", names[kind], status ? "late" : "good");
		fflush(stdout);
		msgctl(queue, IPC_RMID, NULL);
		close(epoll);
		close(lock);
		close(fd);
		close(pair[0]);
		close(pair[1]);
	}
}

/* Input that does not wait has the C library write what was printed before. */
static void prompts(void)
{
	struct stat st;
	int fd, in[2];

	check(pipe(in) == 0 && write(in[1], "yy", 2) == 2 && dup2(in[0], 0) == 0, "pipe");
	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 1000);
	fd = create("file");
	for (int i = 0; i < 2; i++) {
		put(fd, 5000);
		printf("sure? ");
		put(fd, 1000);
		check(getchar() == 'y', "getchar");
		check(bare(SYS_fstat, fd, &st) == 0, "fstat");
		printf("%ld\n", (long)st.st_size);
	}
	close(fd);
}

/* Files that another program shows elsewhere as well. */
static void mirror(const char *where)
{
	static const char *const names[] = {
		"open", "fopen", "read", "pread", "fstat", "fstatat", "statx", "lseek", "mmap",
	};
	char path[200];

	snprintf(path, sizeof(path), "%s/file", where);
	for (int kind = 0; kind < 9; kind++) {
		int fd = create("file"), other = -1;
		FILE *file = NULL;
		struct stat st;
		struct statx stx;
		char *map;
		long size = 0;

		put(fd, 5000);
		if (kind >= 2)
			check((other = open(path, O_RDONLY)) >= 0, path);
		put(fd, 1000);
		switch (kind) {
		case 0: other = open(path, O_RDONLY); break;
		case 1: file = fopen(path, "r"); break;
		case 2: size = read(other, pool, 10000); break;
		case 3: size = pread(other, pool, 10000, 0); break;
		case 4: size = fstat(other, &st) ? -1 : st.st_size; break;
		case 5: size = fstatat(other, "", &st, AT_EMPTY_PATH) ? -1 : st.st_size; break;
		case 6:
			size = statx(other, "", AT_EMPTY_PATH, STATX_SIZE, &stx) ? -1 : (long)stx.stx_size;
			break;
		case 7: size = lseek(other, 0, SEEK_END); break;
		case 8:
			map = mmap(NULL, 6000, PROT_READ, MAP_PRIVATE, other, 0);
			check(map != MAP_FAILED, "mmap");
			size = memcmp(map, pool, 5000) ? -1 : memcmp(map + 5000, pool, 1000) ? 5000 : 6000;
			munmap(map, 6000);
			break;
		}
		if (file)
			other = fileno(file);
		if (kind < 2)
			size = bare(SYS_read, other, (long)pool, 10000);
		printf("%s: %ld\n", names[kind], size);
		close(other);
		close(fd);
		unlink("file");
	}
}

/*
 * The other way round: what is read here is changed by another name, that of a file elsewhere or of a device. Some calls
 * change it; some have the other's memory written, to which the change was made past the library.
 */
static void backs(const char *where)
{
	static const char *const names[] = {
		"nothing", "write", "pwrite", "writev", "pwritev", "pwritev2", "syscall", "fallocate",
		"fsync", "fdatasync", "syncfs", "sync", "close", "dup2", "fclose", "ftruncate",
	};
	static char block[BLOCK], old[512 * BLOCK], new[BLOCK];
	struct iovec part = { new, BLOCK };
	const off_t at = 4 * BLOCK;

	memset(old, 'o', sizeof(old));
	memset(new, 'n', sizeof(new));
	for (int kind = 0; kind < 16; kind++) {
		/* Nobody has changed it for so long that what was read ahead may stay. */
		struct timespec second = { 1, 200000000 };
		int late = kind == 0 || (kind >= 8 && kind < 14), fd, other;
		const char *name = names[kind];
		FILE *file = NULL;
		long got = 0;

		fd = bare(SYS_openat, AT_FDCWD, "file", O_WRONLY | O_CREAT, 0600);
		check(bare(SYS_pwrite64, fd, old, sizeof(old), 0) == sizeof(old), "pwrite");
		bare(SYS_fsync, fd);
		bare(SYS_close, fd);
		bare(SYS_nanosleep, &second, 0);
		other = open(where, O_RDWR | (late ? 0 : O_SYNC));
		check(other >= 0 && lseek(other, at, SEEK_SET) == at, where);
		if (kind == 14) {
			file = fdopen(other, "r+");
			check(file && !setvbuf(file, NULL, _IOFBF, 1 << 16) && fwrite(new, BLOCK, 1, file) == 1,
			      name);
		}
		fd = open("file", O_RDONLY);
		for (int i = 0; i < 4; i++)
			check(read(fd, block, BLOCK) == BLOCK && *block == 'o', "as it was");
		if (late)
			check(bare(SYS_pwrite64, other, new, BLOCK, at) == BLOCK, "pwrite");
		switch (kind) {
		case 1: got = write(other, new, BLOCK) - BLOCK; break;
		case 2: got = pwrite(other, new, BLOCK, at) - BLOCK; break;
		case 3: got = writev(other, &part, 1) - BLOCK; break;
		case 4: got = pwritev(other, &part, 1, at) - BLOCK; break;
		case 5: got = pwritev2(other, &part, 1, at, 0) - BLOCK; break;
		case 6: got = syscall(SYS_write, other, new, BLOCK) - BLOCK; break;
		case 7:
			got = fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, BLOCK);
			break;
		case 8: got = fsync(other); break;
		case 9: got = fdatasync(other); break;
		case 10: got = syncfs(other); break;
		case 11: sync(); break;
		case 12: got = close(other); break;
		case 13: got = dup2(1, other) - other; break;
		case 14: got = fclose(file); break;
		case 15: got = ftruncate(other, at); break;
		}
		if (got)
			printf("%s: refused\n", name);
		else
			printf("%s: %s\n", name,
			       read(fd, block, BLOCK) == BLOCK && *block == 'o' ? "old" : "new");
		fflush(stdout);
		close(fd);
		if (kind < 12 || kind == 13 || kind == 15)
			close(other);
	}
}

/* After a read: calls by which the program may be told something, or may not. */
static void ask(const char *how, int count)
{
	static int word;
	struct timespec now;
	struct iovec none = { NULL, 0 };
	unsigned long set[128];
	struct rlimit limit;
	sigset_t signals;
	int pair[2];

	if (!strcmp(how, "access"))
		check(access("file", F_OK) == 0, how);
	else if (!strcmp(how, "seldom"))
		/* Seven times, and then not until 16 KiB were read. */
		check(count % 12 > 6 || access("file", F_OK) == 0, how);
	else if (!strcmp(how, "shared futex"))
		check(syscall(SYS_futex, &word, FUTEX_WAKE, 1) == 0, how);
	else if (!strcmp(how, "futex"))
		check(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) == 0, how);
	else if (!strcmp(how, "gettid"))
		check(syscall(SYS_gettid) > 0, how);
	else if (!strcmp(how, "getgid"))
		check(syscall(SYS_getgid) == getgid(), how);
	else if (!strcmp(how, "clock_gettime"))
		check(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0, how);
	else if (!strcmp(how, "clock_getres"))
		check(syscall(SYS_clock_getres, CLOCK_REALTIME, &now) == 0, how);
	else if (!strcmp(how, "sched_yield"))
		check(syscall(SYS_sched_yield) == 0, how);
	else if (!strcmp(how, "sched_getaffinity"))
		check(syscall(SYS_sched_getaffinity, 0, sizeof(set), set) > 0, how);
	else if (!strcmp(how, "getrandom"))
		check(syscall(SYS_getrandom, set, 8, 0) == 8, how);
	else if (!strcmp(how, "getrlimit"))
		check(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) == 0, how);
	else if (!strcmp(how, "rt_sigprocmask"))
		check(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &signals, 8) == 0, how);
	else if (!strcmp(how, "madvise"))
		check(syscall(SYS_madvise, NULL, 0, MADV_NORMAL) == 0, how);
	else if (!strcmp(how, "lseek"))
		syscall(SYS_lseek, 1, 0, SEEK_CUR);
	else if (!strcmp(how, "pwritev"))
		check(syscall(SYS_pwritev, -1, &none, 1, 0, 0) == -1, how);
	else if (!strcmp(how, "FIOCLEX"))
		check(ioctl(1, FIOCLEX) == 0, how);
	else if (!strcmp(how, "TIOCGWINSZ"))
		check(ioctl(1, TIOCGWINSZ, set) == -1, how);
	else if (!strcmp(how, "eventfd"))
		bare(SYS_close, eventfd(0, 0));
	else if (!strcmp(how, "pipe")) {
		check(pipe(pair) == 0, how);
		bare(SYS_close, pair[0]);
		bare(SYS_close, pair[1]);
	} else
		check(!strcmp(how, "nothing"), how);
}

/* Reads pieces of a file, and makes such calls after each. */
static void asks(size_t piece, const char *how)
{
	int fd = create("file"), count = 0;

	for (int i = 0; i < 4; i++)
		put(fd, sizeof(pool));
	close(fd);
	fd = open("file", O_RDONLY);
	for (size_t done = 0; done < 4 * sizeof(pool); done += piece) {
		check(read(fd, pool, piece) == (ssize_t)piece, "read");
		ask(how, count++);
	}
	close(fd);
}

static void notified(union sigval value)
{
	(void)value;
}

/* Has the C library start threads, and duplicates a descriptor. */
static void notifies(const char *how)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD };
	struct aiocb block = { .aio_nbytes = 1, .aio_buf = pool, .aio_lio_opcode = LIO_WRITE };
	struct aiocb *list[1] = { &block };
	int fd, queue;
	timer_t timer;

	event.sigev_notify_function = notified;
	if (!strcmp(how, "timer")) {
		check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
	} else if (!strcmp(how, "queue")) {
		queue = mq_open("/pdio-tells-notifies", O_RDWR | O_CREAT, 0600, NULL);
		mq_unlink("/pdio-tells-notifies");
		check(queue >= 0 && mq_notify(queue, &event) == 0, "mq_notify");
	} else if (!strcmp(how, "list")) {
		block.aio_fildes = create("plain");
		check(lio_listio(LIO_NOWAIT, list, 1, &event) == 0, "lio_listio");
	}
	fd = create("file");
	put(fd, 5000);
	put(fd, 1000);
	close(dup(fd));
	close(fd);
}

/* ------------------------------------------------------------------------------------ hearing */

#define BLOCKS 512

/* What a process is told by: a message, something of the system's, a name, or its own end. */
enum told { MESSAGE, EVENT, SIGNAL, HANDLER, QUEUE, SEMAPHORE, POST, CONNECTION, LOCK, NAME, BYTE,
	    SIZE, LENGTH, OPTION, SHUT, CHILD };

static const struct {
	const char *name;
	enum told by;
} heard_by[] = {
	{ "nothing", MESSAGE }, { "read", MESSAGE }, { "readv", MESSAGE }, { "recv", MESSAGE },
	{ "recvmsg", MESSAGE }, { "poll", MESSAGE }, { "ppoll", MESSAGE }, { "select", MESSAGE },
	{ "epoll_wait", MESSAGE }, { "fgets", MESSAGE }, { "getchar", MESSAGE }, { "fscanf", MESSAGE },
	{ "FIONREAD", MESSAGE }, { "nanosleep", MESSAGE }, { "usleep", MESSAGE }, { "splice", MESSAGE },
	{ "aio_error", MESSAGE }, { "aio_return", MESSAGE }, { "aio_suspend", MESSAGE },
	{ "lio_listio", MESSAGE }, { "syscall", MESSAGE }, { "another thread", MESSAGE },
	{ "eventfd_read", EVENT }, { "sigwaitinfo", SIGNAL }, { "sigpending", SIGNAL },
	{ "a handler", HANDLER }, { "msgrcv", QUEUE }, { "semop", SEMAPHORE }, { "mq_receive", POST },
	{ "mq_getattr", POST }, { "accept", CONNECTION }, { "flock", LOCK }, { "fcntl", LENGTH },
	{ "waitpid", CHILD }, { "wait", CHILD }, { "waitid", CHILD }, { "kill", CHILD },
	{ "syscall kill", CHILD },
	{ "open", NAME }, { "access", NAME }, { "stat", NAME }, { "mkdir", NAME }, { "readdir", NAME },
	{ "readdir_r", NAME }, { "scandir", NAME }, { "scandirat", NAME }, { "glob", NAME },
	{ "getdents64", NAME }, { "link", NAME }, { "linkat", NAME }, { "rename", NAME },
	{ "renameat", NAME }, { "renameat2", NAME }, { "syscall linkat", NAME }, { "freopen", NAME },
	{ "chmod", NAME }, { "chown", NAME }, { "utimensat", NAME }, { "truncate", NAME },
	{ "setxattr", NAME }, { "getxattr", NAME }, { "listxattr", NAME }, { "statfs", NAME },
	{ "statvfs", NAME }, { "realpath", NAME },
	{ "a file", BYTE }, { "pread", BYTE }, { "lseek", BYTE }, { "sendfile", BYTE },
	{ "copy_file_range", BYTE }, { "mmap", BYTE }, { "fstat", SIZE },
	{ "getsockopt", OPTION }, { "sendmsg", SHUT }, { "sendmmsg", SHUT },
};

#define HEARD_BY (sizeof(heard_by) / sizeof(*heard_by))

static volatile int handled;

static void handle(int signal)
{
	handled = signal;
}

/* An option of sockets that has another value by itself. */
#define MARK 3

/* The file by which a process is told, and what it is told by. */
static struct {
	int go[2], pair[2], event, queue, set, lock, note;
	mqd_t messages;
	struct sockaddr_un address;
} way;

static void *hearing_thread(void *unused)
{
	char byte;

	check(read(way.pair[0], &byte, 1) == 1, "read");
	*(volatile int *)unused = 1;
	return NULL;
}

/* In a child, past the library: changes a file once it is asked to, and tells. */
static void teller(enum told by, const char *name, pid_t parent)
{
	static char new[BLOCK * BLOCKS];
	struct { long type; char text[1]; } message = { 1, "" };
	struct sembuf up = { 0, 1, 0 };
	int fd = bare(SYS_openat, AT_FDCWD, (long)name, O_RDWR, 0), mark = MARK;
	uint64_t one = 1;
	char byte = '\n';

	if (by == LOCK)
		check(flock(create("lock"), LOCK_EX) == 0, "flock");
	memset(new, 'n', sizeof(new));
	bare(SYS_write, way.go[1], (long)&byte, 1);
	bare(SYS_read, way.go[1], (long)&byte, 1);
	check(bare(SYS_pwrite64, fd, (long)new, sizeof(new), 0) == sizeof(new), "pwrite");
	byte = '\n';
	switch (by) {
	case MESSAGE: bare(SYS_write, way.pair[1], (long)"5\n", 2); break;
	case EVENT: bare(SYS_write, way.event, (long)&one, 8); break;
	case SIGNAL: bare(SYS_kill, parent, SIGUSR1); break;
	case HANDLER: bare(SYS_kill, parent, SIGUSR2); break;
	case QUEUE: msgsnd(way.queue, &message, 1, 0); break;
	case SEMAPHORE: semop(way.set, &up, 1); break;
	case POST: mq_send(way.messages, &byte, 1, 0); break;
	case CONNECTION:
		connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&way.address,
			sizeof(way.address));
		break;
	case NAME:
		while (bare(SYS_mkdirat, AT_FDCWD, (long)"there", 0700))
			;
		break;
	case BYTE: bare(SYS_pwrite64, way.note, (long)&byte, 1, 0); break;
	case SIZE: bare(SYS_ftruncate, way.note, 1); break;
	case LENGTH: bare(SYS_ftruncate, way.note, 2); break;
	case OPTION:
		bare(SYS_setsockopt, way.pair[0], SOL_SOCKET, SO_PRIORITY, (long)&mark, sizeof(mark));
		break;
	case SHUT: bare(SYS_shutdown, way.pair[0], SHUT_RDWR); break;
	case LOCK: case CHILD: break;
	}
	bare(SYS_exit_group, 0);
}

static int is_there(const struct dirent *entry)
{
	return !strcmp(entry->d_name, "there");
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Looks for a name in a directory. */
static int lists(const char *kind, int directory)
{
	static char data[1 << 16];
	struct dirent room, *entry;
	struct dirent64 *found;
	DIR *list;
	long len;

	if (!strcmp(kind, "getdents64")) {
		while ((len = getdents64(directory, data, sizeof(data))) > 0)
			for (long at = 0; at < len; at += found->d_reclen) {
				found = (struct dirent64 *)(data + at);
				if (!strcmp(found->d_name, "there"))
					return 1;
			}
		return 0;
	}
	list = fdopendir(dup(directory));
	check(list != NULL, kind);
	do {
		if (!strcmp(kind, "readdir"))
			entry = readdir(list);
		else if (readdir_r(list, &room, &entry))
			entry = NULL;
	} while (entry && strcmp(entry->d_name, "there"));
	closedir(list);
	return entry != NULL;
}

#pragma GCC diagnostic pop

/* Gives a file its name again. */
static void back(void)
{
	bare(SYS_renameat2, AT_FDCWD, (long)"there", AT_FDCWD, (long)"note", 0);
}

/* Waits until a child has told. */
static void hear_of(const char *kind, pid_t child)
{
	struct { long type; char text[1]; } message;
	struct pollfd one = { way.pair[0], POLLIN, 0 };
	struct epoll_event event = { .events = EPOLLIN };
	struct sembuf down = { 0, -1, 0 };
	struct timespec little = { 0, 1000000 };
	char text[100];
	struct iovec part = { text, 1 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	struct flock lock = { 0 };
	struct timespec none = { 0, 0 };
	sigset_t signals, pending;
	uint64_t events;
	struct stat st;
	siginfo_t info;
	fd_set set;
	int number, epoll, pipes[2];
	const volatile char *map;
	char path[PATH_MAX];
	FILE *stands_for;
	/* Never freed: a thread of the C library may look at it for a little longer. */
	struct aiocb *block = calloc(1, sizeof(*block)), *list[1] = { block };
	struct mmsghdr messages = { .msg_hdr = header };
	const int careful = MSG_DONTWAIT | MSG_NOSIGNAL;
	struct mq_attr attributes;
	struct statvfs about;
	struct statfs system;
	struct dirent **names;
	socklen_t length;
	glob_t found;
	ssize_t moved;
	off_t from;

	check(block != NULL, "calloc");
	block->aio_fildes = way.pair[0];
	block->aio_nbytes = 1;
	block->aio_buf = text;
	block->aio_lio_opcode = LIO_READ;
	block->aio_sigevent.sigev_notify = SIGEV_NONE;
#define BY(name) (!strcmp(kind, name))
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	FD_ZERO(&set);
	FD_SET(way.pair[0], &set);
	if (BY("nothing"))
		check(bare(SYS_read, way.pair[0], (long)text, 1) == 1, "read");
	else if (BY("read"))
		check(read(way.pair[0], text, 1) == 1, kind);
	else if (BY("readv"))
		check(readv(way.pair[0], &part, 1) == 1, kind);
	else if (BY("recv"))
		check(recv(way.pair[0], text, 1, 0) == 1, kind);
	else if (BY("recvmsg"))
		check(recvmsg(way.pair[0], &header, 0) == 1, kind);
	else if (BY("poll"))
		check(poll(&one, 1, -1) == 1, kind);
	else if (BY("ppoll"))
		check(ppoll(&one, 1, NULL, NULL) == 1, kind);
	else if (BY("select"))
		check(select(way.pair[0] + 1, &set, NULL, NULL, NULL) == 1, kind);
	else if (BY("epoll_wait")) {
		epoll = epoll_create1(0);
		epoll_ctl(epoll, EPOLL_CTL_ADD, way.pair[0], &event);
		check(epoll_wait(epoll, &event, 1, -1) == 1, kind);
		close(epoll);
	} else if (BY("fgets"))
		check(fgets(text, sizeof(text), stdin) == text, kind);
	else if (BY("getchar"))
		check(getchar() == '5' && getchar() == '\n', kind);
	else if (BY("fscanf"))
		check(fscanf(stdin, "%d", &number) == 1 && getchar() == '\n', kind);
	else if (BY("eventfd_read"))
		check(eventfd_read(way.event, &events) == 0, kind);
	else if (BY("waitpid"))
		check(waitpid(child, NULL, 0) == child, kind);
	else if (BY("wait"))
		check(wait(NULL) == child, kind);
	else if (BY("waitid"))
		check(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0, kind);
	else if (BY("sigwaitinfo"))
		check(sigwaitinfo(&signals, NULL) == SIGUSR1, kind);
	else if (BY("a handler"))
		while (!handled)
			;
	else if (BY("nanosleep") || BY("usleep"))
		/* Once more after it is there, so that a sleep is the last call before the reads. */
		for (int more = 1; more;) {
			more = bare(SYS_recvfrom, way.pair[0], (long)text, 1, MSG_DONTWAIT, 0, 0) != 1;
			check(BY("usleep") ? usleep(1000) == 0 : nanosleep(&little, NULL) == 0, kind);
		}
	else if (BY("msgrcv"))
		check(msgrcv(way.queue, &message, 1, 0, 0) >= 0, kind);
	else if (BY("semop"))
		check(semop(way.set, &down, 1) == 0, kind);
	else if (BY("mq_receive"))
		check(mq_receive(way.messages, text, sizeof(text), NULL) == 1, kind);
	else if (BY("flock")) {
		number = open("lock", O_RDWR);
		check(flock(number, LOCK_EX) == 0, kind);
		close(number);
	} else if (BY("fcntl"))
		for (int more = 1; more;) {
			more = bare(SYS_lseek, way.note, 0, SEEK_END) != 2;
			lock.l_type = F_WRLCK;
			check(fcntl(way.note, F_GETLK, &lock) == 0, kind);
		}
	else if (BY("open"))
		while ((number = open("there", O_RDONLY)) < 0)
			;
	else if (BY("access"))
		while (access("there", F_OK))
			;
	else if (BY("stat"))
		while (stat("there", &st))
			;
	else if (BY("fstat"))
		while (fstat(way.note, &st) || !st.st_size)
			;
	else if (BY("mkdir"))
		while (!mkdir("there", 0700))
			bare(SYS_unlinkat, AT_FDCWD, (long)"there", AT_REMOVEDIR);
	else if (BY("readdir") || BY("readdir_r") || BY("getdents64"))
		for (number = 0; !number;) {
			/* Past the library, as to open a directory is heard of as well. */
			int directory = bare(SYS_openat, AT_FDCWD, (long)".", O_RDONLY | O_DIRECTORY, 0);

			number = lists(kind, directory);
			bare(SYS_close, directory);
		}
	else if (BY("scandir"))
		while (scandir(".", &names, is_there, NULL) != 1)
			;
	else if (BY("scandirat"))
		while (scandirat(AT_FDCWD, ".", &names, is_there, NULL) != 1)
			;
	else if (BY("glob"))
		while (glob("ther?", 0, NULL, &found))
			;
	else if (BY("link"))
		while (!link("note", "there"))
			bare(SYS_unlinkat, AT_FDCWD, (long)"there", 0);
	else if (BY("linkat"))
		while (!linkat(AT_FDCWD, "note", AT_FDCWD, "there", 0))
			bare(SYS_unlinkat, AT_FDCWD, (long)"there", 0);
	else if (BY("syscall linkat"))
		while (!syscall(SYS_linkat, AT_FDCWD, "note", AT_FDCWD, "there", 0))
			bare(SYS_unlinkat, AT_FDCWD, (long)"there", 0);
	else if (BY("rename"))
		while (!rename("note", "there"))
			back();
	else if (BY("renameat"))
		while (!renameat(AT_FDCWD, "note", AT_FDCWD, "there"))
			back();
	else if (BY("renameat2"))
		while (!renameat2(AT_FDCWD, "note", AT_FDCWD, "there", RENAME_NOREPLACE))
			back();
	else if (BY("freopen"))
		do {
			number = bare(SYS_openat, AT_FDCWD, (long)"note", O_RDONLY, 0);
			stands_for = fdopen(number, "r");
		} while (!freopen("there", "r", stands_for));
	else if (BY("chmod"))
		while (chmod("there", 0755))
			;
	else if (BY("chown"))
		while (chown("there", -1, -1))
			;
	else if (BY("utimensat"))
		while (utimensat(AT_FDCWD, "there", NULL, 0))
			;
	else if (BY("truncate"))
		while (truncate("there", 0) && errno != EISDIR)
			;
	else if (BY("setxattr"))
		while (setxattr("there", "user.there", "", 0, 0) && errno == ENOENT)
			;
	else if (BY("getxattr"))
		while (getxattr("there", "user.there", text, sizeof(text)) < 0 && errno == ENOENT)
			;
	else if (BY("listxattr"))
		while (listxattr("there", text, sizeof(text)) < 0 && errno == ENOENT)
			;
	else if (BY("statfs"))
		while (statfs("there", &system))
			;
	else if (BY("statvfs"))
		while (statvfs("there", &about))
			;
	else if (BY("realpath"))
		while (!realpath("there", path))
			;
	else if (BY("kill") || BY("syscall kill"))
		while (!(BY("kill") ? kill(child, 0) : syscall(SYS_kill, child, 0)))
			bare(SYS_wait4, child, 0, WNOHANG, 0);
	else if (BY("sigpending")) {
		do
			sigpending(&pending);
		while (!sigismember(&pending, SIGUSR1));
		bare(SYS_rt_sigtimedwait, (long)&signals, 0, (long)&none, 8);
	}
	else if (BY("mq_getattr"))
		do
			mq_getattr(way.messages, &attributes);
		while (!attributes.mq_curmsgs);
	else if (BY("getsockopt"))
		do {
			length = sizeof(number);
			number = 0;
			getsockopt(way.pair[0], SOL_SOCKET, SO_PRIORITY, &number, &length);
		} while (number != MARK);
	else if (BY("sendmsg"))
		while (sendmsg(way.pair[0], &header, careful) != -1 || errno != EPIPE)
			;
	else if (BY("sendmmsg"))
		while (sendmmsg(way.pair[0], &messages, 1, careful) != -1 || errno != EPIPE)
			;
	else if (BY("splice")) {
		check(bare(SYS_pipe2, (long)pipes, 0) == 0, "pipe");
		check(splice(way.pair[0], NULL, pipes[1], NULL, 1, 0) == 1, kind);
		bare(SYS_close, pipes[0]);
		bare(SYS_close, pipes[1]);
	} else if (BY("aio_error")) {
		check(aio_read(block) == 0, kind);
		while (aio_error(block) == EINPROGRESS)
			;
	} else if (BY("aio_return")) {
		check(aio_read(block) == 0, kind);
		while (aio_return(block) != 1)
			;
	} else if (BY("aio_suspend"))
		check(aio_read(block) == 0 &&
		      aio_suspend((const struct aiocb *const *)list, 1, NULL) == 0, kind);
	else if (BY("lio_listio"))
		check(lio_listio(LIO_WAIT, list, 1, NULL) == 0, kind);
	else if (BY("sendfile"))
		do {
			number = bare(SYS_openat, AT_FDCWD, (long)"/dev/null", O_WRONLY, 0);
			from = 0;
			moved = sendfile(number, way.note, &from, 1);
			bare(SYS_close, number);
		} while (moved != 1);
	else if (BY("copy_file_range"))
		do
			from = 0;
		while (copy_file_range(way.note, &from, way.lock, NULL, 1, 0) != 1);
	else if (BY("mmap"))
		do {
			/* Its end is seen in the mapping only if it is there. */
			map = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE, way.note, 0);
			number = bare(SYS_lseek, way.note, 0, SEEK_END) && *map == '\n';
			munmap((void *)map, BLOCK);
		} while (!number);
	else if (BY("accept"))
		close(accept(way.set, NULL, NULL));
	else if (BY("a file"))
		while (read(way.note, text, 1) != 1)
			;
	else if (BY("pread"))
		while (pread(way.note, text, 1, 0) != 1)
			;
	else if (BY("lseek"))
		while (!lseek(way.note, 0, SEEK_END))
			;
	else if (BY("FIONREAD"))
		do
			check(ioctl(way.pair[0], FIONREAD, &number) == 0, kind);
		while (!number);
	else if (BY("syscall"))
		check(syscall(SYS_recvfrom, way.pair[0], text, 1, 0, NULL, NULL) == 1, kind);
}

/* Reads ahead, is told that the file has changed, and reads on; how much of that is as it was. */
static void hears(void)
{
	static char block[BLOCK], old[BLOCK * BLOCKS];
	char name[32], byte = 0;
	sigset_t signals;

	alarm(1000);
	memset(old, 'o', sizeof(old));
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGUSR2, handle);
	for (size_t i = 0; i < 2 * HEARD_BY; i++) {
		snprintf(name, sizeof(name), "data-%zu", i);
		int fd = bare(SYS_openat, AT_FDCWD, (long)name, O_WRONLY | O_CREAT, 0600);

		check(bare(SYS_write, fd, (long)old, sizeof(old)) == sizeof(old), name);
		bare(SYS_close, fd);
		if (i == HEARD_BY - 1) {
			/* Nobody has changed these for so long that what was read ahead may stay. */
			struct timespec second = { 1, 200000000 };

			bare(SYS_nanosleep, (long)&second, 0);
		}
	}
	for (size_t i = 0; i < 2 * HEARD_BY; i++) {
		const char *kind = heard_by[i % HEARD_BY].name;
		int fd, same = 0, threaded = !strcmp(kind, "another thread"), stopped = 0;
		pid_t parent = getpid(), child;
		pthread_t thread;

		snprintf(name, sizeof(name), "data-%zu", i);
		bare(SYS_unlinkat, AT_FDCWD, (long)"there", AT_REMOVEDIR);
		bare(SYS_unlinkat, AT_FDCWD, (long)"note", 0);
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, way.go) == 0, "socketpair");
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, way.pair) == 0, "socketpair");
		way.event = eventfd(0, 0);
		way.queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
		way.set = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
		way.lock = create("lock");
		way.note = open("note", O_RDWR | O_CREAT | O_TRUNC, 0600);
		handled = 0;
		if (heard_by[i % HEARD_BY].by == POST) {
			struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 1 };

			snprintf(block, sizeof(block), "/pdio-tells-%d", parent);
			way.messages = mq_open(block, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
			check(way.messages != (mqd_t)-1, "mq_open");
			mq_unlink(block);
		}
		if (!strcmp(kind, "accept")) {
			way.address.sun_family = AF_UNIX;
			snprintf(way.address.sun_path, sizeof(way.address.sun_path), "socket-%zu", i);
			semctl(way.set, 0, IPC_RMID);
			way.set = socket(AF_UNIX, SOCK_STREAM, 0);
			check(!bind(way.set, (struct sockaddr *)&way.address, sizeof(way.address)) &&
			      !listen(way.set, 1), "listen");
		}
		child = fork();
		if (child == 0)
			teller(heard_by[i % HEARD_BY].by, name, parent);
		check(dup2(way.pair[0], 0) == 0, "dup2");
		bare(SYS_read, way.go[0], (long)&byte, 1);
		fd = open(name, O_RDONLY);
		check(fd >= 0, name);
		for (int n = 0; n < 4; n++) {
			if (n == 2 && threaded) {
				pthread_create(&thread, NULL, hearing_thread, &stopped);
				/* It waits by then, and hears after the reads below. */
				usleep(20000);
			}
			check(read(fd, block, BLOCK) == BLOCK && *block == 'o', "as it was");
		}
		bare(SYS_write, way.go[0], (long)&byte, 1);
		hear_of(kind, child);
		while (threaded && !*(volatile int *)&stopped)
			;
		while (read(fd, block, BLOCK) == BLOCK)
			for (int at = 0; at < BLOCK; at++)
				same += block[at] == 'o';
		close(fd);
		printf("%s: %s\n", kind, same ? "old" : "new");
		fflush(stdout);
		if (threaded)
			pthread_join(thread, NULL);
		if (strcmp(kind, "waitpid") && strcmp(kind, "wait"))
			waitpid(child, NULL, 0);
		msgctl(way.queue, IPC_RMID, NULL);
		if (strcmp(kind, "accept"))
			semctl(way.set, 0, IPC_RMID);
		close(way.lock);
		close(way.note);
		for (int end = 0; end < 2; end++) {
			close(way.go[end]);
			close(way.pair[end]);
		}
		close(way.event);
	}
}

/* -------------------------------------------------------------- calls that others can see */

/* Old names, and names of libraries that need not be there. */
#define ABSENT __attribute__((weak))
extern int __xmknod(int, const char *, mode_t, dev_t *) ABSENT;
extern int __xmknodat(int, int, const char *, mode_t, dev_t *) ABSENT;
extern int __mq_open_2(const char *, int) ABSENT;
extern int io_submit(void *, long, void **) ABSENT;
extern int io_getevents(void *, long, long, void *, struct timespec *) ABSENT;

/* The kernel's log, which others read. */
static int kmsg = -1;

/* Makes a call, mostly one that fails; its name, or none if there is no such call. */
static const char *call(int kind, int plain)
{
	static const char *volatile none;
	static struct aiocb block, *list[1] = { &block };
	static char request[64], *requests[1] = { request };
	struct timespec now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } }, zero = { 0, 0 };
	struct flock lock = { .l_type = F_WRLCK };
	char byte = 0;
	dev_t device = 0;

	memset(&block, 0, sizeof(block));
	block.aio_fildes = plain;
	block.aio_buf = &byte;
	block.aio_nbytes = 1;
	block.aio_lio_opcode = LIO_WRITE;
	memcpy(request + 20, &plain, sizeof(plain));
	switch (kind) {
	case 0: return "nothing";
	case 1: bind(-1, NULL, 0); return "bind";
	case 2: listen(-1, 0); return "listen";
	case 3: semget(1, -1, 0); return "semget";
	case 4: semctl(-1, 0, IPC_RMID); return "semctl";
	case 5: msgget(1, 0); return "msgget";
	case 6: msgctl(-1, IPC_RMID, NULL); return "msgctl";
	case 7: shmget(1, 0, 0); return "shmget";
	case 8: shmctl(-1, IPC_RMID, NULL); return "shmctl";
	case 9: lremovexattr("none", "user.none"); return "lremovexattr";
	case 10: return __xmknod && __xmknod(0, "/", S_IFIFO, &device) ? "__xmknod" : NULL;
	case 11:
		return __xmknodat && __xmknodat(0, AT_FDCWD, "/", S_IFIFO, &device) ?
		       "__xmknodat" : NULL;
	case 12: return __mq_open_2 && __mq_open_2("/none", O_RDONLY) ? "__mq_open_2" : NULL;
	case 13:
		aio_write(&block);
		while (aio_error(&block) == EINPROGRESS)
			;
		return "aio_write";
	case 14: lio_listio(LIO_WAIT, list, 1, NULL); return "lio_listio";
	case 15: return io_submit && io_submit(NULL, 1, (void **)requests) ? "io_submit" : NULL;
	case 16: utimensat(plain, (const char *)none, now, 0); return "utimensat";
	case 17: futimesat(plain, (const char *)none, NULL); return "futimesat";
	case 18: fcntl(plain, F_SETLEASE, F_UNLCK); return "F_SETLEASE";
	case 19: fcntl(plain, F_SETPIPE_SZ, 4096); return "F_SETPIPE_SZ";
	case 20: fcntl(plain, F_SETLK, &lock); return "F_SETLK";
	case 21: aio_suspend((const struct aiocb *const *)list, 1, &zero); return "aio_suspend";
	case 22:
		return io_getevents && io_getevents(NULL, 0, 0, NULL, &zero) ? "io_getevents" : NULL;
	case 23: ptrace(PTRACE_CONT, 0x7fffffff, NULL, NULL); return "ptrace";
	case 24: mount("none", "/none", "none", 0, NULL); return "mount";
	case 25: swapon("/none", 0); return "swapon";
	case 26: tcsetpgrp(-1, 1); return "tcsetpgrp";
	/* More than the kernel's log takes of a line: refused. */
	case 27: return kmsg >= 0 && write(kmsg, pool, 5000) < 0 ? "/dev/kmsg" : NULL;
	default: return NULL;
	}
}

/* Writes, calls, and looks past the library whether the kernel has what was written. */
static void seen_calls(void)
{
	int plain = open("plain", O_WRONLY | O_CREAT, 0600);

	kmsg = open("/dev/kmsg", O_WRONLY);
	for (int kind = 0; kind < 28; kind++) {
		struct stat st;
		const char *name;
		int fd;

		unlink("file");
		fd = create("file");
		put(fd, 5000);
		put(fd, 1000);
		name = call(kind, plain);
		bare(SYS_newfstatat, AT_FDCWD, "file", &st, 0);
		if (name)
			printf("%s: %s\n", name, st.st_size < 6000 ? "late" : "good");
		close(fd);
	}
}

/* ---------------------------------------------------- calls that show nothing of what waits */

static long size_there(const char *name)
{
	struct stat st;

	return bare(SYS_newfstatat, AT_FDCWD, (long)name, (long)&st, 0) ? -1 : (long)st.st_size;
}

/* Makes a call on a file that is only read, or on the one that is written; its name. */
static const char *look(int kind, int small, int stream, int written)
{
	struct stat st;
	struct statx more;
	FILE *file;
	DIR *list;

	switch (kind) {
	case 0: fstat(small, &st); return "fstat";
	case 1: syscall(SYS_newfstatat, small, "", &st, AT_EMPTY_PATH); return "newfstatat";
	case 2: statx(small, "", AT_EMPTY_PATH, STATX_ALL, &more); return "statx";
	case 3: stat("small", &st); return "stat";
	case 4: fsync(small); return "fsync";
	case 5: fdatasync(small); return "fdatasync";
	case 6: syscall(SYS_fsync, small); return "fsync by syscall";
	case 7: posix_fadvise(small, 0, 0, POSIX_FADV_DONTNEED); return "posix_fadvise";
	case 8: sync_file_range(small, 0, 0, SYNC_FILE_RANGE_WRITE); return "sync_file_range";
	case 9: check(read(small, pool, 100) == 100, "read"); return "read";
	case 10: lseek(small, 0, SEEK_END); return "lseek";
	case 11: close(open("small", O_RDONLY)); return "open, close";
	case 12: close(syscall(SYS_openat, AT_FDCWD, "small", O_RDONLY)); return "openat by syscall";
	case 13:
		file = fopen("small", "r");
		check(file && fread(pool, 1, 10, file) == 10 && fclose(file) == 0, "fclose");
		return "fopen, fclose";
	case 14:
		list = opendir(".");
		check(list && readdir(list) && closedir(list) == 0, "closedir");
		return "closedir";
	case 15: fstat(stream, &st); return "fstat of a stream";
	case 16: fsync(stream); return "fsync of a stream";
	case 17: lseek(stream, 0, SEEK_END); return "lseek of a stream";
	case 18: stat("large", &st); return "stat of a stream";
	case 19: close(stream); return "close of a stream";
	/* Those that do. */
	case 20: fstat(written, &st); return "written: fstat";
	case 21: stat("file", &st); return "written: stat";
	case 22: fsync(written); return "written: fsync";
	case 23: close(open("new", O_WRONLY | O_CREAT, 0600)); return "written: a new file";
	case 24:
		file = fopen("small", "r+");
		check(file && fclose(file) == 0, "fclose");
		return "written: fclose";
	case 25: fclose(fdopen(dup(small), "r")); return "fclose of a copy";
	case 26: flock(small, LOCK_SH); return "written: flock";
	case 27: close(dup(small)); return "written: close of what may be locked";
	case 28:
		file = fopen("small", "r");
		check(file && fclose(file) == 0, "fclose");
		return "written: fclose of what may be locked";
	default: return NULL;
	}
}

/* Writes, calls, and looks past the library whether what was written still waits. */
static void leaves(void)
{
	int large = create("large"), small = create("small"), stream, fd;

	put(large, sizeof(pool));
	put(large, sizeof(pool));
	put(small, 1000);
	close(large);
	close(small);
	small = open("small", O_RDONLY);
	stream = open("large", O_RDONLY);
	check(read(stream, pool, BLOCK) == BLOCK && read(stream, pool, BLOCK) == BLOCK, "read");
	for (int kind = 0;; kind++) {
		const char *name;

		unlink("file");
		fd = create("file");
		put(fd, 5000);
		put(fd, 1000);
		name = look(kind, small, stream, fd);
		if (name)
			printf("%s: %s\n", name, size_there("file") < 6000 ? "waits" : "is there");
		close(fd);
		if (!name)
			return;
	}
}

/* Puts small files into one; how often the kernel had that grow. */
static void archives(int files)
{
	int archive = create("archive"), small = create("small"), grown = 0;
	long before = 0;
	struct stat st;

	put(small, 9000);
	close(small);
	for (int i = 0; i < files; i++) {
		int fd = open("small", O_RDONLY);
		long now;

		check(fd >= 0 && !fstat(fd, &st) && read(fd, pool, 10000) == 9000, "read");
		put(archive, 10240);
		check(fsync(fd) == 0 && close(fd) == 0, "close");
		now = size_there("archive");
		grown += now != before;
		before = now;
	}
	close(archive);
	printf("%ld bytes, %s\n", size_there("archive"), grown < files / 10 ? "together" : "one by one");
}

/* ----------------------------------------------------------- numbers of other kinds before */

/*
 * Reads a device that nobody else sees, then tells another process through the same number. The device
 * was closed, by the C library or not, or that has put a pipe in its place.
 */
static void reused(void)
{
	static const char *const names[] = { "fclose", "freopen", "close" };

	mkfifo("pipe", 0600);
	for (int kind = 0; kind < 3; kind++) {
		int answer[2], fd, number;
		FILE *file;
		char byte;

		check(pipe(answer) == 0, "pipe");
		unlink("file");
		if (fork() == 0) {
			check(read(open("pipe", O_RDONLY), &byte, 1) == 1, "read");
			byte = size_of("file") < 7000;
			check(write(answer[1], &byte, 1) == 1, "write");
			_exit(0);
		}
		fd = create("file");
		put(fd, 5000);
		put(fd, 1000);
		file = fopen("/dev/urandom", "r");
		number = fileno(file);
		check(fread(&byte, 1, 1, file) == 1, "fread");
		if (kind != 1) {
			check(kind ? !close(number) : !fclose(file), names[kind]);
			check(open("pipe", O_RDWR) == number, "the same number");
		} else {
			check(freopen("pipe", "r+", file) == file, "freopen");
			check(fileno(file) == number, "the same number");
		}
		put(fd, 1000);
		check(write(number, "x", 1) == 1, "write");
		bare(SYS_read, answer[0], &byte, 1, 0);
		printf("%s: %s\n", names[kind], byte ? "late" : "good");
		fflush(stdout);
		wait(NULL);
		close(fd);
	}
}

/* ------------------------------------------------------------------------- times of writing */

static int ordered(const char *earlier, const char *later)
{
	struct stat a, b;

	check(!stat(earlier, &a) && !stat(later, &b), "stat");
	return a.st_mtim.tv_sec < b.st_mtim.tv_sec ||
	       (a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec <= b.st_mtim.tv_nsec);
}

static void times(void)
{
	int a = create("a"), b = create("b"), c = create("c"), d;

	/* A stream, then a file that is none. */
	for (int i = 0; i < 17; i++)
		put(a, 500000);
	spin();
	put(b, 10);
	spin();
	close(a);
	printf("a before b: %d\n", ordered("a", "b"));
	/* Two streams, closed in the other order and in the same. */
	for (int round = 0; round < 4; round++) {
		int first = create("first"), second = create("second");

		for (int i = 0; i < 10; i++) {
			put(first, 300001);
			put(second, 300001);
		}
		spin();
		put(first, 70001);
		spin();
		/* Enough to be on its way to the device at once. */
		put(second, round & 1 ? 700 : 1 << 20);
		put(second, round & 1 ? 700 : 1 << 20);
		spin();
		if (round & 2)
			close(first);
		else
			close(second);
		spin();
		printf("first before second: %d\n", ordered("first", "second"));
		close(round & 2 ? second : first);
		printf("first before second: %d\n", ordered("first", "second"));
	}
	/* A stream, then a name. */
	for (int i = 0; i < 4; i++)
		put(c, 300001);
	spin();
	mkdir("made", 0700);
	spin();
	close(c);
	printf("c before made: %d\n", ordered("c", "made"));
	/* A stream, then one that is truncated, and one whose times are set. */
	d = create("d");
	for (int i = 0; i < 4; i++)
		put(d, 300001);
	spin();
	check(ftruncate(b, 5) == 0, "ftruncate");
	spin();
	close(d);
	printf("d before b: %d\n", ordered("d", "b"));
	close(b);
	/* A stream, then direct I/O of the program's own. */
	static char aligned[4096] __attribute__((aligned(4096)));
	int e, direct = open("direct", O_WRONLY | O_CREAT | O_DIRECT, 0644);

	e = create("e");
	for (int i = 0; i < 4; i++)
		put(e, 300001);
	spin();
	check(write(direct, aligned, 4096) == 4096, "direct");
	spin();
	close(e);
	printf("e before direct: %d\n", ordered("e", "direct"));
	close(direct);
}

static void cleaned(void *argument)
{
	printf("cleaned after %s\n", (const char *)argument);
}

static const char *const waited[] = { "poll", "select", "recv", "sleep" };

/* Is cancelled already when it begins to wait. */
static void *waiter(void *argument)
{
	long kind = (long)argument;
	int fd = create(waited[kind]), pair[2];
	fd_set set;
	char byte;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	struct pollfd one = { pair[0], POLLIN, 0 };

	FD_ZERO(&set);
	FD_SET(pair[0], &set);
	put(fd, 5000);
	put(fd, 1000);
	pthread_cleanup_push(cleaned, "waiting");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	switch (kind) {
	case 0: poll(&one, 1, -1); break;
	case 1: select(pair[0] + 1, &set, NULL, NULL, NULL); break;
	case 2: recv(pair[0], &byte, 1, 0); break;
	case 3: sleep(60); break;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancels(void)
{
	for (long kind = 0; kind < 4; kind++) {
		pthread_t thread;
		void *result;

		check(!pthread_create(&thread, NULL, waiter, (void *)kind), "pthread_create");
		pthread_join(thread, &result);
		printf("%d %ld\n", result == PTHREAD_CANCELED, size_of(waited[kind]));
	}
}

/* A running child is told by a store, which nobody else can see. */
static void shares(void)
{
	volatile int *told;
	int fd = create("file"), file = open("memory", O_RDWR | O_CREAT, 0600), shorter = 0;

	check(ftruncate(file, 4096) == 0, "ftruncate");
	put(fd, 5000);
	put(fd, 1000);
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (fork() == 0) {
		for (int round = 1; round <= 100; round++) {
			while (told[0] < round)
				;
			told[2] += size_of("file") < 6000 + round * 10;
			told[1] = round;
		}
		_exit(0);
	}
	for (int round = 1; round <= 100; round++) {
		put(fd, 10);
		told[0] = round;
		while (told[1] < round)
			;
	}
	shorter = told[2];
	wait(NULL);
	close(fd);
	printf("%d short\n", shorter);
}

/* The same with a semaphore that was there before the file. */
static void posts(void)
{
	char name[32];
	sem_t *written;
	int fd, shorter;

	snprintf(name, sizeof(name), "/pdio-tells-%d", getpid());
	written = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
	check(written != SEM_FAILED, "sem_open");
	sem_unlink(name);
	if (fork() == 0) {
		sem_wait(written);
		_exit(size_of("file") < 6010);
	}
	fd = create("file");
	put(fd, 5000);
	put(fd, 1000);
	put(fd, 10);
	sem_post(written);
	/* The library would write what waits before a wait() that it sees. */
	bare(SYS_wait4, -1, (long)&shorter, 0, 0);
	close(fd);
	printf("%d short\n", WEXITSTATUS(shorter));
}

/* And with memory of a device that is none. */
static void shares_zero(void)
{
	volatile int *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
				  open("/dev/zero", O_RDWR), 0);
	int fd, shorter;

	check((void *)told != MAP_FAILED, "mmap");
	if (fork() == 0) {
		while (!*told)
			;
		_exit(size_of("file") < 6010);
	}
	fd = create("file");
	put(fd, 5000);
	put(fd, 1000);
	put(fd, 10);
	*told = 1;
	bare(SYS_wait4, -1, (long)&shorter, 0, 0);
	close(fd);
	printf("%d short\n", WEXITSTATUS(shorter));
}

/* Who opens a file that has a lease is told when that is closed. */
static void leases(void)
{
	int lease, fd, shorter, number;
	sigset_t broken;

	sigemptyset(&broken);
	sigaddset(&broken, SIGIO);
	sigprocmask(SIG_BLOCK, &broken, NULL);
	close(create("leased"));
	lease = open("leased", O_RDONLY);
	if (fcntl(lease, F_SETLEASE, F_RDLCK)) {
		printf("no leases\n");
		return;
	}
	if (fork() == 0) {
		close(lease);
		close(open("leased", O_WRONLY));
		_exit(size_of("file") < 6010);
	}
	fd = create("file");
	put(fd, 5000);
	put(fd, 1000);
	sigwait(&broken, &number);
	put(fd, 10);
	close(lease);
	bare(SYS_wait4, -1, (long)&shorter, 0, 0);
	close(fd);
	printf("%d short\n", WEXITSTATUS(shorter));
}

extern ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

/* What programs that are compiled with checks call for recvfrom(). */
static void receives(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_DGRAM, 0), fd;
	socklen_t len = sizeof(to);

	check(bind(s, (void *)&to, len) == 0 && getsockname(s, (void *)&to, &len) == 0, "bind");
	for (int round = 0; round < 3; round++) {
		struct sockaddr_in from = { 0 };
		char data[8];

		len = sizeof(from);
		check(sendto(s, "seven", 5, 0, (void *)&to, sizeof(to)) == 5, "sendto");
		check(__recvfrom_chk(s, data, 5, sizeof(data), 0, (void *)&from, &len) == 5, "receive");
		printf("%d %d\n", (int)len, from.sin_port == to.sin_port);
		fd = create("file");
		put(fd, 5000);
		put(fd, 1000);
	}
	close(fd);
}

/* ------------------------------------------------------------------------------------ dying */

static int counted;

/* Writes what it has been told is written, where the library cannot see it. */
static void *endless(void *argument)
{
	uint64_t total = 0;
	int fd = create((char *)argument), own = (argument && *(char *)argument == '1');

	/* Whoever does not end us: the disk stays usable. */
	for (uint32_t n = 1; total < 1 << 30; n = n * 1664525 + 1013904223) {
		size_t len = 1 + n % 9000;

		if (write(fd, pool, len) != (ssize_t)len)
			return NULL;
		total += len;
		bare(SYS_pwrite64, counted, &total, 8, own * 8);
	}
	return NULL;
}

/*
 * Writes odd sizes and ends by a signal that nobody handles: the files must have all of it.
 * From elsewhere with "later": the parent sends it.
 */
/* An alternate stack with room for little more than what the kernel puts there. */
static void small_stack(int by_syscall)
{
	char *map = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t stack = { .ss_sp = map + 4096, .ss_size = 4096 };

	mprotect(map + 4096, 4096, PROT_READ | PROT_WRITE);
	/* Where the kernel wants a larger one there is none. */
	if (by_syscall)
		syscall(SYS_sigaltstack, &stack, NULL);
	else
		sigaltstack(&stack, NULL);
}

#define REFUSE(number)                                                                             \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                         \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* Begins once more, where no signal can be sent to a thread. */
static void dies_filtered(const char *number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		REFUSE(SYS_rt_tgsigqueueinfo),
		REFUSE(SYS_tgkill),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
	execl("/proc/self/exe", "tells", "dies", number, "now", NULL);
}

static void dies(int number, const char *how)
{
	int fd = create("file"), other = create("other");
	pthread_t thread;

	/* Who started us may ignore it. */
	signal(number, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	alarm(60);
	if (!strcmp(how, "reset")) {
		/* What a program does that has cleaned up. */
		struct sigaction action = { .sa_handler = nothing };

		sigaction(number, &action, NULL);
		action.sa_handler = SIG_DFL;
		put(fd, 5000);
		sigaction(number, &action, NULL);
		sigaction(number, NULL, &action);
		check(action.sa_handler == SIG_DFL, "SIG_DFL");
	}
	if (!strcmp(how, "early stack"))
		small_stack(0);
	for (int i = 0; i < 200; i++) {
		put(fd, 1 + i * 7919 % 30011);
		put(other, 1 + i * 104729 % 3001);
	}
	if (!strcmp(how, "late stack") || !strcmp(how, "syscall's stack"))
		small_stack(*how == 's');
	if (!strcmp(how, "asked") || !strcmp(how, "set past")) {
		/* As the kernel's, of which the default action is all zero. */
		long action[8] = { 0 }, old[8];
		const long *new = *how == 's' ? action : NULL;

		check(syscall(SYS_rt_sigaction, number, new, old, 8) == 0, "rt_sigaction");
		check(old[0] == (long)SIG_DFL, "SIG_DFL");
	}
	if (!strcmp(how, "gsignal"))
		gsignal(number);
	if (!strcmp(how, "sigsuspend")) {
		sigset_t one;

		sigemptyset(&one);
		sigaddset(&one, number);
		sigprocmask(SIG_BLOCK, &one, NULL);
		bare(SYS_kill, getpid(), number);
		sigemptyset(&one);
		sigsuspend(&one);
		bare(SYS_exit_group, 8);
	}
	if (!strcmp(how, "later")) {
		counted = create("counted");
		pthread_create(&thread, NULL, endless, "1");
		endless("0");
	}
	if (!strcmp(how, "fault")) {
		volatile int zero = 0;
		volatile char *volatile wrong = NULL;
		char *map;

		switch (number) {
		case SIGSEGV: *wrong = 1; break;
		case SIGFPE: zero = 1 / zero; break;
#ifdef __aarch64__
		/* There the compiler's own trap is a breakpoint. */
		case SIGILL: __asm__ volatile("udf 0"); break;
#else
		case SIGILL: __builtin_trap(); break;
#endif
		case SIGBUS:
			close(create("empty"));
			map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open("empty", O_RDONLY), 0);
			zero = *(volatile char *)map;
			break;
		}
	}
	bare(SYS_kill, getpid(), number, 0, 0);
	/* Not reached. */
	bare(SYS_exit_group, 9, 0, 0, 0);
}

/* The program sees the actions that it has set, and what its children inherit. */
static void actions(void)
{
	static const int all[] = { SIGHUP, SIGINT, SIGTERM, SIGSEGV, SIGUSR1, SIGALRM };
	struct sigaction action, old;
	int status;

	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, nothing);
	int fd = create("file");

	put(fd, 5000);
	put(fd, 500);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		check(sigaction(all[i], NULL, &old) == 0, "sigaction");
		printf("%d: %s, flags %x\n", all[i],
		       old.sa_handler == SIG_DFL ? "default" :
		       old.sa_handler == SIG_IGN ? "ignored" :
		       old.sa_handler == nothing ? "handled" : "?",
		       old.sa_flags & ~0x04000000);
	}
	printf("%d %d %d\n", signal(SIGTERM, nothing) == SIG_DFL,
	       signal(SIGTERM, SIG_DFL) == nothing, signal(SIGTERM, SIG_DFL) == SIG_DFL);
	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	action.sa_flags = SA_RESTART | SA_NODEFER;
	sigaddset(&action.sa_mask, SIGCHLD);
	check(sigaction(SIGINT, &action, &old) == 0, "sigaction");
	check(sigaction(SIGINT, NULL, &action) == 0, "sigaction");
	printf("%d %d %x %d\n", old.sa_handler == SIG_DFL, action.sa_handler == SIG_DFL,
	       action.sa_flags & ~0x04000000, sigismember(&action.sa_mask, SIGCHLD));
	check(bare(SYS_rt_sigaction, SIGHUP, 0, 0, 8) == 0, "rt_sigaction");
	put(fd, 500);
	fflush(stdout);
	status = system("grep -E 'Sig(Ign|Cgt)' /proc/self/status");
	printf("%d\n", status);
	if (fork() == 0) {
		raise(SIGTERM);
		_exit(1);
	}
	wait(&status);
	printf("%d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	put(fd, 500);
	close(fd);
}

/* A number below a FILE that was closed there leads to another file. */
static void below(void)
{
	FILE *file = fopen("first", "w");
	int number = fileno(file), fd;

	close(number);
	fd = create("second");
	printf("%d\n", fd == number);
	for (int i = 0; i < 100; i++)
		put(fd, BLOCK);
	fputs("END\n", file);
	fflush(file);
	for (int i = 0; i < 10; i++)
		put(fd, BLOCK);
	printf("%ld\n", size_of("second"));
	fclose(file);
	fd = create("third");
	put(fd, BLOCK);
	put(fd, BLOCK);
	close(fd);
}

/* Sets and limits that are not there. */
static void refused(void)
{
	struct timeval time = { 0, 1000 };
	struct epoll_event event;
	int fd = create("file"), queue = epoll_create1(0);

	put(fd, BLOCK);
	put(fd, BLOCK);
	check(select(10, (fd_set *)8, NULL, NULL, &time) == -1 && errno == EFAULT, "select");
	check(epoll_pwait2(queue, &event, 1, (void *)8, NULL) == -1 && errno == EFAULT, "epoll_pwait2");
	put(fd, BLOCK);
	close(fd);
}

/* Another process sets an old time while nothing of the file waits. */
static void sets_a_time(void)
{
	struct timespec old[2] = { { 1000000, 0 }, { 1000000, 0 } };
	int go[2], done[2], fd[2];
	char byte = 0;
	struct stat st;
	pid_t child;

	check(!pipe(go) && !pipe(done), "pipe");
	child = fork();
	alarm(60);
	if (!child) {
		/* To the parent's calls no call of this one is of any matter. */
		bare(SYS_read, go[0], &byte, 1);
		/* All has come to the file. */
		do
			bare(SYS_newfstatat, AT_FDCWD, "1", &st, 0);
		while (st.st_size != 10 * BLOCK);
		bare(SYS_utimensat, AT_FDCWD, "1", old, 0);
		bare(SYS_write, done[1], &byte, 1);
		bare(SYS_exit_group, 0);
	}
	fd[0] = create("0");
	fd[1] = create("1");
	for (int i = 0; i < 20; i++)
		put(fd[i % 2], BLOCK);
	bare(SYS_write, go[1], &byte, 1);
	bare(SYS_read, done[0], &byte, 1);
	usleep(1);
	check(!stat("1", &st), "stat");
	printf("%ld\n", (long)st.st_mtime);
	waitpid(child, NULL, 0);
	close(fd[0]);
	close(fd[1]);
}

static int device;

static void *logs(void *unused)
{
	int fd = create("log");

	(void)unused;
	for (int i = 0; i < 3000; i++) {
		put(fd, BLOCK);
		if (i % 500 == 499)
			spin();
	}
	close(fd);
	return NULL;
}

/* A filesystem is frozen while a thread writes there. */
static void freezes(void)
{
	pthread_t thread;

	alarm(60);
	device = open(".", O_RDONLY | O_DIRECTORY);
	pthread_create(&thread, NULL, logs, NULL);
	spin();
	check(!ioctl(device, FIFREEZE, 0), "FIFREEZE");
	usleep(200000);
	printf("%d\n", ioctl(device, FITHAW, 0));
	pthread_join(thread, NULL);
	printf("%ld\n", size_of("log"));
}

/*
 * Another process, which is there already, limits the size of files: what was written since cannot be kept, and the
 * call that asks for everything says so.
 */
static void limited(void)
{
	struct rlimit most = { 2000 * BLOCK, RLIM_INFINITY };
	struct stat st;
	int fd, here = open(".", O_RDONLY), go[2], done[2];
	char byte = 0;
	pid_t parent = getpid(), child;

	signal(SIGXFSZ, SIG_IGN);
	check(pipe(go) == 0 && pipe(done) == 0, "pipe");
	child = fork();
	if (child == 0) {
		bare(SYS_read, go[0], &byte, 1);
		check(prlimit(parent, RLIMIT_FSIZE, &most, NULL) == 0, "prlimit");
		bare(SYS_write, done[1], &byte, 1);
		_exit(0);
	}
	fd = create("file");
	for (int i = 0; i < 2000; i++)
		put(fd, BLOCK);
	bare(SYS_write, go[1], &byte, 1);
	bare(SYS_read, done[0], &byte, 1);
	put(fd, BLOCK);
	printf("%s\n", syncfs(here) ? strerror(errno) : "as if it was there");
	bare(SYS_fstat, fd, &st);
	printf("%ld\n", (long)st.st_size);
	most.rlim_cur = RLIM_INFINITY;
	bare(SYS_prlimit64, 0, RLIMIT_FSIZE, &most, NULL);
	check(syncfs(here) == 0 && close(fd) == 0, "once it may be");
	printf("%ld\n", size_of("file"));
	waitpid(child, NULL, 0);
}

static int faults;

static void *provides(void *unused)
{
	struct uffd_msg message;

	(void)unused;
	while (read(faults, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_copy copy = {
			.dst = message.arg.pagefault.address & ~(BLOCK - 1ul),
			.src = (unsigned long)pool, .len = BLOCK,
		};

		ioctl(faults, UFFDIO_COPY, &copy);
	}
	return NULL;
}

/* What is written comes from memory that another thread provides. Status 77 if the kernel lets nobody do so. */
static void provided(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = create("file");
	pthread_t thread;
	char *memory = mmap(NULL, 100 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	alarm(60);
	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (unsigned long)memory;
	range.range.len = 100 * BLOCK;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		exit(77);
	pthread_create(&thread, NULL, provides, NULL);
	for (int i = 0; i < 20; i++)
		put(fd, BLOCK);
	for (int i = 0; i < 100; i++)
		check(write(fd, memory + i * BLOCK, BLOCK) == BLOCK, "write");
	close(fd);
	printf("%ld\n", size_of("file"));
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(pool); i++)
		pool[i] = (char)(i * 2654435761u >> 13);
	if (argc > 3 && !strcmp(argv[1], "tells"))
		tells(atoi(argv[2]), atoi(argv[3]));
	else if (argc > 1 && !strcmp(argv[1], "waits"))
		waits();
	else if (argc > 1 && !strcmp(argv[1], "prompts"))
		prompts();
	else if (argc > 1 && !strcmp(argv[1], "hears"))
		hears();
	else if (argc > 3 && !strcmp(argv[1], "asks"))
		asks(atoi(argv[2]), argv[3]);
	else if (argc > 2 && !strcmp(argv[1], "notifies"))
		notifies(argv[2]);
	else if (argc > 2 && !strcmp(argv[1], "mirror"))
		mirror(argv[2]);
	else if (argc > 2 && !strcmp(argv[1], "backs"))
		backs(argv[2]);
	else if (argc > 1 && !strcmp(argv[1], "seen_calls"))
		seen_calls();
	else if (argc > 1 && !strcmp(argv[1], "leaves"))
		leaves();
	else if (argc > 2 && !strcmp(argv[1], "archives"))
		archives(atoi(argv[2]));
	else if (argc > 1 && !strcmp(argv[1], "reused"))
		reused();
	else if (argc > 1 && !strcmp(argv[1], "times"))
		times();
	else if (argc > 1 && !strcmp(argv[1], "cancels"))
		cancels();
	else if (argc > 1 && !strcmp(argv[1], "shares"))
		shares();
	else if (argc > 1 && !strcmp(argv[1], "shares_zero"))
		shares_zero();
	else if (argc > 1 && !strcmp(argv[1], "leases"))
		leases();
	else if (argc > 1 && !strcmp(argv[1], "posts"))
		posts();
	else if (argc > 1 && !strcmp(argv[1], "receives"))
		receives();
	else if (argc > 3 && !strcmp(argv[1], "dies") && !strcmp(argv[3], "filtered"))
		dies_filtered(argv[2]);
	else if (argc > 3 && !strcmp(argv[1], "dies"))
		dies(atoi(argv[2]), argv[3]);
	else if (argc > 1 && !strcmp(argv[1], "actions"))
		actions();
	else if (argc > 1 && !strcmp(argv[1], "below"))
		below();
	else if (argc > 1 && !strcmp(argv[1], "refused"))
		refused();
	else if (argc > 1 && !strcmp(argv[1], "sets_a_time"))
		sets_a_time();
	else if (argc > 1 && !strcmp(argv[1], "freezes"))
		freezes();
	else if (argc > 1 && !strcmp(argv[1], "limited"))
		limited();
	else if (argc > 1 && !strcmp(argv[1], "provided"))
		provided();
	else
		return 2;
	return 0;
}
