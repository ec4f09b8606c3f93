// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * shm - System V shared memory for one program and its children
 *
 * Guests' kernels have none. A program that wants some, and nothing of it beyond
 * memory that its children share, runs with this library preloaded.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define MAX_SEGMENTS	64

static void *segments[MAX_SEGMENTS];
static int count;

int shmget(key_t key, size_t size, int flags)
{
	void *memory;

	if (key != IPC_PRIVATE && !(flags & IPC_CREAT)) {
		errno = ENOENT;
		return -1;
	}
	if (count == MAX_SEGMENTS) {
		errno = ENOSPC;
		return -1;
	}
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -1;
	segments[count] = memory;
	return count++;
}

void *shmat(int id, const void *address, int flags)
{
	if (id < 0 || id >= count || address || flags) {
		errno = EINVAL;
		return (void *)-1;
	}
	return segments[id];
}

/* They stay until the program ends. */
int shmdt(const void *address)
{
	(void)address;
	return 0;
}

int shmctl(int id, int command, struct shmid_ds *about)
{
	(void)id;
	(void)about;
	if (command == IPC_RMID)
		return 0;
	errno = EINVAL;
	return -1;
}
