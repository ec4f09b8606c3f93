/* SPDX-License-Identifier: GPL-2.0 */
/*
 * GCMA: hooks of reclaim, the page cache, the swap cache and CMA.
 *
 * Everything here vanishes with CONFIG_GCMA=n, and costs a patched-out branch
 * or one bit test as long as nothing was stored. mm/gcma/gcma.c says what it
 * is all about.
 */
#ifndef _LINUX_GCMA_H
#define _LINUX_GCMA_H

#include <linux/errno.h>
#include <linux/jump_label.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/types.h>
#include <linux/xarray.h>

struct cma;
struct dmem_frame;
struct folio;
struct iov_iter;
struct kiocb;
struct mem_cgroup;

/*
 * What an area does with the memory that its first-class client leaves idle.
 * The values are kept in struct cma: zero must mean "nobody has chosen yet".
 */
#define GCMA_CHOSEN	0x1	/* a guaranteed area, perhaps without clients */
#define GCMA_FILE	0x2	/* keeps clean page-cache pages being evicted */
#define GCMA_SWAP	0x4	/* keeps pages that were swapped out */
#define GCMA_STOCK	0x8	/* not a guaranteed area: plain CMA */

#ifdef CONFIG_GCMA

/*
 * The lowest bit of a workingset shadow says that dmem was given a copy of the
 * page that the shadow stands for.
 */
#define GCMA_SHADOW_BITS	1
#define GCMA_SHADOW_FLAG	1UL

DECLARE_STATIC_KEY_FALSE(gcma_lending);

struct dmem_frame *__gcma_stage(struct address_space *mapping,
				struct folio *folio);
void *__gcma_publish(struct dmem_frame *frame, struct address_space *mapping,
		     struct folio *folio, void *shadow);
void __gcma_abort(struct dmem_frame *frame);
bool __gcma_load(struct address_space *mapping, pgoff_t index,
		 struct folio *folio);
ssize_t __gcma_read(struct kiocb *iocb, struct iov_iter *to);
bool __gcma_serves(struct address_space *mapping, pgoff_t index);
void *__gcma_split_shadow(struct folio *folio, void *shadow);
void *__gcma_filter_shadow(struct folio *folio, void *shadow);
void __gcma_overwrite(struct folio *folio);
void __gcma_forget(struct address_space *mapping, pgoff_t index);
void __gcma_drop(struct address_space *mapping, pgoff_t index);
bool __gcma_invalidate_begin(struct address_space *mapping);
void __gcma_invalidate_end(struct address_space *mapping);
void __gcma_drop_all(void);
unsigned long __gcma_shadows(struct mem_cgroup *memcg, unsigned long nodes);

/**
 * mapping_gcma() - may copies of the pages of this file be kept
 * @mapping: the page cache of the file
 */
static inline bool mapping_gcma(const struct address_space *mapping)
{
	return test_bit(AS_GCMA, &mapping->flags);
}

/**
 * mapping_set_gcma() - a file system allows copies of the pages of a file
 * @mapping: the page cache of the file
 * @allow: whether to allow it
 *
 * What the file system promises: pages enter the cache through
 * filemap_add_folio(), and ->readahead and ->read_folio do not mind that
 * others find pages up to date. The content on the device changes only while
 * the page is in the cache, or within truncate_inode_pages_range() and
 * invalidate_inode_pages2_range() or before they are called, with
 * mapping->invalidate_lock held or followed by an invalidation. A file system
 * that keeps readers out by other means, and looks for resident pages then,
 * invalidates and looks between gcma_invalidate_begin() and _end().
 */
static inline void mapping_set_gcma(struct address_space *mapping, bool allow)
{
	assign_bit(AS_GCMA, &mapping->flags, allow);
}

/* A shadow, a folio or nothing; not what is internal to an xarray. */
static inline bool gcma_shadow_flagged(const void *shadow)
{
	return (unsigned long)shadow & (GCMA_SHADOW_FLAG << 1);
}

/**
 * gcma_stage() - copy a page that reclaim is about to remove
 * @mapping: where the page is cached
 * @folio: the locked folio, clean and unmapped as far as known
 * @reclaimed: reclaim removes it (and will leave a shadow behind)
 *
 * Return: the frame that holds the copy, to be given to gcma_publish() or
 * gcma_abort(); %NULL if no copy was made, which both accept.
 */
