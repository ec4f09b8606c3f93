// SPDX-License-Identifier: GPL-2.0
/*
 * dmem: discardable memory
 *
 * A cache of pages in page frames that belong to somebody else. The owner takes
 * frames back without asking, and what they held is gone. Clients therefore
 * keep only what they can get again elsewhere: a miss is never an error, and
 * every path here may give up rather than wait.
 *
 * The cache is set-associative. Frames are numbered across all areas, and frame
 * w * nr_sets + s is way w of set s, so that an owner of a contiguous
 * range takes ways evenly from all sets. The sixteen pages of a piece of a file have
 * a set each, and the sets form groups of sixteen or seventeen, of which a piece has
 * one (where sets are few, one group of all). So neighbours mostly stay or go together,
 * and what has to be read from the device is not cut into single pages.
 *
 * Pieces do not fall on groups evenly; with 64 ways, sets that are full are rare where
 * others have room.
 *
 * Each frame has three bits that the owner changes without any lock. "Owned" is
 * set by the owner. "Live" says that the frame holds content, "zero" that it is
 * all zeros; neither means anything while the frame is owned, and zero nothing
 * while it is live. So to take back any number of frames, the owner sets bits and
 * waits for copies in flight, whatever the frames hold:
 *
 *	owner (dmem_revoke)		everybody else (place_enter)
 *
 *	owned = 1			lock of the set, interrupts off
 *	smp_mb()			hazard[cpu] = pfn + 1
 *	while (hazard[cpu] in range)	smp_mb()
 *		cpu_relax()		if (owned) give up
 *					copy or clear a page at most,
 *					change live or zero
 *					hazard[cpu] = 0 (release)
 *
 * Either the owner sees the hazard and waits for that one page, or the other
 * side sees that the frame is owned. While its hazard is set, the other side
 * waits for nothing, serves no fault and is not interrupted. To give frames back,
 * the owner clears live, then owned (dmem_release). The key of a frame stays in
 * the set until somebody finds that the frame is not live any more.
 *
 * A fourth bit, secret, says that content which is to be wiped on demand may be
 * in the frame, live or not. It changes under the lock only, and stays while the
 * frame is owned: the owner need not have written there.
 *
 * dmem_store() copies a page and gives it its key in one step, dmem_load() moves
 * content out and dmem_read() copies parts of it, all under the lock of the set.
 * A client may store a page that can still change. Then it tells nobody that there
 * is a page under the key, and calls dmem_invalidate() if the page has changed.
 *
 * Each way has a tag: zero if it has no key, or else seven bits of the key's hash.
 * A search compares eight tags at a time, and keys only where the tags are the
 * same. The owner does not touch the sets, but counts how often
 * it has given frames back. A store that finds no free way after that frees those
 * whose content is gone (set_renew).
 *
 * Replacement is RRIP (Jaleel et al., ISCA 2010). A re-reference prediction
 * value of two bits says how soon content is of use again: 0 is near, 3 distant.
 * A page takes a free way, or replaces the most distant content of its set. If
 * that was at less than 3, the whole set ages by the difference. A read of content
 * that stays makes it near, if the client says so. There are two policies:
 *
 *	generous	Every page is stored; it starts at 2.
 *	thrifty		Where no way is free, pages of the working set replace
 *			content at 3 only, so that they make none older. Others
 *			replace nothing, but for one of sixteen pieces, which is
 *			stored in any case. Pages start at 3, those of the
 *			working set at 2.
 *
 * The first is right for what comes back soon, the second for streams and for
 * loops that do not fit. Two small classes of pieces, with sets of their own,
 * lead: each always follows one policy (set dueling; Qureshi et al., ISCA 2007).
 * All other pieces follow the generous class if it finds so many more pages than
 * the thrifty one that the additional copies pay.
 *
 * Locks: one lock of a set at a time, innermost. It is taken under locks that
 * interrupt handlers take, so interrupts are always off. The client serialises
 * stores of the same key. Loads, reads and invalidations may meet a store: they
 * find what was there before, nothing, or the new page.
 */

#include <linux/bitmap.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/lockdep.h>
#include <linux/math.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "dmem.h"

#define RRPV_MAX	3
/* A tag has seven bits. In eight tags: the lowest bit of each, and the eighth bit. */
#define TAG_MAX		0x7f
#define TAGS_LOW	0x0101010101010101ULL
#define TAGS_ABOVE	0x8080808080808080ULL
#define PIECE		BIT(DMEM_PIECE_ORDER)
/* Each class of leaders has one of so many pieces, and one of so many sets. */
#define LEADER_SHARE	64
/* The thrifty policy stores one of so many pieces in any case. */
#define CHANCE_SHARE	16
/* The policy is chosen again each time a class has been offered so many pages. */
#define ROUND_PAGES	512
/* Copies pay if there is one read of the device less for so many pages offered. */
#define PAYS_SHARE	8
/* Pages that are cleared at once: processors are faster that way, but others want to run, too. */
#define CLEAR_BATCH	64UL

