/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that is killed at every system call but those that its objects take with the C library, or,
 * if the argument is "tried", that a trial of small objects takes as well. With an argument it has no large ones.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##what)
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), ANSWER(ALLOW)

#define MALLOC ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise)
#define END ALLOW(write), ALLOW(exit_group), ANSWER(KILL_PROCESS)
#ifdef SYS_open
#define OPEN ALLOW(open), ALLOW(access)
#else
#define OPEN ALLOW(faccessat)
#endif

int main(int argc, char **argv)
{
	static struct sock_filter filter[] = { LOAD, MALLOC, END };
	static struct sock_filter with_trial[] = {
		LOAD, MALLOC, OPEN, ALLOW(openat), ALLOW(read), ALLOW(close), ALLOW(newfstatat),
		ALLOW(prlimit64), ALLOW(sysinfo), ALLOW(prctl), ALLOW(getpid), ALLOW(getrandom), END,
	};
	const struct sock_fprog program = argc > 1 && !strcmp(argv[1], "tried") ?
		(struct sock_fprog){ sizeof(with_trial) / sizeof(*with_trial), with_trial } :
		(struct sock_fprog){ sizeof(filter) / sizeof(*filter), filter };
	static const char text[] = "filters: all checks passed\n";
	char *large;

	/* The C library finds a seed before its first object. */
	free(malloc(16));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
	for (int i = 0; i < (argc > 1 ? 400000 : 10000); i++)
		if (!malloc(100))
			_exit(2);
	if (argc > 1)
		_exit(write(1, argv[1], strlen(argv[1])) < 0);
	large = malloc(1 << 20);
	memset(large, 1, 1 << 20);
	large = realloc(large, 30 << 20);
	memset(large, 1, 30 << 20);
	free(large);
	_exit(write(1, text, sizeof(text) - 1) != sizeof(text) - 1);
}
