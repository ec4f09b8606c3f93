/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Requests of /dev/cma_bench, the driver that times and tests the CMA
 * interface of the default area. Shared with the programs that use it.
 */
#ifndef _MM_CMA_BENCH_ABI_H
#define _MM_CMA_BENCH_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct cma_bench_op - one request and its answer
 * @pages: number of pages; for %CMA_BENCH_ALLOC_FOLIO a power of two above 1
 * @align: wanted alignment of an allocation, as an order of pages
 * @pfn: first page; filled in by allocations, wanted by all other requests
 * @seed: what %CMA_BENCH_FILL writes and %CMA_BENCH_CHECK expects; the word that
 *	%CMA_BENCH_FIND looks for
 * @ns: out: time spent inside the CMA call alone, in nanoseconds
 * @bad: out: number of 8-byte words that %CMA_BENCH_CHECK found changed, or that
 *	are not zero at %CMA_BENCH_LOOK and after %CMA_BENCH_ALLOC_DMA, or that
 *	%CMA_BENCH_FIND found
 */
struct cma_bench_op {
	__u64 pages;
	__u64 align;
	__u64 pfn;
	__u64 seed;
	__u64 ns;
	__u64 bad;
};

/**
 * struct cma_bench_info - the area under test
 * @base_pfn: first page of the area
 * @pages: number of pages in the area
 * @name: its name, as in sysfs
 */
struct cma_bench_info {
	__u64 base_pfn;
	__u64 pages;
	char name[64];
};

/**
 * struct cma_bench_dmem - what storing and loading pages costs
 * @pages: how many pages to store and load, all of which must fit
 * @store_ns: out: time of all stores, through the hooks of reclaim
 * @load_ns: out: time of all loads, through the hook of the page cache
 * @copy_ns: out: time of copying one page as often
 * @loaded: out: how many loads found their page
 */
struct cma_bench_dmem {
	__u64 pages;
	__u64 store_ns;
	__u64 load_ns;
	__u64 copy_ns;
	__u64 loaded;
};

/* cma_alloc(); fails with ENOMEM, @ns is valid then too */
#define CMA_BENCH_ALLOC		_IOWR('g', 1, struct cma_bench_op)
/* cma_release() of what this open file allocated with the same @pages */
#define CMA_BENCH_RELEASE	_IOWR('g', 2, struct cma_bench_op)
/* write a pattern into the allocation, and look whether it is still there */
#define CMA_BENCH_FILL		_IOWR('g', 3, struct cma_bench_op)
#define CMA_BENCH_CHECK		_IOWR('g', 4, struct cma_bench_op)
/* take and drop one extra reference on the page @pfn, as a pin does */
#define CMA_BENCH_PIN		_IOWR('g', 5, struct cma_bench_op)
#define CMA_BENCH_UNPIN		_IOWR('g', 6, struct cma_bench_op)
/* cma_release() without any check by this driver; EINVAL if refused */
#define CMA_BENCH_RELEASE_RAW	_IOWR('g', 7, struct cma_bench_op)
/* cma_alloc_folio() and cma_free_folio() */
#define CMA_BENCH_ALLOC_FOLIO	_IOWR('g', 8, struct cma_bench_op)
#define CMA_BENCH_FREE_FOLIO	_IOWR('g', 9, struct cma_bench_op)
#define CMA_BENCH_INFO		_IOR('g', 10, struct cma_bench_info)
/* ENODATA if no area keeps file pages */
#define CMA_BENCH_DMEM		_IOWR('g', 11, struct cma_bench_dmem)
/* count in @bad the 8-byte words of the allocation that are not zero */
#define CMA_BENCH_LOOK		_IOWR('g', 14, struct cma_bench_op)
/* count in @bad the 8-byte words of the whole area, allocated or not, that are @seed */
#define CMA_BENCH_FIND		_IOWR('g', 15, struct cma_bench_op)
/* dma_alloc_coherent(), which must not go elsewhere, and dma_free_coherent() */
#define CMA_BENCH_ALLOC_DMA	_IOWR('g', 12, struct cma_bench_op)
#define CMA_BENCH_FREE_DMA	_IOWR('g', 13, struct cma_bench_op)

#endif /* _MM_CMA_BENCH_ABI_H */
