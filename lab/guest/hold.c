// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * hold - hold pages of a heap's buffer, as direct I/O and devices do
 *
 * One line {"type":"hold"} for each way: the error, or "" if it was allowed. A way
 * that does not end in time is killed, which is an error as well. Where it is
 * allowed: what the mapping does ({"type":"mapped"}), and for each way of holding
 * pages beyond the buffer's end ({"type":"outlived"}), how many pages were in
 * quarantine meanwhile, whether anybody else got them, and what they held.
 *
 *   --device PATH   (/dev/dma_heap/reserved, which allocates from that area)
 */
#include "options.h"

#include <linux/dma-heap.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE		4096u
#define HELD		"/mnt/held"	/* written to, by direct I/O */
#define SECONDS		20	/* that a way may take */
/* as many as a pipe takes */
#define PIPED		16u
#define BUFFERS		4096
#define PAGES		256u	/* of a buffer */

static const char *device = "/dev/dma_heap/reserved";
static const size_t bytes = (size_t)PAGES * PAGE;
static int heap;

/* ------------------------------------------------------------- buffers */

/* A buffer of the heap; -1 if there is no room for it. */
static int buffer(void)
{
	struct dma_heap_allocation_data data = {
		.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC,
	};

	return ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) ? -1 : (int)data.fd;
}

static u8 *map(int fd)
{
	u8 *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		die("cannot map a buffer: %s", strerror(errno));
	return at;
}

static void fill(u8 *at, size_t len, u64 seed)
{
	size_t i;

	for (i = 0; i < len; i += sizeof(word))
		*(word *)(at + i) = mix64(seed + i);
}

/* How many words are others than fill() has put there. */
static u64 wrong(const u8 *at, size_t len, u64 seed)
{
	size_t i;
	u64 n = 0;

	for (i = 0; i < len; i += sizeof(word))
		n += *(const word *)(at + i) != mix64(seed + i);
	return n;
}

/* A buffer that is filled, and its mapping. */
static u8 *filled(int *fd, u64 seed)
{
	u8 *at;

	*fd = buffer();
	if (*fd < 0)
		die("no buffer of %zu bytes: %s", bytes, strerror(errno));
	at = map(*fd);
	fill(at, bytes, seed);
	return at;
}

static int opened(int flags)
{
	int fd = open(HELD, flags | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		die("cannot open " HELD ": %s", strerror(errno));
	return fd;
}

/* How many words of the file are wrong. */
static u64 file_wrong(u64 seed)
{
	u8 *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = opened(O_RDONLY);
	u64 n;

	if (copy == MAP_FAILED || read(fd, copy, bytes) != (ssize_t)bytes)
		die("cannot read " HELD ": %s", strerror(errno));
	n = wrong(copy, bytes, seed);
	close(fd);
	munmap(copy, bytes);
	return n;
}

/* A counter of the area. */
static u64 counter(const char *name)
{
	char file[256], text[32] = "";
	int fd;

	snprintf(file, sizeof(file), GCMA_SYSFS "/reserved/%s", name);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		die("cannot read %s: %s", file, strerror(errno));
	close(fd);
	return strtoull(text, NULL, 10);
}

/* ------------------------------------------------------------ io_uring */

struct ring {
	int fd;
	u8 *queue;
	struct io_uring_sqe *sqe;
	struct io_uring_params params;
};

static struct ring ring_new(void)
{
	struct ring r = { .params.flags = 0 };

	r.fd = (int)syscall(SYS_io_uring_setup, 1, &r.params);
	if (r.fd < 0 || !(r.params.features & IORING_FEAT_SINGLE_MMAP))
		die("no io_uring: %s", strerror(errno));
	r.queue = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd,
		       IORING_OFF_SQ_RING);
	r.sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd,
		     IORING_OFF_SQES);
	if (r.queue == MAP_FAILED || r.sqe == MAP_FAILED)
		die("cannot map a ring: %s", strerror(errno));
	return r;
}

/* Have a ring hold the pages at an address; the error, or 0. */
static int ring_register(struct ring *r, u8 *at)
{
	struct iovec piece = { .iov_base = at, .iov_len = bytes };

	return syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS,
		       &piece, 1) < 0 ? errno : 0;
}