/* Classes of pieces: two of leaders, and the others. */
enum { GENEROUS, THRIFTY, FOLLOWER };

/* A piece; the locked set of one of its pages; a way of that set and its frame. */
struct dmem_place {
	u64 hash;		/* of the piece */
	unsigned int class;
	u32 first;		/* of the group's sets */
	u32 nr_sets;		/* of the group */
	u32 start;		/* in which of them is the piece's first page */
	u32 set_nr;		/* of the locked set */
	struct dmem_set *set;
	unsigned int way;
	unsigned long nr;
	struct dmem_area *area;
	unsigned long flags;
};

/* The pfn of the frame that this CPU copies into or out of; zero if there is none. */
static DEFINE_PER_CPU(unsigned long, dmem_hazard);

static struct page *frame_page(const struct dmem_area *area, unsigned long nr)
{
	return pfn_to_page(area->base_pfn + nr - area->first);
}

static inline bool frame_owned(const struct dmem_area *area, unsigned long nr)
{
	/* Pairs with smp_wmb() in dmem_release(): if not owned, then not live. */
	return test_bit_acquire((nr - area->first) >> area->owned_order,
				area->owned);
}

static void place_lock(const struct dmem *dmem, struct dmem_place *place, u32 nr)
	__acquires(&place->set->lock)
{
	unsigned long flags;

	place->set_nr = nr;
	place->set = dmem->set + nr;
	raw_spin_lock_irqsave(&place->set->lock, flags);
	place->flags = flags;
}

/* In which sets the pages of a piece are; none is locked. */
static struct dmem_place place_piece(const struct dmem *dmem, const void *space,
				     unsigned long offset)
{
	u64 hash = (offset >> DMEM_PIECE_ORDER) * GOLDEN_RATIO_64;
	const struct dmem_class *class;
	u32 number, group, nr_sets;

	hash = ((hash ^ hash >> 32) + (unsigned long)space) * GOLDEN_RATIO_64;
	hash = (hash ^ hash >> 32) * GOLDEN_RATIO_64;
	hash ^= hash >> 32;
	/* The class takes the lowest bits of the hash, the group the upper half. */
	number = dmem->nr_led ? min_t(u32, hash % LEADER_SHARE, FOLLOWER) : FOLLOWER;
	class = &dmem->class[number];
	group = reciprocal_scale(hash >> 32, class->groups);
	nr_sets = class->width + (group < class->wide);
	return (struct dmem_place) {
		.hash = hash,
		.class = number,
		.first = class->first + group * class->width + min(group, class->wide),
		.nr_sets = nr_sets,
		/* Many pieces have few pages; so each begins with another set. */
		.start = reciprocal_scale((u32)(hash >> 8), nr_sets),
	};
}

/* Which set a page of the piece is in. */
static u32 place_set(const struct dmem_place *place, unsigned long offset)
{
	u32 index = place->start + offset % PIECE;

	while (index >= place->nr_sets)
		index -= place->nr_sets;
	return place->first + index;
}

/* Turn to a way of the locked set. */
static void place_turn(const struct dmem *dmem, struct dmem_place *place,
		       unsigned int way)
{
	unsigned int i;

	lockdep_assert_held(&place->set->lock);
	place->way = way;
	place->nr = (unsigned long)way * dmem->nr_sets + place->set_nr;
	/* No area may have the last ways of a set. */
	place->area = NULL;
	for (i = 0; i < dmem->nr_areas && !place->area; i++)
		if (place->nr - dmem->area[i]->first < dmem->area[i]->nr)
			place->area = dmem->area[i];
}

/*
 * Announce a copy into or out of the frame, or a change of its live or zero bit.
 * Returns false if neither is allowed, because the frame is owned.
 */
static __always_inline bool place_enter(struct dmem_place *place)
{
	lockdep_assert_held(&place->set->lock);
	/* What was done to another frame of the set, then leave that one. */
	smp_store_release(this_cpu_ptr(&dmem_hazard),
			  place->area->base_pfn + place->nr - place->area->first + 1);
	/* Pairs with smp_mb() in wait_for_copies(): hazard before owned. */
	smp_mb();
	return !frame_owned(place->area, place->nr);
}

static void place_unlock(struct dmem_place *place)
	__releases(&place->set->lock)
{
	/* Pairs with smp_load_acquire() in wait_for_copies(): copy, then leave. */
	smp_store_release(this_cpu_ptr(&dmem_hazard), 0);
	raw_spin_unlock_irqrestore(&place->set->lock, place->flags);
}

/* The client that stored the content. */
static unsigned int place_client(const struct dmem_place *place)
{
	return place->set->client >> place->way & 1;
}

/* Forget the key of a way, and make it free. */
static void way_forget(struct dmem_set *set, unsigned int way)
{
	lockdep_assert_held(&set->lock);
	set->tag[way] = 0;
	set->used &= ~BIT_ULL(way);
}

