// SPDX-License-Identifier: GPL-2.0
/*
 * The second-class clients of GCMA: what reclaim, the page cache and the swap
 * cache do with dmem. gcma.c explains why this is safe.
 */

#include <linux/blk-cgroup.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>
#include <linux/swap.h>
#include <linux/uio.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "gcma.h"

#include <trace/events/gcma.h>

/* The largest folio that is kept, in pages: all are published under one lock. */
#define GCMA_FOLIO_PAGES	(SZ_2M >> PAGE_SHIFT)
/* Pages of a read that are looked up together. */
#define GCMA_READ_PAGES		16UL
/* Shorter reads, and those to slow destinations, go through a buffer on the stack. */
#define GCMA_READ_BUFFER	512
#define GCMA_GUARD_BITS		6

/*
 * Invalidations under way, hashed by mapping. Two mappings that share a
 * counter lose a few copies, so this need not grow struct address_space.
 */
static struct {
	atomic_t count;
} ____cacheline_aligned_in_smp gcma_guard[1 << GCMA_GUARD_BITS];

static atomic_t *guard_of(struct address_space *mapping)
{
	return &gcma_guard[hash_ptr(mapping, GCMA_GUARD_BITS)].count;
}

/* The client whose cache the folio is in. */
static enum gcma_client client_of(struct folio *folio)
{
	return folio_test_swapcache(folio) ? GCMA_CLIENT_SWAP : GCMA_CLIENT_FILE;
}

static pgoff_t index_of(struct folio *folio, enum gcma_client client)
{
	return client == GCMA_CLIENT_SWAP ? swap_cache_index(folio->swap) :
					    folio->index;
}

/*
 * After a failed write a page is clean, but the device does not have its content. Some
 * file systems let it go before they say that the write failed: so this is asked when a
 * copy is made and when it is used. It stays so for as long as the inode is in memory.
 * And what fs-verity is to verify is verified when it is read from the device: a page
 * that was read before verity was enabled goes when it is evicted, a copy would not.
 */
static bool distrusted(struct address_space *mapping)
{
	return READ_ONCE(mapping->wb_err) || IS_VERITY(mapping->host);
}

/* May a copy of this clean folio of a client be kept? */
static bool admitted(struct address_space *mapping, struct folio *folio,
		     enum gcma_client client)
{
	if (!(READ_ONCE(gcma_clients) & GCMA_FILE << client))
		return false;
	/* Swap does not read all-zero pages from the device either. */
	if (client == GCMA_CLIENT_SWAP)
		return !swap_slot_zero(folio->swap);
	return test_bit(AS_GCMA, &mapping->flags) && !distrusted(mapping);
}

/**
 * gcma_workingset() - was a folio used more than once
 * @folio: the folio
 *
 * Return: what the lists of pages in use know, by which it is evicted.
 */
bool gcma_workingset(struct folio *folio)
{
#ifdef CONFIG_LRU_GEN
	/* Read more than once, or back again soon by a fault. */
	if (lru_gen_enabled())
		return lru_gen_workingset(folio);
#endif
	/* Found active, or back again soon after its eviction. */
	return folio_test_workingset(folio);
}

/* What dmem is to know of a client's folio. */
static unsigned int flags_of(struct address_space *mapping, struct folio *folio,
			     enum gcma_client client)
{
	unsigned int flags = gcma_workingset(folio) ? DMEM_WORKINGSET : 0;

	/* Decrypted content must not outlast the key. */
	if (client == GCMA_CLIENT_FILE && IS_ENCRYPTED(mapping->host))
		flags |= DMEM_SECRET;
	return flags;
}

/* Free the frames of copies that nobody is to find any more. */
static void drop(struct address_space *mapping, pgoff_t index, unsigned long nr)
{
	dmem_invalidate(&gcma_dmem, mapping, index, nr);
	gcma_wipe();
}

/**
 * gcma_store() - copy a folio that reclaim is about to remove
 * @mapping: where the folio is cached
 * @folio: the locked folio, clean and unmapped as far as known
 *
 * As long as the folio is in the cache, no shadow leads to the copies. A read that
 * saw an older shadow of the page may still find them, and rightly so: they are
 * what the file has now.
 *
 * Return: true if it was copied; the caller calls gcma_publish() before it
 * unlocks the folio.
 */
