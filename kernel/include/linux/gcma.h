/* SPDX-License-Identifier: GPL-2.0 */
/*
 * GCMA: what reclaim, the page cache, the swap cache and CMA call.
 *
 * They ask gcma_active(), a branch that is patched out until an area is lent,
 * or gcma_flagged(), which is that and one bit of a shadow entry. With
 * CONFIG_GCMA=n both are false for the compiler, and nothing is left of what
 * depends on them.
 * mm/gcma/gcma.c says what it is all about.
 */
#ifndef _LINUX_GCMA_H
#define _LINUX_GCMA_H

#include <linux/cleanup.h>
#include <linux/jump_label.h>
#include <linux/pagemap.h>

struct cma;
struct iov_iter;
struct kiocb;
struct mem_cgroup;
struct swap_cluster_info;

/*
 * What an area does with the memory that its first-class client leaves idle.
 * The values are kept in struct cma: zero must mean "nobody has chosen yet".
 */
#define GCMA_CHOSEN	0x1	/* a guaranteed area, perhaps without clients */
#define GCMA_FILE	0x2	/* keeps clean page-cache pages being evicted */
#define GCMA_SWAP	0x4	/* keeps pages that were swapped out */
#define GCMA_STOCK	0x8	/* not a guaranteed area: plain CMA */

#ifdef CONFIG_GCMA
/* The lowest bit of a workingset shadow: dmem was given a copy of the page. */
#define GCMA_SHADOW_BITS	1

DECLARE_STATIC_KEY_FALSE(gcma_lending);
#define gcma_active()		static_branch_unlikely(&gcma_lending)
#define cma_guaranteed(cma)	((cma)->gcma)
struct page *gcma_freeze(struct cma *cma, struct page *page, unsigned long count);
bool gcma_activate(struct cma *cma, unsigned long first_pfn);
bool gcma_pinnable(const struct cma *cma);
bool gcma_memory_failure(unsigned long pfn);
void gcma_declare_fdt(struct cma *cma, unsigned long node);

/* Is this entry of a cache a shadow that stands for copies in dmem? */
static inline bool gcma_flagged(const void *entry)
{
	return gcma_active() && unlikely(((unsigned long)entry & 3) == 3);
}

void *__gcma_swap_shadow(struct swap_cluster_info *ci, swp_entry_t entry,
			 unsigned long nr, void *shadow);

/* See __gcma_swap_shadow(). */
static inline void *gcma_swap_shadow(struct swap_cluster_info *ci, swp_entry_t entry,
				     unsigned long nr, void *shadow)
{
	return gcma_active() && nr > 1 ? __gcma_swap_shadow(ci, entry, nr, shadow) : shadow;
}

#else /* !CONFIG_GCMA */
#define GCMA_SHADOW_BITS	0
#define gcma_active()		false
#define cma_guaranteed(cma)	((void)(cma), false)
#define gcma_flagged(entry)	((void)(entry), false)
#define gcma_swap_shadow(ci, entry, nr, shadow) \
	((void)(ci), (void)(entry), (void)(nr), (shadow))
static inline struct page *gcma_freeze(struct cma *cma, struct page *page, unsigned long count)
{
	return page;
}

static inline bool gcma_activate(struct cma *cma, unsigned long first_pfn) { return false; }
static inline bool gcma_pinnable(const struct cma *cma) { return false; }
static inline bool gcma_memory_failure(unsigned long pfn) { return false; }
static inline void gcma_declare_fdt(struct cma *cma, unsigned long node) { }
#endif

void __gcma_slots_freed(struct swap_cluster_info *ci, swp_entry_t entry,
			unsigned long nr);

/* See __gcma_slots_freed(). What is not needed is not evaluated. */
#define gcma_slots_freed(ci, entry, nr) do {				\
	if (gcma_active())						\
		__gcma_slots_freed(ci, entry, nr);			\
} while (0)

void *__gcma_shadow(struct folio *folio, void *old);

/* Did gcma_load() fill this folio? Nobody else has had it. */
#define gcma_loaded(folio)	(gcma_active() && folio_test_uptodate(folio))

/* The same shadow without copies. */
static inline void *gcma_unflag(void *shadow)
{
	return (void *)((unsigned long)shadow & ~2UL);
}

/* See __gcma_shadow(); @old is the last shadow, or the only one. */
static inline void *gcma_shadow(struct folio *folio, void *old)
{
	return gcma_active() && folio_test_large(folio) ? __gcma_shadow(folio, old) : old;
}

/* The slots of a node of shadows that led to copies: of 2^@shift pages each, from @first on. */
struct gcma_node {
	pgoff_t first;
	unsigned int shift;
	u64 flagged;
};

struct page *gcma_alloc(struct cma *cma, unsigned long count,
			unsigned int align, gfp_t gfp);
void gcma_release(struct cma *cma, unsigned long pfn, unsigned long count);
unsigned long gcma_shadow_pages(struct mem_cgroup *memcg, unsigned long nodes);

bool gcma_store(struct address_space *mapping, struct folio *folio);
void *__gcma_publish(struct address_space *mapping, struct folio *folio,
		     void *shadow);
bool gcma_load(struct address_space *mapping, pgoff_t index,
	       struct folio *folio);
bool __gcma_fill(struct address_space *mapping, struct folio *folio, gfp_t gfp,
		 void **shadow);