static inline struct dmem_frame *gcma_stage(struct address_space *mapping,
					    struct folio *folio, bool reclaimed)
{
	if (static_branch_unlikely(&gcma_lending) && reclaimed)
		return __gcma_stage(mapping, folio);
	return NULL;
}

/**
 * gcma_publish() - make a staged copy reachable
 * @frame: what gcma_stage() returned
 * @mapping: where the page is cached; its i_pages lock is held
 * @folio: the folio, frozen and found clean
 * @shadow: the shadow entry that will take the folio's place, or %NULL
 *
 * Return: the shadow entry to store, flagged if the copy can be found.
 */
static inline void *gcma_publish(struct dmem_frame *frame,
				 struct address_space *mapping,
				 struct folio *folio, void *shadow)
{
	/* There is one: the key, just being turned on, is not asked again. */
	if (unlikely(frame))
		return __gcma_publish(frame, mapping, folio, shadow);
	return shadow;
}

/**
 * gcma_abort() - forget a staged copy, the folio stays where it is
 * @frame: what gcma_stage() returned
 */
static inline void gcma_abort(struct dmem_frame *frame)
{
	if (unlikely(frame))
		__gcma_abort(frame);
}

/**
 * gcma_load() - fill a folio just added to a cache from the copy in dmem
 * @mapping: the cache
 * @index: where in the cache
 * @folio: the folio, locked and not up to date
 * @shadow: the entry that the folio replaced, or %NULL
 *
 * The folio is up to date afterwards if there was a copy, and must be read
 * from the backing device as ever if not.
 */
static inline void gcma_load(struct address_space *mapping, pgoff_t index,
			     struct folio *folio, void *shadow)
{
	if (static_branch_unlikely(&gcma_lending) &&
	    gcma_shadow_flagged(shadow))
		__gcma_load(mapping, index, folio);
}

/**
 * gcma_load_file() - gcma_load() for a folio just added to the page cache
 * @folio: the folio, locked and not up to date
 * @shadow: the entry that the folio replaced, or %NULL
 */
static inline void gcma_load_file(struct folio *folio, void *shadow)
{
	gcma_load(folio->mapping, folio->index, folio, shadow);
}

/**
 * gcma_overwrite() - a folio was added to the page cache to be overwritten
 * @folio: the folio, locked
 * @shadow: the entry that the folio replaced, or %NULL
 *
 * Nobody finds its copy again, whose frame can have another one.
 */
static inline void gcma_overwrite(struct folio *folio, void *shadow)
{
	if (static_branch_unlikely(&gcma_lending) &&
	    gcma_shadow_flagged(shadow))
		__gcma_overwrite(folio);
}

/**
 * gcma_loaded() - did gcma_load() fill this folio
 * @folio: a locked folio that is about to be read
 */
static inline bool gcma_loaded(struct folio *folio)
{
	return static_branch_unlikely(&gcma_lending) &&
	       folio_test_uptodate(folio);
}

/**
 * gcma_batch_init() - nothing was noted so far
 * @fbatch: an empty batch of folios
 */
static inline void gcma_batch_init(struct folio_batch *fbatch)
{
	fbatch->folios[0] = NULL;
}

/**
 * gcma_note() - remember what ended a batch of folios
 * @fbatch: the batch; where it is empty there is room for the shadow
 * @shadow: the shadow entry there
 */
static inline void gcma_note(struct folio_batch *fbatch, void *shadow)
{
	if (static_branch_unlikely(&gcma_lending) && !fbatch->nr)
		fbatch->folios[0] = shadow;
}

/**
 * gcma_noted() - may there be a copy of what a batch of folios does not have
 * @fbatch: the empty batch; a shadow that was noted earlier does no harm
 */
static inline bool gcma_noted(const struct folio_batch *fbatch)
{
	/* Cheaper than to go where a static key leads. */
	return unlikely(gcma_shadow_flagged(fbatch->folios[0]));
}

/**
 * gcma_found() - did filemap_get_pages() find that gcma_read() may serve
 * @fbatch: the batch that it returned, empty only then
 */
static inline bool gcma_found(const struct folio_batch *fbatch)
{
	return unlikely(!fbatch->nr);
}

/**
 * gcma_read() - serve a read of pages that are not resident from dmem
 * @iocb: the read, at its position; is advanced
 * @to: where to copy; is advanced
 * @fbatch: the empty batch of folios found there
 * @already_read: grows by the number of bytes copied
 *
 * Return: true if some bytes were copied.
 */