static __always_inline void place_empty(struct dmem *dmem, const struct dmem_place *place)
{
	way_forget(place->set, place->way);
	clear_bit(place->nr, dmem->live);
}

static void set_rrpv(struct dmem_set *set, unsigned int way, unsigned int rrpv)
{
	lockdep_assert_held(&set->lock);
	set->rrpv[0] = (set->rrpv[0] & ~BIT_ULL(way)) | (u64)(rrpv & 1) << way;
	set->rrpv[1] = (set->rrpv[1] & ~BIT_ULL(way)) | (u64)(rrpv >> 1) << way;
}

/* The tags of eight ways, that of the first in the lowest byte. */
static u64 eight_tags(const struct dmem_set *set, unsigned int first)
{
	return le64_to_cpup((const __le64 *)(set->tag + first));
}

/* The eighth bit of each byte that is zero. No byte may have that bit set. */
static u64 zero_bytes(u64 bytes)
{
	return (TAGS_ABOVE - bytes) & TAGS_ABOVE;
}

static u8 place_tag(const struct dmem_place *place)
{
	/* Bits of the hash that nothing else depends on. */
	return (place->hash >> 24 & TAG_MAX) ?: 1;
}

/*
 * The way of a key in a set, -1 if there is none. Where the set is not locked that is
 * right for pages that were stored before, unless somebody drops them meanwhile.
 */
static __always_inline int set_find(const struct dmem_set *set, u8 tag,
				    const void *space, unsigned long offset)
{
	const u64 wanted = tag * TAGS_LOW;
	unsigned int first, way;
	u64 same;

#pragma GCC unroll 8
	for (first = 0; first < DMEM_WAYS; first += 8) {
		/* Others store under other keys, and drop pages. */
		same = zero_bytes(data_race(eight_tags(set, first)) ^ wanted);
		for (; unlikely(same); same &= same - 1) {
			way = first + __ffs64(same) / 8;
			/* Likewise. */
			if (data_race(set->way[way].offset == offset &&
				      set->way[way].space == space))
				return way;
		}
	}
	return -1;
}

/* Enter the live frame of a key of the piece. If there is none, its set is locked all the same. */
static __always_inline bool
place_lock_find(const struct dmem *dmem, struct dmem_place *place,
		const void *space, unsigned long offset)
	__acquires(&place->set->lock)
{
	int way;

	place_lock(dmem, place, place_set(place, offset));
	way = set_find(place->set, place_tag(place), space, offset);
	if (way < 0)
		return false;
	place_turn(dmem, place, way);
	if (place_enter(place) && test_bit(place->nr, dmem->live))
		return true;
	/* The owner has taken the frame. */
	way_forget(place->set, way);
	return false;
}

/*
 * Copy the content alone. copy_highpage() would copy memory tags, too: swap keeps
 * those itself, and in a frame they would stay for its next user.
 * Returns false if the memory of @from is broken; it is taken out of use then.
 */
static bool copy_content(struct page *to, struct page *from)
{
#if defined(CONFIG_MEMORY_FAILURE) && defined(copy_mc_to_kernel)
	/* Where there are such copies, there are no tags. */
	return !copy_mc_highpage(to, from);
#else
	memcpy_page(to, 0, from, 0, PAGE_SIZE);
	return true;
#endif
}

/*
 * Choose the policy of the followers. A page is offered after it was read from the
 * device, or found here and loaded. So a policy is as good as the share of its
 * pages, offered or served in place, that were found. If the shares are alike, the
 * policy with fewer copies wins.
 */
static void choose_policy(struct dmem *dmem)
{
	s64 offered[DMEM_LEADERS], found[DMEM_LEADERS], gain;
	unsigned int i;

	for (i = 0; i < DMEM_LEADERS; i++) {
		offered[i] = atomic_read(&dmem->offered[i]);
		found[i] = atomic_read(&dmem->found[i]);
		atomic_sub(offered[i] / 2, &dmem->offered[i]);
		atomic_sub(found[i] / 2, &dmem->found[i]);
	}
	gain = found[GENEROUS] * offered[THRIFTY] - found[THRIFTY] * offered[GENEROUS];
	WRITE_ONCE(dmem->thrifty,
		   gain * PAYS_SHARE <= offered[GENEROUS] * offered[THRIFTY]);
}

static void count_offered(struct dmem *dmem, unsigned int class)
{
	if (class != FOLLOWER &&
	    atomic_inc_return(&dmem->offered[class]) % ROUND_PAGES == 0)
		choose_policy(dmem);
}

static void count_found(struct dmem *dmem, unsigned int class)
{
	if (class != FOLLOWER)
		atomic_inc(&dmem->found[class]);
}

/* Enter the frame of a way of the locked set if a page of a client may take it. */
static __always_inline bool place_enter_way(const struct dmem *dmem,
					    struct dmem_place *place,
					    unsigned int way, unsigned int client)
{
	const struct dmem_area *area;

	place_turn(dmem, place, way);
	area = place->area;
	/* First without a barrier. Then last: dmem_set_clients() waits for the hazard. */
	return area && READ_ONCE(area->clients) & BIT(client) && place_enter(place) &&
	       READ_ONCE(area->clients) & BIT(client);
}

