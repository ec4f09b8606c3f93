/* SPDX-License-Identifier: GPL-2.0 */
/* As compat.h, for the tests. */
#ifndef _MM_GCMA_COMPAT_TEST_H
#define _MM_GCMA_COMPAT_TEST_H

#include "compat.h"

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3 */
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

static inline struct folio *test_alloc_folio(unsigned int order)
{
	return filemap_alloc_folio(GFP_KERNEL, order, NULL);
}

static inline void test_readahead(struct readahead_control *ractl,
				  struct file_ra_state *ra, unsigned int order)
{
	ra->order = order;
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
#else /* Linux 6.12 */
static inline struct folio *test_alloc_folio(unsigned int order)
{
	return filemap_alloc_folio(GFP_KERNEL, order);
}

static inline void test_readahead(struct readahead_control *ractl,
				  struct file_ra_state *ra, unsigned int order)
{
	page_cache_ra_order(ractl, ra, order - 2);
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
#endif

#endif /* _MM_GCMA_COMPAT_TEST_H */
