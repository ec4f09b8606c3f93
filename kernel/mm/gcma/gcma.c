// SPDX-License-Identifier: GPL-2.0
/*
 * GCMA: guaranteed contiguous memory allocation
 *
 * The problem. Devices without an IOMMU, huge pages and secure carve-outs want
 * large physically contiguous memory, now and without fail. Reserving it wastes
 * it while it is idle. CMA lends the idle memory to movable pages and migrates
 * them away when asked, which takes long, depends on who holds the pages, and
 * can fail.
 *
 * The idea. Lend the memory only to pages that can be dropped on the spot,
 * because their content also exists elsewhere and nobody refers to them:
 *
 *   - clean page-cache pages at the moment reclaim removes them; the file
 *     system has the content;
 *   - pages in the swap cache at the moment reclaim removes them; they have
 *     been written to the swap device.
 *
 * Both are candidates to be read again, which is then a copy instead of I/O.
 * S. Park, M. Kim and H. Y. Yeom, "GCMA: Guaranteed Contiguous Memory
 * Allocator", EWiLi 2015, describe this for Linux 3.18 on top of cleancache
 * and frontswap, which are gone.
 *
 *          page cache, swap cache                     cma_alloc()
 *            |  evict        ^  refault                    |
 *            v               |                             v
 *   __remove_mapping()   filemap_add_folio()         gcma_alloc()
 *            |           swap cache, swap fault            |
 *      stage |               | load                        | own and revoke
 *    publish v               |                             v
 *          +-------------------------------------------------------+
 *          |  dmem: frames of the area that the owner leaves idle  |
 *          +-------------------------------------------------------+
 *
 * How a copy is found. When reclaim removes a page it leaves a shadow entry in
 * the cache's xarray, for the refault distance. One bit of it says that dmem
 * was given a copy. Truncation, invalidation, insertion, inode teardown and
 * the release of swap slots remove shadows, as they always did, and with the
 * shadow the copy is out of reach. So dmem tracks neither inodes nor slots,
 * and a page that has no copy costs one bit test. Two invariants carry this:
 *
 *   1. If a shadow is flagged, the newest store under its key is exactly the
 *      folio that it replaced. __remove_mapping() copies the folio before it
 *      takes the i_pages lock and publishes the copy under that lock, after
 *      the folio was frozen with no other reference and found clean. Nobody
 *      could write to it in between: it is locked and unmapped, and whoever
 *      had pinned it earlier has dirtied it before letting go.
 *
 *   2. What the copy stands for changes on the device only while the page is
 *      resident, or in operations that clear the flag and keep loads out.
 *      These are: truncation and hole punching, which hold the invalidate
 *      lock and clear the entries in their range; the pages cut at the edges
 *      of the range, handled by gcma_forget(); and direct writes, which
 *      invalidate before and after. The latter find entries and remove them in
 *      two steps, between which a load could bring back old content and an
 *      eviction could leave it behind: gcma_invalidate_begin() stops both. A
 *      page inserted in order to be overwritten is not filled from dmem, as
 *      file systems may insert a page, change the device and count on the page
 *      not being up to date.
 *
 * A large folio leaves one shadow, whose flag stands for all its pages; each has
 * a key and a frame of its own. Smaller folios split the shadow and take their
 * part. A large one is filled if all shadows in its place are flagged, and read
 * if a single copy is gone.
 *
 * read() need not bring pages back: filemap_get_pages() finds the flagged
 * shadow, and gcma_read() copies from the frames to the buffer. Page cache,
 * shadows and copies stay. By invariant 1 what is found in dmem after a flagged
 * shadow was seen is the content that the file had then, or later.
 *
 * A file system says with mapping_set_gcma() that it was looked at with this
 * in mind. A miss is always right, as the device has the content. It happens
 * when frames were taken back or overwritten; the flag then stays behind and
 * costs one lookup.
 *
 * The guarantee. The pages of the area never enter the buddy allocator. Each
 * has one reference, held by the area, and is handed out as it is: there is no
 * work per page. Allocation marks the range in the bitmap of the CMA area and
 * calls dmem_revoke(), which waits at worst for one page to be copied on each
 * other CPU, from memory to memory. Interrupts that arrive there in the middle of
 * such a copy, and a hypervisor that takes the CPU away, come on top. What is in
 * the area makes no difference. As frames have no other users, an allocation
 * fails only when no free range is long enough.
 *
 * Release looks at the reference count of each page. What somebody still holds
 * stays allocated, in quarantine, and is looked at again later, so that it is
 * neither handed out twice nor reaches the buddy allocator.
 *
 * Placement considers the ends of free ranges only, so that what remains free
 * stays in one piece, and takes the lowest where no cached page is lost or else
 * the one where least is. Caching fills the area from the upper end.
 *
 * Locks: cma->lock protects the bitmaps of the area and its counts. It is held
 * to place and to mark an allocation, and to settle a piece of a release, never
 * while waiting for copies.
 *
 * Limits. Copies are not charged to memory cgroups. An area belongs to one
 * zone, as CMA wants it.
 */

#define pr_fmt(fmt) "gcma: " fmt

#include <linux/bitmap.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/of_fdt.h>
#include <linux/page-isolation.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/suspend.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "gcma.h"