/*
 * A page cannot take a way. If the owner has its frame, perhaps for long, or nobody may
 * store there, it is made a way that is not free, of no key, and not tried again until
 * frames have changed hands. Otherwise every store would try it.
 */
static noinline void place_pass_over(const struct dmem_place *place)
{
	const struct dmem_area *area = place->area;
	struct dmem_set *set = place->set;

	if (area && READ_ONCE(area->clients) && !frame_owned(area, place->nr))
		return;
	way_forget(set, place->way);
	set->used |= BIT_ULL(place->way);
	set->lost |= BIT_ULL(place->way);
}

/* Free the ways of the locked set whose content has gone with the frame since. */
static void set_renew(const struct dmem *dmem, struct dmem_set *set, u32 changes)
{
	unsigned long nr = set - dmem->set;
	unsigned int way;

	lockdep_assert_held(&set->lock);
	set->changes = changes;
	set->lost = 0;
	for (way = 0; way < DMEM_WAYS; way++, nr += dmem->nr_sets)
		if (!test_bit(nr, dmem->live))
			way_forget(set, way);
}

/* Enter a frame of the locked set that is free and that a page of a client may take. */
static __always_inline bool place_free(const struct dmem *dmem, struct dmem_place *place,
				       unsigned int client)
{
	/* Pairs with dmem_changed(): not owned, or for a client, then counted. */
	u32 changes = atomic_read_acquire(&dmem->changes);
	struct dmem_set *set = place->set;
	u64 ways;

	for (;;) {
		for (ways = ~set->used; ways; ways &= ways - 1) {
			if (place_enter_way(dmem, place, __ffs64(ways), client))
				return true;
			place_pass_over(place);
		}
		if (likely(set->changes == changes))
			return false;
		set_renew(dmem, set, changes);
	}
}

/*
 * Enter the frame of the locked set, none of which is free, that a page of a client
 * takes. Returns the RRPV of what would be lost, which is @least or more, or else -1.
 */
static __always_inline int place_replace(const struct dmem *dmem, struct dmem_place *place,
					 unsigned int client, int least)
{
	struct dmem_set *set = place->set;
	int rrpv;
	u64 ways;

	for (rrpv = RRPV_MAX; rrpv >= least; rrpv--) {
		/* Those that have it, the one at the hand first. */
		ways = ~((set->rrpv[0] ^ -(u64)(rrpv & 1)) | (set->rrpv[1] ^ -(u64)(rrpv >> 1)));
		for (ways = ror64(ways & ~set->lost, set->hand); ways; ways &= ways - 1) {
			if (place_enter_way(dmem, place, (set->hand + __ffs64(ways)) % DMEM_WAYS,
					    client))
				return rrpv;
			place_pass_over(place);
		}
	}
	if (!least)
		this_cpu_inc(dmem->area[0]->stats->refused[client]);
	return -1;
}

/*
 * Store one page of the piece; see dmem_store(). It replaces only content whose RRPV
 * is @least or more, and starts at @rrpv. Without a folio, only find out whether there is
 * room.
 */
static bool store_page(struct dmem *dmem, struct dmem_place *place,
		       struct folio *folio, unsigned long nr,
		       const void *space, unsigned long offset,
		       unsigned int client, bool secret, int least, unsigned int rrpv)
{
	struct dmem_set *set;
	int lost = RRPV_MAX;
	bool stored;
	u64 low, bit;

	/* Drop an older copy first: a key never has two live frames. */
	if (unlikely(place_lock_find(dmem, place, space, offset)))
		place_empty(dmem, place);
	set = place->set;
	stored = place_free(dmem, place, client) ||
		 (lost = place_replace(dmem, place, client, least)) >= 0;
	if (!stored || !folio)
		goto out;
	bit = BIT_ULL(place->way);
	if (set->used & bit) {
		if (test_bit(place->nr, dmem->live))
			this_cpu_inc(place->area->stats->evicted[place_client(place)]);
		for (; lost < RRPV_MAX; lost++) {
			low = set->rrpv[0];
			set->rrpv[0] = ~low | set->rrpv[1];
			set->rrpv[1] |= low;
		}
		set->hand = (place->way + 1) % DMEM_WAYS;
	}
	set->used |= bit;
	set->tag[place->way] = place_tag(place);
	set->way[place->way] = (struct dmem_frame) { space, offset };
	WRITE_ONCE(set->client, (set->client & ~bit) | (u64)client << place->way);
	set_rrpv(set, place->way, rrpv);
	if (test_bit(place->nr, dmem->zero))
		clear_bit(place->nr, dmem->zero);
	if (test_bit(place->nr, dmem->secret) != secret)
		change_bit(place->nr, dmem->secret);
	stored = copy_content(frame_page(place->area, place->nr), folio_page(folio, nr));
	if (unlikely(!stored)) {
		/* The rest may be a secret that was there before. */
		set_bit(place->nr, dmem->secret);
		place_empty(dmem, place);
		goto out;
	}
	set_bit(place->nr, dmem->live);
	this_cpu_inc(place->area->stats->stored[client]);
out:
	place_unlock(place);
	return stored;
}

