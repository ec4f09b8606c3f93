// SPDX-License-Identifier: GPL-2.0
/*
 * The second-class clients of GCMA: what reclaim, the page cache and the swap
 * cache do with dmem. gcma.c explains why this is safe.
 */

#include <linux/dax.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/lockdep.h>
#include <linux/math64.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <linux/sizes.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/uio.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "../swap.h"
#include "gcma.h"

#include <trace/events/gcma.h>

#define GCMA_GUARD_BITS	6

/*
 * Pages of the largest folio that is kept, of 2 MiB. They are made reachable in
 * one go, with interrupts off.
 */
#define GCMA_FOLIO_PAGES	(SZ_2M >> PAGE_SHIFT)

/* Pages of a read that are looked up together. */
#define GCMA_READ_PAGES		16
/*
 * Bytes on the stack through which a read goes that may not write to its
 * destination while the owner of a frame waits. Fewer bytes always do: to look
 * at the destination would take longer than to copy them twice.
 */
#define GCMA_READ_BUFFER	512

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

static enum gcma_client client_of(struct folio *folio)
{
	return folio_test_swapbacked(folio) ? GCMA_CLIENT_SWAP : GCMA_CLIENT_FILE;
}

/* May copies of the pages of this file be kept? */
static bool mapping_admitted(struct address_space *mapping)
{
	struct inode *inode = mapping->host;

	/*
	 * Decrypted content must not outlive the key. DAX and swap files do
	 * not change through the page cache. A page that could not be written
	 * is clean all the same, and is not what the device has.
	 */
	return mapping_gcma(mapping) && !mapping_exiting(mapping) &&
	       !READ_ONCE(mapping->wb_err) && !IS_ENCRYPTED(inode) &&
	       !IS_DAX(inode) && !IS_SWAPFILE(inode);
}

/*
 * All-zero pages are not read from the device either. Of a folio that is all of
 * them or none.
 */
static bool swap_zero(struct folio *folio)
{
	bool zero = false;

	swap_zeromap_batch(folio->swap, 1, &zero);
	return zero;
}

/* Was a folio that reclaim has isolated in use more than once? */
static bool folio_workingset(struct folio *folio)
{
#ifdef CONFIG_LRU_GEN
	/* Read more than once, or back again soon by a fault. */
	if (lru_gen_enabled())
		return folio_lru_refs(folio);
#endif
	/* Found active, or back again soon after its eviction. */
	return folio_test_workingset(folio);
}

/* Give up pages that were staged together. */
static void abort_all(struct dmem_frame *frame)
{
	while (frame) {
		struct dmem_frame *next = frame->next;

		dmem_abort(&gcma_dmem, frame);
		frame = next;
	}
	gcma_wipe();
}

/* Apart, so that __gcma_stage() has nothing to set up where it does nothing. */
static noinline struct dmem_frame *stage_folio(struct address_space *mapping,
					       struct folio *folio)
{
	struct dmem_frame *staged = NULL, *frame;
	unsigned long i = folio_nr_pages(folio);
	enum gcma_client client;
	pgoff_t index;

	if (i > GCMA_FOLIO_PAGES || !folio_test_uptodate(folio) ||
	    folio_test_dirty(folio))
		return NULL;
	/* Somebody holds it: it will not be removed. */
	if (folio_ref_count(folio) != 1 + i)
		return NULL;
	if (READ_ONCE(gcma_admit) == GCMA_ADMIT_WORKINGSET &&
	    !folio_workingset(folio))
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
	/* From the last to the first, all of them or none. */
	while (i--) {
		frame = dmem_stage(&gcma_dmem, folio_page(folio, i), mapping,
				   index, client);
		if (!frame) {
			abort_all(staged);
			return NULL;
		}
		/* hold_quickly() may be on its way through a chain of old. */
		WRITE_ONCE(frame->next, staged);
		staged = frame;
	}
	return staged;
}

/**
 * __gcma_stage() - copy the pages of a folio that reclaim is about to remove
 * @mapping: where the folio is cached
 * @folio: the locked folio
 *
 * Called before the i_pages lock is taken, so that nothing is copied under it.
 *
 * Return: see gcma_stage().
 */
struct dmem_frame *__gcma_stage(struct address_space *mapping,
				struct folio *folio)
{
	return dmem_full(&gcma_dmem) ? NULL : stage_folio(mapping, folio);
}