#define CREATE_TRACE_POINTS
#include <trace/events/gcma.h>

/* How often pages in quarantine are looked at. */
#define GCMA_QUARANTINE_PERIOD	(HZ / 10)
/* How long what frames held may stay there where freed memory is cleared. */
#define GCMA_WIPE_DELAY		(HZ / 10)
/* Pages of a release that are settled with interrupts off in one go. */
#define GCMA_SETTLE_PAGES	512
/* Free ranges looked at to find a place where less is lost, */
#define GCMA_PLACE_TRIES	8
/* and bits behind the first place: to look at all would take longer. */
#define GCMA_PLACE_BITS		4096

DEFINE_STATIC_KEY_FALSE(gcma_lending);
EXPORT_SYMBOL_GPL(gcma_lending);

/* Where all areas keep what they are lent for. */
struct dmem gcma_dmem;

/* Clients that at least one area serves. */
unsigned int gcma_clients __read_mostly;

enum gcma_admit gcma_admit __read_mostly;

/* Held to change what areas are lent for, and what is kept. */
static DEFINE_MUTEX(control);

static char gcma_param[256] __initdata;

static const struct {
	const char *name;
	unsigned int clients;
} gcma_modes[] = {
	{ "cma",	GCMA_STOCK },
	{ "none",	GCMA_CHOSEN },
	{ "file",	GCMA_CHOSEN | GCMA_FILE },
	{ "swap",	GCMA_CHOSEN | GCMA_SWAP },
	{ "file+swap",	GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP },
	{ "swap+file",	GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP },
};

/**
 * gcma_clients_name() - text for a choice of clients
 * @clients: GCMA_* bits
 *
 * Return: the word that the gcma= parameter has for it.
 */
const char *gcma_clients_name(unsigned int clients)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gcma_modes); i++)
		if (gcma_modes[i].clients == clients)
			return gcma_modes[i].name;
	return "?";
}

/**
 * gcma_parse_clients() - read a choice of clients
 * @text: a word such as "file+swap"
 * @len: its length
 * @clients: where to put the GCMA_* bits
 *
 * Return: 0, or -EINVAL if there is no such choice.
 */
int gcma_parse_clients(const char *text, size_t len, unsigned int *clients)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gcma_modes); i++) {
		if (strlen(gcma_modes[i].name) == len &&
		    !strncmp(gcma_modes[i].name, text, len)) {
			*clients = gcma_modes[i].clients;
			return 0;
		}
	}
	return -EINVAL;
}

static int __init gcma_setup(char *text)
{
	if (!text || !*text) {
		pr_err("gcma= wants [AREA:]MODE[,...], MODE one of cma none file swap file+swap; ignored\n");
		return -EINVAL;
	}
	if (gcma_param[0])
		pr_warn("gcma= given more than once, using '%s'\n", text);
	if (strscpy(gcma_param, text, sizeof(gcma_param)) < 0) {
		pr_err("gcma= is longer than %zu characters; ignored\n",
		       sizeof(gcma_param) - 1);
		gcma_param[0] = '\0';
		return -EINVAL;
	}
	return 0;
}
early_param("gcma", gcma_setup);

static size_t __init area_name_len(const struct cma *cma)
{
	/* CMA puts a newline behind the names that it makes up. */
	return strcspn(cma->name, "\n");
}

static bool __init area_is_named(const struct cma *cma, const char *name,
				 size_t len)
{
	return area_name_len(cma) == len && !strncmp(cma->name, name, len);
}

/*
 * What gcma= says about an area: the last entry that names it, or else the
 * last one without a name. Zero if there is none.
 */
static unsigned int __init param_clients(const struct cma *cma)
{
	unsigned int for_all = 0, for_this = 0;
	const char *entry = gcma_param;

	while (*entry) {
		size_t len = strcspn(entry, ",");
		const char *colon = strnchr(entry, len, ':');
		const char *mode = colon ? colon + 1 : entry;
		unsigned int clients, *which = NULL;

		if (!colon)
			which = &for_all;
		else if (area_is_named(cma, entry, colon - entry))
			which = &for_this;
		if (!which) {
			/* Some other area's. */
		} else if (gcma_parse_clients(mode, entry + len - mode, &clients)) {
			pr_err("gcma=: no mode '%.*s' (cma none file swap file+swap); ignored\n",
			       (int)(entry + len - mode), mode);
		} else {
			if (*which && *which != clients)
				pr_warn("gcma=: area %.*s is given both '%s' and '%s', using the latter\n",
					(int)area_name_len(cma), cma->name,
					gcma_clients_name(*which),
					gcma_clients_name(clients));
			*which = clients;
		}
		entry += len;
		entry += *entry == ',';
	}
	return for_this ?: for_all;
}

/* Say which entries of gcma= are for no area at all. */
static void __init check_param(void)
{
	const char *entry = gcma_param;

	if (*entry && !cma_area_count)
		pr_err("gcma= is of no use, there is no CMA area; boot with cma=SIZE\n");
	while (*entry && cma_area_count) {
		size_t len = strcspn(entry, ",");
		const char *colon = strnchr(entry, len, ':');
		unsigned int i;

		for (i = 0; colon && i < cma_area_count; i++)
			if (area_is_named(&cma_areas[i], entry, colon - entry))
				break;
		if (colon && i == cma_area_count)
			pr_err("gcma=: no area '%.*s', see /sys/kernel/mm/cma; ignored\n",
			       (int)(colon - entry), entry);
		entry += len;
		entry += *entry == ',';
	}
}