bool gcma_store(struct address_space *mapping, struct folio *folio)
{
	enum gcma_client client;
	unsigned long nr;

	if (!atomic_long_read(&gcma_idle))
		return false;
	client = client_of(folio);
	nr = folio_nr_pages(folio);
	/* A folio that somebody else holds will not be removed. */
	if (nr > GCMA_FOLIO_PAGES || folio_ref_count(folio) != 1 + nr ||
	    !folio_test_uptodate(folio) || folio_test_dirty(folio) ||
	    !admitted(mapping, folio, client))
		return false;
	if (dmem_store(&gcma_dmem, folio, mapping, index_of(folio, client), client,
		       flags_of(mapping, folio, client)))
		return true;
	/* Some pages of the folio may have been copied, or older copies dropped. */
	gcma_wipe();
	return false;
}

/**
 * __gcma_publish() - let the copies of a folio be found, or drop them
 * @mapping: where the folio is cached; with a @shadow the lock of its entries is
 *	held, that of i_pages or of the swap cache
 * @folio: the folio that gcma_store() has copied, frozen and found clean
 * @shadow: the entry that will take its place; %NULL to drop the copies
 *
 * Return: the entry to store, flagged if the copies are to be found. Some or all
 * may be gone already.
 */
void *__gcma_publish(struct address_space *mapping, struct folio *folio,
		     void *shadow)
{
	enum gcma_client client = client_of(folio);
	unsigned long nr = folio_nr_pages(folio);
	pgoff_t index = index_of(folio, client);

	/*
	 * Since the copies were made, the file may have ceased to allow any. This pairs
	 * with __gcma_invalidate_end() in __mapping_set_gcma().
	 */
	if (!shadow || (client == GCMA_CLIENT_FILE &&
			(atomic_read_acquire(guard_of(mapping)) ||
			 !test_bit(AS_GCMA, &mapping->flags)))) {
		drop(mapping, index, nr);
		return shadow;
	}
	if (client == GCMA_CLIENT_FILE)
		lockdep_assert_held(&mapping->i_pages.xa_lock);
	count_vm_events(GCMA_STORE_FILE + client, nr);
	trace_gcma_store(mapping, index, nr, true);
	return xa_mk_value(xa_to_value(shadow) | GCMA_SHADOW_BITS);
}

/*
 * How many pages from the first on have a flagged shadow? Of a page without one,
 * dmem may have an old copy.
 */
static unsigned long flagged_pages(struct address_space *mapping, pgoff_t first,
				   unsigned long nr)
{
	const bool large = mapping_large_folio_support(mapping);
	XA_STATE(xas, &mapping->i_pages, first);
	pgoff_t index = first, end = first + nr;
	unsigned int order;
	void *entry;

	/* Most reads are of one page; a walk costs twice as much. */
	if (nr == 1)
		return gcma_flagged(xa_load(&mapping->i_pages, first));
	rcu_read_lock();
	xas_for_each(&xas, entry, end - 1) {
		if (xas.xa_index != index || !gcma_flagged(entry))
			break;
		order = large ? xas_get_order(&xas) : 0;
		if (order) {
			/*
			 * Unless the lock is held, the order may be that of a larger
			 * folio that took its place. The entry changes before the
			 * siblings that the order is read from.
			 */
			smp_rmb();
			if (xas_reload(&xas) != entry)
				break;
			/* The first one may begin before the range. */
			index |= (1UL << order) - 1;
		}
		index++;
	}
	rcu_read_unlock();
	return min(index, end) - first;
}

/**
 * __gcma_shadow() - several shadows as one
 * @folio: a large folio that is about to take the place of shadows; its page cache's
 *	i_pages lock is held
 * @old: one of them
 *
 * Return: @old, flagged if all pages are; or, if only some are, the same as no value
 * entry, of which __gcma_fill() makes one again.
 */
void *__gcma_shadow(struct folio *folio, void *old)
{
	struct address_space *mapping = folio->mapping;
	XA_STATE(xas, &mapping->i_pages, folio->index);
	unsigned long nr = folio_nr_pages(folio);
	void *entry;

	lockdep_assert_held(&mapping->i_pages.xa_lock);
	if (flagged_pages(mapping, folio->index, nr) == nr)
		return old;
	xas_for_each(&xas, entry, folio_next_index(folio) - 1)
		if (gcma_flagged(entry))
			return (void *)(((unsigned long)old | 3) ^ 1);
	return old;
}