int gcma_read(struct kiocb *iocb, struct iov_iter *to);
bool gcma_serves(struct address_space *mapping, pgoff_t index, unsigned long nr);
unsigned int __gcma_ra_order(struct address_space *mapping, pgoff_t index,
			     unsigned int order);
void gcma_invalidate(struct address_space *mapping, pgoff_t index);
struct gcma_node __gcma_forget_node(struct address_space *mapping, struct xa_node *node);
void __gcma_drop_node(struct address_space *mapping, struct gcma_node gone);
void __gcma_invalidate_all(void);
void __gcma_forget_encrypted(void);
void __gcma_invalidate_begin(struct address_space *mapping, pgoff_t first,
			     pgoff_t last);
void __gcma_invalidate_end(struct address_space *mapping);
void __mapping_set_gcma(struct address_space *mapping, bool allow);

/* See __gcma_publish(); if gcma_store() has @copied the folio. */
static inline void *gcma_publish(bool copied, struct address_space *mapping,
				 struct folio *folio, void *shadow)
{
	return copied ? __gcma_publish(mapping, folio, shadow) : shadow;
}

/*
 * See __gcma_fill(). No other value entry has this bit than one with a flag. Where there
 * was no entry, the compiler leaves out what its callers do with one as well.
 */
static inline bool gcma_fill(struct address_space *mapping, struct folio *folio,
			     gfp_t gfp, void **shadow)
{
	return gcma_active() && *shadow && unlikely((unsigned long)*shadow & 2) &&
	       __gcma_fill(mapping, folio, gfp, shadow);
}

/* See __gcma_forget_node(). */
static inline struct gcma_node gcma_forget_node(struct address_space *mapping,
						struct xa_node *node)
{
	return gcma_active() ? __gcma_forget_node(mapping, node) : (struct gcma_node) {};
}

/* See __gcma_drop_node(). */
static inline void gcma_drop_node(struct address_space *mapping, struct gcma_node gone)
{
	if (gcma_active() && gone.flagged)
		__gcma_drop_node(mapping, gone);
}

/* See __gcma_ra_order(). */
static inline unsigned int gcma_ra_order(struct address_space *mapping,
					 pgoff_t index, unsigned int order)
{
	return gcma_active() ? __gcma_ra_order(mapping, index, order) : order;
}

/* See __gcma_invalidate_all(). */
static inline void gcma_invalidate_all(void)
{
	if (gcma_active())
		__gcma_invalidate_all();
}

/* See __gcma_forget_encrypted(). */
static inline void gcma_forget_encrypted(void)
{
	if (gcma_active())
		__gcma_forget_encrypted();
}

/*
 * See __mapping_set_gcma(), which says what the file system promises. Without
 * CONFIG_GCMA @allow is not evaluated: a bit that is tested would be read all the same.
 */
#ifdef CONFIG_GCMA
#define mapping_set_gcma(mapping, allow)	__mapping_set_gcma(mapping, allow)
#else
#define mapping_set_gcma(mapping, allow)	((void)(mapping), (void)sizeof(allow))
#endif

/*
 * See __gcma_invalidate_begin(). From the page with the byte @start to that with
 * @end; returns what gcma_invalidate_end() wants.
 */
static inline struct address_space *
gcma_invalidate_begin(struct address_space *mapping, loff_t start, loff_t end)
{
	if (!gcma_active() || !test_bit(AS_GCMA, &mapping->flags))
		return NULL;
	__gcma_invalidate_begin(mapping, start >> PAGE_SHIFT, end >> PAGE_SHIFT);
	return mapping;
}

static inline void gcma_invalidate_end(struct address_space *begun)
{
	if (begun)
		__gcma_invalidate_end(begun);
}

/* CLASS(gcma_invalidation, name)(mapping, start, end): from here to the end of the scope. */
DEFINE_CLASS(gcma_invalidation, struct address_space *, gcma_invalidate_end(_T),
	     gcma_invalidate_begin(mapping, start, end),
	     struct address_space *mapping, loff_t start, loff_t end)

/* The same from one page to another. */
DEFINE_CLASS(gcma_page_invalidation, struct address_space *, gcma_invalidate_end(_T),
	     gcma_invalidate_begin(mapping, (loff_t)first << PAGE_SHIFT,
				   (loff_t)last << PAGE_SHIFT),
	     struct address_space *mapping, pgoff_t first, pgoff_t last)

/*
 * Is there anything to invalidate: resident pages, or copies of pages from the one with
 * the byte @start to that with @end? In any context.
 */
static inline bool mapping_has_cached_data(struct address_space *mapping,
					   loff_t start, loff_t end)
{
	unsigned long index = start >> PAGE_SHIFT;

	return mapping->nrpages ||
	       (gcma_active() && test_bit(AS_GCMA, &mapping->flags) &&
		xa_find(&mapping->i_pages, &index, end >> PAGE_SHIFT, XA_PRESENT));
}

/* The same where a direct write of @count bytes ends. */
static inline bool kiocb_has_cached_data(struct kiocb *iocb, size_t count)
{
	return mapping_has_cached_data(iocb->ki_filp->f_mapping, iocb->ki_pos,
				       iocb->ki_pos + count - 1);
}

#endif /* _LINUX_GCMA_H */
