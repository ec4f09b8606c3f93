// SPDX-License-Identifier: GPL-2.0
/*
 * GCMA: guaranteed contiguous memory allocation
 *
 * CMA lends idle contiguous memory to movable pages and migrates them away when
 * it is wanted, which takes long, depends on who holds the pages, and can fail.
 * GCMA lends it only to pages that can be dropped on the spot, because their
 * content also exists elsewhere and nobody refers to them: clean file pages that
 * reclaim removes, and pages of the swap cache that have been written. When they
 * are wanted again they are copied instead of read. S. Park, M. Kim and H. Y.
 * Yeom, "GCMA: Guaranteed Contiguous Memory Allocator", EWiLi 2015, did so with
 * cleancache and frontswap, which are gone. Documentation/mm/gcma.rst has a map.
 *
 * How a copy is found. Reclaim leaves a shadow entry where a page was. One bit of
 * it says that dmem was given a copy. Truncation, invalidation, insertion, and
 * the release of inodes, swap slots and nodes of shadows remove shadows, as they
 * always did, and without its shadow a copy is out of reach. They drop it, too, so
 * that its frame is of use again, and is cleared where idle memory has to be. So no
 * inode or slot is tracked, and a page without a copy costs one bit test. A miss is
 * always correct, as the device has the content. Two invariants make this safe:
 *
 *   1. If a shadow is flagged, the newest store under its key is exactly the
 *      folio that it replaced. __remove_mapping() copies the folio before it
 *      takes the i_pages lock and publishes the copy under that lock, after
 *      the folio was frozen with no other reference and found clean. Nobody
 *      could write to it in between: it is locked and unmapped, and whoever
 *      had pinned it earlier has dirtied it before letting go.
 *
 *   2. What the copy stands for changes on the device only while the page is
 *      resident, or between gcma_invalidate_begin(), which takes the flags of
 *      the range away, and gcma_invalidate_end(), before which what is evicted
 *      gets none; see mapping_set_gcma().
 *
 * The guarantee. The pages of an area never enter the buddy allocator. Each has
 * one reference, held by the area, and is handed out as it is. Allocation marks
 * its range in the bitmap of the CMA area and calls dmem_revoke(), which waits
 * at worst for one page to be copied or cleared on each other CPU. What is in the
 * area makes no difference, and an allocation fails only if no free range, aligned
 * as asked, is long enough.
 *
 * Placement is first fit from below, which keeps what is free in long ranges. At
 * worst n allocations leave n + 1 ranges of it, the longest of which is not below
 * the mean. Where sizes from 80 KiB to 24 MiB, aligned as the DMA API does it, come
 * and go at random and some stay, no allocation fails while at most half of what
 * the area has beyond the largest of them is allocated: place_test_churn().
 *
 * Release. What somebody else still holds stays allocated, in quarantine, and is
 * looked at again later: it is neither handed out twice nor freed to others.
 *
 * Locks. cma->lock protects the bitmaps of the area and its counts. It is held to
 * place and to mark an allocation, and to free a piece of a release, never while
 * waiting for copies.
 */

#define pr_fmt(fmt) "gcma: " fmt

#include <linux/bitmap.h>
#include <linux/cleanup.h>
#include <linux/cma.h>
#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/memory.h>
#include <linux/mutex.h>
#include <linux/of_fdt.h>
#include <linux/suspend.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "gcma.h"

#include <trace/events/cma.h>

#define CREATE_TRACE_POINTS
#include <trace/events/gcma.h>

/* Pages of a release that are looked at with interrupts off, or those of a bit, in one memmap. */
#define GCMA_SETTLE_PAGES	min(512UL, pageblock_nr_pages)

/**
 * struct gcma - a guaranteed area
 * @list: the areas, which stay for good
 * @cma: the CMA area, whose lock protects the rest
 * @area: its frames as dmem sees them
 * @dir: in sysfs, which shows what follows
 * @lent: is it lent to anybody
 * @owned: pages that are allocated, in quarantine or poisoned
 * @quarantined: pages in quarantine
 * @poisoned: pages out of use, as their memory is broken
 * @allocs: allocations that succeeded
 * @alloc_fails: allocations that failed
 * @bad_releases: releases refused
 * @quarantine: bitmap like that of @cma: released, but not free yet
 */
struct gcma {
	struct list_head	list;
	struct cma		*cma;
	struct dmem_area	area;
	struct kobject		dir;
	bool			lent;
	unsigned long		owned, quarantined, poisoned;
	unsigned long		allocs, alloc_fails, bad_releases;
	unsigned long		quarantine[];
};

DEFINE_STATIC_KEY_FALSE(gcma_lending);
EXPORT_SYMBOL_GPL(gcma_lending);

/* What is kept in all areas; and the clients that at least one area is lent to. */
struct dmem gcma_dmem;
unsigned int gcma_clients __read_mostly;
/* Pages that nobody has of areas that are lent. */
atomic_long_t gcma_idle;