static unsigned int __init default_clients(void)
{
	if (IS_ENABLED(CONFIG_GCMA_DEFAULT_NONE))
		return GCMA_CHOSEN;
	if (IS_ENABLED(CONFIG_GCMA_DEFAULT_FILE))
		return GCMA_CHOSEN | GCMA_FILE;
	if (IS_ENABLED(CONFIG_GCMA_DEFAULT_SWAP))
		return GCMA_CHOSEN | GCMA_SWAP;
	if (IS_ENABLED(CONFIG_GCMA_DEFAULT_FILE_SWAP))
		return GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP;
	return GCMA_STOCK;
}

/**
 * gcma_declare() - choose what a CMA area is lent for
 * @cma: an area just declared, before core_initcall
 * @clients: zero to keep it reserved, or %GCMA_FILE, %GCMA_SWAP or both; or
 *	%GCMA_STOCK alone for plain CMA
 *
 * The gcma= kernel parameter overrides the choice.
 *
 * Return: 0, -EINVAL for other values, -EBUSY if it is too late.
 */
int gcma_declare(struct cma *cma, unsigned int clients)
{
	if (!cma)
		return -EINVAL;
	if (clients != GCMA_STOCK && clients & ~(GCMA_FILE | GCMA_SWAP))
		return -EINVAL;
	if (cma->bitmap)
		return -EBUSY;
	cma->gcma_clients = clients == GCMA_STOCK ? clients : clients | GCMA_CHOSEN;
	return 0;
}

#ifdef CONFIG_OF_EARLY_FLATTREE
/**
 * gcma_declare_fdt() - choose what a CMA area is lent for, by device tree
 * @cma: an area just set up for a reserved-memory node
 * @node: the node; its property linux,gcma-clients has the same words as the
 *	gcma= parameter
 */
void __init gcma_declare_fdt(struct cma *cma, unsigned long node)
{
	const char *text;
	unsigned int clients;
	int len;

	text = of_get_flat_dt_prop(node, "linux,gcma-clients", &len);
	if (!text)
		return;
	if (gcma_parse_clients(text, strnlen(text, len), &clients)) {
		pr_err("area %s: no mode '%.*s' in linux,gcma-clients; ignored\n",
		       cma->name, len, text);
		return;
	}
	cma->gcma_clients = clients;
}
#endif

/* How many bits of the bitmap cover a number of pages. */
static unsigned long to_bits(const struct cma *cma, unsigned long count)
{
	return ALIGN(count, 1UL << cma->order_per_bit) >> cma->order_per_bit;
}

/* bitmap_set() and bitmap_clear(), which go word by word. */
static void fill_bits(unsigned long *bitmap, unsigned long bit,
		      unsigned long nbits, bool value)
{
	unsigned long head = min(nbits, ALIGN(bit, BITS_PER_LONG) - bit);
	unsigned long body = round_down(nbits - head, BITS_PER_LONG);
	unsigned long tail = nbits - head - body;

	if (body)
		/* dmem looks at bits meanwhile, each of which changes once. */
		data_race(memset(bitmap + BIT_WORD(bit + head),
				 value ? 0xff : 0, body / BITS_PER_BYTE));
	if (head | tail && value) {
		bitmap_set(bitmap, bit, head);
		bitmap_set(bitmap, bit + head + body, tail);
	} else if (head | tail) {
		bitmap_clear(bitmap, bit, head);
		bitmap_clear(bitmap, bit + head + body, tail);
	}
}

/* find_next_bit(), which goes word by word. */
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

/* bitmap_find_next_zero_area_off(), likewise. */
static unsigned long next_free(const unsigned long *bitmap, unsigned long size,
			       unsigned long start, unsigned long nbits,
			       unsigned long mask, unsigned long offset)
{
	for (;;) {
		unsigned long bit = find_next_zero_bit(bitmap, size, start);
		unsigned long end, taken;

		bit = ((bit + offset + mask) & ~mask) - offset;
		end = bit + nbits;
		if (end > size)
			return size;
		taken = next_taken(bitmap, end, bit);
		if (taken >= end)
			return bit;
		start = taken + 1;
	}
}

/**
 * gcma_place() - find a place for an allocation
 * @cma: the area; its lock is held
 * @dmem: its frames, or %NULL if it is not lent
 * @count: number of pages
 * @align: alignment of the first page, as an order of pages
 *
 * Only the two ends of a free range are considered, so that what is left of it
 * stays in one piece. The first place where no cached page is lost is taken,
 * starting at the lowest; if there is none, the one where least is lost among
 * the first few ranges, as far as they are close. Requests below a word always
 * take the lowest place, to keep small ones together.
 *
 * Return: bit number in the bitmap of @cma, or a number not below its size.
 */
