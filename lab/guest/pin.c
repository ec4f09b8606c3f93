// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * pin - pin a huge page for long, as programs do that have devices work on it
 *
 * Fills a huge page of a GiB of the pool, has it pinned in each way that there is, and
 * looks whether it still is where it was and holds what it held. One line
 * {"type":"pin"} for each way; the exit status is 0 even if none was allowed.
 */
#include "common.h"

#include <linux/io_uring.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT	26
#endif
#define GIB_ORDER	30
#define BYTES		((size_t)1 << GIB_ORDER)

/* as much of the page as /dev/udmabuf takes by default, and more */
#define PINNED		((size_t)2 * MIB)
#define STEP		4096u

/* Returns the page frame that is mapped at an address of this process. */
static u64 frame_of(const void *at)
{
	u64 entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	off_t offset = (off_t)((uintptr_t)at / STEP * sizeof(entry));

	if (fd < 0 || pread(fd, &entry, sizeof(entry), offset) != sizeof(entry))
		die("cannot read /proc/self/pagemap: %s", strerror(errno));
	close(fd);
	if (!(entry >> 63))
		die("a huge page is not present");
	return entry & ((1ULL << 55) - 1);
}

/* A buffer that is registered with io_uring; the error, or 0. */
static int by_io_uring(void *map, int memfd)
{
	struct io_uring_params params = { 0 };
	struct iovec piece = { .iov_base = map, .iov_len = PINNED };
	int ring = (int)syscall(SYS_io_uring_setup, 4, &params);

	(void)memfd;
	if (ring < 0)
		return errno;
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS,
		    &piece, 1) < 0)
		return errno;
	return 0; /* until the program ends */
}

/* A dma-buf of the memory of a file. */
static int by_udmabuf(void *map, int memfd)
{
	struct udmabuf_create create = {
		.memfd = (u32)memfd, .flags = UDMABUF_FLAGS_CLOEXEC,
		.size = PINNED,
	};
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	(void)map;
	if (device < 0)
		return errno;
	return ioctl(device, UDMABUF_CREATE, &create) < 0 ? errno : 0;
}

static void pin(const char *how, int (*by)(void *map, int memfd))
{
	size_t at;
	struct json j = json_line("pin");
	u64 frame, wrong = 0;
	u8 *map = MAP_FAILED;
	int error, memfd;

	memfd = (int)syscall(SYS_memfd_create, "pin",
			     MFD_ALLOW_SEALING | MFD_HUGETLB |
			     GIB_ORDER << MAP_HUGE_SHIFT);
	if (memfd >= 0 && !ftruncate(memfd, (off_t)BYTES) &&
	    !fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			   memfd, 0);
	if (map == MAP_FAILED)
		die("no huge page of a GiB: %s", strerror(errno));
	for (at = 0; at < PINNED; at += STEP)
		*(word *)(map + at) = mix64(at);
	frame = frame_of(map);
	error = by(map, memfd);
	for (at = 0; at < PINNED; at += STEP)
		wrong += *(word *)(map + at) != mix64(at);
	json_str(&j, "how", how);
	json_str(&j, "error", error ? strerror(error) : "");
	json_u64(&j, "pfn", frame);
	json_bool(&j, "moved", frame_of(map) != frame);
	json_u64(&j, "wrong", wrong);
	json_end(&j);
	munmap(map, BYTES);
	close(memfd);
}

int main(void)
{
	/*
	 * A process for each: what is pinned stays so until it ends. Some time
	 * longer with io_uring, which therefore comes last.
	 */
	switch (fork()) {
	case -1:
		die("cannot fork: %s", strerror(errno));
	case 0:
		pin("udmabuf", by_udmabuf);
		return 0;
	}
	if (wait(NULL) < 0)
		die("cannot wait: %s", strerror(errno));
	pin("io_uring", by_io_uring);
	return 0;
}
