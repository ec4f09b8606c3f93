// SPDX-License-Identifier: MIT OR Apache-2.0
/* Errors of writes that were deferred: each is told once, and what was accepted is not lost. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bare.h"

extern int failing, failed;

static char pool[1 << 16];
static long accepted;

static void check(const char *what, int good)
{
	printf("%s: %s\n", what, good ? "yes" : "NO");
	fflush(stdout);
}

static long put(int fd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pool[i] = (accepted + i) * 31 >> 3;
	long got = write(fd, pool, n);

	if (got > 0)
		accepted += got;
	return got;
}

static int taken(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	accepted = 0;
	while (accepted < 1 << 20)
		if (put(fd, 10000) != 10000)
			check("the disk works", 0);
	return fd;
}

static int whole(const char *name)
{
	int fd = open(name, O_RDONLY);
	long at = 0, n;

	while ((n = read(fd, pool, sizeof(pool))) > 0) {
		for (long i = 0; i < n; i++)
			if (pool[i] != (char)((at + i) * 31 >> 3))
				return 0;
		at += n;
	}
	close(fd);
	return at == accepted;
}

/* Nothing idles so long that the keeper writes it: who calls meets the error. */
static void met_by_calls(void)
{
	int fd = taken("write"), errors = 0, status;

	failing = 1;
	for (int i = 0; i < 3000 && !errors; i++)
		errors += put(fd, 10000) < 0 && errno == EIO;
	failing = 0;
	check("a write says so", errors == 1);
	check("the next does not", put(fd, 10000) == 10000);
	check("nor does close", close(fd) == 0);
	check("nothing is missing", whole("write"));

	fd = taken("fsync");
	failing = 1;
	check("a small write waits", put(fd, 100) == 100);
	check("fsync says so", fsync(fd) < 0 && errno == EIO);
	failing = 0;
	check("the next does not", fsync(fd) == 0 && close(fd) == 0);
	check("nothing is missing", whole("fsync"));

	/* Asked through another file, and by its number. */
	int here = open(".", O_RDONLY), elsewhere = open("/proc", O_RDONLY);

	fd = taken("syncfs");
	failing = 1;
	put(fd, 100);
	check("syncfs elsewhere has nothing to say", syncfs(elsewhere) == 0);
	check("syncfs says so", syncfs(here) < 0 && errno == EIO);
	put(fd, 100);
	check("by its number, too", syscall(SYS_syncfs, here) < 0 && errno == EIO);
	failing = 0;
	check("the next does not", syncfs(here) == 0 && syncfs(fd) == 0 && close(fd) == 0);
	check("nothing is missing", whole("syncfs"));
	check("of what is not open it is refused", syncfs(fd) < 0 && errno == EBADF);
	close(elsewhere);
	close(here);

	fd = taken("close");
	failing = 1;
	put(fd, 100);
	check("close says so", close(fd) < 0 && errno == EIO);
	check("and closes", fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	failing = 0;

	fd = taken("dup2");
	failing = 1;
	put(fd, 100);
	check("dup2 says so", dup2(1, fd) < 0 && errno == EIO);
	failing = 0;
	close(fd);

	fd = taken("fork");
	failing = 1;
	put(fd, 100);
	if (fork() == 0) {
		check("the child has the offset", lseek(fd, 0, SEEK_CUR) == accepted);
		check("the child has no error to tell", close(fd) == 0);
		_exit(0);
	}
	wait(&status);
	check("fsync says so", fsync(fd) < 0 && errno == EIO);
	failing = 0;
	check("the next does not", fsync(fd) == 0);
	check("more", put(fd, 100) == 100);
	check("nor does close", close(fd) == 0);
	check("nothing is missing", whole("fork"));

	/* Where no call can say so. */
	fd = taken("range");
	failing = 1;
	put(fd, 100);
	check("close_range closes", close_range(fd, fd, 0) == 0 && fcntl(fd, F_GETFD) < 0);
	failing = 0;

	fd = taken("reopened");
	check("as standard input", dup2(fd, 0) == 0 && close(fd) == 0);
	failing = 1;
	put(0, 100);
	check("freopen opens", freopen("write", "r", stdin) == stdin && fileno(stdin) == 0);
	failing = 0;
	check("the other file", lseek(0, 0, SEEK_CUR) == 0 && read(0, pool, 10) == 10);

	fd = taken("unseen");
	failing = 1;
	put(fd, 100);
	check("past the library", bare(SYS_close, fd) == 0);
	check("the number is another's", open("write", O_RDONLY) == fd);
	failing = 0;
	check("of which it reads", read(fd, pool, 10) == 10 && close(fd) == 0);

	for (int kind = 0; kind < 3; kind++) {
		static const char *const names[] = { "exec", "daemon", "_exit" };

		if (fork() == 0) {
			fd = taken(names[kind]);
			failing = 1;
			put(fd, 100);
			if (kind == 0)
				execl("/bin/true", "true", NULL);
			if (kind == 1)
				status = daemon(1, 1);
			_exit(0);
		}
		wait(&status);
	}

	/* Where one still can, whatever was said. */
	fd = taken("refused");
	failing = 1;
	put(fd, 100);
	check("nothing to execute", execl("/none", "none", NULL) < 0 && errno == ENOENT);
	/* Printed once, although a search for a program in several places executes it in each. */
	check("nothing to execute", execl("/none", "none", NULL) < 0 && errno == ENOENT);
	check("fsync says so", fsync(fd) < 0 && errno == EIO);
	/* The next loss is another. */
	put(fd, 100);
	check("nothing to execute", execl("/none", "none", NULL) < 0 && errno == ENOENT);
	check("fsync says so", fsync(fd) < 0 && errno == EIO);
	failing = 0;
	check("the next does not", fsync(fd) == 0 && close(fd) == 0);
	check("nothing is missing", whole("refused"));

	fd = taken("vfork");
	failing = 1;
	put(fd, 100);
	if (vfork() == 0)
		_exit(0);
	wait(&status);
	if (vfork() == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	wait(&status);
	check("fsync says so", fsync(fd) < 0 && errno == EIO);
	failing = 0;
	check("the next does not", fsync(fd) == 0 && close(fd) == 0);
	check("nothing is missing", whole("vfork"));

	/* A thread of the C library carries these out. */
	fd = taken("aio_fsync");
	for (int i = 0; i < 2; i++) {
		struct aiocb block = { .aio_fildes = fd };

		failing = 1;
		put(fd, 100);
		check("aio_fsync says so", aio_fsync(i ? O_DSYNC : O_SYNC, &block) < 0 && errno == EIO);
		failing = 0;
		check("the next does not", aio_fsync(O_SYNC, &block) == 0);
		while (aio_error(&block) == EINPROGRESS)
			usleep(1000);
		check("and succeeds", aio_return(&block) == 0);
		close(fd);
		check("nothing is missing", whole("aio_fsync"));
		fd = taken("aio_fsync");
	}
	close(fd);

	fd = taken("end");
	failing = 1;
	put(fd, 100);
}

/* The keeper writes what idled; the next call that can tell its error does. */
static void met_by_the_keeper(void)
{
	int fd = taken("others"), before;

	failing = 1;
	/* What was accepted before may have failed already, and then this call says so. */
	do
		before = __atomic_load_n(&failed, __ATOMIC_SEQ_CST);
	while (put(fd, 100) < 0 && errno == EIO);
	while (__atomic_load_n(&failed, __ATOMIC_SEQ_CST) == before)
		usleep(1000);
	check("lseek has nothing to say", lseek(fd, 0, SEEK_END) > 0);
	check("dup neither", close(dup(1)) == 0);
	failing = 0;
	check("a write says what the keeper met", put(fd, 100) < 0 && errno == EIO);
	check("the next does not", put(fd, 100) == 100 && close(fd) == 0);
	check("nothing is missing", whole("others"));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "keeper"))
		met_by_the_keeper();
	else
		met_by_calls();
	return 0;
}