/**
 * gcma_load() - fill a folio from dmem
 * @mapping: the cache that the folio was just added to
 * @index: where in the cache
 * @folio: the folio, locked and not up to date
 *
 * Return: true if the folio is up to date now.
 */
bool gcma_load(struct address_space *mapping, pgoff_t index,
	       struct folio *folio)
{
	unsigned long i = 0, nr = folio_nr_pages(folio);
	enum gcma_client client = folio_test_swapbacked(folio) ? GCMA_CLIENT_SWAP :
								 GCMA_CLIENT_FILE;

#ifndef SWAP_TABLE_HAS_ZEROFLAG /* Linux 6.12, see compat.h */
	/*
	 * A folio in a cache has replaced its shadows, which were all flagged. A
	 * large one that is swapped in around the swap cache has replaced none.
	 */
	if (client == GCMA_CLIENT_SWAP && nr > 1 && !folio_test_swapcache(folio) &&
	    flagged_pages(mapping, index, nr) < nr)
		return false;
#endif
	/* All or nothing: with one page missing all are read from the device. */
	while (i < nr && dmem_load(&gcma_dmem, mapping, index + i,
				   folio_page(folio, i), client))
		i++;
	trace_gcma_load(mapping, index, nr, i == nr);
	if (i < nr) {
		/* Nothing leads to those behind it any more. */
		dmem_invalidate(&gcma_dmem, mapping, index + i + 1, nr - i - 1);
		count_vm_events(GCMA_MISS_FILE + client, nr);
	} else {
		flush_dcache_folio(folio);
		folio_mark_uptodate(folio);
		count_vm_events(GCMA_LOAD_FILE + client, nr);
	}
	gcma_wipe();
	return i == nr;
}

/**
 * gcma_invalidate() - free the frames of copies that can no longer be found
 * @mapping: the cache
 * @index: the first page of the shadow that is being removed, the i_pages lock held,
 *	or of the locked folio that has replaced it
 */
void gcma_invalidate(struct address_space *mapping, pgoff_t index)
{
	drop(mapping, index, 1UL << xa_get_order(&mapping->i_pages, index));
}

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3, see compat.h */
/**
 * __gcma_swap_shadow() - a large folio is going to take the place of shadows in slots
 * @ci: the cluster of the slots, locked
 * @entry: the first slot
 * @nr: how many
 * @shadow: one of the shadows
 *
 * Return: @shadow, without its flag if not all have one: a slot without may have an
 * older copy, which nobody is to find. Nothing will lead to those of the others.
 */
void *__gcma_swap_shadow(struct swap_cluster_info *ci, swp_entry_t entry,
			 unsigned long nr, void *shadow)
{
	unsigned int i, first = swp_cluster_offset(entry), flagged = 0;

	for (i = 0; i < nr; i++)
		flagged += gcma_flagged((void *)__swap_table_get(ci, first + i));
	if (!flagged || flagged == nr)
		return shadow;
	drop(swap_address_space(entry), entry.val, nr);
	return gcma_unflag(shadow);
}

/**
 * __gcma_slots_freed() - free the frames of copies of slots that are being freed
 * @ci: the cluster of the slots, locked
 * @entry: the first slot
 * @nr: how many
 */
void __gcma_slots_freed(struct swap_cluster_info *ci, swp_entry_t entry,
			unsigned long nr)
{
	unsigned int i, first = swp_cluster_offset(entry);

	for (i = 0; i < nr; i++)
		if (gcma_flagged((void *)__swap_table_get(ci, first + i)))
			drop(swap_address_space(entry), entry.val + i, 1);
}
#endif

