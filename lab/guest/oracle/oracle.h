/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What all kinds of workers need. */
#ifndef LAB_GUEST_ORACLE_H
#define LAB_GUEST_ORACLE_H

#include "../model.h"

#include <stdatomic.h>
#include <sys/mman.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT		21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#endif

#define PAGE		4096u
/* maximum length of a range that one operation pushes out */
#define PAGEOUT_MAX	(256u * 1024)
#define WORKERS_MAX	128
#define FILE_WORKERS	2
/* maximum number of pieces of contiguous memory that a worker holds */
#define LIVE_MAX	16

struct options {
	const char *dir;
	u32 file_mib, file_max_kib;
	u32 races;
	u32 anon_mib, shmem_mib, anon_workers;
	u32 hog_mib;
	u32 alloc_max_pages, alloc_live, alloc_workers, alloc_pieces;
	u32 seconds;
	u64 seed;
	const char *until_exists;
	bool thp, alloc, alloc_pins, drop_caches, lax_direct;
	u32 skip;
};

extern struct options opt;

/* Shared by all processes. */
struct shared {
	_Atomic u32 stop;
	_Atomic u64 file_ops, race_ops, anon_ops;
	_Atomic u64 bytes_verified, races_verified;
	/* pages of files that left memory because they were asked to */
	_Atomic u64 paged_out, race_paged_out;
	_Atomic u64 wrong, direct_stale, anon_wrong;
	_Atomic u64 io_errors, nospace, unknown;
	_Atomic u64 forks, hog_waves;
	_Atomic u64 cma_allocs, cma_failed, cma_wrong, cma_worst_ns, cma_pins;
	/* pages of released memory that are still in use, by worker */
	_Atomic u64 pinned[WORKERS_MAX];
	_Atomic u64 final_files;
};

extern struct shared *shared;

static inline bool stopping(void)
{
	return atomic_load_explicit(&shared->stop, memory_order_relaxed);
}

static inline void count(_Atomic u64 *counter, u64 n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline u32 round_down(u32 v, u32 align)
{
	return v - v % align;
}

static inline u32 round_up(u32 v, u32 align)
{
	return round_down(v + align - 1, align);
}

static inline u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

/* Count something wrong that has been reported, and end. */
void __attribute__((noreturn)) fail(_Atomic u64 *counter);
/* Memory that is never swapped: what is expected must not depend on what is tested. */
void *locked_alloc(size_t size);

/*
 * All of a range of a file; less where the file ends, or where a write fails
 * after a part. Return the bytes done, or -1 with errno for a read that failed and
 * for a write of which nothing was done.
 */
s64 pread_all(int fd, u8 *buf, u32 len, u32 off);
s64 pwrite_all(int fd, const u8 *buf, u32 len, u32 off);
/* How many pages of a mapping are not in memory. */
u32 pages_absent(u8 *map, u32 len);
/* The smallest unit of direct writes in a file at @path; 0 if there is none. */
u32 probe_direct(const char *path, u8 *buf);
/* Leave out these operations on files. */
void skip_file_ops(const char *list);

/* The workers: each is a process, @id its number among those of its kind. */
void file_worker(u32 id);
void race_worker(u32 id);
void anon_worker(u32 id);
void hog_worker(u32 id);
void alloc_worker(u32 id);

#endif /* LAB_GUEST_ORACLE_H */
