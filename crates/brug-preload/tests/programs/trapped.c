/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program whose own handler answers for the kernel, as in a sandbox: some system calls that its objects do
 * without are refused, to all of its threads. It waits until a thread that is not its own has made one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

static volatile sig_atomic_t own, others;

static void refuse(int number, siginfo_t *about, void *context)
{
	ucontext_t *at = context;

	(void)number;
	(void)about;
	if (gettid() == getpid())
		own++;
	else
		others++;
#ifdef __x86_64__
	at->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
	at->uc_mcontext.regs[0] = -EPERM;
#endif
}

int main(void)
{
	static struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		TRAP(openat), TRAP(sched_getscheduler), TRAP(membarrier), TRAP(prctl), TRAP(mincore),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	struct sigaction action = { .sa_sigaction = refuse, .sa_flags = SA_SIGINFO };
	static const char text[] = "trapped: all checks passed\n";

	alarm(120);
	if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
	while (!others) {
		char *large = NULL, *more;

		for (int mib = 1; mib <= 40; mib++) {
			more = realloc(large, (size_t)mib << 20);
			if (!more)
				_exit(2);
			large = more;
			memset(large + ((size_t)(mib - 1) << 20), mib, 1 << 20);
		}
		for (int mib = 1; mib <= 40; mib++)
			if (large[((size_t)mib << 20) - 1] != mib)
				_exit(3);
		large = realloc(large, 1 << 20);
		malloc_trim(0);
		free(large);
		usleep(10000);
	}
	_exit(!own || write(1, text, sizeof(text) - 1) != sizeof(text) - 1);
}
