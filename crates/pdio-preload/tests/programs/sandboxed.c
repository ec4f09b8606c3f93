// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that allows itself few system calls, in all threads if it is told so, and is ended by any other. It has
 * written a stream before, unless it is told to be idle. It then ends, by a signal if it is told so, maps a file
 * ("maps"), or asks for a thread that the filter says there is no room for ("no thread").
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number)                                                                              \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K,               \
								    SECCOMP_RET_ALLOW)

/* For one way; in the others these are not allowed. */
#define ALLOW_IF(yes, number) ALLOW((yes) ? (number) : SYS_exit_group)

static char block[7000];

static void handler(int number)
{
	(void)number;
}

static void *nothing(void *unused)
{
	return unused;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	int no_thread = !strcmp(way, "no thread");
	pthread_t thread;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write),
		ALLOW(SYS_dup3),
#ifdef SYS_dup2
		ALLOW(SYS_dup2),
#endif
		ALLOW(SYS_close),
		ALLOW(SYS_clock_nanosleep),
		ALLOW(SYS_mmap),
		ALLOW(SYS_kill),
		ALLOW(SYS_rt_sigaction),
		ALLOW(SYS_exit_group),
		ALLOW_IF(no_thread, SYS_mprotect),
		ALLOW_IF(no_thread, SYS_munmap),
		ALLOW_IF(no_thread, SYS_brk),
		ALLOW_IF(no_thread, SYS_madvise),
		ALLOW_IF(no_thread, SYS_getrandom),
		ALLOW_IF(no_thread, SYS_rt_sigprocmask),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no_thread ? SYS_clone3 : SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no_thread ? SYS_clone : SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	int all = !strcmp(way, "all threads"), self = getpid();
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int map = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (ftruncate(map, 4096))
		return 6;
	signal(SIGUSR1, handler);
	for (int i = 0; i < 1000 && strcmp(way, "idle"); i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 2;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all ? SECCOMP_FILTER_FLAG_TSYNC : 0,
		    &program))
		return 3;
	if (write(fd, block, sizeof(block)) != sizeof(block) || write(1, "filtered\n", 9) != 9)
		return 4;
	/* Longer than any thread of the library stays. */
	if (all)
		sleep(2);
	if (!strcmp(way, "maps") &&
	    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0) == MAP_FAILED)
		return 7;
	if (no_thread && pthread_create(&thread, NULL, nothing, NULL) != EAGAIN)
		return 8;
	if (!strcmp(way, "signal")) {
		signal(SIGUSR1, SIG_DFL);
		kill(self, SIGTERM);
	}
	if (dup2(1, fd) != fd || close(fd) || write(1, "ended\n", 6) != 6)
		return 5;
	exit(0);
}
