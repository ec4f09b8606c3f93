/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What GCMA needs of the rest of mm that is not the same in every version of
 * Linux. Only files of mm/gcma include this.
 */
#ifndef _MM_GCMA_COMPAT_H
#define _MM_GCMA_COMPAT_H

#include <linux/cma.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>

#include "../cma.h"
#include "../internal.h"
#include "../swap.h"

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3 */
#include "../swap_table.h"

/* A guaranteed area has one range. */
#define cma_range(cma)		(&(cma)->ranges[0])
#define cma_nranges(cma)	((cma)->nranges)

/* Under the lock of the area: so many more pages are free, or fewer. */
static inline void cma_add_available(struct cma *cma, long nr)
{
	cma->available_count += nr;
}

#define page_flags(page)	((page)->flags.f)

/* Is an area one piece of the memory map, too? */
static inline bool cma_memmap_contiguous(const struct cma *cma)
{
	return page_range_contiguous(pfn_to_page(cma->ranges[0].base_pfn), cma->count);
}

#define nth_page(page, n)	((page) + (n))

/* As clear_highpage(), of @nr pages in a row. */
static inline void clear_highpages(struct page *page, unsigned int nr)
{
	if (!IS_ENABLED(CONFIG_HIGHMEM))
		clear_pages(kasan_reset_tag(page_address(page)), nr);
	else
		while (nr--)
			clear_highpage(page++);
}

/* Start to read a window of readahead, with larger folios than the last one. */
static inline void read_next(struct readahead_control *ractl, struct kiocb *iocb)
{
	ractl->dropbehind = iocb->ki_flags & IOCB_DONTCACHE;
	ractl->ra->order += 2;
	page_cache_ra_order(ractl, ractl->ra);
}

/* The multi-generational LRU counts reads of a folio from the first one on. */
#define lru_gen_workingset(folio) \
	(folio_lru_refs(folio) > 1 || folio_test_workingset(folio))

/* All swap devices have one space, in which a slot has a place of its own. */
static inline pgoff_t swap_cache_index(swp_entry_t entry)
{
	return entry.val;
}

/* Does a slot, whose folio is locked, stand for zeros, which are not read? */
static inline bool swap_slot_zero(swp_entry_t entry)
{
	guard(rcu)();
	return __swap_table_test_zero(__swap_entry_to_cluster(entry),
				      swp_cluster_offset(entry));
}
#else /* Linux 6.12 */
/* An area is its one range. */
#define cma_range(cma)		(cma)
#define cma_nranges(cma)	((void)(cma), 1)
/* As its first releases call it. */
#define system_dfl_wq		system_unbound_wq
#define page_flags(page)	((page)->flags)
/* Reads are counted from the second one on, together with PG_workingset. */
#define lru_gen_workingset(folio)	folio_lru_refs(folio)
/* Where it is not, there is nth_page(). */
#define cma_memmap_contiguous(cma)	((void)(cma), true)

static inline void cma_add_available(struct cma *cma, long nr)
{
	/* It is counted in the bitmap. */
}

static inline void clear_highpages(struct page *page, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		clear_highpage(nth_page(page, i));
}

/* With folios of a piece. */
static inline void read_next(struct readahead_control *ractl, struct kiocb *iocb)
{
	page_cache_ra_order(ractl, ractl->ra, 2);
}

static inline bool swap_slot_zero(swp_entry_t entry)
{
	bool zero = false;

	swap_zeromap_batch(entry, 1, &zero);
	return zero;
}
#endif

#endif /* _MM_GCMA_COMPAT_H */