/* Write what a ring holds to the file; there need not be a mapping any more. */
static void ring_write(struct ring *r, u8 *at)
{
	u32 *tail = (u32 *)(r->queue + r->params.sq_off.tail);
	u32 *array = (u32 *)(r->queue + r->params.sq_off.array);
	struct io_uring_cqe *cqe = (void *)(r->queue + r->params.cq_off.cqes);
	int fd = opened(O_RDWR | O_CREAT | O_TRUNC);

	memset(r->sqe, 0, sizeof(*r->sqe));
	r->sqe->opcode = IORING_OP_WRITE_FIXED;
	r->sqe->fd = fd;
	r->sqe->addr = (uintptr_t)at;
	r->sqe->len = (u32)bytes;
	array[0] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) != 1 || cqe->res != (int)bytes)
		die("cannot write what is registered: %d", cqe->res);
	close(fd);
}

/* ---------------------------------------------------------------- ways */

static int by_direct(u8 *at)
{
	int fd = opened(O_RDWR | O_CREAT | O_TRUNC), error;

	error = pwrite(fd, at, bytes, 0) == (ssize_t)bytes ? 0 : errno;
	close(fd);
	return error;
}

static int by_vmsplice(u8 *at)
{
	struct iovec piece = { .iov_base = at, .iov_len = PIPED * PAGE };
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		die("no pipe: %s", strerror(errno));
	return vmsplice(ends[1], &piece, 1, 0) < 0 ? errno : 0;
}

static int by_io_uring(u8 *at)
{
	struct ring r = ring_new();

	return ring_register(&r, at);
}

/* Try a way in a process that can be killed; whether it is allowed. */
static bool try_way(const char *how, int (*by)(u8 *at))
{
	u64 end = now_ns() + SECONDS * NSEC_PER_SEC;
	struct json j = json_line("hold");
	const char *error;
	int status = 0, fd;
	pid_t child;

	child = fork();
	if (child < 0)
		die("cannot fork: %s", strerror(errno));
	if (!child)
		_exit(by(filled(&fd, 1)));
	while (!waitpid(child, &status, WNOHANG)) {
		if (now_ns() > end) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			break;
		}
		usleep(1000);
	}
	if (WIFSIGNALED(status))
		error = "did not end";
	else
		error = WEXITSTATUS(status) ? strerror(WEXITSTATUS(status)) : "";
	json_str(&j, "how", how);
	json_str(&j, "error", error);
	json_end(&j);
	return !*error;
}

/* ------------------------------------------------------------- mapping */

/* Does a child see what its parent wrote, and the parent what the child wrote? */
static bool shared_with_child(u8 *at)
{
	int status = 1;
	pid_t child;

	*(word *)at = 42;
	child = fork();
	if (!child) {
		bool seen = *(word *)at == 42;

		*(word *)(at + PAGE) = 43;
		_exit(!seen);
	}
	waitpid(child, &status, 0);
	return !status && *(word *)(at + PAGE) == 43;
}

static void mapped(void)
{
	struct json j = json_line("mapped");
	size_t middle = bytes / 2;
	u8 *at, *part, *moved;
	int fd;

	at = filled(&fd, 2);
	json_bool(&j, "dropped", !madvise(at, bytes, MADV_DONTNEED));
	json_u64(&j, "dropped_wrong", wrong(at, bytes, 2));
	/* They are on no list of reclaim's. */
	json_bool(&j, "paged_out", !madvise(at, bytes, MADV_PAGEOUT));
	json_u64(&j, "paged_out_wrong", wrong(at, bytes, 2));
	part = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)middle);
	json_bool(&j, "part",
		  part != MAP_FAILED && !memcmp(part, at + middle, PAGE));
	json_bool(&j, "private",
		  mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	json_bool(&j, "beyond", mmap(NULL, bytes + PAGE, PROT_READ, MAP_SHARED,
				     fd, 0) != MAP_FAILED);
	json_bool(&j, "grown", mremap(at, bytes, bytes + PAGE,
				      MREMAP_MAYMOVE) != MAP_FAILED);
	moved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, moved);
	json_u64(&j, "moved_wrong",
		 moved == MAP_FAILED ? 1 : wrong(moved, bytes, 2));
	json_bool(&j, "shared", shared_with_child(moved));
	json_end(&j);
	munmap(moved, bytes);
	munmap(part, PAGE);
	close(fd);
}