static inline bool gcma_read(struct kiocb *iocb, struct iov_iter *to,
			     struct folio_batch *fbatch, ssize_t *already_read)
{
	ssize_t copied = __gcma_read(iocb, to);

	fbatch->folios[0] = NULL;
	*already_read += copied;
	return copied;
}

/**
 * gcma_serves() - would gcma_read() be able to serve a page
 * @mapping: the page cache
 * @index: the page
 * @shadow: the shadow entry that the page cache has there
 *
 * Return: true if readahead may leave the page out.
 */
static inline bool gcma_serves(struct address_space *mapping, pgoff_t index,
			       void *shadow)
{
	return unlikely(gcma_shadow_flagged(shadow)) &&
	       __gcma_serves(mapping, index);
}

/**
 * gcma_split_shadow() - a shadow is about to be replaced, perhaps in part
 * @folio: the folio about to be inserted; the i_pages lock is held
 * @shadow: the entry
 * @order: how many pages the entry is for, as a power of two
 *
 * Return: the entry; if it is for more pages than the folio, it is no longer
 * flagged while pages are invalidated.
 */
static inline void *gcma_split_shadow(struct folio *folio, void *shadow,
				      int order)
{
	if (unlikely(gcma_shadow_flagged(shadow)) && order > folio_order(folio))
		return __gcma_split_shadow(folio, shadow);
	return shadow;
}

/**
 * gcma_filter_shadow() - drop the flag if a folio must not be filled
 * @folio: the folio about to be inserted; the i_pages lock is held
 * @shadow: the last of the entries about to be replaced
 *
 * That is while pages are invalidated, and unless there are copies of all its
 * pages.
 *
 * Return: @shadow, flagged only if the copies may be used.
 */
static inline void *gcma_filter_shadow(struct folio *folio, void *shadow)
{
	if (static_branch_unlikely(&gcma_lending) &&
	    gcma_shadow_flagged(shadow))
		return __gcma_filter_shadow(folio, shadow);
	return shadow;
}

/**
 * gcma_forget() - a page that is not resident changes on the backing device
 * @mapping: the page cache
 * @index: the page
 */
static inline void gcma_forget(struct address_space *mapping, pgoff_t index)
{
	if (static_branch_unlikely(&gcma_lending) &&
	    !IS_ENABLED(CONFIG_GCMA_BREAK_TRUNCATE))
		__gcma_forget(mapping, index);
}

/**
 * gcma_drop() - the shadow of a page is being removed
 * @mapping: the page cache or swap cache; its i_pages lock is held
 * @index: the page
 * @shadow: the entry that is removed
 *
 * The copy can no longer be found. Free its frame for others.
 */
static inline void gcma_drop(struct address_space *mapping, pgoff_t index,
			     void *shadow)
{
	if (static_branch_unlikely(&gcma_lending) &&
	    gcma_shadow_flagged(shadow))
		__gcma_drop(mapping, index);
}

/**
 * gcma_invalidate_begin() - no stores and loads while cached data is dropped
 * @mapping: the page cache
 *
 * Removal from the cache and clearing of shadows are separate steps. Until
 * gcma_invalidate_end() a folio evicted from @mapping leaves no copy and none
 * is loaded, so that no old content slips through between the two. Nothing is
 * of a mapping that allows no copies; a file system that begins to allow them
 * for a file keeps invalidations out meanwhile.
 *
 * Return: what gcma_invalidate_end() wants to know.
 */
static inline bool gcma_invalidate_begin(struct address_space *mapping)
{
	return static_branch_unlikely(&gcma_lending) &&
	       mapping_gcma(mapping) && __gcma_invalidate_begin(mapping);
}

/**
 * gcma_invalidate_end() - undo gcma_invalidate_begin()
 * @mapping: the page cache
 * @begun: what gcma_invalidate_begin() returned
 */
static inline void gcma_invalidate_end(struct address_space *mapping,
				       bool begun)
{
	if (begun)
		__gcma_invalidate_end(mapping);
}

/**
 * gcma_mapping_cached() - does an invalidation have anything to do
 * @mapping: the page cache
 *
 * Without resident pages there may still be shadows that stand for copies.
 */
static inline bool gcma_mapping_cached(struct address_space *mapping)
{
	return !mapping_empty(mapping);
}

/**
 * gcma_reset_shadow() - forget what an attempt that must be repeated found
 * @shadowp: where the replaced shadow is returned, or %NULL
 */