unsigned long gcma_place(const struct cma *cma, const struct dmem_area *dmem,
			 unsigned long count, unsigned int align)
{
	const unsigned int order = cma->order_per_bit;
	const bool all_free = cma->gcma && !cma->gcma->owned;
	const unsigned long maxno = cma->count >> order;
	unsigned long start = cma->gcma ? cma->gcma->first_free : 0;
	unsigned long nbits = to_bits(cma, count), far = maxno;
	unsigned long taken = nbits << order;
	unsigned long best = maxno, least = ULONG_MAX;
	unsigned long mask = 0, offset, bit, end, live;
	unsigned int tries;

	lockdep_assert_held(&cma->lock);
	if (align > order)
		mask = (1UL << (align - order)) - 1;
	offset = (cma->base_pfn & ((1UL << align) - 1)) >> order;

	for (tries = 0; tries < GCMA_PLACE_TRIES; tries++) {
		/* A search reads every word of the range: spare it if possible. */
		bit = ((offset + mask) & ~mask) - offset;
		if (!all_free || bit + nbits > maxno)
			bit = next_free(cma->bitmap, far, start, nbits, mask,
					offset);
		if (bit >= far)
			break;
		if (!dmem || count < BITS_PER_LONG)
			return bit;
		live = dmem_live(dmem, bit << order, taken);
		if (!live)
			return bit;
		if (live < least) {
			least = live;
			best = bit;
		}

		if (!tries)
			far = min(maxno, bit + nbits + GCMA_PLACE_BITS);
		end = all_free ? maxno :
		      next_taken(cma->bitmap, far, bit + nbits);
		/* Its other end is far away. */
		if (!all_free && end == far && far < maxno)
			break;
		bit = ((end - nbits + offset) & ~mask) - offset;
		live = bit == best ? live : dmem_live(dmem, bit << order, taken);
		if (!live)
			return bit;
		if (live < least) {
			least = live;
			best = bit;
		}
		start = end + 1;
		if (start >= far)
			break;
	}
	return best;
}

/* Make one folio of pages that are handed out, see prep_new_page(). */
static void make_folio(struct page *page, unsigned int order)
{
	unsigned long i;

	/* The reference counts of tail pages are zero. */
	for (i = 1; i < 1UL << order; i++)
		set_page_count(nth_page(page, i), 0);
	prep_compound_page(page, order);
}

/*
 * Claim a released folio in order to take it apart, unless somebody holds it.
 * Under the lock, where it cannot leave quarantine: whoever claims it is alone
 * with it, and speculative references fail until unmake_folio() is done.
 */
static bool claim_folio(const struct cma *cma, struct page *page)
{
	lockdep_assert_held(&cma->lock);
	return PageHead(page) && page_ref_freeze(page, 1);
}

/* Make pages of a claimed folio, see free_pages_prepare(). */
static void unmake_folio(struct page *page)
{
	struct folio *folio = page_folio(page);
	unsigned long i, nr = folio_nr_pages(folio);

	folio->_flags_1 &= ~PAGE_FLAGS_SECOND;
	__ClearPageHead(page);
	page->mapping = NULL;
	for (i = 1; i < nr; i++) {
		struct page *tail = nth_page(page, i);

		tail->mapping = NULL;
		clear_compound_head(tail);
		atomic_set(&tail->_mapcount, -1);
		set_page_private(tail, 0);
		/* Now it may be settled and be somebody else's. */
		page_ref_unfreeze(tail, 1);
	}
	page_ref_unfreeze(page, 1);
}

static void account_latency(struct gcma *gcma, u64 ns)
{
	unsigned int bin = min_t(unsigned int, fls64(ns >> 10),
				 GCMA_LATENCY_BINS - 1);
	s64 max = atomic64_read(&gcma->latency_max);

	atomic_long_inc(&gcma->latency[bin]);
	while ((s64)ns > max &&
	       !atomic64_try_cmpxchg(&gcma->latency_max, &max, ns))
		;
}

/* Must what an allocation returns hold nothing of what was there? */
static bool must_zero(gfp_t gfp)
{
	return want_init_on_alloc(gfp) || gcma_wipes();
}

/**
 * gcma_alloc() - allocate from a guaranteed area
 * @cma: the area
 * @count: number of pages, more than zero and not more than the area has
 * @align: alignment of the first page, as an order of pages
 * @gfp: __GFP_ZERO and __GFP_COMP are honoured
 *
 * Implements cma_alloc(), see there.
 *
 * Context: Process. Sleeps only where pages have to be cleared.
 * Return: the first page, or %NULL if no free range is long enough.
 */
