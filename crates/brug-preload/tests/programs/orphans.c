/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Memory that is freed goes back: in a child that was made by the system call itself, whose C library
 * ran no handler, while its parent had more than one thread, also where the kernel does not compare
 * processes; and after the child of a vfork, which has its parent's memory, has freed some.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (60ul << 20)

static unsigned long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long all, pages = 0;

	if (!file || fscanf(file, "%lu %lu", &all, &pages) != 2)
		_exit(4);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void use(void)
{
	char *object = malloc(SIZE);

	if (!object)
		_exit(5);
	memset(object, 1, SIZE);
	free(object);
}

/* Status 0 if memory goes back in time, long as that is. */
static int goes_back(void)
{
	for (int i = 0; i < 2000; i++) {
		if (resident() < SIZE / 2)
			return 0;
		usleep(10000);
	}
	return 1;
}

static int ended(pid_t child)
{
	int status = 1;

	return child < 0 || waitpid(child, &status, 0) != child || status;
}

/* As in many containers. */
static void have_kcmp_refused(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(6);
}

int main(void)
{
	pid_t child = vfork();

	if (!child) {
		use();
		_exit(0);
	}
	if (ended(child))
		return 2;
	use();
	if (goes_back())
		return puts("orphans: memory stays after a vfork"), 1;
	use();
	for (int refused = 0; refused < 2; refused++) {
		child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (!child) {
			if (refused)
				have_kcmp_refused();
			use();
			_exit(goes_back());
		}
		if (ended(child)) {
			printf("orphans: memory stays in a child, comparison %s\n",
			       refused ? "refused" : "allowed");
			return 1;
		}
	}
	puts("orphans: all checks passed");
	return 0;
}
