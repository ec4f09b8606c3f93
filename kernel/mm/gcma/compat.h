/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What GCMA needs of the rest of mm that is not the same in every version of
 * Linux. Only files of mm/gcma include this.
 */
#ifndef _MM_GCMA_COMPAT_H
#define _MM_GCMA_COMPAT_H

#include <linux/cma.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>

#include "../cma.h"
#include "../internal.h"
#include "../swap.h"

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3 */
#include "../swap_table.h"

/* A guaranteed area has one range. */
#define cma_range(cma)		(&(cma)->ranges[0])
#define cma_nranges(cma)	((cma)->nranges)
#define cma_activated(cma)	test_bit(CMA_ACTIVATED, &(cma)->flags)
/* There is an interface for pages without a reference. */
#define CMA_HAS_FROZEN

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
#define set_pageblock_migratetype(page, type) \
	init_pageblock_migratetype(page, type, false)

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

/* As folios of CMA were before they were frozen. */
static inline struct folio *cma_alloc_folio(struct cma *cma, int order, gfp_t gfp)
{
	struct page *page = cma_alloc_frozen_compound(cma, order);

	if (!page)
		return NULL;
	set_page_refcounted(page);
	return page_folio(page);
}

static inline bool cma_free_folio(struct cma *cma, struct folio *folio)
{
	struct page *page = folio_page(folio, 0);
	unsigned long nr = folio_nr_pages(folio);

	/* If somebody else holds it too, a guaranteed area waits for that itself. */
	return folio_ref_freeze(folio, 1) ? cma_release_frozen(cma, page, nr) :
					    cma_release(cma, page, nr);
}

#ifdef CONFIG_GCMA_KUNIT_TEST
static inline struct folio *test_alloc_folio(unsigned int order)
{
	return filemap_alloc_folio(GFP_KERNEL, order, NULL);
}

static inline void test_readahead(struct readahead_control *ractl,
				  struct file_ra_state *ra)
{
	ra->order = 2;
	page_cache_ra_order(ractl, ra);
}

static inline void test_set_new(struct inode *inode, bool new)
{
	spin_lock(&inode->i_lock);
	if (new)
		inode_state_set(inode, I_NEW);
	else
		inode_state_clear(inode, I_NEW);
	spin_unlock(&inode->i_lock);
}

/* The I/O that reclaim blames on its evictions of file pages. */
static inline unsigned long test_file_io(struct lruvec *lruvec)
{
#ifdef CONFIG_MEMCG
	/* One event is too few for mem_cgroup_flush_stats(). */
	css_rstat_flush(&root_mem_cgroup->css);
#endif
	return lruvec_page_state(lruvec, WORKINGSET_RESTORE_FILE);
}

static inline void test_activate(struct cma *cma)
{
	set_bit(CMA_ACTIVATED, &cma->flags);
}
#endif
#else /* Linux 6.12 */
/* An area is its one range. */
#define cma_range(cma)		(cma)
#define cma_nranges(cma)	((void)(cma), 1)
#define cma_activated(cma)	((cma)->bitmap)
#define page_flags(page)	((page)->flags)
/* Where it is not, there is nth_page(). */
#define cma_memmap_contiguous(cma)	((void)(cma), true)

static inline void cma_add_available(struct cma *cma, long nr)
{
	/* It is counted in the bitmap. */
}

static inline bool swap_slot_zero(swp_entry_t entry)
{
	bool zero = false;

	swap_zeromap_batch(entry, 1, &zero);
	return zero;
}

#ifdef CONFIG_GCMA_KUNIT_TEST
static inline struct folio *test_alloc_folio(unsigned int order)
{
	return filemap_alloc_folio(GFP_KERNEL, order);
}

static inline void test_readahead(struct readahead_control *ractl,
				  struct file_ra_state *ra)
{
	page_cache_ra_order(ractl, ra, 0);
}

static inline void test_set_new(struct inode *inode, bool new)
{
	spin_lock(&inode->i_lock);
	if (new)
		inode->i_state |= I_NEW;
	else
		inode->i_state &= ~I_NEW;
	spin_unlock(&inode->i_lock);
}

static inline unsigned long test_file_io(struct lruvec *lruvec)
{
	return lruvec->file_cost;
}

static inline void test_activate(struct cma *cma)
{
	/* It is if it has a bitmap. */
}
#endif
#endif

#endif /* _MM_GCMA_COMPAT_H */
