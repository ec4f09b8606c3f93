// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * With LIBRARY: a library that is not done loading before a thread of its own has made calls, as one that opens a
 * device. With BEHIND: functions that are not the C library's, with USES a library that calls them, and with WRITES one
 * that writes. Without: a program that loads the first ("plugin", and its path), the second last ("user"), or the last
 * in ways in which it sees the C library alone ("deep", "apart"), that calls a function which it found there ("found"),
 * that shows why a library was not loaded
 * ("message"), or that calls what has versions ("versions"), as one that was built long ago with OLDER.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int io_submit(void *context, long count, void **blocks);
int io_getevents(void *context, long least, long most, void *events, struct timespec *limit);
int io_uring_queue_init(unsigned int entries, void *ring, unsigned int flags);

#if defined(BEHIND)

int io_submit(void *context, long count, void **blocks)
{
	return !context && !blocks ? count : -1;
}

int io_getevents(void *context, long least, long most, void *events, struct timespec *limit)
{
	return !context && !events && !limit ? least * most : -1;
}

int io_uring_queue_init(unsigned int entries, void *ring, unsigned int flags)
{
	return ring ? -1 : (int)(entries + flags);
}

#elif defined(USES)

void use(void)
{
	/* Again: what was found once. */
	for (int i = 1; i < 3; i++)
		printf("%d %d %d\n", io_submit(NULL, i, NULL), io_getevents(NULL, i, 5, NULL, NULL),
		       io_uring_queue_init(i, NULL, 64));
}

#elif defined(WRITES)

int writes(int fd)
{
	return write(fd, "of the library", 14) != 14;
}

#else

extern char **environ;

/* Calls of many kinds, and a long stream. */
static void call(void)
{
	static char block[4096];
	int pair[2], status, set = 1;
	socklen_t len = sizeof(set);
	char path[PATH_MAX], *arguments[] = { "true", NULL };
	pid_t child;
	glob_t found;

	poll(NULL, 0, 1);
	access("/", R_OK);
	if (!realpath(".", path))
		exit(1);
	pthread_kill(pthread_self(), 0);
	if (!glob("/*", 0, NULL, &found))
		globfree(&found);
	if (!socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
		setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &set, len);
		getsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &set, &len);
		send(pair[0], "x", 1, 0);
		recv(pair[1], path, 1, 0);
	}
	if (!posix_spawnp(&child, "true", NULL, NULL, arguments, environ))
		waitpid(child, &status, 0);
	fflush(stderr);

	int fd = open("file", O_CREAT | O_TRUNC | O_WRONLY, 0644);

	for (int i = 0; i < 2048; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			exit(1);
	close(fd);
}

#ifdef LIBRARY

static void *run(void *argument)
{
	call();
	return argument;
}

__attribute__((constructor)) static void start(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
}

#else

static int plugin(const char *path)
{
	return !dlopen(path, RTLD_NOW);
}

/* What it calls is in a library that nobody else sees, and may go. */
static int user(const char *path)
{
	for (int i = 0; i < 2; i++) {
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		void (*use)(void) = library ? dlsym(library, "use") : NULL;

		if (!use)
			return 1;
		use();
		dlclose(library);
	}
	return 0;
}

/* What it writes comes behind what the program has written, and before what it writes next. */
static int unseen(const char *path, const char *way)
{
	static char block[4096];
	int fd = open("file", O_CREAT | O_TRUNC | O_RDWR, 0644), (*writes)(int) = NULL;
	ssize_t (*found_write)(int, const void *, size_t) = NULL;
	char found[33] = "";
	void *library;

	for (int i = 0; i < 4096; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	if (!strcmp(way, "apart"))
		library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	else
		library = dlopen(path, strcmp(way, "deep") ? RTLD_NOW : RTLD_NOW | RTLD_DEEPBIND);
	if (library && strcmp(way, "found"))
		writes = dlsym(library, "writes");
	else if (library)
		found_write = dlsym(library, "write");
	if (writes ? writes(fd) : !found_write || found_write(fd, "of the library", 14) != 14)
		return 1;
	if (write(fd, " and the program's", 18) != 18)
		return 1;
	if (pread(fd, found, 32, 4096 * sizeof(block)) != 32)
		return 1;
	printf("%s, %ld\n", found, (long)lseek(fd, 0, SEEK_END));
	return close(fd);
}

static int message(void)
{
	char before[200];
	const char *said;

	dlopen("/nowhere/library.so", RTLD_NOW);
	said = dlerror();
	snprintf(before, sizeof(before), "%s", said);
	call();
	puts(said);
	return !!strcmp(said, before) || dlerror();
}

#if defined(OLDER) && defined(__x86_64__)
#define VERSION "GLIBC_2.2.5"
#elif defined(OLDER)
#define VERSION "GLIBC_2.17"
#endif

#ifdef VERSION
#define OF_OLD(name) __asm__(".symver " #name ", " #name "@" VERSION)
OF_OLD(pthread_kill);
OF_OLD(glob);
#ifdef __x86_64__
OF_OLD(posix_spawn);
OF_OLD(realpath);
#endif
#endif

static void *nothing(void *argument)
{
	return argument;
}

static int looked;

static int look(const char *path, struct stat *about)
{
	looked++;
	return lstat(path, about);
}

/* What differs between versions of these. */
static int versions(void)
{
	char *arguments[] = { "script", NULL };
	glob_t found = {
		.gl_closedir = (void *)closedir, .gl_readdir = (void *)readdir,
		.gl_opendir = (void *)opendir, .gl_stat = stat, .gl_lstat = look,
	};
	pthread_t thread;
	pid_t child = 0;
	int fd, result, status = 0;

	pthread_create(&thread, NULL, nothing, NULL);
	/* Nobody is told of its end but who waits for it. */
	for (int i = 0; i < 200; i++) {
		result = pthread_kill(thread, 0);
		if (result)
			break;
		usleep(1000);
	}
	pthread_join(thread, NULL);
	printf("pthread_kill: %d\n", result);

	if (symlink("nowhere", "link"))
		return 1;
	result = glob("./link", GLOB_ALTDIRFUNC, NULL, &found);
	printf("glob: %d, looked %d\n", result, looked);

	fd = open("script", O_CREAT | O_WRONLY, 0755);
	if (write(fd, "exit 7\n", 7) != 7)
		return 1;
	close(fd);
	result = posix_spawn(&child, "./script", NULL, NULL, arguments, environ);
	if (child > 0)
		waitpid(child, &status, 0);
	printf("posix_spawn: %d, %d\n", result, WEXITSTATUS(status));
	printf("realpath: %s\n", realpath("/", NULL));
	return 0;
}

int main(int count, char **words)
{
	if (!strcmp(words[1], "plugin"))
		return plugin(words[count - 1]);
	if (!strcmp(words[1], "user"))
		return user(words[count - 1]);
	if (!strcmp(words[1], "deep") || !strcmp(words[1], "apart") || !strcmp(words[1], "found"))
		return unseen(words[count - 1], words[1]);
	return strcmp(words[1], "message") ? versions() : message();
}

#endif

#endif