static LIST_HEAD(gcma_areas);
/* What was allocated when a key of encrypted files was removed may have such content. */
static bool key_removed __read_mostly;
/* Held to change what areas are lent for. */
static DEFINE_MUTEX(control);

static const char * const modes[] = {
	[GCMA_CHOSEN]				= "none",
	[GCMA_CHOSEN | GCMA_FILE]		= "file",
	[GCMA_CHOSEN | GCMA_SWAP]		= "swap",
	[GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP]	= "file+swap",
	[GCMA_STOCK]				= "cma",
};

/* The GCMA_* bits of a word, which a newline may follow. */
static int parse_mode(const char *word)
{
	int mode;

	for (mode = 0; mode < ARRAY_SIZE(modes); mode++)
		if (modes[mode] && sysfs_streq(word, modes[mode]))
			return mode;
	return -EINVAL;
}

/* Does user space have the area until the kernel crashes? Nobody allocates from it. */
static bool for_crash(const struct cma *cma)
{
	return !strcmp(cma->name, "crashkernel") || !strcmp(cma->name, "fadump_cma");
}

/* What an area is lent for, also if nobody has chosen. */
static int __init mode_of(const struct cma *cma)
{
	return cma->gcma_clients ?: for_crash(cma) ? GCMA_STOCK :
	       parse_mode(CONFIG_GCMA_DEFAULT);
}

static char *gcma_param __initdata;

static int __init gcma_setup(char *text)
{
	if (gcma_param && *text)
		pr_warn("gcma= given more than once, using '%s'\n", text);
	if (*text)
		gcma_param = text;
	else
		pr_err("gcma= wants [AREA:]WORD[,...], WORD one of cma none file swap file+swap; ignored\n");
	return 1;
}
__setup("gcma=", gcma_setup);

/*
 * Take the next entry from the text of gcma=. Areas of a device tree have the names of
 * their nodes, which may have commas: most are called "linux,cma".
 */
static char *next_entry(char **text)
{
	char *entry = *text, *rest = entry;
	unsigned int i;

	for (i = 0; entry && i < cma_area_count; i++) {
		size_t len = str_has_prefix(entry, cma_areas[i].name);

		if (len && entry[len] == ':')
			rest = entry + len;
	}
	strsep(&rest, ",");
	*text = rest;
	return entry;
}

/* Runs when all areas have been declared, and before they are activated. */
static int __init gcma_read_param(void)
{
	u8 given[MAX_CMA_AREAS] = {};	/* a mode for 1: all areas, 2: this one */
	unsigned long frames = 0;
	char *mode;
	unsigned int i;

#ifndef SWAP_TABLE_HAS_ZEROFLAG /* Linux 6.12, see compat.h */
	/* CMA puts a newline behind the names that it makes up. */
	for (i = 0; i < cma_area_count; i++)
		strreplace(cma_areas[i].name, '\n', '\0');
#endif
	if (gcma_param && !cma_area_count)
		pr_err("gcma= is of no use, there is no CMA area; boot with cma=SIZE\n");
	while (cma_area_count && (mode = next_entry(&gcma_param))) {
		char *name = strchr(mode, ':') ? strsep(&mode, ":") : NULL;
		int found = 0, rank = name ? 2 : 1, clients = parse_mode(mode);

		if (clients < 0) {
			pr_err("gcma=: '%s' is none of cma none file swap file+swap; ignored\n",
			       mode);
			continue;
		}
		for (i = 0; i < cma_area_count; i++) {
			struct cma *cma = &cma_areas[i];

			if (name && strcmp(name, cma->name))
				continue;
			found++;
			if (given[i] > rank || (!name && for_crash(cma)))
				continue;
			if (given[i] == rank && cma->gcma_clients != clients)
				pr_warn("gcma=: area %s is given both '%s' and '%s', using the latter\n",
					cma->name, modes[cma->gcma_clients], mode);
			given[i] = rank;
			cma->gcma_clients = clients;
		}
		if (!found)
			pr_err("gcma=: no area '%s', see /sys/kernel/mm/cma; ignored\n", name);
	}
	for (i = 0; i < cma_area_count; i++)
		if (mode_of(&cma_areas[i]) != GCMA_STOCK)
			frames += cma_areas[i].count;
	dmem_init(&gcma_dmem, frames);
	return 0;
}
pure_initcall(gcma_read_param);

#ifdef CONFIG_OF_EARLY_FLATTREE
/**
 * gcma_declare_fdt() - choose what a CMA area is lent for, by device tree
 * @cma: an area just set up for a reserved-memory node
 * @node: the node; its property linux,gcma-clients is a word as in gcma=
 */