/* Drop the copies of these pages, and of folios that are partly in the range. */
static void unflag_range(struct address_space *mapping, pgoff_t first,
			 pgoff_t last)
{
	XA_STATE(xas, &mapping->i_pages, first);
	unsigned long nr, seen = 0;
	pgoff_t next = first;
	void *entry;

	/* Writers of what was never cached do not wait for each other. */
	if (!xa_find(&mapping->i_pages, &next, last, XA_PRESENT))
		return;
	xas_lock_irq(&xas);
	xas_for_each(&xas, entry, last) {
		nr = 1;
		if (gcma_flagged(entry)) {
			nr = 1UL << xas_get_order(&xas);
			xas_store(&xas, gcma_unflag(entry));
			if (nr == 1)
				drop(mapping, xas.xa_index, 1);
		}
		/* Let interrupts in after so many entries, and for what is large. */
		if (++seen < 64 && nr == 1)
			continue;
		seen = 0;
		/* From the middle of an entry, xas_pause() would go too far. */
		next = round_down(xas.xa_index, nr) + nr;
		xas_set(&xas, next);
		xas_unlock_irq(&xas);
		/* Nobody finds these any more; a younger one may be lost. */
		if (nr > 1)
			drop(mapping, next - nr, nr);
		cond_resched();
		xas_lock_irq(&xas);
		if (next - 1 >= last)
			break;
	}
	xas_unlock_irq(&xas);
}

/* A page is wanted whose copy is gone: nobody need look for that again. */
static void miss(struct address_space *mapping, pgoff_t index)
{
	dmem_count_missed(&gcma_dmem, GCMA_CLIENT_FILE);
	count_vm_event(GCMA_MISS_FILE);
	unflag_range(mapping, index, index);
}

/**
 * __gcma_forget_node() - see to which copies a node of shadows leads
 * @mapping: the cache, its i_pages lock held
 * @node: a node of shadows alone, which is about to be reclaimed
 *
 * Return: what gcma_drop_node() wants.
 */
struct gcma_node __gcma_forget_node(struct address_space *mapping, struct xa_node *node)
{
	struct gcma_node gone = { .shift = node->shift };
	struct xarray *pages = &mapping->i_pages;
	struct xa_node *child = node, *parent;
	bool flagged = false;
	unsigned int i;

	lockdep_assert_held(&pages->xa_lock);
	for (; (parent = xa_parent_locked(pages, child)); child = parent)
		gone.first |= (unsigned long)child->offset << parent->shift;
	for (i = 0; i < XA_CHUNK_SIZE; i++) {
		void *entry = xa_entry_locked(pages, node, i);

		/* What a large folio has left may go on in the next slots. */
		if (!xa_is_sibling(entry))
			flagged = gcma_flagged(entry);
		gone.flagged |= (u64)flagged << i;
	}
	return gone;
}

/**
 * __gcma_drop_node() - free the frames of copies that a node led to
 * @mapping: the cache, which is not looked at
 * @gone: what gcma_forget_node() said of the node, which has been reclaimed
 *
 * Nobody finds these any more; a younger one may be lost. They may be thousands.
 *
 * Context: Process. May sleep.
 */
void __gcma_drop_node(struct address_space *mapping, struct gcma_node gone)
{
	for (; gone.flagged; gone.flagged &= gone.flagged - 1) {
		drop(mapping, gone.first + (__ffs64(gone.flagged) << gone.shift),
		     1UL << gone.shift);
		cond_resched();
	}
}

/**
 * __gcma_fill() - a folio has taken the place of shadows of a file
 * @mapping: the page cache
 * @folio: the folio, locked and not up to date
 * @gfp: how it was inserted; with __GFP_WRITE it will be overwritten
 * @shadow: what gcma_shadow() made of them, some or all of which were flagged; is a
 *	value entry afterwards
 *
 * What is not filled has no copies any more, as nothing would lead to them.
 *
 * Return: true if the folio is up to date now, and as if somebody else had read it
 * just before: on the LRU and not locked.
 */
bool __gcma_fill(struct address_space *mapping, struct folio *folio, gfp_t gfp,
		 void **shadow)
{
	const pgoff_t next = folio_next_index(folio);

	if (!gcma_flagged(*shadow)) {
		*shadow = (void *)((unsigned long)*shadow ^ 3);
		gcma_invalidate(mapping, folio->index);
		return false;
	}
	if ((gfp & __GFP_WRITE) || distrusted(mapping)) {
		gcma_invalidate(mapping, folio->index);
		return false;
	}
	if (gcma_load(mapping, folio->index, folio)) {
		workingset_refault(folio, *shadow);
		folio_add_lru(folio);
		folio_unlock(folio);
		return true;
	}
	/* Nothing is read ahead where splicing meets a flag: the next page shall have none. */
	if (flagged_pages(mapping, next, 1) && !dmem_has(&gcma_dmem, mapping, next))
		miss(mapping, next);
	return false;
}