/* ------------------------------------------- longer than the buffer is */

/* Allocate all that is free, write to it, and give it back; how many buffers. */
static u64 use_the_rest(void)
{
	int fds[BUFFERS], n, i;

	for (n = 0; n < BUFFERS; n++) {
		u8 *at;

		fds[n] = buffer();
		if (fds[n] < 0)
			break;
		at = map(fds[n]);
		fill(at, bytes, 3);
		munmap(at, bytes);
	}
	for (i = 0; i < n; i++)
		close(fds[i]);
	return (u64)n;
}

/* What is in quarantine once nothing else is, or after some seconds. */
static u64 quarantined(u64 expected)
{
	u64 end = now_ns() + SECONDS * NSEC_PER_SEC, n;

	while ((n = counter("quarantined")) != expected && now_ns() < end)
		usleep(10000);
	return n;
}

static void outlived(const char *how, u64 held, u64 seed, u64 before,
		     u64 (*let_go)(void *what, u64 seed), void *what)
{
	struct json j = json_line("outlived");
	u64 owned, others, bad;

	json_str(&j, "how", how);
	json_u64(&j, "held", held);
	json_u64(&j, "quarantined", quarantined(held));
	owned = counter("owned");
	json_u64(&j, "owned", owned - before);
	others = use_the_rest();
	bad = let_go(what, seed);
	json_u64(&j, "wrong", bad);
	json_u64(&j, "left", quarantined(0));
	json_u64(&j, "owned_after", counter("owned") - before);
	json_u64(&j, "buffers", others);
	json_u64(&j, "buffers_after", use_the_rest());
	json_end(&j);
}

struct held {
	struct ring ring;
	u8 *at;
	int pipe[2];
};

static u64 ring_let_go(void *what, u64 seed)
{
	struct held *held = what;
	u64 bad;

	ring_write(&held->ring, held->at);
	bad = file_wrong(seed);
	if (syscall(SYS_io_uring_register, held->ring.fd,
		    IORING_UNREGISTER_BUFFERS, NULL, 0))
		die("cannot unregister: %s", strerror(errno));
	return bad;
}

static u64 pipe_let_go(void *what, u64 seed)
{
	static u8 copy[PIPED * PAGE];
	struct held *held = what;
	ssize_t n;
	size_t at = 0;

	while (at < sizeof(copy)) {
		n = read(held->pipe[0], copy + at, sizeof(copy) - at);
		if (n <= 0)
			die("cannot read a pipe: %s", strerror(errno));
		at += (size_t)n;
	}
	return wrong(copy, sizeof(copy), seed);
}

static void all_outlived(void)
{
	struct iovec piece = { .iov_len = PIPED * PAGE };
	struct held held = { 0 };
	int fd, error;
	u64 before;

	/* A ring lets go some time after its process has ended. */
	quarantined(0);
	before = counter("owned");
	held.ring = ring_new();
	held.at = filled(&fd, 4);
	error = ring_register(&held.ring, held.at);
	if (error)
		die("cannot register: %s", strerror(error));
	munmap(held.at, bytes);
	close(fd);
	outlived("io_uring", PAGES, 4, before, ring_let_go, &held);

	held.at = filled(&fd, 5);
	piece.iov_base = held.at;
	if (pipe2(held.pipe, O_CLOEXEC) ||
	    vmsplice(held.pipe[1], &piece, 1, 0) != PIPED * PAGE)
		die("cannot fill a pipe: %s", strerror(errno));
	munmap(held.at, bytes);
	close(fd);
	outlived("pipe", PIPED, 5, before, pipe_let_go, &held);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "device", .text = &device },
		{ 0 },
	};
	bool allowed;

	settings_parse(argc, argv, settings);
	heap = open(device, O_RDONLY | O_CLOEXEC);
	if (heap < 0)
		die("cannot open %s: %s", device, strerror(errno));
	allowed = try_way("direct", by_direct) && !file_wrong(1);
	allowed &= try_way("vmsplice", by_vmsplice);
	allowed &= try_way("io_uring", by_io_uring);
	if (allowed) {
		mapped();
		all_outlived();
	}
	return 0;
}