void __init gcma_declare_fdt(struct cma *cma, unsigned long node)
{
	const char *mode = of_get_flat_dt_prop(node, "linux,gcma-clients", NULL);
	int clients = mode ? parse_mode(mode) : 0;

	if (clients < 0)
		pr_err("area %s: linux,gcma-clients has '%s', none of cma none file swap file+swap; ignored\n",
		       cma->name, mode);
	else if (mode)
		cma->gcma_clients = clients;
}
#endif

/* How many bits the bitmap of an area has. */
static unsigned long area_bits(const struct cma *cma)
{
	return cma->count >> cma->order_per_bit;
}

/* How many bits of the bitmap cover a number of pages. */
static unsigned long to_bits(const struct cma *cma, unsigned long count)
{
	return ALIGN(count, 1UL << cma->order_per_bit) >> cma->order_per_bit;
}

/* As bitmap_set(), which goes word by word: too slow for a large allocation. */
static void set_bits(unsigned long *bitmap, unsigned long bit, unsigned long nbits)
{
	unsigned long head = min(nbits, ALIGN(bit, BITS_PER_LONG) - bit);
	unsigned long body = round_down(nbits - head, BITS_PER_LONG);

	bitmap_set(bitmap, bit, head);
	/* dmem may look at the bits meanwhile; each changes once. */
	data_race(memset(bitmap + BIT_WORD(bit + head), 0xff, body / BITS_PER_BYTE));
	bitmap_set(bitmap, bit + head + body, nbits - head - body);
}

static struct page *bit_page(const struct cma *cma, unsigned long bit)
{
	return pfn_to_page(cma_range(cma)->base_pfn + (bit << cma->order_per_bit));
}

/*
 * As find_next_bit(), eight words at a time: a large allocation spends most of its
 * time here.
 */
static unsigned long next_taken(const unsigned long *bitmap, unsigned long end,
				unsigned long bit)
{
	const unsigned long step = 8 * BITS_PER_LONG;
	unsigned long next = min(end, ALIGN(bit, BITS_PER_LONG));

	bit = find_next_bit(bitmap, next, bit);
	if (bit < next)
		return bit;
	for (; next + step <= end; next += step) {
		const unsigned long *w = bitmap + BIT_WORD(next);

		if (w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7])
			break;
	}
	return find_next_bit(bitmap, end, next);
}

/* The lowest place for an allocation, or the end of the bitmap if there is none. */
static unsigned long place(struct cma *cma, unsigned long count, unsigned int align)
{
	const unsigned int order = cma->order_per_bit;
	unsigned long mask = align > order ? BIT(align - order) - 1 : 0;
	unsigned long offset = (cma_range(cma)->base_pfn & (BIT(align) - 1)) >> order;
	unsigned long maxno = area_bits(cma), bit, end, taken = 0;

	lockdep_assert_held(&cma->lock);
	if (count > cma->count)
		return maxno;
	/* As bitmap_find_next_zero_area_off() does it. */
	do {
		bit = find_next_zero_bit(cma_range(cma)->bitmap, maxno, taken);
		bit = __ALIGN_MASK(bit + offset, mask) - offset;
		end = bit + to_bits(cma, count);
		if (end > maxno)
			return maxno;
		taken = next_taken(cma_range(cma)->bitmap, end, bit);
	} while (taken < end);
	return bit;
}

/*
 * Take away the only reference of a page. Who saw the page before may hold it for a
 * moment; but that may be a task that runs only while this one does not.
 */
static void freeze(struct page *page)
{
	unsigned int tries;

	for (tries = 0; !page_ref_freeze(page, 1); tries++)
		if (tries < 1000)
			cpu_relax();
		else
			fsleep(100);
}

/* Make one folio of pages that are being allocated, see prep_new_page(). */
static void make_folio(struct page *page, unsigned int order)
{
	unsigned long i;

	for (i = 0; i < 1UL << order; i++) {
		struct page *at = nth_page(page, i);

		/* Whoever had it before may have left something there. */
		if (page_flags(at) & PAGE_FLAGS_CHECK_AT_PREP)
			page_flags(at) &= ~PAGE_FLAGS_CHECK_AT_PREP;
		set_page_private(at, 0);
		/* Tails have no references. */
		if (i)
			freeze(at);
	}
	prep_compound_page(page, order);
}

/* Make single pages of a folio whose count is frozen, see free_pages_prepare(). */
static void unmake_folio(struct page *page)
{
	struct folio *folio = page_folio(page);
	unsigned long i, nr = folio_nr_pages(folio);

	folio->_flags_1 &= ~PAGE_FLAGS_SECOND;
#ifdef NR_PAGES_IN_LARGE_FOLIO
	/* In a single page, its cgroup is there. */
	folio->_nr_pages = 0;
#endif
	__ClearPageHead(page);
	page->mapping = NULL;
	set_page_private(page, 0);
	for (i = 1; i < nr; i++) {
		struct page *tail = nth_page(page, i);

		tail->mapping = NULL;
		clear_compound_head(tail);
		atomic_set(&tail->_mapcount, -1);
		set_page_private(tail, 0);
		/* From here on it may be freed, and allocated by somebody else. */
		page_ref_unfreeze(tail, 1);
	}
	page_ref_unfreeze(page, 1);
}

