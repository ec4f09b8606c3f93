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
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
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
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* Reads pieces of a file, and may be told something after each. */
static void asks(size_t piece)
{
	int fd = create("file");

	for (int i = 0; i < 4; i++)
		put(fd, sizeof(pool));
	close(fd);
	fd = open("file", O_RDONLY);
	for (size_t done = 0; done < 4 * sizeof(pool); done += piece) {
		check(read(fd, pool, piece) == (ssize_t)piece, "read");
		check(access("file", F_OK) == 0, "access");
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

#define BLOCK 4096
#define BLOCKS 512

static const char *const heard_by[] = {
	"nothing", "read", "readv", "recv", "recvmsg", "poll", "ppoll", "select", "epoll_wait", "fgets",
	"getchar", "fscanf", "eventfd_read", "waitpid", "wait", "waitid", "sigwaitinfo", "a handler",
	"nanosleep", "usleep", "msgrcv", "semop", "mq_receive", "flock", "fcntl", "open", "access", "stat",
	"fstat", "mkdir", "readdir", "accept", "a file", "pread", "FIONREAD", "lseek", "syscall",
	"another thread",
};

#define HEARD_BY (sizeof(heard_by) / sizeof(*heard_by))

static volatile int handled;

static void handle(int signal)
{
	handled = signal;
}

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
static void teller(const char *kind, const char *name, pid_t parent)
{
	static char new[BLOCK * BLOCKS];
	struct { long type; char text[1]; } message = { 1, "" };
	struct sembuf up = { 0, 1, 0 };
	int fd = bare(SYS_openat, AT_FDCWD, (long)name, O_RDWR, 0);
	char byte = '\n';

	if (!strcmp(kind, "flock"))
		check(flock(create("lock"), LOCK_EX) == 0, "flock");
	memset(new, 'n', sizeof(new));
	bare(SYS_write, way.go[1], (long)&byte, 1);
	bare(SYS_read, way.go[1], (long)&byte, 1);
	check(bare(SYS_pwrite64, fd, (long)new, sizeof(new), 0) == sizeof(new), "pwrite");
	byte = '\n';
	if (!strcmp(kind, "eventfd_read")) {
		uint64_t one = 1;

		bare(SYS_write, way.event, (long)&one, 8);
	} else if (!strcmp(kind, "sigwaitinfo")) {
		bare(SYS_kill, parent, SIGUSR1);
	} else if (!strcmp(kind, "a handler")) {
		bare(SYS_kill, parent, SIGUSR2);
	} else if (!strcmp(kind, "msgrcv")) {
		msgsnd(way.queue, &message, 1, 0);
	} else if (!strcmp(kind, "semop")) {
		semop(way.set, &up, 1);
	} else if (!strcmp(kind, "mq_receive")) {
		mq_send(way.messages, &byte, 1, 0);
	} else if (!strcmp(kind, "accept")) {
		connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&way.address,
			sizeof(way.address));
	} else if (!strcmp(kind, "a file") || !strcmp(kind, "pread") || !strcmp(kind, "lseek")) {
		bare(SYS_pwrite64, way.note, (long)&byte, 1, 0);
	} else if (!strcmp(kind, "open") || !strcmp(kind, "access") || !strcmp(kind, "stat") ||
		   !strcmp(kind, "mkdir") || !strcmp(kind, "readdir")) {
		while (bare(SYS_mkdirat, AT_FDCWD, (long)"there", 0700))
			;
	} else if (!strcmp(kind, "fstat")) {
		bare(SYS_ftruncate, way.note, 1);
	} else if (!strcmp(kind, "fcntl")) {
		bare(SYS_ftruncate, way.note, 2);
	} else if (strcmp(kind, "waitpid") && strcmp(kind, "wait") && strcmp(kind, "waitid")) {
		bare(SYS_write, way.pair[1], (long)"5\n", 2);
	}
	bare(SYS_exit_group, 0);
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
	sigset_t signals;
	uint64_t events;
	struct stat st;
	siginfo_t info;
	fd_set set;
	int number, epoll;

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
	else if (BY("readdir"))
		for (struct dirent *entry = NULL; !entry;) {
			DIR *list = opendir(".");

			while ((entry = readdir(list)) && strcmp(entry->d_name, "there"))
				;
			number = entry != NULL;
			closedir(list);
			if (number)
				break;
		}
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

	alarm(60);
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
		const char *kind = heard_by[i % HEARD_BY];
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
		if (!strcmp(kind, "mq_receive")) {
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
			teller(kind, name, parent);
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
	default: return NULL;
	}
}

/* Writes, calls, and looks past the library whether the kernel has what was written. */
static void seen_calls(void)
{
	int plain = open("plain", O_WRONLY | O_CREAT, 0600);

	for (int kind = 0; kind < 27; kind++) {
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

/* ----------------------------------------------------------- numbers of other kinds before */

/*
 * Reads a device that nobody else sees, then tells another process through the same number. The C
 * library has closed the device, or put a pipe in its place.
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
		if (kind == 2) {
			number = open("/dev/urandom", O_RDONLY);
			check(number >= 0, "open");
		} else {
			file = fopen("/dev/urandom", "r");
			number = fileno(file);
			check(fread(&byte, 1, 1, file) == 1, "fread");
		}
		if (kind == 0) {
			fclose(file);
			check(open("pipe", O_RDWR) == number, "the same number");
		} else if (kind == 2) {
			check(close(number) == 0, "close");
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
	for (int i = 0; i < 200; i++) {
		put(fd, 1 + i * 7919 % 30011);
		put(other, 1 + i * 104729 % 3001);
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
		case SIGILL: __builtin_trap(); break;
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

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(pool); i++)
		pool[i] = (char)(i * 2654435761u >> 13);
	if (argc > 3 && !strcmp(argv[1], "tells"))
		tells(atoi(argv[2]), atoi(argv[3]));
	else if (argc > 1 && !strcmp(argv[1], "waits"))
		waits();
	else if (argc > 1 && !strcmp(argv[1], "hears"))
		hears();
	else if (argc > 2 && !strcmp(argv[1], "asks"))
		asks(atoi(argv[2]));
	else if (argc > 2 && !strcmp(argv[1], "notifies"))
		notifies(argv[2]);
	else if (argc > 2 && !strcmp(argv[1], "mirror"))
		mirror(argv[2]);
	else if (argc > 1 && !strcmp(argv[1], "seen_calls"))
		seen_calls();
	else if (argc > 1 && !strcmp(argv[1], "reused"))
		reused();
	else if (argc > 1 && !strcmp(argv[1], "times"))
		times();
	else if (argc > 1 && !strcmp(argv[1], "cancels"))
		cancels();
	else if (argc > 1 && !strcmp(argv[1], "shares"))
		shares();
	else if (argc > 1 && !strcmp(argv[1], "posts"))
		posts();
	else if (argc > 1 && !strcmp(argv[1], "receives"))
		receives();
	else if (argc > 3 && !strcmp(argv[1], "dies"))
		dies(atoi(argv[2]), argv[3]);
	else if (argc > 1 && !strcmp(argv[1], "actions"))
		actions();
	else
		return 2;
	return 0;
}