static inline void gcma_reset_shadow(void **shadowp)
{
	if (shadowp)
		*shadowp = NULL;
}

/**
 * gcma_drop_all() - discard every copy, as drop_caches asks for
 */
static inline void gcma_drop_all(void)
{
	if (static_branch_unlikely(&gcma_lending))
		__gcma_drop_all();
}

/**
 * gcma_shadows() - of how many pages more to keep the shadow entries
 * @memcg: a memory cgroup
 * @nodes: how many nodes it has that hold nothing else, not zero
 */
static inline unsigned long gcma_shadows(struct mem_cgroup *memcg,
					 unsigned long nodes)
{
	if (static_branch_unlikely(&gcma_lending))
		return __gcma_shadows(memcg, nodes);
	return 0;
}

bool gcma_activate(struct cma *cma);
struct page *gcma_alloc(struct cma *cma, unsigned long count,
			unsigned int align, gfp_t gfp);
bool gcma_release(struct cma *cma, unsigned long pfn, unsigned long count);
bool gcma_memory_failure(unsigned long pfn);
int gcma_declare(struct cma *cma, unsigned int clients);
void gcma_declare_fdt(struct cma *cma, unsigned long node);

#else /* !CONFIG_GCMA */

#define GCMA_SHADOW_BITS	0

static inline void mapping_set_gcma(struct address_space *mapping, bool allow)
{
}

static inline struct dmem_frame *gcma_stage(struct address_space *mapping,
					    struct folio *folio, bool reclaimed)
{
	return NULL;
}

static inline void *gcma_publish(struct dmem_frame *frame,
				 struct address_space *mapping,
				 struct folio *folio, void *shadow)
{
	return shadow;
}

static inline void gcma_abort(struct dmem_frame *frame)
{
}

static inline void gcma_load(struct address_space *mapping, pgoff_t index,
			     struct folio *folio, void *shadow)
{
}

static inline void gcma_load_file(struct folio *folio, void *shadow)
{
}

static inline void gcma_overwrite(struct folio *folio, void *shadow)
{
}

static inline bool gcma_loaded(struct folio *folio)
{
	return false;
}

static inline void gcma_batch_init(struct folio_batch *fbatch)
{
}

static inline void gcma_note(struct folio_batch *fbatch, void *shadow)
{
}

static inline bool gcma_noted(const struct folio_batch *fbatch)
{
	return false;
}

static inline bool gcma_found(const struct folio_batch *fbatch)
{
	return false;
}

static inline bool gcma_read(struct kiocb *iocb, struct iov_iter *to,
			     struct folio_batch *fbatch, ssize_t *already_read)
{
	return false;
}

static inline bool gcma_serves(struct address_space *mapping, pgoff_t index,
			       void *shadow)
{
	return false;
}

static inline void *gcma_split_shadow(struct folio *folio, void *shadow,
				      int order)
{
	return shadow;
}

static inline void *gcma_filter_shadow(struct folio *folio, void *shadow)
{
	return shadow;
}

static inline void gcma_forget(struct address_space *mapping, pgoff_t index)
{
}

static inline void gcma_drop(struct address_space *mapping, pgoff_t index,
			     void *shadow)
{
}

static inline bool gcma_invalidate_begin(struct address_space *mapping)
{
	return false;
}

static inline void gcma_invalidate_end(struct address_space *mapping,
				       bool begun)
{
}

static inline bool gcma_mapping_cached(struct address_space *mapping)
{
	return mapping->nrpages;
}

static inline void gcma_reset_shadow(void **shadowp)
{
}

static inline void gcma_drop_all(void)
{
}

static inline unsigned long gcma_shadows(struct mem_cgroup *memcg,
					 unsigned long nodes)
{
	return 0;
}

static inline bool gcma_activate(struct cma *cma)
{
	return false;
}

static inline struct page *gcma_alloc(struct cma *cma, unsigned long count,
				      unsigned int align, gfp_t gfp)
{
	return NULL;
}

static inline bool gcma_memory_failure(unsigned long pfn)
{
	return false;
}

static inline bool gcma_release(struct cma *cma, unsigned long pfn,
				unsigned long count)
{
	return false;
}

static inline int gcma_declare(struct cma *cma, unsigned int clients)
{
	return -EOPNOTSUPP;
}

static inline void gcma_declare_fdt(struct cma *cma, unsigned long node)
{
}

#endif /* CONFIG_GCMA */

#endif /* _LINUX_GCMA_H */