/**
 * __gcma_invalidate_begin() - pages of a file are about to change on the device
 * @mapping: the page cache
 * @first: the first page, also if it changes only in part
 * @last: the last page, likewise
 *
 * Until gcma_invalidate_end(), pages that are evicted from @mapping leave no copy.
 * So none of these pages has one until then, whatever is read or evicted.
 */
void __gcma_invalidate_begin(struct address_space *mapping, pgoff_t first,
			     pgoff_t last)
{
	atomic_inc(guard_of(mapping));
	/*
	 * Evictions look at the counter under the i_pages lock. If unflag_range() sees an
	 * entry, it takes that lock: an eviction that saw zero has ended by then, and its
	 * flag is found. If it sees none, whoever evicts the page later has inserted it
	 * after that look, and sees the counter: this pairs with folio_ref_freeze().
	 */
	smp_mb__after_atomic();
	unflag_range(mapping, first, last);
}
EXPORT_SYMBOL_GPL(__gcma_invalidate_begin);

/**
 * __gcma_invalidate_end() - undo __gcma_invalidate_begin()
 * @mapping: the page cache
 */
void __gcma_invalidate_end(struct address_space *mapping)
{
	/* Pairs with the i_pages lock, and atomic_read_acquire() in __gcma_publish(). */
	smp_mb__before_atomic();
	atomic_dec(guard_of(mapping));
}
EXPORT_SYMBOL_GPL(__gcma_invalidate_end);

/**
 * __gcma_invalidate_all() - discard every copy
 */
void __gcma_invalidate_all(void)
{
	dmem_invalidate_all(&gcma_dmem);
	gcma_wipe();
}

/**
 * __mapping_set_gcma() - a file system allows copies of the pages of a file
 * @mapping: the page cache of the file
 * @allow: false if it does no longer
 *
 * With that the file system promises:
 *
 * - Pages enter the cache through filemap_add_folio(), which returns -EEXIST if it
 *   has filled the folio. They are no pages of AS_KERNEL_FILE.
 * - The content on the device changes only in one of these ways: while the page is
 *   in the cache; within truncate_inode_pages_range() or
 *   invalidate_inode_pages2_range(); before these, with mapping->invalidate_lock
 *   held; or before an invalidation that follows.
 * - If it keeps readers out by other means, and then looks for resident pages, it
 *   looks and invalidates between gcma_invalidate_begin() and _end().
 */
void __mapping_set_gcma(struct address_space *mapping, bool allow)
{
	/* The entries of DAX are no shadows; swap changes blocks, and no pages. */
	if (allow && !IS_DAX(mapping->host) && !IS_SWAPFILE(mapping->host)) {
		set_bit(AS_GCMA, &mapping->flags);
	} else if (test_bit(AS_GCMA, &mapping->flags)) {
		/* Until no flag is left, whoever changes the file has to look for them. */
		__gcma_invalidate_begin(mapping, 0, ULONG_MAX);
		/* Pairs with a write that ends, and is seen: no flags, then no need to look. */
		smp_mb__before_atomic();
		clear_bit(AS_GCMA, &mapping->flags);
		__gcma_invalidate_end(mapping);
	}
}
EXPORT_SYMBOL_GPL(__mapping_set_gcma);

/*
 * The owner of a frame waits while somebody copies out of it. So such a copy goes
 * only where writing is quick: to one piece of ordinary user memory. Returns that
 * piece, whose mapping does not change until vma_end_read(), or %NULL.
 */
static void __user *quick_dest(const struct iov_iter *to, size_t len,
			       struct vm_area_struct **vma)
{
	unsigned long addr;

	if (len <= GCMA_READ_BUFFER || !iter_is_ubuf(to))
		return NULL;
	/* The copy keeps the tag of the address, the lookup wants none. */
	addr = untagged_addr((unsigned long)to->ubuf + to->iov_offset);
	if (!access_ok(to->ubuf + to->iov_offset, len))
		return NULL;
	*vma = lock_vma_under_rcu(current->mm, addr);
	if (!*vma)
		return NULL;
	if (!((*vma)->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP)) && !vma_is_dax(*vma) &&
	    len <= (*vma)->vm_end - addr)
		return to->ubuf + to->iov_offset;
	vma_end_read(*vma);
	return NULL;
}