/* Must allocated memory be zeros? */
static bool must_zero(gfp_t gfp)
{
	return want_init_on_alloc(gfp) || gcma_wipes();
}

/* So many more pages of an area are somebody's. */
static void own(struct gcma *gcma, long nr)
{
	lockdep_assert_held(&gcma->cma->lock);
	gcma->owned += nr;
	if (gcma->lent)
		atomic_long_sub(nr, &gcma_idle);
}

/**
 * gcma_alloc() - allocate from a guaranteed area, see cma_alloc()
 * @cma: the area
 * @count: number of pages, more than zero
 * @align: alignment of the first page, as an order of pages
 * @gfp: __GFP_ZERO and __GFP_COMP are honoured
 *
 * Context: Process. Sleeps only where pages have to be cleared, or while somebody
 * holds one that is to be part of a folio.
 * Return: the first page, or %NULL if no free range with that alignment is long
 * enough.
 */
struct page *gcma_alloc(struct cma *cma, unsigned long count,
			unsigned int align, gfp_t gfp)
{
	unsigned long nbits = to_bits(cma, count), nr = nbits << cma->order_per_bit;
	unsigned long bit, first, copy_waits;
	struct gcma *gcma = cma->gcma;
	struct page *page;

	scoped_guard(spinlock_irqsave, &cma->lock) {
		bit = place(cma, count, align);
		if (bit >= area_bits(cma)) {
			gcma->alloc_fails++;
			return NULL;
		}
		set_bits(cma_range(cma)->bitmap, bit, nbits);
		cma_add_available(cma, -(long)nr);
		own(gcma, nr);
		gcma->allocs++;
	}
	first = bit << cma->order_per_bit;
	page = bit_page(cma, bit);
	copy_waits = dmem_revoke(&gcma->area, first, nr);
	if (must_zero(gfp))
		dmem_zero_owned(&gcma->area, first, count);
	if (gfp & __GFP_COMP && count > 1)
		make_folio(page, ilog2(count));
	trace_gcma_alloc(cma->name, page_to_pfn(page), count, copy_waits);
	return page;
}

/*
 * May pages be of use again: does nobody but the area hold any, and is none broken? A
 * release spends most of its time here.
 */
static __always_inline bool fit(const struct page *page, unsigned int nr)
{
	unsigned long flags = 0;
	unsigned int i;

#pragma GCC unroll 8
	for (i = 0; i < nr; i++)
		/* If the count changes meanwhile, the page is looked at again later. */
		if (data_race(page[i]._refcount.counter != 1))
			return false;
	/* Pairs with page_ref_unfreeze() in unmake_folio(): flags, then idle. */
	smp_rmb();
#pragma GCC unroll 8
	for (i = 0; i < nr; i++)
		/* A page that breaks now was sound when it was released. */
		flags |= data_race(page_flags(page + i));
	return !(flags & __PG_HWPOISON);
}

/* How many pages from this one on nobody holds but the area, and are not broken. */
static unsigned long idle_pages(const struct page *page, unsigned long nr)
{
	const struct page *at = page, *end = page + nr;

	while (end - at >= 8 && fit(at, 8))
		at += 8;
	while (at < end && fit(at, 1))
		at++;
	/*
	 * The head of a folio, whose tails have no references of their own: the
	 * loop stopped behind it. settle() finds out whether the folio is idle.
	 */
	if (at > page && PageHead(at - 1))
		at--;
	return at - page;
}

/* Give pages that nobody holds any more back to the area. */
static void free_bits(struct gcma *gcma, unsigned long bit, unsigned long nbits)
{
	struct cma *cma = gcma->cma;
	unsigned long first = bit << cma->order_per_bit;
	unsigned long nr = nbits << cma->order_per_bit, discarded, i;
	struct page *page = bit_page(cma, bit);

	lockdep_assert_held(&cma->lock);
	/* Where caches alias, it says that the last owner's content is in memory. */
	for (i = 0; ARCH_IMPLEMENTS_FLUSH_DCACHE_PAGE && i < nr; i++)
		if (test_bit(PG_arch_1, &page_flags(nth_page(page, i))))
			clear_bit(PG_arch_1, &page_flags(nth_page(page, i)));
	discarded = dmem_release(&gcma->area, first, nr);
	bitmap_clear(gcma->quarantine, bit, nbits);
	bitmap_clear(cma_range(cma)->bitmap, bit, nbits);
	dmem_changed(&gcma_dmem);
	cma_add_available(cma, nr);
	gcma->quarantined -= nr;
	own(gcma, -nr);
	count_vm_events(GCMA_DISCARD, discarded);
	trace_gcma_free(cma->name, page_to_pfn(page), nr, discarded);
}