/**
 * __gcma_publish() - make the staged copies of a folio reachable
 * @frame: what __gcma_stage() returned
 * @mapping: where the folio is cached; its i_pages lock is held
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
	unsigned long i, nr = folio_nr_pages(folio), stored = 0;

	lockdep_assert_held(&mapping->i_pages.xa_lock);
	if (!shadow || atomic_read(guard_of(mapping))) {
		abort_all(frame);
		return shadow;
	}
	/* The index takes the pointer to the next one. */
	for (i = 0; i < nr; i++) {
		struct dmem_frame *next = frame->next;

		stored += dmem_publish(&gcma_dmem, frame, mapping, index + i);
		frame = next;
	}
	/* Pages whose frames were taken back meanwhile are not found later. */
	if (!stored)
		return shadow;
	count_vm_events(GCMA_STORE_FILE + client, stored);
	trace_gcma_store(mapping, index, nr, swap);
	return xa_mk_value(xa_to_value(shadow) | GCMA_SHADOW_FLAG);
}

/**
 * __gcma_abort() - forget the staged copies of a folio
 * @frame: what __gcma_stage() returned
 */
void __gcma_abort(struct dmem_frame *frame)
{
	abort_all(frame);
}

/* Free the frames of pages, wherever their shadows went. */
static void drop_range(struct address_space *mapping, pgoff_t index,
		       unsigned long nr)
{
	while (nr--)
		dmem_drop(&gcma_dmem, mapping, index++);
	gcma_wipe();
}

/*
 * Of how many pages of a range are there copies, up to the first without? A
 * copy may be in dmem that belongs to no shadow, an old one: only flagged
 * shadows tell.
 */
static unsigned long flagged_pages(struct address_space *mapping, pgoff_t first,
				   unsigned long nr)
{
	const bool large = mapping_large_folio_support(mapping);
	XA_STATE(xas, &mapping->i_pages, first);
	pgoff_t index = first, end = first + nr;
	void *entry;

	/* As most reads are; a walk costs twice as much to begin. */
	if (nr == 1) {
		entry = xa_load(&mapping->i_pages, first);
		return xa_is_value(entry) && gcma_shadow_flagged(entry);
	}
	rcu_read_lock();
	xas_for_each(&xas, entry, end - 1) {
		if (xas.xa_index != index || !xa_is_value(entry) ||
		    !gcma_shadow_flagged(entry))
			break;
		/* The first one may begin before the range. */
		if (large)
			index |= (1UL << xas_get_order(&xas)) - 1;
		index++;
	}
	rcu_read_unlock();
	return min(index, end) - first;
}

static bool range_flagged(struct address_space *mapping, pgoff_t index,
			  unsigned long nr)
{
	return flagged_pages(mapping, index, nr) == nr;
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
	unsigned long i = 0, nr = folio_nr_pages(folio);
	enum gcma_client client = client_of(folio);
	bool swap = client == GCMA_CLIENT_SWAP;
	bool hit;

	if (!swap && !mapping_gcma(mapping))
		return false;
	/*
	 * In the page cache the folio has taken the place of the shadows, and
	 * gcma_filter_shadow() looked at them. A large folio that is swapped in
	 * goes around the swap cache; they are there.
	 */
	if (swap && nr > 1 && !range_flagged(mapping, index, nr))
		return false;

	/* Filled partly it would have to be read all the same. */
	while (i < nr && dmem_load(&gcma_dmem, mapping, index + i,
				   folio_page(folio, i), client))
		i++;
	hit = i == nr;
	if (hit) {
		flush_dcache_folio(folio);
		folio_mark_uptodate(folio);
		count_vm_events(GCMA_LOAD_FILE + client, nr);
		gcma_wipe();
	} else {
		drop_range(mapping, index + i, nr - i);
		count_vm_events(GCMA_MISS_FILE + client, nr);
	}
	trace_gcma_load(mapping, index, nr, swap, hit);
	return hit;
}

/*
 * The owner of a frame waits for what is copied out of it, so it must be quick
 * to write to the destination of such a copy: one piece of ordinary user
 * memory. Returns that piece, whose mapping stays as it is until
 * vma_end_read(), or %NULL.
 */
static void __user *quick_dest(const struct iov_iter *to, size_t len,
			       struct vm_area_struct **vma)
{
	unsigned long addr;

	if (len <= GCMA_READ_BUFFER || !iter_is_ubuf(to))
		return NULL;
	addr = (unsigned long)to->ubuf + to->iov_offset;
	if (!access_ok((void __user *)addr, len))
		return NULL;
	*vma = lock_vma_under_rcu(current->mm, addr);
	if (!*vma)
		return NULL;
	if (!((*vma)->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP)) &&
	    len <= (*vma)->vm_end - addr)
		return (void __user *)addr;
	vma_end_read(*vma);
	return NULL;
}