/**
 * dmem_store() - store the pages of a folio
 * @dmem: the cache
 * @folio: the folio
 * @space: first part of the keys, not %NULL
 * @offset: second part of the first page's key, the others' follow
 * @client: whose folio it is
 * @flags: DMEM_WORKINGSET, DMEM_SECRET
 *
 * All pages are stored or none, with the policy that the first one's key chooses.
 * If @folio changes later, the caller calls dmem_invalidate().
 *
 * Context: Any but interrupt handlers. Does not sleep.
 * Return: true if all pages have been stored. If not, there is nothing under the keys.
 */
bool dmem_store(struct dmem *dmem, struct folio *folio, const void *space,
		unsigned long offset, unsigned int client, unsigned int flags)
{
	unsigned long i, nr = folio_nr_pages(folio);
	bool workingset = flags & DMEM_WORKINGSET;
	struct dmem_place place = place_piece(dmem, space, offset);
	unsigned int class = place.class;
	bool thrifty = class == FOLLOWER ? READ_ONCE(dmem->thrifty) : class == THRIFTY;
	struct folio *from = folio;
	int least = 0;

	if (thrifty && workingset)
		least = RRPV_MAX;
	else if (thrifty && (place.hash >> 8) % CHANCE_SHARE)
		least = RRPV_MAX + 1;
	count_offered(dmem, class);
	/* Further pieces count for their own classes, where their pages are found. */
	for (i = 1; i < nr; i++) {
		if ((offset + i) % PIECE == 0)
			class = place_piece(dmem, space, offset + i).class;
		count_offered(dmem, class);
	}
	/* If one page found no room, the others would be copied in vain: so look first. */
	if (nr > 1 && least)
		from = NULL;
	i = 0;
	while (store_page(dmem, &place, from, i, space, offset + i, client,
			  flags & DMEM_SECRET, least, RRPV_MAX - (workingset || !thrifty))) {
		if (++i == nr) {
			if (from)
				return true;
			from = folio;
			i = 0;
		}
		if (!i || (offset + i) % PIECE == 0)
			place = place_piece(dmem, space, offset + i);
	}
	/* What was there before goes with what did not come to stay; of one page it has gone. */
	if (nr > 1)
		dmem_invalidate(dmem, space, offset, nr);
	return false;
}

/**
 * dmem_load() - move a page out of the cache
 * @dmem: the cache
 * @space: first part of the key
 * @offset: second part of the key
 * @page: where to copy it
 * @client: whose page it is
 *
 * Context: Any but interrupt handlers. Does not sleep.
 * Return: true if @page has been filled. If not, nothing is left under the key.
 */
bool dmem_load(struct dmem *dmem, const void *space, unsigned long offset,
	       struct page *page, unsigned int client)
{
	struct dmem_place place = place_piece(dmem, space, offset);
	bool found = place_lock_find(dmem, &place, space, offset);

	if (found) {
		found = copy_content(page, frame_page(place.area, place.nr));
		place_empty(dmem, &place);
	}
	place_unlock(&place);
	if (found) {
		this_cpu_inc(place.area->stats->loaded[client]);
		count_found(dmem, place.class);
	} else {
		dmem_count_missed(dmem, client);
	}
	return found;
}

/**
 * dmem_has() - is there a page under a key
 * @dmem: the cache
 * @space: first part of the key
 * @offset: second part of the key
 *
 * Context: Any but interrupt handlers. Does not sleep.
 * Return: true if there is, out of date at once.
 */
bool dmem_has(struct dmem *dmem, const void *space, unsigned long offset)
{
	struct dmem_place place = place_piece(dmem, space, offset);
	bool found = place_lock_find(dmem, &place, space, offset);

	place_unlock(&place);
	return found;
}

/**
 * dmem_read() - copy pages that stay in the cache
 * @dmem: the cache
 * @space: first part of the keys
 * @pos: first byte; the second part of its key counts pages
 * @len: number of bytes
 * @buf: where to copy them; or %NULL
 * @to: for user memory that access_ok() allows, and that is no device's
 * @client: whose pages they are
 * @near: whether to make their content near, to be replaced last
 *
 * Context: Process. Does not sleep, serves no page faults.
 * Return: number of bytes copied, up to the first page that is not in the cache
 * or that was to go where @to is not resident. If that is the very first page: 0 in
 * the first case, -EFAULT in the second.
 */
