/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that is killed at every system call but those that its objects take with the C library. */
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

int main(void)
{
	static struct sock_filter filter[] = {
		LOAD, ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise),
		ALLOW(write), ALLOW(exit_group), ANSWER(KILL_PROCESS),
	};
	static const struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	static const char text[] = "filters: all checks passed\n";
	char *large;

	/* The C library finds a seed before its first object. */
	free(malloc(16));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
	large = malloc(1 << 20);
	memset(large, 1, 1 << 20);
	large = realloc(large, 30 << 20);
	memset(large, 1, 30 << 20);
	free(large);
	for (int i = 0; i < 10000; i++)
		if (!malloc(100))
			_exit(2);
	_exit(write(1, text, sizeof(text) - 1) != sizeof(text) - 1);
}