/* Copy to wherever it may be. Returns how much was copied. */
static ssize_t read_buffered(struct address_space *mapping, loff_t pos,
			     size_t len, struct iov_iter *to)
{
	char buffer[GCMA_READ_BUFFER];
	ssize_t found, copied;
	size_t done = 0;

	do {
		found = dmem_read(&gcma_dmem, mapping, pos + done,
				  min(len - done, sizeof(buffer)), buffer, NULL,
				  GCMA_CLIENT_FILE);
		copied = copy_to_iter(buffer, found, to);
		done += copied;
	} while (copied == sizeof(buffer) && done < len);
	return done;
}

/**
 * __gcma_read() - serve read() from copies that stay where they are
 * @iocb: the read, at a position that is not in the page cache; is advanced
 * @to: where to copy; is advanced
 *
 * Moving a page into the page cache would cost two copies more: one into a
 * new page, and one back when that is evicted. A page that somebody maps or
 * writes to is inserted and so moves; one that is only read gains nothing.
 *
 * What is copied is what the file had when its entry was looked at, after the
 * read began. By invariant 1 the copy that is then found in dmem is the one that
 * the entry stands for, or a younger one, and as long as it is held its frame
 * is not filled with anything else. The size of the file was read earlier, so
 * that all below it was written.
 *
 * Context: Process. May sleep to make pages of @to resident.
 * Return: number of bytes copied.
 */
ssize_t __gcma_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct address_space *mapping = iocb->ki_filp->f_mapping;
	pgoff_t index = iocb->ki_pos >> PAGE_SHIFT;
	size_t from = offset_in_page(iocb->ki_pos), len, all;
	loff_t left = i_size_read(mapping->host) - iocb->ki_pos;
	struct vm_area_struct *vma;
	void __user *quick;
	bool again = true;
	ssize_t copied;

	if (left <= 0 || !mapping_gcma(mapping) ||
	    atomic_read(guard_of(mapping)))
		return 0;
	all = min_t(loff_t, iov_iter_count(to), left);
	/* The size before the entries. */
	smp_rmb();
retry:
	len = flagged_pages(mapping, index,
			    min_t(size_t, DIV_ROUND_UP(from + all, PAGE_SIZE),
				  GCMA_READ_PAGES)) << PAGE_SHIFT;
	if (!len)
		return 0;
	/* The entries before what dmem has for them. */
	smp_rmb();
	len = min(all, len - from);
	quick = quick_dest(to, len, &vma);
	if (quick) {
		copied = dmem_read(&gcma_dmem, mapping, iocb->ki_pos, len, NULL,
				   quick, GCMA_CLIENT_FILE);
		vma_end_read(vma);
		if (copied == -EFAULT && again &&
		    !fault_in_iov_iter_writeable(to, len)) {
			again = false;
			goto retry;
		}
		if (copied > 0)
			iov_iter_advance(to, copied);
	} else {
		copied = read_buffered(mapping, iocb->ki_pos, len, to);
	}
	if (copied <= 0)
		return 0;
	trace_gcma_read(mapping, index, copied, quick);
	iocb->ki_pos += copied;
	count_vm_events(GCMA_READ_FILE,
			DIV_ROUND_UP(from + copied, PAGE_SIZE));
	return copied;
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
 * __gcma_split_shadow() - a shadow of several pages is about to be split
 * @folio: the smaller folio about to be inserted; the i_pages lock is held
 * @shadow: the flagged entry
 *
 * An invalidation that has found the whole entry clears one entry. What is left
 * of this one must not be flagged then.
 *
 * Return: see gcma_split_shadow().
 */
void *__gcma_split_shadow(struct folio *folio, void *shadow)
{
	struct address_space *mapping = folio->mapping;
	XA_STATE(xas, &mapping->i_pages, folio->index);

	lockdep_assert_held(&mapping->i_pages.xa_lock);
	if (!atomic_read(guard_of(mapping)))
		return shadow;
	xas_load(&xas);
	shadow = strip_flag(shadow);
	xas_store(&xas, shadow);
	return shadow;
}

/**
 * __gcma_filter_shadow() - drop the flag if a folio must not be filled
 * @folio: the folio about to be inserted; the i_pages lock is held
 * @shadow: a flagged entry about to be replaced
 *
 * Return: see gcma_filter_shadow().
 */
void *__gcma_filter_shadow(struct folio *folio, void *shadow)
{
	struct address_space *mapping = folio->mapping;
	unsigned long nr = folio_nr_pages(folio);

	lockdep_assert_held(&mapping->i_pages.xa_lock);
	if (!atomic_read(guard_of(mapping)) &&
	    (nr == 1 || range_flagged(mapping, folio->index, nr)))
		return shadow;
	drop_range(mapping, folio->index, nr);
	return strip_flag(shadow);
}