struct page *gcma_alloc(struct cma *cma, unsigned long count,
			unsigned int align, gfp_t gfp)
{
	struct gcma *gcma = cma->gcma;
	unsigned long nbits = to_bits(cma, count);
	unsigned long bit, first, flags, i;
	unsigned long discarded = 0, spins = 0;
	struct dmem_area *dmem;
	struct page *page;
	u64 ns = local_clock();

	spin_lock_irqsave(&cma->lock, flags);
	dmem = gcma->lending ? &gcma->dmem : NULL;
	bit = gcma_place(cma, dmem, count, align);
	if (bit >= cma_bitmap_maxno(cma)) {
		spin_unlock_irqrestore(&cma->lock, flags);
		atomic_long_inc(&gcma->fails);
		return NULL;
	}
	fill_bits(cma->bitmap, bit, nbits, true);
	if (bit == gcma->first_free)
		gcma->first_free += nbits;
	gcma->owned += nbits << cma->order_per_bit;
	spin_unlock_irqrestore(&cma->lock, flags);

	first = bit << cma->order_per_bit;
	if (dmem)
		discarded = dmem_revoke(dmem, first, nbits << cma->order_per_bit,
					&spins);
	page = pfn_to_page(cma->base_pfn + first);
	if (must_zero(gfp) && dmem) {
		dmem_zero_owned(dmem, first, count);
	} else if (must_zero(gfp)) {
		for (i = 0; i < count; i++) {
			clear_highpage(nth_page(page, i));
			cond_resched();
		}
	}
	if (gfp & __GFP_COMP)
		make_folio(page, ilog2(count));

	ns = local_clock() - ns;
	atomic_long_inc(&gcma->allocs);
	account_latency(gcma, ns);
	if (spins)
		atomic_long_add(spins, &gcma->spins);
	if (discarded)
		count_vm_events(GCMA_DISCARD, discarded);
	trace_gcma_alloc(cma->name, cma->base_pfn + first, count, align,
			 discarded, spins, ns);
	return page;
}

/* Does anybody but the area hold any of these pages? */
static bool pages_in_use(unsigned long pfn, unsigned long nr)
{
	unsigned long last = pfn + nr - 1;
	const struct page *page;

	for (; nr && pfn % 4; pfn++, nr--)
		if (page_ref_count(pfn_to_page(pfn)) != 1)
			return true;
	/*
	 * Most of what a release costs, hence plain loads, which can be
	 * operands. Whoever still holds a page is seen; nobody gets hold anew.
	 */
	page = pfn_to_page(pfn);
	for (; nr >= 4; nr -= 4, page = nth_page(page, 4))
		/* Any count but one, old or new, is one to look at again. */
		if (data_race(page[0]._refcount.counter != 1 ||
			      page[1]._refcount.counter != 1 ||
			      page[2]._refcount.counter != 1 ||
			      page[3]._refcount.counter != 1))
			return true;
	for (; nr; nr--)
		if (page_ref_count(pfn_to_page(last + 1 - nr)) != 1)
			return true;
	/* The tails of a folio have no references; here may be its head alone. */
	return PageHead(pfn_to_page(last));
}

/*
 * Is the memory of any of these pages broken? Those of hugetlb are marked
 * without gcma_memory_failure().
 */
static bool pages_poisoned(const struct gcma *gcma, unsigned long pfn,
			   unsigned long nr)
{
#ifdef CONFIG_MEMORY_FAILURE
	if (gcma->suspect || atomic_long_read(&num_poisoned_pages))
		for (; nr; nr--, pfn++)
			if (PageHWPoison(pfn_to_page(pfn)))
				return true;
#endif
	return false;
}

/* Free released bits. Under the lock. */
static void free_bits(struct gcma *gcma, unsigned long bit, unsigned long nbits)
{
	struct cma *cma = gcma->cma;
	unsigned long first = bit << cma->order_per_bit;
	unsigned long nr = nbits << cma->order_per_bit;

	lockdep_assert_held(&cma->lock);
	if (gcma->lending)
		dmem_forget(&gcma->dmem, first, nr);
	fill_bits(gcma->quarantine, bit, nbits, false);
	fill_bits(cma->bitmap, bit, nbits, false);
	gcma->first_free = min(gcma->first_free, bit);
	gcma->quarantined -= nr;
	gcma->owned -= nr;
	if (gcma->lending)
		dmem_give(&gcma->dmem, first, nr);
}

/* A released bit stays allocated for good. Under the lock. */
static void retire_bit(struct gcma *gcma, unsigned long bit)
{
	unsigned long nr = 1UL << gcma->cma->order_per_bit;

	__clear_bit(bit, gcma->quarantine);
	gcma->quarantined -= nr;
	gcma->poisoned += nr;
}

/*
 * Free those of the released bits whose pages nobody holds, but for those with
 * a page whose memory is broken. They are in quarantine, and all changes are
 * made under the lock, so that any number of callers may look at the same bits.
 * Who comes late may find that others have freed them, and that what is in
 * quarantine there now is a folio that somebody held: it is left alone until
 * somebody has claimed it.
 */
static void settle(struct gcma *gcma, unsigned long bit, unsigned long nbits)
{
	struct cma *cma = gcma->cma;
	const unsigned int order = cma->order_per_bit;
	unsigned long end = bit + nbits;
	unsigned long step = max(GCMA_SETTLE_PAGES >> order, 1);

	while (bit < end) {
		unsigned long flags, next = min(bit + step, end);

		spin_lock_irqsave(&cma->lock, flags);
		if (find_next_zero_bit(gcma->quarantine, next, bit) >= next &&
		    !pages_in_use(cma->base_pfn + (bit << order),
				  (next - bit) << order) &&
		    !pages_poisoned(gcma, cma->base_pfn + (bit << order),
				    (next - bit) << order)) {
			free_bits(gcma, bit, next - bit);
			bit = next;
		}
		for (; bit < next; bit++) {
			unsigned long pfn = cma->base_pfn + (bit << order);

			if (!test_bit(bit, gcma->quarantine) ||
			    pages_in_use(pfn, 1UL << order))
				continue;
			if (pages_poisoned(gcma, pfn, 1UL << order))
				retire_bit(gcma, bit);
			else
				free_bits(gcma, bit, 1);
		}
		spin_unlock_irqrestore(&cma->lock, flags);
	}
	gcma_wipe();
}