/*
 * Free what is in quarantine and nobody holds; what is broken stays allocated for
 * good. Looking and changing are under one lock, so that several callers may go
 * over the same range.
 */
static void settle(struct gcma *gcma, unsigned long bit, unsigned long end)
{
	struct cma *cma = gcma->cma;
	const unsigned int order = cma->order_per_bit;
	const unsigned long step = max(GCMA_SETTLE_PAGES >> order, 1);
	unsigned long next, last, idle;
	struct page *page, *folio;

	/* Looking through a large area takes long: without the lock, and then once more with it. */
	for (; bit = data_race(find_next_bit(gcma->quarantine, end, bit)), bit < end; bit = next) {
		folio = NULL;
		scoped_guard(spinlock_irqsave, &cma->lock) {
			next = min(end, round_down(bit, step) + step);
			bit = find_next_bit(gcma->quarantine, next, bit);
			if (bit == next)
				break;
			next = find_next_zero_bit(gcma->quarantine, next, bit);
			page = bit_page(cma, bit);
			idle = idle_pages(page, (next - bit) << order);
			if (idle >> order) {
				free_bits(gcma, bit, idle >> order);
				next = bit + (idle >> order);
			} else if (PageHead(page) && page_ref_freeze(page, 1)) {
				/* Frozen: neither a new holder nor another settle(). */
				folio = page;
				next = bit;
			} else if (!PageHead(page) && PageHWPoison(page + idle)) {
				/* See gcma_memory_failure(). */
				page_ref_inc(page + idle);
				__clear_bit(bit, gcma->quarantine);
				gcma->quarantined -= 1UL << order;
				gcma->poisoned += 1UL << order;
				next = bit + 1;
			} else {
				/* Who holds a page may hold those behind it. */
				for (last = next, next = bit + 1; next < last; next++)
					if (fit(bit_page(cma, next), 1))
						break;
			}
		}
		if (folio)
			unmake_folio(folio);
	}
}

/* Look at the quarantine again; clear idle frames, if that is wanted. */
static void tidy(struct work_struct *work)
{
	struct gcma *gcma;

	list_for_each_entry(gcma, &gcma_areas, list) {
		settle(gcma, 0, area_bits(gcma->cma));
		/* Pairs with smp_mb() in __gcma_forget_encrypted(): free, then look. */
		smp_mb();
		if (gcma_wipes() || READ_ONCE(key_removed))
			dmem_sweep(&gcma->area, 0, gcma->area.nr,
				   DMEM_CLEAR | (gcma_wipes() ? 0 : DMEM_ONLY_SECRET));
		if (READ_ONCE(gcma->quarantined))
			queue_delayed_work(system_dfl_wq, &gcma_tidy_work, HZ / 10);
	}
}
DECLARE_DELAYED_WORK(gcma_tidy_work, tidy);

/**
 * gcma_release() - give back what gcma_alloc() returned, see cma_release()
 * @cma: the area
 * @pfn: the first page, in the area
 * @count: number of pages
 *
 * A range that was not allocated is left alone. The pages are the area's in any
 * case, and nobody else may free them.
 *
 * Context: Any; does not sleep.
 */
void gcma_release(struct cma *cma, unsigned long pfn, unsigned long count)
{
	unsigned long first = pfn - cma_range(cma)->base_pfn, bit = first >> cma->order_per_bit;
	unsigned long end = bit + to_bits(cma, count);
	struct page *page = pfn_to_page(pfn);
	unsigned long i, frozen = 0;
	struct gcma *gcma = cma->gcma;
	bool allocated;

	scoped_guard(spinlock_irqsave, &cma->lock) {
		allocated = count && count <= cma->count - first &&
			    IS_ALIGNED(first, 1UL << cma->order_per_bit) &&
			    find_next_zero_bit(cma_range(cma)->bitmap, end, bit) >= end &&
			    find_next_bit(gcma->quarantine, end, bit) >= end &&
			    !PageTail(page) &&
			    (!PageHead(page) || compound_nr(page) == count);
		if (allocated) {
			/* Once they have a reference, they may be somebody else's at once. */
			if (!page_ref_count(page))
				frozen = PageHead(page) ? 1 : count;
			set_bits(gcma->quarantine, bit, end - bit);
			gcma->quarantined += (end - bit) << cma->order_per_bit;
		} else {
			gcma->bad_releases++;
		}
	}
	if (!allocated) {
		pr_err_ratelimited("area %s: pages 0x%lx+%lu released by %s are not one allocation; ignored\n",
				   cma->name, pfn, count, current->comm);
		return;
	}
	cma_sysfs_account_release_pages(cma, count);
	trace_cma_release(cma->name, pfn, page, count);
	/* Undo gcma_freeze(): until then they stay in quarantine. */
	for (i = 0; i < frozen; i++)
		page_ref_unfreeze(page + i, 1);
	settle(gcma, bit, end);
	/* Pairs with smp_mb() in __gcma_forget_encrypted(): free, then look. */
	smp_mb();
	if (READ_ONCE(gcma->quarantined) || READ_ONCE(key_removed) || gcma_wipes())
		queue_delayed_work(system_dfl_wq, &gcma_tidy_work, HZ / 10);
}