ssize_t dmem_read(struct dmem *dmem, const void *space, loff_t pos, size_t len,
		  void *buf, void __user *to, unsigned int client, bool near)
{
	struct dmem_place place;
	bool found;
	size_t done = 0;
	long err = 0;

	pagefault_disable();
	while (done < len) {
		unsigned long offset = (pos + done) >> PAGE_SHIFT;
		size_t from = offset_in_page(pos + done);
		size_t part = min(PAGE_SIZE - from, len - done);

		if (!done || offset % PIECE == 0)
			place = place_piece(dmem, space, offset);
		found = place_lock_find(dmem, &place, space, offset);
		if (found) {
			void *start = kmap_local_page(frame_page(place.area, place.nr));

			if (buf)
				memcpy(buf + done, start + from, part);
			else if (__copy_to_user_inatomic(to + done, start + from, part))
				err = -EFAULT;
			kunmap_local(start);
			if (near)
				set_rrpv(place.set, place.way, 0);
		}
		place_unlock(&place);
		if (!found || err)
			break;
		this_cpu_inc(place.area->stats->served[client]);
		/* A page that is read in parts counts once, with its first byte. */
		if (!from) {
			count_offered(dmem, place.class);
			count_found(dmem, place.class);
		}
		done += part;
	}
	pagefault_enable();
	return done ?: err;
}

/**
 * dmem_invalidate() - discard pages
 * @dmem: the cache
 * @space: first part of the keys
 * @offset: second part of the first page's key, the others' follow
 * @nr: number of pages
 *
 * Context: Any but interrupt handlers; interrupts may be off.
 */
void dmem_invalidate(struct dmem *dmem, const void *space, unsigned long offset,
		     unsigned long nr)
{
	struct dmem_place place;
	unsigned long i;

	for (i = 0; i < nr; i++, offset++) {
		if (!i || offset % PIECE == 0)
			place = place_piece(dmem, space, offset);
		/* Mostly nothing is there of a folio that found no room; no lock tells as much. */
		if (set_find(dmem->set + place_set(&place, offset), place_tag(&place), space,
			     offset) < 0)
			continue;
		if (place_lock_find(dmem, &place, space, offset))
			place_empty(dmem, &place);
		place_unlock(&place);
	}
}

/*
 * The next frame that dmem_sweep() may have to do something about. What the owner has,
 * and content that stays, may be most of a large area: it is passed over by words.
 */
static unsigned long sweep_next(const struct dmem_area *area, unsigned long nr,
				unsigned long end, unsigned int what)
{
	const struct dmem *dmem = area->dmem;
	unsigned int order = area->owned_order;
	unsigned long bit;

	for (;; cond_resched()) {
		/* Only where to look; what counts is seen under the lock. */
		nr = data_race(what & DMEM_ONLY_SECRET ?
			       find_next_bit(dmem->secret, end, nr) : what & DMEM_CLEAR ?
			       find_next_zero_bit(dmem->zero, end, nr) :
			       find_next_bit(dmem->live, end, nr));
		if (nr >= end)
			return end;
		if (frame_owned(area, nr)) {
			bit = (nr - area->first) >> order;
			/* Likewise. */
			bit = data_race(find_next_zero_bit(area->owned, area->nr >> order, bit));
			nr = area->first + (bit << order);
		} else if (!(what & DMEM_ALL) && test_bit(nr, dmem->live)) {
			/* Likewise. */
			nr = data_race(find_next_zero_bit(dmem->live, end, nr));
		} else {
			return nr;
		}
	}
}

/**
 * dmem_sweep() - discard content, clear frames without content, or both
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 * @what: bit mask of the clients whose content is discarded; with DMEM_CLEAR frames
 *	without content are cleared; with DMEM_ONLY_SECRET no others are looked at
 *	than those that something was stored in as secret
 *
 * Frames that the owner has are left alone, as it may be using them. To clear those
 * of them that may hold secrets, call it again when they have been given back. The
 * owner waits for at most one page to be cleared, as it does for copies.
 *
 * Context: Process. May sleep. Pages stored meanwhile may remain.
 * Return: number of pages that were discarded.
 */
unsigned long dmem_sweep(struct dmem_area *area, unsigned long first,
			 unsigned long nr, unsigned int what)
{
	unsigned long end = area->first + first + nr, gone = 0;
	struct dmem *dmem = area->dmem;
	struct dmem_place place;

	nr = area->first + first;
	for (; nr = sweep_next(area, nr, end, what), nr < end; nr++) {
		place_lock(dmem, &place, nr % dmem->nr_sets);
		place_turn(dmem, &place, nr / dmem->nr_sets);
		if (place_enter(&place)) {
			if (test_bit(nr, dmem->live) && what & BIT(place_client(&place))) {
				place_empty(dmem, &place);
				gone++;
			}
			if (what & DMEM_CLEAR && !test_bit(nr, dmem->live)) {
				clear_highpage(frame_page(area, nr));
				set_bit(nr, dmem->zero);
				clear_bit(nr, dmem->secret);
			}
		}
		place_unlock(&place);
		cond_resched();
	}
	return gone;
}