static void quarantine_look(struct work_struct *work)
{
	struct gcma *gcma = container_of(to_delayed_work(work), struct gcma,
					 quarantine_work);
	struct cma *cma = gcma->cma;
	unsigned long bit, nbits, flags, maxno = cma_bitmap_maxno(cma);

	for (bit = 0; bit < maxno; bit += nbits) {
		struct page *page;
		bool whole, mine;

		spin_lock_irqsave(&cma->lock, flags);
		bit = find_next_bit(gcma->quarantine, maxno, bit);
		if (bit >= maxno) {
			spin_unlock_irqrestore(&cma->lock, flags);
			break;
		}
		page = pfn_to_page(cma->base_pfn + (bit << cma->order_per_bit));
		nbits = to_bits(cma, compound_nr(page));
		whole = PageHead(page);
		mine = claim_folio(cma, page);
		spin_unlock_irqrestore(&cma->lock, flags);
		if (mine)
			unmake_folio(page);
		if (mine || !whole)
			settle(gcma, bit, nbits);
	}
	if (READ_ONCE(gcma->quarantined))
		queue_delayed_work(system_wq, &gcma->quarantine_work,
				   GCMA_QUARANTINE_PERIOD);
}

/**
 * gcma_release() - give back what gcma_alloc() returned
 * @cma: the area
 * @pfn: the first page, in the area
 * @count: number of pages
 *
 * Implements cma_release(), see there. Pages that somebody still holds stay
 * allocated until that has changed. A range that is not allocated is left
 * alone, and the caller is named in the log.
 *
 * Context: Any; does not sleep.
 * Return: false if the range was not allocated.
 */
bool gcma_release(struct cma *cma, unsigned long pfn, unsigned long count)
{
	struct gcma *gcma = cma->gcma;
	const unsigned int order = cma->order_per_bit;
	unsigned long first = pfn - cma->base_pfn;
	unsigned long bit = first >> order, nbits = to_bits(cma, count);
	struct page *page = pfn_to_page(pfn);
	bool allocated, mine = false;
	unsigned long flags;

	spin_lock_irqsave(&cma->lock, flags);
	allocated = count && count <= cma->count - first &&
		    IS_ALIGNED(first, 1UL << order) &&
		    find_next_zero_bit(cma->bitmap, bit + nbits, bit) >= bit + nbits &&
		    find_next_bit(gcma->quarantine, bit + nbits, bit) >= bit + nbits &&
		    !PageTail(page) &&
		    (!PageHead(page) || compound_nr(page) == count);
	if (allocated) {
		fill_bits(gcma->quarantine, bit, nbits, true);
		gcma->quarantined += nbits << order;
		mine = claim_folio(cma, page);
	}
	spin_unlock_irqrestore(&cma->lock, flags);
	if (!allocated) {
		atomic_long_inc(&gcma->bad_releases);
		pr_err_ratelimited("area %s: pages 0x%lx+%lu released by %pS are not allocated; ignored\n",
				   cma->name, pfn, count,
				   __builtin_return_address(0));
		return false;
	}

	if (mine)
		unmake_folio(page);
	/* A folio that somebody holds is left for quarantine_look(). */
	if (!PageHead(page))
		settle(gcma, bit, nbits);
	if (READ_ONCE(gcma->quarantined))
		queue_delayed_work(system_wq, &gcma->quarantine_work,
				   GCMA_QUARANTINE_PERIOD);
	trace_gcma_release(cma->name, pfn, count, READ_ONCE(gcma->quarantined));
	return true;
}

/**
 * gcma_memory_failure() - the memory of a page is broken
 * @pfn: the page, which is marked as such
 *
 * A frame that is idle is taken out of use, with the copy that may be in it;
 * allocations are placed around it. One that is allocated is when it has been
 * released.
 *
 * Context: Process.
 * Return: true if it was an idle frame, and nothing is left to be done.
 */
bool gcma_memory_failure(unsigned long pfn)
{
	unsigned long bit, nr, flags;
	struct dmem_area *dmem;
	struct gcma *gcma;
	struct cma *cma;
	unsigned int i;
	bool idle;

	for (i = 0; i < cma_area_count; i++) {
		gcma = gcma_area(i);
		if (gcma && pfn - gcma->cma->base_pfn < gcma->cma->count)
			break;
	}
	if (i == cma_area_count)
		return false;
	cma = gcma->cma;
	bit = (pfn - cma->base_pfn) >> cma->order_per_bit;
	nr = 1UL << cma->order_per_bit;

	spin_lock_irqsave(&cma->lock, flags);
	dmem = gcma->lending ? &gcma->dmem : NULL;
	idle = !test_bit(bit, cma->bitmap);
	if (idle) {
		fill_bits(cma->bitmap, bit, 1, true);
		gcma->owned += nr;
		gcma->poisoned += nr;
	} else {
		gcma->suspect = true;
	}
	spin_unlock_irqrestore(&cma->lock, flags);
	if (idle && dmem)
		dmem_revoke(dmem, bit << cma->order_per_bit, nr, NULL);
	if (idle)
		pr_warn("area %s: page frame 0x%lx is broken, and out of use\n",
			cma->name, pfn);
	return idle;
}