/**
 * gcma_pinnable() - may pages of an area be pinned for as long as somebody likes?
 * @cma: the area, which need not be a guaranteed one
 *
 * Plain CMA has to be able to migrate its pages, also while they are allocated to
 * nobody. Those of a guaranteed area stay, except in a movable zone, where others
 * count on that they can go; and gcma_release() waits for whoever holds one.
 *
 * Return: true if pin_user_pages(FOLL_LONGTERM) takes them where they are.
 */
bool gcma_pinnable(const struct cma *cma)
{
	struct page *page = pfn_to_page(cma_range(cma)->base_pfn);

	return cma_guaranteed(cma) && folio_is_longterm_pinnable(page_folio(page));
}
EXPORT_SYMBOL_GPL(gcma_pinnable);

/**
 * __gcma_forget_encrypted() - the key of encrypted files is gone
 *
 * Discards all copies of encrypted files, and clears their frames. Copies of files
 * with other keys go as well, which is no loss. A frame that held a copy of this
 * key's files may have none any more, so frames are cleared by their mark. Those
 * that are allocated now are cleared soon after they have been released.
 *
 * Context: Process, after the inodes that had the key have been evicted. May sleep.
 */
void __gcma_forget_encrypted(void)
{
	struct gcma *gcma;

	WRITE_ONCE(key_removed, true);
	/* Pairs with smp_mb() in gcma_release() and tidy(), which see to their frames then. */
	smp_mb();
	list_for_each_entry(gcma, &gcma_areas, list)
		dmem_sweep(&gcma->area, 0, gcma->area.nr, DMEM_ALL | DMEM_CLEAR | DMEM_ONLY_SECRET);
}

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3, which has an interface for such pages */
/**
 * gcma_freeze() - take away the references of pages that gcma_alloc() returned
 * @cma: the area, which need not be a guaranteed one
 * @page: the first page, or %NULL
 * @count: number of pages, or 1 if they are a folio, which has one reference
 *
 * Pages of a guaranteed area have a reference at all times, so that allocations
 * need not write to them. Only for callers who want frozen pages it is taken away.
 *
 * Context: Process. Sleeps only while somebody else holds a page.
 * Return: @page.
 */
struct page *gcma_freeze(struct cma *cma, struct page *page, unsigned long count)
{
	unsigned long i;

	if (page && cma_guaranteed(cma))
		for (i = 0; i < count; i++)
			freeze(page + i);
	return page;
}
#endif

/**
 * gcma_memory_failure() - the memory of a page is broken
 * @pfn: the page, which is marked as such
 *
 * Context: Process.
 * Return: true if it was an idle frame, which is now out of use.
 */
bool gcma_memory_failure(unsigned long pfn)
{
	struct gcma *gcma;

	list_for_each_entry(gcma, &gcma_areas, list) {
		struct cma *cma = gcma->cma;
		unsigned long bit = (pfn - cma_range(cma)->base_pfn) >> cma->order_per_bit;
		unsigned long nr = 1UL << cma->order_per_bit;

		if (bit >= area_bits(cma))
			continue;
		scoped_guard(spinlock_irqsave, &cma->lock) {
			/* What is allocated waits for settle(). */
			if (__test_and_set_bit(bit, cma_range(cma)->bitmap))
				return false;
			cma_add_available(cma, -(long)nr);
			own(gcma, nr);
			gcma->poisoned += nr;
		}
		/* As of all broken pages; unpoison_memory() would free one without. */
		page_ref_inc(pfn_to_page(pfn));
		dmem_revoke(&gcma->area, bit << cma->order_per_bit, nr);
		pr_warn("area %s: page frame 0x%lx is broken, and out of use\n",
			cma->name, pfn);
		return true;
	}
	return false;
}

/**
 * gcma_activate() - make a CMA area a guaranteed one if that was asked for
 * @cma: the area, whose bitmap exists and whose pages are reserved
 * @first_pfn: its first page that was not allocated before
 *
 * Return: true if it is, and so must not be given to the buddy allocator.
 */