/**
 * dmem_invalidate_all() - discard everything
 * @dmem: the cache
 *
 * Context: Process. Pages stored meanwhile may remain.
 */
void dmem_invalidate_all(struct dmem *dmem)
{
	unsigned int i;

	for (i = 0; i < dmem->nr_areas; i++)
		dmem_sweep(dmem->area[i], 0, dmem->area[i]->nr, DMEM_ALL);
}

/*
 * Wait for copies into and out of the frames that have begun already; those that
 * begin now see what the caller has written. Returns how often a copy was found
 * still going on.
 */
static unsigned long wait_for_copies(const struct dmem_area *area,
				     unsigned long first, unsigned long nr)
{
	unsigned long start = area->base_pfn + first + 1, waits = 0;
	unsigned int cpu;

	/* Pairs with smp_mb() in place_enter(): what was written before hazard. */
	smp_mb();
	for_each_possible_cpu(cpu) {
		const unsigned long *hazard = per_cpu_ptr(&dmem_hazard, cpu);
		/* Pairs with smp_store_release() in place_unlock(). */
		unsigned long held = smp_load_acquire(hazard);

		/* Likewise. */
		while (held - start < nr && smp_load_acquire(hazard) == held) {
			waits++;
			cpu_relax();
		}
	}
	return waits;
}

/**
 * dmem_set_clients() - change who may store in an area
 * @area: the area
 * @clients: bit mask of the clients; what others have is discarded
 *
 * Context: Process. The caller sees to it that there is one at a time.
 */
void dmem_set_clients(struct dmem_area *area, unsigned int clients)
{
	unsigned int gone = area->clients & ~clients;

	WRITE_ONCE(area->clients, clients);
	/* A store that has seen the old clients may still be copying. */
	wait_for_copies(area, 0, area->nr);
	dmem_changed(area->dmem);
	if (gone)
		dmem_sweep(area, 0, area->nr, gone);
}

/*
 * Count and clear the bits of frames that the caller owns. Meanwhile others may change other
 * bits of the same words.
 */
static unsigned long clear_owned(unsigned long *bitmap, unsigned long first, unsigned long nr)
{
	unsigned long end = first + nr, sum = 0, mask, next, found;

	for (; first < end; first = next) {
		unsigned long *word = bitmap + BIT_WORD(first);

		next = min(end, round_down(first, BITS_PER_LONG) + BITS_PER_LONG);
		mask = BITMAP_FIRST_WORD_MASK(first) & BITMAP_LAST_WORD_MASK(next);
		found = READ_ONCE(*word) & mask;
		if (!found)
			continue;
		sum += hweight_long(found);
		if (mask == ~0UL)
			WRITE_ONCE(*word, 0);
		else
			set_mask_bits(word, mask, 0UL);
	}
	return sum;
}

/**
 * dmem_revoke() - the owner takes frames back
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * The caller has set the bits of the frames in the bitmap of owned frames. When
 * this returns, nobody else reads or writes the frames, or changes what is known
 * of them, until dmem_release(). That takes as long as one page is copied or cleared
 * on each other CPU, at worst, however many frames these are.
 *
 * Context: Any but handlers of non-maskable interrupts, which may have
 * interrupted the copy that they would wait for. The caller holds no lock.
 * Return: how often a copy in flight was found still going on.
 */
unsigned long dmem_revoke(struct dmem_area *area, unsigned long first,
			  unsigned long nr)
{
	unsigned long waits = wait_for_copies(area, first, nr);

	this_cpu_add(area->stats->copy_waits, waits);
	return waits;
}

/**
 * dmem_release() - the owner is about to give frames back
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * The caller clears the bits of the frames in the bitmap of owned frames
 * afterwards, and then calls dmem_released(). What the frames held is gone, and the
 * owner may have written there.
 *
 * Context: Any.
 * Return: number of pages whose content is lost to the owner.
 */
unsigned long dmem_release(struct dmem_area *area, unsigned long first,
			   unsigned long nr)
{
	unsigned long gone = clear_owned(area->dmem->live, area->first + first, nr);

	clear_owned(area->dmem->zero, area->first + first, nr);
	this_cpu_add(area->stats->discarded[0], gone);
	/* Pairs with test_bit_acquire() in frame_owned(): not live, then not owned. */
	smp_wmb();
	return gone;
}

/**
 * dmem_zero_owned() - clear those frames of the owner that may not be zero
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * Context: Process, after dmem_revoke() and before anybody writes. May sleep.
 */
void dmem_zero_owned(const struct dmem_area *area, unsigned long first,
		     unsigned long nr)
{
	unsigned long end = area->first + first + nr;
	unsigned long *zero = area->dmem->zero, n;

	nr = area->first + first;
	/* Others may change bits of other frames meanwhile. */
	for (; nr = data_race(find_next_zero_bit(zero, end, nr)), nr < end; nr += n) {
		/* Those of these frames are the owner's. */
		n = min(data_race(find_next_bit(zero, end, nr)) - nr, CLEAR_BATCH);
		clear_highpages(frame_page(area, nr), n);
		cond_resched();
	}
}

