// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Two threads with direct I/O on one descriptor: one waits, as the memory that it reads into is not there yet, and
 * the other reads meanwhile. Status 77 if the kernel lets nobody else provide memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 65536

static int file;
static char *late;

static void *waits(void *unused)
{
	(void)unused;
	printf("late: %zd\n", pread(file, late, PAGE, 0));
	return NULL;
}

int main(void)
{
	int fault;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { 0 };
	struct uffd_msg message;
	pthread_t thread;
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	late = memory + PAGE;
	range.range.start = zero.range.start = (unsigned long)late;
	range.range.len = zero.range.len = PAGE;
	file = open("file", O_RDWR | O_CREAT, 0600);
	if (write(file, memory, PAGE) != PAGE || fsync(file) || close(file))
		return 1;
	file = open("file", O_RDONLY | O_DIRECT);
	fault = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fault < 0 || ioctl(fault, UFFDIO_API, &api) || ioctl(fault, UFFDIO_REGISTER, &range))
		return 77;
	/* Ends the program if the second read waits for the first. */
	alarm(60);
	pthread_create(&thread, NULL, waits, NULL);
	if (read(fault, &message, sizeof(message)) != sizeof(message))
		return 1;
	printf("meanwhile: %zd\n", pread(file, memory, PAGE, 0));
	if (ioctl(fault, UFFDIO_ZEROPAGE, &zero))
		return 1;
	pthread_join(thread, NULL);
	return 0;
}