/**
 * __gcma_overwrite() - free the frames of what is about to be overwritten
 * @folio: the folio just added to the page cache, locked
 */
void __gcma_overwrite(struct folio *folio)
{
	drop_range(folio->mapping, folio->index, folio_nr_pages(folio));
}

/* Free the frames of the pages that a shadow stands for. */
static void drop_entry(struct address_space *mapping, struct xa_state *xas)
{
	unsigned long nr = 1UL << xas_get_order(xas);

	drop_range(mapping, round_down(xas->xa_index, nr), nr);
}

/**
 * __gcma_forget() - make the copy of a page unreachable
 * @mapping: the page cache
 * @index: the page; nothing happens if it is resident
 *
 * And with it those of the folio that it was evicted with.
 */
void __gcma_forget(struct address_space *mapping, pgoff_t index)
{
	XA_STATE(xas, &mapping->i_pages, index);
	void *entry;

	/*
	 * The value entries of shmem and DAX are no shadows. Of a file that no
	 * longer allows copies there may be some left, and it may allow them
	 * again.
	 */
	if (shmem_mapping(mapping) || dax_mapping(mapping))
		return;
	xas_lock_irq(&xas);
	entry = xas_load(&xas);
	if (xa_is_value(entry) && gcma_shadow_flagged(entry)) {
		xas_store(&xas, strip_flag(entry));
		drop_entry(mapping, &xas);
	}
	xas_unlock_irq(&xas);
}

/**
 * __gcma_drop() - free the frames of copies that can no longer be found
 * @mapping: the cache; its i_pages lock is held
 * @index: a page of the folio whose shadow is removed
 */
void __gcma_drop(struct address_space *mapping, pgoff_t index)
{
	XA_STATE(xas, &mapping->i_pages, index);

	lockdep_assert_held(&mapping->i_pages.xa_lock);
	if (xas_load(&xas))
		drop_entry(mapping, &xas);
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
EXPORT_SYMBOL_GPL(__gcma_invalidate_begin);

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
EXPORT_SYMBOL_GPL(__gcma_invalidate_end);

/**
 * __gcma_drop_all() - discard every copy
 */
void __gcma_drop_all(void)
{
	dmem_drop_all(&gcma_dmem);
	gcma_wipe();
}

#ifdef CONFIG_MEMCG
/* What a cgroup has, or could have, in file pages without reclaiming others. */
static unsigned long room_of(struct mem_cgroup *memcg)
{
	unsigned long limit, used, cached;

	if (mem_cgroup_is_root(memcg))
		return global_zone_page_state(NR_FREE_PAGES) +
		       global_node_page_state(NR_ACTIVE_FILE) +
		       global_node_page_state(NR_INACTIVE_FILE);
	limit = min(READ_ONCE(memcg->memory.max), READ_ONCE(memcg->memory.high));
	used = page_counter_read(&memcg->memory);
	cached = memcg_page_state(memcg, NR_ACTIVE_FILE) +
		 memcg_page_state(memcg, NR_INACTIVE_FILE);
	return limit - min(limit, used) + cached;
}

/**
 * __gcma_shadows() - of how many pages more to keep the shadow entries
 * @memcg: a memory cgroup
 * @nodes: how many nodes it has that hold nothing else, not zero
 *
 * A copy whose shadow entry is reclaimed is lost, though it has a frame still.
 * Frames belong to no cgroup, and one that has hardly any pages left may have
 * all of its copies: each gets the part of the frames that it has of all nodes.
 *
 * Nodes are memory of the cgroup, though, and so are the inodes that they pin.
 * So the pages are at most those that the cgroup and all above it have room
 * for: nodes take up to 1.8% of that, and where nothing is left that could be
 * reclaimed instead none is kept on behalf of GCMA.
 *
 * Return: the number of pages
 */
unsigned long __gcma_shadows(struct mem_cgroup *memcg, unsigned long nodes)
{
	unsigned long all = global_node_page_state(WORKINGSET_NODES);
	unsigned long frames = 0;
	unsigned int i;

	/* Pairs with smp_store_release() in dmem_add_area(). */
	for (i = 0; i < smp_load_acquire(&gcma_dmem.nr_areas); i++)
		frames += max(atomic_long_read(&gcma_dmem.area[i]->idle), 0L);
	/* What the processors have not added up yet may be missing. */
	frames = div64_ul((u64)frames * nodes, max(all, nodes));
	for (; memcg; memcg = parent_mem_cgroup(memcg))
		frames = min(frames, room_of(memcg));
	return frames;
}
#endif