/**
 * dmem_cached() - count the pages of a client that are kept
 * @area: the area
 * @client: the client
 *
 * Context: Process. May sleep.
 * Return: their number, out of date at once.
 */
unsigned long dmem_cached(const struct dmem_area *area, unsigned int client)
{
	unsigned long nr = area->first, end = nr + area->nr, sum = 0;
	const struct dmem *dmem = area->dmem;

	/* Others change what is counted meanwhile. */
	for (; nr = data_race(find_next_bit(dmem->live, end, nr)), nr < end; nr++) {
		u64 clients = READ_ONCE(dmem->set[nr % dmem->nr_sets].client);

		sum += (clients >> nr / dmem->nr_sets & 1) == client &&
		       !frame_owned(area, nr);
		cond_resched();
	}
	return sum;
}

/**
 * dmem_sum() - add up a counter of all CPUs
 * @area: the area
 * @counter: its place in struct dmem_stats
 *
 * Return: the sum, out of date at once.
 */
unsigned long dmem_sum(const struct dmem_area *area, size_t counter)
{
	unsigned long sum = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const void *stats = per_cpu_ptr(area->stats, cpu);

		/* Other CPUs go on counting. */
		sum += data_race(*(const unsigned long *)(stats + counter));
	}
	return sum;
}

/**
 * dmem_init() - prepare a cache; nothing is allocated yet
 * @dmem: the cache, zeroed
 * @nr: number of frames of all areas there will be; those for which there would be too many
 *	sets are not used
 *
 * Where a key may be depends on this number, and not on what is lent already.
 */
void dmem_init(struct dmem *dmem, unsigned long nr)
{
	u32 class, sets;

	dmem->nr = nr;
	/* No more than kvmalloc() allocates at once. */
	dmem->nr_sets = min_t(unsigned long, DIV_ROUND_UP(nr, DMEM_WAYS),
			      INT_MAX / sizeof(*dmem->set));
	/* A small cache has no leaders and stores every page, as others do at first. */
	dmem->nr_led = dmem->nr_sets / LEADER_SHARE;
	for (class = 0; class <= FOLLOWER; class++) {
		sets = class == FOLLOWER ? dmem->nr_sets - class * dmem->nr_led : dmem->nr_led;
		dmem->class[class] = (struct dmem_class) {
			.first = class * dmem->nr_led,
			.groups = sets / PIECE,
			.width = PIECE,
			.wide = sets % PIECE,
		};
		/* More are left over than there are groups: all are one. */
		if (sets % PIECE > sets / PIECE) {
			dmem->class[class].groups = 1;
			dmem->class[class].width = sets;
			dmem->class[class].wide = 0;
		}
	}
}

/**
 * dmem_exit() - free what dmem_add_area() allocated
 * @dmem: the cache, in no use any more
 */
void dmem_exit(struct dmem *dmem)
{
	while (dmem->nr_areas)
		free_percpu(dmem->area[--dmem->nr_areas]->stats);
	kvfree(dmem->live);
	kvfree(dmem->set);
	dmem->set = NULL;
}

/**
 * dmem_add_area() - add an area to a cache
 * @dmem: the cache, in which nothing has been stored yet
 * @area: the area, whose first group of members is filled in; stays for good
 *
 * Context: Process. The caller sees to it that there is one at a time, and publishes
 * them all.
 * Return: 0; -ENOSPC if there are too many areas or frames; or -ENOMEM.
 */
int dmem_add_area(struct dmem *dmem, struct dmem_area *area)
{
	unsigned int i, nr = dmem->nr_areas;
	struct dmem_area *last = nr ? dmem->area[nr - 1] : NULL;

	area->dmem = dmem;
	area->first = last ? last->first + last->nr : 0;
	if (nr == DMEM_MAX_AREAS || area->nr > dmem->nr - area->first)
		return -ENOSPC;
	area->stats = alloc_percpu(struct dmem_stats);
	if (!area->stats)
		return -ENOMEM;
	if (!dmem->set) {
		/* A set may have ways of no frame. */
		i = BITS_TO_LONGS(max(dmem->nr, (unsigned long)dmem->nr_sets * DMEM_WAYS));
		dmem->live = kvcalloc(i, 3 * sizeof(long), GFP_KERNEL);
		dmem->set = kvcalloc(dmem->nr_sets, sizeof(*dmem->set), GFP_KERNEL);
		if (!dmem->live || !dmem->set) {
			dmem_exit(dmem);
			free_percpu(area->stats);
			return -ENOMEM;
		}
		dmem->zero = dmem->live + i;
		dmem->secret = dmem->zero + i;
		for (i = 0; i < dmem->nr_sets; i++)
			raw_spin_lock_init(&dmem->set[i].lock);
	}
	dmem->area[dmem->nr_areas++] = area;
	return 0;
}
