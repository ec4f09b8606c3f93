// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that has functions of its own with names by which the library does its work. The linker
 * exports them, as the C library has such names.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Under another name here, as headers declare some of them. */
#define OWN(name) \
	int own_##name(void) __asm__(#name); \
	int own_##name(void) { abort(); }
OWN(close) OWN(fcntl) OWN(fcntl64) OWN(fdatasync) OWN(fstat) OWN(fstat64) OWN(ftruncate64) OWN(lseek64)
OWN(madvise) OWN(mmap) OWN(mmap64) OWN(mprotect) OWN(munmap) OWN(nanosleep) OWN(open64)
OWN(openat64) OWN(poll) OWN(prctl) OWN(pread64) OWN(preadv2) OWN(pwrite64) OWN(pwritev2) OWN(read)
OWN(sigaction) OWN(stat64) OWN(statx) OWN(syscall) OWN(writev)

int main(void)
{
	char block[4096];
	int fd = open("file", O_CREAT | O_TRUNC | O_WRONLY, 0644);

	memset(block, 7, sizeof(block));
	for (int i = 0; i < 2048; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return 1;
	return !!fsync(fd);
}