/* Clear what idle frames held. */
static void wipe(struct work_struct *work)
{
	struct gcma *gcma = container_of(to_delayed_work(work), struct gcma,
					 wipe_work);

	dmem_zero_idle(&gcma->dmem, 0, gcma->dmem.nr);
}

/**
 * __gcma_wipe() - see gcma_wipe()
 */
void __gcma_wipe(void)
{
	struct gcma *gcma;
	unsigned int i;

	for (i = 0; i < cma_area_count; i++) {
		gcma = gcma_area(i);
		if (gcma && gcma_lent(gcma))
			queue_delayed_work(system_unbound_wq, &gcma->wipe_work,
					   GCMA_WIPE_DELAY);
	}
}

/**
 * gcma_area() - the guaranteed areas, one after the other
 * @nr: number of a CMA area
 *
 * Return: the guaranteed area, or %NULL if that one is plain CMA.
 */
struct gcma *gcma_area(unsigned int nr)
{
	return nr < cma_area_count ? cma_areas[nr].gcma : NULL;
}

/**
 * gcma_activate() - make a CMA area a guaranteed one if that was asked for
 * @cma: the area, whose bitmap exists and whose pages are reserved
 *
 * Return: true if it is, and so must not be given to the buddy allocator.
 */
bool __init gcma_activate(struct cma *cma)
{
	unsigned int clients = param_clients(cma);
	unsigned long pfn;
	struct gcma *gcma;

	if (!clients)
		clients = cma->gcma_clients ?: default_clients();
	if (clients == GCMA_STOCK)
		return false;

	gcma = kzalloc(sizeof(*gcma), GFP_KERNEL);
	if (!gcma)
		goto no_memory;
	gcma->quarantine = bitmap_zalloc(cma_bitmap_maxno(cma), GFP_KERNEL);
	if (!gcma->quarantine)
		goto no_memory;
	for (pfn = cma->base_pfn; pfn < cma->base_pfn + cma->count; pfn++) {
		struct page *page = pfn_to_page(pfn);

		/* Who wants to take memory offline must see that this stays. */
		if (IS_ALIGNED(pfn, pageblock_nr_pages))
			set_pageblock_migratetype(page, MIGRATE_CMA);
		__ClearPageReserved(page);
		set_page_count(page, 1);
	}
	INIT_DELAYED_WORK(&gcma->quarantine_work, quarantine_look);
	INIT_DELAYED_WORK(&gcma->wipe_work, wipe);
	gcma->cma = cma;
	cma->gcma = gcma;
	cma->gcma_clients = clients;
	pr_info("area %.*s: %lu MiB, clients: %s\n", (int)area_name_len(cma),
		cma->name, cma->count >> (20 - PAGE_SHIFT),
		gcma_clients_name(clients));
	return true;

no_memory:
	pr_err("area %.*s: no memory for its metadata, using plain CMA\n",
	       (int)area_name_len(cma), cma->name);
	kfree(gcma);
	return false;
}

/*
 * Let dmem have the frames of an area, no client yet. What is allocated stays
 * so, as the bitmap says.
 */
static int lend(struct gcma *gcma)
{
	struct cma *cma = gcma->cma;
	unsigned long flags;
	int err;

	lockdep_assert_held(&control);
	err = dmem_area_init(&gcma->dmem, cma->base_pfn, cma->count,
			     cma->bitmap, cma->order_per_bit, 0);
	if (err)
		return err;
	dmem_set_adaptive(&gcma->dmem, gcma_admit == GCMA_ADMIT_ADAPTIVE);
	err = dmem_add_area(&gcma_dmem, &gcma->dmem);
	if (err) {
		dmem_area_exit(&gcma->dmem);
		return err;
	}
	/*
	 * An allocation that saw it as not lent has marked what it takes, and
	 * stores will see that.
	 */
	spin_lock_irqsave(&cma->lock, flags);
	atomic_long_sub(gcma->owned, &gcma->dmem.idle);
	/* Pairs with smp_load_acquire() in gcma_lent(). */
	smp_store_release(&gcma->lending, true);
	spin_unlock_irqrestore(&cma->lock, flags);
	return 0;
}

/* The bit mask that dmem has for GCMA_* bits. */
static unsigned int dmem_clients(unsigned int clients)
{
	return (clients & (GCMA_FILE | GCMA_SWAP)) >> 1;
}

/**
 * gcma_set_clients() - change what an area is lent for
 * @gcma: the area
 * @clients: GCMA_* bits, as gcma_parse_clients() gives them
 *
 * Copies of a client that no longer may have any are discarded. Allocations
 * are served as ever meanwhile.
 *
 * Context: Process.
 * Return: 0; -EOPNOTSUPP for plain CMA, as its pages belong to the buddy
 * allocator from boot on; or -ENOMEM, -EINVAL or -ENOSPC if the area cannot be
 * lent.
 */