/* Copy to any destination, which nobody waits for. Returns how many bytes, or -EFAULT. */
static ssize_t read_buffered(struct address_space *mapping, loff_t pos,
			     size_t len, struct iov_iter *to, bool near)
{
	char buffer[GCMA_READ_BUFFER];
	size_t found, copied, done = 0;

	do {
		found = dmem_read(&gcma_dmem, mapping, pos + done,
				  min(len - done, sizeof(buffer)), buffer, NULL,
				  GCMA_CLIENT_FILE, near);
		copied = copy_to_iter(buffer, found, to);
		done += copied;
	} while (copied == sizeof(buffer) && done < len);
	return done || !found ? done : -EFAULT;
}

/* May readahead leave out what gcma_read() finds? Mappings want it in the cache. */
static bool reads_in_place(struct address_space *mapping)
{
	return test_bit(AS_GCMA, &mapping->flags) && !mapping_mapped(mapping) &&
	       !mapping_min_folio_order(mapping);
}

/*
 * What page_cache_async_ra() does at a marked folio. A page that is read where it is
 * has no mark. If readahead did not go on meanwhile, the first page behind that no
 * memory has would be waited for.
 */
static void read_ahead(struct kiocb *iocb)
{
	struct file *file = iocb->ki_filp;
	struct file_ra_state *ra = &file->f_ra;
	pgoff_t last = (iocb->ki_pos - 1) >> PAGE_SHIFT, next = ra->start + ra->size;
	/* The part just read may be longer than a window. */
	pgoff_t end = max(next, last + 1);
	DEFINE_READAHEAD(ractl, file, ra, file->f_mapping, end);
	/* Other readers of the file change it meanwhile. */
	unsigned int size = READ_ONCE(ra->size);

	if (!size || !ra->ra_pages || last > next + GCMA_READ_PAGES ||
	    last + ra->async_size < next ||
	    (loff_t)end << PAGE_SHIFT >= i_size_read(file->f_mapping->host) ||
	    (iocb->ki_flags & IOCB_NOIO) || (file->f_mode & FMODE_RANDOM) ||
	    !reads_in_place(file->f_mapping) || blk_cgroup_congested())
		return;
	size = max(size, min(2 * size, ra->ra_pages));
	/* Up to where pieces end; a short window would wait for the device again. */
	if (size >= 2 * BIT(DMEM_PIECE_ORDER))
		size -= (end + size) % BIT(DMEM_PIECE_ORDER);
	ra->start = end;
	ra->size = size;
	ra->async_size = size;
	read_next(&ractl, iocb);
}

/**
 * gcma_read() - serve read() from copies that stay where they are
 * @iocb: the read, at a page with a flagged shadow; is advanced
 * @to: where to copy; is advanced
 *
 * Moving a page into the page cache would cost two copies more: one into a new
 * page, and one back when that is evicted.
 *
 * What is copied is what the file had when its entry was looked at, after the
 * read began: by invariant 1 the copy found after that is the one that the
 * entry stands for, or a younger one. The size of the file is read earlier, so
 * that all below it was written.
 *
 * Context: Process. May sleep, to make pages of @to resident and to start the next
 * window of readahead.
 * Return: number of bytes copied, or -EFAULT if nothing can be copied there. If it is
 * 0, and the file does not end there, the shadow has no flag any more, and the page is
 * to be read into the page cache.
 */
