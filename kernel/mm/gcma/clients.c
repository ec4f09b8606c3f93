// SPDX-License-Identifier: GPL-2.0
/*
 * The second-class clients of GCMA: what reclaim, the page cache and the swap
 * cache do with dmem. gcma.c explains why this is safe.
 */

#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/uio.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "../swap.h"
#include "gcma.h"

#include <trace/events/gcma.h>

#define GCMA_GUARD_BITS	8

/*
 * Invalidations under way, hashed by mapping. Two mappings that share a
 * counter lose a few copies, so this need not grow struct address_space.
 */
static atomic_t gcma_guard[1 << GCMA_GUARD_BITS];

static atomic_t *guard_of(struct address_space *mapping)
{
	return &gcma_guard[hash_ptr(mapping, GCMA_GUARD_BITS)];
}

static enum gcma_client client_of(const struct folio *folio)
{
	return folio_test_swapbacked(folio) ? GCMA_CLIENT_SWAP : GCMA_CLIENT_FILE;
}

/* May copies of the pages of this file be kept? */
static bool mapping_admitted(struct address_space *mapping)
{
	struct inode *inode = mapping->host;

	/*
	 * Decrypted content must not outlive the key. DAX and swap files do
	 * not change through the page cache.
	 */
	return mapping_gcma(mapping) && !mapping_exiting(mapping) &&
	       !IS_ENCRYPTED(inode) && !IS_DAX(inode) && !IS_SWAPFILE(inode);
}

/* All-zero pages are not read from the device either. */
static bool swap_zero(struct folio *folio)
{
	return test_bit(swp_offset(folio->swap),
			swp_swap_info(folio->swap)->zeromap);
}

/**
 * __gcma_stage() - copy a page that reclaim is about to remove
 * @mapping: where the page is cached
 * @folio: the locked folio
 *
 * Called before the i_pages lock is taken, so that nothing is copied under it.
 *
 * Return: see gcma_stage().
 */
struct dmem_frame *__gcma_stage(struct address_space *mapping,
				struct folio *folio)
{
	enum gcma_client client;
	pgoff_t index;

	if (folio_test_large(folio) || !folio_test_uptodate(folio) ||
	    folio_test_dirty(folio))
		return NULL;
	/* Somebody holds it: it will not be removed. */
	if (folio_ref_count(folio) != 2)
		return NULL;
	/* Reclaim found it active, or back again soon after its eviction. */
	if (READ_ONCE(gcma_admit) == GCMA_ADMIT_WORKINGSET &&
	    !folio_test_workingset(folio))
		return NULL;

	if (folio_test_swapcache(folio)) {
		client = GCMA_CLIENT_SWAP;
		index = swap_cache_index(folio->swap);
		if (!(READ_ONCE(gcma_clients) & GCMA_SWAP) || swap_zero(folio))
			return NULL;
	} else {
		client = GCMA_CLIENT_FILE;
		index = folio->index;
		if (!(READ_ONCE(gcma_clients) & GCMA_FILE) ||
		    !mapping_admitted(mapping))
			return NULL;
	}
	return dmem_stage(&gcma_dmem, folio_page(folio, 0), mapping, index,
			  client);
}

/**
 * __gcma_publish() - make a staged copy reachable
 * @frame: what __gcma_stage() returned
 * @mapping: where the page is cached; its i_pages lock is held
 * @folio: the folio, frozen and found clean
 * @shadow: the shadow entry that will take the folio's place, or %NULL
 *
 * Return: see gcma_publish().
 */
void *__gcma_publish(struct dmem_frame *frame, struct address_space *mapping,
		     struct folio *folio, void *shadow)
{
	enum gcma_client client = client_of(folio);
	bool swap = folio_test_swapcache(folio);
	pgoff_t index = swap ? swap_cache_index(folio->swap) : folio->index;

	if (!shadow || atomic_read(guard_of(mapping))) {
		dmem_abort(&gcma_dmem, frame);
		return shadow;
	}
	if (!dmem_publish(&gcma_dmem, frame, mapping, index))
		return shadow;
	count_vm_event(GCMA_STORE_FILE + client);
	trace_gcma_store(mapping, index, swap);
	return xa_mk_value(xa_to_value(shadow) | GCMA_SHADOW_FLAG);
}

/**
 * __gcma_abort() - forget a staged copy
 * @frame: what __gcma_stage() returned
 */
void __gcma_abort(struct dmem_frame *frame)
{
	dmem_abort(&gcma_dmem, frame);
}

/**
 * __gcma_load() - fill a folio from dmem
 * @mapping: the cache that the folio was just added to
 * @index: where in the cache
 * @folio: the folio, locked and not up to date
 *
 * Return: true if the folio is up to date now.
 */
bool __gcma_load(struct address_space *mapping, pgoff_t index,
		 struct folio *folio)
{
	enum gcma_client client = client_of(folio);
	bool hit;

	/* The flag is never set for large folios, nor is one filled partly. */
	if (folio_test_large(folio))
		return false;
	if (client == GCMA_CLIENT_FILE && !mapping_gcma(mapping))
		return false;

	hit = dmem_load(&gcma_dmem, mapping, index, folio_page(folio, 0), client);
	if (hit) {
		flush_dcache_folio(folio);
		folio_mark_uptodate(folio);
		count_vm_event(GCMA_LOAD_FILE + client);
	} else {
		count_vm_event(GCMA_MISS_FILE + client);
	}
	trace_gcma_load(mapping, index, client == GCMA_CLIENT_SWAP, hit);
	return hit;
}