bool __init gcma_activate(struct cma *cma, unsigned long first_pfn)
{
	int clients = mode_of(cma);
	struct gcma *gcma;
	unsigned long i;

	if (clients == GCMA_STOCK)
		return false;
	if (cma_nranges(cma) > 1 || !cma_memmap_contiguous(cma)) {
		pr_err("area %s: has holes, using plain CMA\n", cma->name);
		return false;
	}
	i = BITS_TO_LONGS(area_bits(cma));
	gcma = kvzalloc(struct_size(gcma, quarantine, i), GFP_KERNEL);
	if (gcma)
		gcma->area = (struct dmem_area) {
			.base_pfn = cma_range(cma)->base_pfn,
			.nr = cma->count,
			.owned = cma_range(cma)->bitmap,
			.owned_order = cma->order_per_bit,
		};
	if (!gcma || dmem_add_area(&gcma_dmem, &gcma->area)) {
		pr_err("area %s: no memory for its metadata, using plain CMA\n",
		       cma->name);
		kvfree(gcma);
		return false;
	}
	bitmap_set(cma_range(cma)->bitmap, 0,
		   to_bits(cma, first_pfn - cma_range(cma)->base_pfn));
	for (i = 0; i < cma->count; i++) {
		struct page *page = pfn_to_page(cma_range(cma)->base_pfn + i);

		/* Pages that were allocated before are in use as they are. */
		if (test_bit(i >> cma->order_per_bit, cma_range(cma)->bitmap)) {
			gcma->owned++;
			continue;
		}
		__ClearPageReserved(page);
		set_page_count(page, 1);
	}
	gcma->cma = cma;
	cma->gcma = gcma;
	cma->gcma_clients = clients;
	list_add_tail(&gcma->list, &gcma_areas);
	pr_info("area %s: %lu MiB, clients: %s\n", cma->name,
		cma->count >> (20 - PAGE_SHIFT), modes[clients]);
	return true;
}

/* Change who may store in an area. */
static void lend(struct gcma *gcma, unsigned int clients)
{
	scoped_guard(spinlock_irq, &gcma->cma->lock) {
		if (gcma->lent)
			atomic_long_sub(gcma->area.nr - gcma->owned, &gcma_idle);
		gcma->lent = clients;
		if (gcma->lent)
			atomic_long_add(gcma->area.nr - gcma->owned, &gcma_idle);
	}
	dmem_set_clients(&gcma->area, clients);
}

/*
 * Change what an area is lent for. Copies of a client that has lost the area are
 * dropped; allocations do not wait for that. Plain CMA can only be chosen at boot,
 * as its pages go to the buddy allocator.
 */
static int set_clients(struct gcma *gcma, int clients)
{
	unsigned int all = 0;

	if (clients < 0)
		return clients;
	if (clients == GCMA_STOCK)
		return -EOPNOTSUPP;
	guard(mutex)(&control);
	WRITE_ONCE(gcma->cma->gcma_clients, clients);
	lend(gcma, clients / GCMA_FILE);
	gcma_wipe();
	if (clients != GCMA_CHOSEN)
		static_branch_enable(&gcma_lending);
	list_for_each_entry(gcma, &gcma_areas, list)
		all |= gcma->cma->gcma_clients;
	/* From here on there may be flags: all branches are there, and none goes again. */
	WRITE_ONCE(gcma_clients, all);
	return 0;
}

/*
 * A hint that an allocation comes soon. Where it would be placed with the DMA API's
 * alignment, clear the frames if allocations have to be; copies cost it nothing.
 */
static int prepare(struct gcma *gcma, unsigned long count)
{
	unsigned int align = get_order(count << PAGE_SHIFT);
	struct cma *cma = gcma->cma;
	unsigned long bit, first, nr;

	if (!count || count > gcma->area.nr)
		return -EINVAL;
	if (!must_zero(GFP_KERNEL))
		return 0;
#ifdef CONFIG_CMA_ALIGNMENT
	align = min_t(unsigned int, align, CONFIG_CMA_ALIGNMENT);
#endif
	scoped_guard(spinlock_irqsave, &cma->lock)
		bit = place(cma, count, align);
	if (bit >= area_bits(cma))
		return -ENOSPC;
	first = bit << cma->order_per_bit;
	nr = to_bits(cma, count) << cma->order_per_bit;
	count_vm_events(GCMA_DISCARD,
			dmem_sweep(&gcma->area, first, nr, DMEM_ALL | DMEM_CLEAR));
	return 0;
}

/*
 * A hibernation image has no pages of zeros: while one is made nothing is kept,
 * and idle frames are cleared.
 */