int gcma_set_clients(struct gcma *gcma, unsigned int clients)
{
	unsigned int i, all = 0;
	int err = 0;

	if (clients == GCMA_STOCK)
		return -EOPNOTSUPP;

	mutex_lock(&control);
	if (clients & (GCMA_FILE | GCMA_SWAP) && !gcma->lending)
		err = lend(gcma);
	if (!err) {
		WRITE_ONCE(gcma->cma->gcma_clients, clients);
		for (i = 0; i < cma_area_count; i++)
			if (cma_areas[i].gcma && cma_areas[i].gcma->lending)
				all |= cma_areas[i].gcma_clients;
		WRITE_ONCE(gcma_clients, all & (GCMA_FILE | GCMA_SWAP));
		if (gcma->lending) {
			dmem_set_clients(&gcma->dmem, dmem_clients(clients));
			static_branch_enable(&gcma_lending);
		}
	}
	mutex_unlock(&control);
	return err;
}

/**
 * gcma_set_admit() - choose which pages are kept
 * @admit: see there
 *
 * Context: Process.
 */
void gcma_set_admit(enum gcma_admit admit)
{
	unsigned int i;

	mutex_lock(&control);
	WRITE_ONCE(gcma_admit, admit);
	for (i = 0; i < gcma_dmem.nr_areas; i++)
		dmem_set_adaptive(gcma_dmem.area[i],
				  admit == GCMA_ADMIT_ADAPTIVE);
	mutex_unlock(&control);
}

/**
 * gcma_prepare() - an allocation comes soon
 * @gcma: the area
 * @count: how many pages it will want
 *
 * Discards what is kept where an allocation of that size, aligned as the DMA
 * API does it, would go, so that it finds nothing left to discard, and where
 * allocations are to be cleared, nothing left to clear. It is a hint: nothing is
 * reserved, and the next allocation may go elsewhere.
 *
 * Context: Process.
 * Return: number of pages discarded, -ENOSPC if there is no such place, or
 * another error if it cannot be noted what is cleared.
 */
long gcma_prepare(struct gcma *gcma, unsigned long count)
{
	struct cma *cma = gcma->cma;
	unsigned int align = get_order(count << PAGE_SHIFT);
	unsigned long flags, first, bit, nr;
	struct dmem_area *dmem;
	int err = 0;

	/* What is cleared ahead is noted there. */
	mutex_lock(&control);
	if (must_zero(GFP_KERNEL) && !gcma->lending)
		err = lend(gcma);
	mutex_unlock(&control);
	if (err)
		return err;
	dmem = gcma_lent(gcma);
#ifdef CONFIG_CMA_ALIGNMENT
	align = min_t(unsigned int, align, CONFIG_CMA_ALIGNMENT);
#endif
	spin_lock_irqsave(&cma->lock, flags);
	bit = gcma_place(cma, dmem, count, align);
	spin_unlock_irqrestore(&cma->lock, flags);
	if (bit >= cma_bitmap_maxno(cma))
		return -ENOSPC;
	if (!dmem)
		return 0;
	first = bit << cma->order_per_bit;
	count = to_bits(cma, count) << cma->order_per_bit;
	nr = dmem_clear(dmem, first, count);
	if (nr)
		count_vm_events(GCMA_DISCARD, nr);
	if (must_zero(GFP_KERNEL))
		dmem_zero_idle(dmem, first, count);
	return nr;
}

/*
 * A hibernation image has no pages of zeros: while one is made nothing is kept,
 * and idle frames are cleared.
 */
static int gcma_pm(struct notifier_block *nb, unsigned long event, void *data)
{
	bool away = event == PM_HIBERNATION_PREPARE;
	unsigned int i;

	if (!away && event != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	mutex_lock(&control);
	for (i = 0; i < cma_area_count; i++) {
		struct gcma *gcma = gcma_area(i);

		if (!gcma || !gcma->lending)
			continue;
		dmem_set_clients(&gcma->dmem,
				 away ? 0 : dmem_clients(cma_areas[i].gcma_clients));
		if (away)
			dmem_zero_idle(&gcma->dmem, 0, gcma->dmem.nr);
	}
	mutex_unlock(&control);
	return NOTIFY_OK;
}

static int __init gcma_init(void)
{
	unsigned long frames = 0;
	struct gcma *gcma;
	unsigned int i;
	int err;

	check_param();
	for (i = 0; i < cma_area_count; i++) {
		gcma = gcma_area(i);
		if (gcma)
			frames += gcma->cma->count;
	}
	if (!frames)
		return 0;
	if (dmem_init(&gcma_dmem, frames)) {
		pr_err("no memory for the index, areas stay reserved\n");
		return -ENOMEM;
	}
	for (i = 0; i < cma_area_count; i++) {
		gcma = gcma_area(i);
		if (!gcma)
			continue;
		err = gcma_set_clients(gcma, gcma->cma->gcma_clients);
		if (err) {
			pr_err("area %.*s: cannot be lent (%d), stays reserved\n",
			       (int)area_name_len(gcma->cma), gcma->cma->name,
			       err);
			gcma->cma->gcma_clients = GCMA_CHOSEN;
		}
	}
	pm_notifier(gcma_pm, 0);
	return gcma_sysfs_init();
}
subsys_initcall(gcma_init);