/**
 * __gcma_read() - serve read() from a copy that stays where it is
 * @iocb: the read, at a position that is not in the page cache
 * @to: where to copy; is advanced
 * @shadow: the flagged entry found there
 *
 * Moving the page into the page cache would cost two copies more: one into a
 * new page, and one back when that is evicted. A page that somebody maps or
 * writes to is inserted and so moves; one that is only read gains nothing.
 *
 * What is copied is the content at the time of the last look at the entry:
 * the copy is the one that the entry stands for if both are unchanged then.
 * The size of the file was read earlier, so that all below it was written.
 *
 * Context: Process. May sleep to make pages of @to resident.
 * Return: see gcma_read().
 */
bool __gcma_read(struct kiocb *iocb, struct iov_iter *to, void *shadow)
{
	struct address_space *mapping = iocb->ki_filp->f_mapping;
	pgoff_t index = iocb->ki_pos >> PAGE_SHIFT;
	size_t from = offset_in_page(iocb->ki_pos);
	loff_t left = i_size_read(mapping->host) - iocb->ki_pos;
	bool again = true;
	ssize_t copied;
	size_t len;

	if (left <= 0 || !mapping_gcma(mapping) ||
	    atomic_read(guard_of(mapping)))
		return false;
	len = min_t(size_t, PAGE_SIZE - from, iov_iter_count(to));
	len = min_t(loff_t, len, left);
	/* The size before the content. */
	smp_rmb();
retry:
	copied = dmem_read(&gcma_dmem, mapping, index, from, len, to,
			   GCMA_CLIENT_FILE);
	if (!copied && again && !fault_in_iov_iter_writeable(to, len)) {
		again = false;
		goto retry;
	}
	if (copied <= 0)
		return false;
	/* Pairs with the i_pages lock: the content before the entry. */
	smp_rmb();
	if (xa_load(&mapping->i_pages, index) != shadow) {
		iov_iter_revert(to, copied);
		return false;
	}
	iocb->ki_pos += copied;
	count_vm_event(GCMA_READ_FILE);
	trace_gcma_read(mapping, index, copied);
	return true;
}

/**
 * __gcma_serves() - would read() find a page in dmem
 * @mapping: the page cache, in which the page is not
 * @index: the page
 *
 * Return: see gcma_serves().
 */
bool __gcma_serves(struct address_space *mapping, pgoff_t index)
{
	return mapping_gcma(mapping) && !mapping_mapped(mapping) &&
	       !mapping_min_folio_order(mapping) &&
	       dmem_has(&gcma_dmem, mapping, index, GCMA_CLIENT_FILE);
}

static void *strip_flag(void *shadow)
{
	return xa_mk_value(xa_to_value(shadow) & ~GCMA_SHADOW_FLAG);
}

/**
 * __gcma_filter_shadow() - drop the flag while the range is being invalidated
 * @mapping: the page cache; its i_pages lock is held
 * @shadow: a flagged entry about to be replaced
 *
 * Return: see gcma_filter_shadow().
 */
void *__gcma_filter_shadow(struct address_space *mapping, void *shadow)
{
	return atomic_read(guard_of(mapping)) ? strip_flag(shadow) : shadow;
}

/**
 * __gcma_forget() - make the copy of a page unreachable
 * @mapping: the page cache
 * @index: the page; nothing happens if it is resident
 */
void __gcma_forget(struct address_space *mapping, pgoff_t index)
{
	XA_STATE(xas, &mapping->i_pages, index);
	void *entry;

	/* The value entries of shmem and DAX are no shadows. */
	if (!mapping_gcma(mapping))
		return;
	xas_lock_irq(&xas);
	entry = xas_load(&xas);
	if (xa_is_value(entry) && gcma_shadow_flagged(entry)) {
		xas_store(&xas, strip_flag(entry));
		dmem_drop(&gcma_dmem, mapping, index);
	}
	xas_unlock_irq(&xas);
}

/**
 * __gcma_drop() - free the frame of a copy that can no longer be found
 * @mapping: the cache; its i_pages lock is held
 * @index: the page
 */
void __gcma_drop(struct address_space *mapping, pgoff_t index)
{
	if (static_branch_likely(&gcma_lending))
		dmem_drop(&gcma_dmem, mapping, index);
}

/**
 * __gcma_invalidate_begin() - no stores and loads until the end
 * @mapping: the page cache
 *
 * Return: true
 */
bool __gcma_invalidate_begin(struct address_space *mapping)
{
	atomic_inc(guard_of(mapping));
	/*
	 * Insertions and evictions look at the counter under this lock. Those
	 * that saw it as zero are finished now, and what they left behind
	 * will be found.
	 */
	xa_lock_irq(&mapping->i_pages);
	xa_unlock_irq(&mapping->i_pages);
	return true;
}

/**
 * __gcma_invalidate_end() - undo __gcma_invalidate_begin()
 * @mapping: the page cache
 */
void __gcma_invalidate_end(struct address_space *mapping)
{
	/* Pairs with the i_pages lock: what was cleared before stays cleared. */
	smp_mb__before_atomic();
	atomic_dec(guard_of(mapping));
}

/**
 * __gcma_drop_all() - discard every copy
 */
void __gcma_drop_all(void)
{
	dmem_drop_all(&gcma_dmem);
}