static int gcma_pm(struct notifier_block *nb, unsigned long event, void *data)
{
	bool away = event == PM_HIBERNATION_PREPARE;
	struct gcma *gcma;

	if (!away && event != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	guard(mutex)(&control);
	list_for_each_entry(gcma, &gcma_areas, list) {
		lend(gcma, away ? 0 : gcma->cma->gcma_clients / GCMA_FILE);
		if (away)
			dmem_sweep(&gcma->area, 0, gcma->area.nr, DMEM_CLEAR);
	}
	return NOTIFY_OK;
}

/*
 * Memory with an area is not taken offline. Hugetlb's folios in it could be moved
 * away, but not the pages that they leave, and offlining would never end.
 */
static int gcma_hotplug(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct memory_notify *block = data;
	struct gcma *gcma;

	if (event != MEM_GOING_OFFLINE)
		return NOTIFY_DONE;
	list_for_each_entry(gcma, &gcma_areas, list) {
		unsigned long first = cma_range(gcma->cma)->base_pfn;

		if (first < block->start_pfn + block->nr_pages &&
		    block->start_pfn < first + gcma->area.nr)
			return notifier_from_errno(-EBUSY);
	}
	return NOTIFY_OK;
}

static struct gcma *kobj_gcma(struct kobject *kobj)
{
	return container_of(kobj, struct gcma, dir);
}

static ssize_t clients_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", modes[READ_ONCE(kobj_gcma(kobj)->cma->gcma_clients)]);
}

static ssize_t clients_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	return set_clients(kobj_gcma(kobj), parse_mode(buf)) ?: count;
}

static ssize_t prepare_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	unsigned long nr;

	return kstrtoul(buf, 0, &nr) ?: prepare(kobj_gcma(kobj), nr) ?: count;
}

/* A file with a number; @arg says where that is, or of which client. */
struct counter {
	struct kobj_attribute attr;
	size_t arg;
};

static size_t counter_arg(const struct kobj_attribute *attr)
{
	return container_of(attr, struct counter, attr)->arg;
}

static ssize_t area_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const unsigned long *value = (void *)kobj_gcma(kobj) + counter_arg(attr);

	return sysfs_emit(buf, "%lu\n", READ_ONCE(*value));
}

static ssize_t stats_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", dmem_sum(&kobj_gcma(kobj)->area, counter_arg(attr)));
}

static ssize_t cached_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", dmem_cached(&kobj_gcma(kobj)->area, counter_arg(attr)));
}

#define COUNTER(_name, _show, _arg)						\
	(&((struct counter) { __ATTR(_name, 0444, _show, NULL), _arg }).attr.attr)
#define AREA(_name)	COUNTER(_name, area_show, offsetof(struct gcma, _name))
#define STATS(_name, _client)							\
	COUNTER(_name, stats_show, offsetof(struct dmem_stats, _name[_client]))
#define CLIENT(_client) {							\
	STATS(stored, _client), STATS(loaded, _client), STATS(served, _client),	\
	STATS(missed, _client), STATS(discarded, _client),			\
	STATS(evicted, _client), STATS(refused, _client),			\
	COUNTER(cached, cached_show, _client), NULL,				\
}

static struct kobj_attribute clients_attr = __ATTR_RW(clients);
static struct kobj_attribute prepare_attr = __ATTR_WO(prepare);

static struct attribute *area_attrs[] = {
	&clients_attr.attr, &prepare_attr.attr,
	COUNTER(frames, area_show, offsetof(struct gcma, area.nr)), AREA(owned),
	AREA(quarantined), AREA(poisoned), AREA(allocs), AREA(alloc_fails),
	AREA(bad_releases),
	COUNTER(copy_waits, stats_show, offsetof(struct dmem_stats, copy_waits)), NULL,
};

static struct attribute *file_attrs[] = CLIENT(GCMA_CLIENT_FILE);
static struct attribute *swap_attrs[] = CLIENT(GCMA_CLIENT_SWAP);

/* /sys/kernel/mm/gcma/<area>/, with a directory for each client */
static const struct attribute_group *area_groups[] = {
	&(const struct attribute_group) { .attrs = area_attrs },
	&(const struct attribute_group) { .name = "file", .attrs = file_attrs },
	&(const struct attribute_group) { .name = "swap", .attrs = swap_attrs },
	NULL
};

static const struct kobj_type area_type = {
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = area_groups,
};

static int __init gcma_init(void)
{
	struct kobject *root;
	struct gcma *gcma;
	int err;

	if (list_empty(&gcma_areas))
		return 0;
	hotplug_memory_notifier(gcma_hotplug, DEFAULT_CALLBACK_PRI);
	root = kobject_create_and_add("gcma", mm_kobj);
	list_for_each_entry(gcma, &gcma_areas, list) {
		set_clients(gcma, gcma->cma->gcma_clients);
		/* It is never released, also where this fails: areas stay for good. */
		err = root ? kobject_init_and_add(&gcma->dir, &area_type, root, "%s",
						  gcma->cma->name) : -ENOMEM;
		if (err)
			pr_err("area %s: not in sysfs (%d), counters are not shown\n",
			       gcma->cma->name, err);
	}
	pm_notifier(gcma_pm, 0);
	return 0;
}
subsys_initcall(gcma_init);

#ifdef CONFIG_GCMA_KUNIT_TEST
#include "place_test.c"
#endif