int gcma_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct address_space *mapping = iocb->ki_filp->f_mapping;
	struct file_ra_state *ra = &iocb->ki_filp->f_ra;
	pgoff_t index = iocb->ki_pos >> PAGE_SHIFT;
	size_t from = offset_in_page(iocb->ki_pos), len, pages;
	loff_t left = i_size_read(mapping->host) - iocb->ki_pos;
	struct vm_area_struct *vma;
	void __user *quick;
	ssize_t copied = 0;
	bool near;

	/* The size before the entries. */
	smp_rmb();
	len = clamp_t(loff_t, left, 0, iov_iter_count(to));
	pages = min(DIV_ROUND_UP(from + len, PAGE_SIZE), GCMA_READ_PAGES);
	if (len)
		pages = flagged_pages(mapping, index, pages);
	if (!len || !pages)
		return 0;
	if (distrusted(mapping)) {
		unflag_range(mapping, index, index);
		return 0;
	}
	len = min(len, (pages << PAGE_SHIFT) - from);
	/* The entries before what dmem has for them. */
	smp_rmb();
	/*
	 * What is read in sequence costs little to read from the device, with readahead.
	 * Were it near, a fast stream would keep out what others read here and there.
	 * What is served of one read after the other moves the mark on.
	 */
	near = pages < GCMA_READ_PAGES &&
	       index - (pgoff_t)(ra->prev_pos >> PAGE_SHIFT) > 1;
	quick = quick_dest(to, len, &vma);
	if (quick) {
		copied = dmem_read(&gcma_dmem, mapping, iocb->ki_pos, len, NULL,
				   quick, GCMA_CLIENT_FILE, near);
		vma_end_read(vma);
		if (copied > 0)
			iov_iter_advance(to, copied);
	}
	/* A part of @to may not be resident yet. */
	if (!quick || copied < 0)
		copied = read_buffered(mapping, iocb->ki_pos, len, to, near);
	if (copied < 0)
		return copied;
	if (!copied) {
		miss(mapping, index);
		return 0;
	}
	pages = DIV_ROUND_UP(from + copied, PAGE_SIZE);
	trace_gcma_read(mapping, index, pages, quick);
	iocb->ki_pos += copied;
	count_vm_events(GCMA_READ_FILE, pages);
	if (!near) {
		/* The rest may have to be read; no page tells page_cache_sync_ra() of these. */
		ra->prev_pos = iocb->ki_pos;
		read_ahead(iocb);
	}
	return copied;
}

/**
 * gcma_serves() - would gcma_read() find some pages
 * @mapping: the page cache
 * @index: the first one
 * @nr: how many, no more than a piece, see __gcma_ra_order()
 *
 * Return: true if readahead may leave them out. Some of them may be gone all the same.
 */
bool gcma_serves(struct address_space *mapping, pgoff_t index, unsigned long nr)
{
	/* dmem mostly keeps or loses a piece as a whole, so its first page stands for all. */
	return reads_in_place(mapping) && flagged_pages(mapping, index, nr) == nr &&
	       dmem_has(&gcma_dmem, mapping, index);
}

/**
 * __gcma_ra_order() - how large a folio of readahead may be
 * @mapping: the page cache
 * @index: its first page
 * @order: how large it would be
 *
 * Where a part of a folio is kept, all of it is read and inserted, and what was kept
 * is dropped. dmem mostly keeps pieces or loses them as a whole.
 *
 * Return: that of a piece if a part is kept, else @order.
 */
unsigned int __gcma_ra_order(struct address_space *mapping, pgoff_t index,
			     unsigned int order)
{
	pgoff_t end = index + BIT(order);

	if (order > DMEM_PIECE_ORDER && reads_in_place(mapping))
		for (; index < end; index += BIT(DMEM_PIECE_ORDER))
			if (gcma_flagged(xa_load(&mapping->i_pages, index)) &&
			    dmem_has(&gcma_dmem, mapping, index))
				return DMEM_PIECE_ORDER;
	return order;
}

#ifdef CONFIG_MEMCG
/**
 * gcma_shadow_pages() - for how many more pages to keep shadow entries
 * @memcg: the cgroup that the nodes of the entries are charged to
 * @nodes: how many it has
 *
 * Return: the number of idle frames times the cgroup's share of all nodes, but no
 * more than the room, free or in file pages, of the cgroup and all above it.
 */
unsigned long gcma_shadow_pages(struct mem_cgroup *memcg, unsigned long nodes)
{
	unsigned long all = global_node_page_state(WORKINGSET_NODES), room;
	/* Of very large areas not all can be lent. */
	u64 idle = min_t(u64, atomic_long_read(&gcma_idle),
			 (u64)gcma_dmem.nr_sets * DMEM_WAYS);
	/* Counts that are still with the CPUs may be missing from @all. */
	unsigned long pages = div64_ul(idle * nodes, max(all, nodes));

	for (; !mem_cgroup_is_root(memcg); memcg = parent_mem_cgroup(memcg)) {
		room = min(READ_ONCE(memcg->memory.max),
			   READ_ONCE(memcg->memory.high));
		room -= min(room, page_counter_read(&memcg->memory));
		pages = min(pages, room +
			    memcg_page_state(memcg, NR_ACTIVE_FILE) +
			    memcg_page_state(memcg, NR_INACTIVE_FILE));
	}
	return pages;
}
#endif
