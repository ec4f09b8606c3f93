// SPDX-License-Identifier: GPL-2.0
/*
 * dmem: discardable memory
 *
 * A store of pages under keys, built in page frames that belong to somebody
 * else. The owner takes frames back without asking, and what they held is
 * gone. Clients therefore keep only what they can get again elsewhere: a miss
 * is never an error, and every path here may give up rather than wait.
 *
 * State of a frame. Four facts, in four places:
 *
 *	owned	bit in the owner's bitmap: not ours, hands off
 *	live	bit in our bitmap: the frame holds content, unless it is owned
 *	busy	word in struct dmem_frame: somebody fills it, empties it or
 *		takes it out of the index, or some read it where it is
 *	zero	bit in our bitmap: the frame is all zeros, unless it is owned or
 *		live; who clears or fills it has its hazard set
 *
 * Taking back any number of frames is setting bits and waiting for copies in
 * flight:
 *
 *	owner (dmem_revoke)		filler, loader (dmem_enter)
 *
 *	owned = 1			hazard[cpu] = pfn
 *	smp_mb()			smp_mb()
 *	while (hazard[cpu] in range)	if (owned) give up
 *		cpu_relax()		copy 4 KiB; filler: live = 1
 *					hazard[cpu] = 0 (release)
 *
 * Either the owner sees the hazard and waits for one page to be copied, from
 * memory to memory with preemption disabled but interrupts on, or the other
 * side sees that the frame is owned. Nobody copies into or out of a frame after
 * its owner has it, nor changes its live bit: the owner clears
 * that before it gives the frame back. What the frame was indexed under stays
 * in the index: a lookup finds it owned or not live, and whoever fills the
 * frame next unlinks it. So the work of the owner does not depend on what the
 * frames hold.
 *
 * Life of an entry. dmem_stage() takes a frame (busy) and copies the page
 * before any lock of the client is held. dmem_publish() links it into the
 * index when the client knows that the content was final, and lets go of it.
 * dmem_load() unlinks it, copies it out and frees the frame: the content is
 * in one place at a time. dmem_read() copies parts of pages and leaves them
 * there: nobody fills a frame that somebody holds for that.
 *
 * Which frame comes next. Frames known to be free come first, those at the
 * upper end of the area before the others, as the owner allocates from the
 * lower end. If none is known, a cursor moves down through the area and takes
 * the frames it meets. Without loads that is exactly the order in which they
 * were stored. Loads leave gaps which younger content fills, so the cursor
 * passes over frames filled or read during the last nr/2 stores for as long as
 * it finds older ones nearby. A CPU takes a word of the bitmaps at a time, so
 * that CPUs meet rarely.
 *
 * Locks: the chain locks only, innermost, held for a walk of one chain with
 * interrupts off because dmem_publish() runs under a lock that interrupt
 * handlers take. busy is only ever tried while a chain lock is held, and its
 * holder may take a chain lock.
 */

#define pr_fmt(fmt) "gcma: " fmt

#include <linux/bitmap.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/kmsan.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "dmem.h"

/* Words looked at for old frames before young ones are evicted as well. */
#define DMEM_PICKY_WORDS	8
/* Of so many pieces of a file one is taken in where few are, as a power of two. */
#define DMEM_FEW		4
/* Size of a piece, as an order of pages. */
#define DMEM_PIECE_ORDER	6
/* Entries of a chain looked at without its lock, which are two on average. */
#define DMEM_QUICK_STEPS	16
/* Words looked at before a store is refused. */
#define DMEM_SCAN_WORDS		64

/* The frame into or out of which this CPU copies; no frame has pfn zero. */
static DEFINE_PER_CPU(unsigned long, dmem_hazard);

static unsigned long frame_nr(const struct dmem_area *area,
			      const struct dmem_frame *frame)
{
	return frame - area->frame;
}

static struct dmem_area *frame_area(const struct dmem *dmem,
				    const struct dmem_frame *frame)
{
	unsigned int i;

	/* That of the frame was there before it. */
	for (i = 0; i < READ_ONCE(dmem->nr_areas) - 1; i++) {
		struct dmem_area *area = dmem->area[i];

		if (frame >= area->frame && frame < area->frame + area->nr)
			return area;
	}
	return dmem->area[i];
}

/*
 * The content alone, not the memory tags that copy_highpage() takes along: those
 * are kept with swap and come back from there, and a frame with tags would show
 * them to its next user. Returns false if @from cannot be read, which then is
 * taken out of use.
 */
static bool copy_content(struct page *to, struct page *from)
{
	void *vfrom = kmap_local_page(from);
	void *vto = kmap_local_page(to);
	unsigned long left = 0;

#if defined(CONFIG_MEMORY_FAILURE) && defined(copy_mc_to_kernel)
	left = copy_mc_to_kernel(vto, vfrom, PAGE_SIZE);
#else
	copy_page(vto, vfrom);
#endif
	if (!left)
		kmsan_copy_page_meta(to, from);
	kunmap_local(vto);
	kunmap_local(vfrom);
#ifdef CONFIG_MEMORY_FAILURE
	if (unlikely(left))
		memory_failure_queue(page_to_pfn(from), 0);
#endif
	return !left;
}

/* In dmem_frame.busy: one holder, or any number of readers. */
#define FRAME_LOCKED	1
#define FRAME_READER	2

static bool frame_trylock(struct dmem_frame *frame)
{
	return !atomic_read(&frame->busy) &&
	       !atomic_cmpxchg_acquire(&frame->busy, 0, FRAME_LOCKED);
}

/* Pairs with the acquire in frame_trylock(): the next holder sees the frame. */
static void frame_unlock(struct dmem_frame *frame)
{
	atomic_set_release(&frame->busy, 0);
}

static bool frame_owned(const struct dmem_area *area, unsigned long nr)
{
	return test_bit(nr >> area->owned_order, area->owned);
}

/* One bit a frame for the frames of a word, whatever @owned_order is. */
static unsigned long owned_word(const struct dmem_area *area, unsigned int word)
{
	unsigned long first = (unsigned long)word * BITS_PER_LONG;
	unsigned long mask = 0;
	unsigned int i;

	if (!area->owned_order)
		return READ_ONCE(area->owned[word]);
	if (area->owned_order >= ilog2(BITS_PER_LONG))
		return frame_owned(area, first) ? ~0UL : 0;
	for (i = 0; i < BITS_PER_LONG; i++)
		if (frame_owned(area, first + i))
			mask |= BIT(i);
	return mask;
}

/*
 * Announce a copy into or out of a frame. Returns false if the frame is owned
 * by the first-class client, and nothing may be copied then.
 */
static __always_inline bool dmem_enter(const struct dmem_area *area,
				       unsigned long nr)
{
	preempt_disable();
	__this_cpu_write(dmem_hazard, area->base_pfn + nr);
	/* Pairs with smp_mb() in wait_for_copies(): hazard before owned. */
	smp_mb();
	/* Pairs with smp_wmb() in dmem_forget(). */
	return !test_bit_acquire(nr >> area->owned_order, area->owned);
}

static void dmem_leave(void)
{
	/* Pairs with smp_load_acquire() in wait_for_copies(): copy before leave. */
	smp_store_release(this_cpu_ptr(&dmem_hazard), 0);
	preempt_enable();
}

static unsigned int dmem_hash(const struct dmem *dmem, const void *space,
			      unsigned long offset)
{
	return hash_long((unsigned long)space +
			 hash_long(offset, BITS_PER_LONG), dmem->bits);
}

static raw_spinlock_t *chain_lock(struct dmem *dmem, unsigned int hash)
{
	return &dmem->lock[hash % DMEM_LOCKS].lock;
}

/* Where the chain points at the entry, or at %NULL. Under the chain's lock. */
static struct dmem_frame **chain_find(struct dmem *dmem, unsigned int hash,
				      const void *space, unsigned long offset)
{
	struct dmem_frame **link = &dmem->chain[hash];

	lockdep_assert_held(chain_lock(dmem, hash));
	while (*link &&
	       ((*link)->space != space || (*link)->offset != offset))
		link = &(*link)->next;
	return link;
}

static void chain_unlink(struct dmem_frame **link)
{
	struct dmem_frame *frame = *link;

	/* hold_quickly() may be on its way through the chain. */
	WRITE_ONCE(*link, frame->next);
	/* Pairs with frame_unlink(), whose caller may change @next then. */
	smp_store_release(&frame->space, NULL);
}

/* Take a busy frame out of the index if it is there. */
static void frame_unlink(struct dmem *dmem, struct dmem_frame *frame)
{
	/* Pairs with chain_unlink(), which others do under a lock not taken here. */
	const void *space = smp_load_acquire(&frame->space);
	struct dmem_frame **link;
	raw_spinlock_t *lock;
	unsigned long flags;
	unsigned int hash;

	if (!space)
		return;
	hash = dmem_hash(dmem, space, frame->offset);
	lock = chain_lock(dmem, hash);
	raw_spin_lock_irqsave(lock, flags);
	/* A younger store of the same key may have unlinked it meanwhile. */
	if (frame->space) {
		link = chain_find(dmem, hash, space, frame->offset);
		if (!WARN_ON_ONCE(*link != frame))
			chain_unlink(link);
	}
	raw_spin_unlock_irqrestore(lock, flags);
}

/* The counts of both clients in dmem_area.nr_live. */
#define LIVE_SHIFT	16
#define LIVE_MASK	(BIT(LIVE_SHIFT) - 1)

static bool frame_live(const struct dmem_area *area, unsigned long nr)
{
	return test_bit(nr, area->live[0]) || test_bit(nr, area->live[1]);
}

static unsigned long live_word(const struct dmem_area *area, unsigned int word)
{
	return READ_ONCE(area->live[0][word]) | READ_ONCE(area->live[1][word]);
}

/*
 * Whose the content of a busy frame is. Between dmem_enter() and dmem_leave(),
 * as for clear_live(): the owner counts on what it finds.
 */
static void set_live(struct dmem_area *area, unsigned long nr,
		     unsigned int client)
{
	atomic_add(1 << (LIVE_SHIFT * client), &area->nr_live[nr / DMEM_BLOCK]);
	/* The count before the bit: whoever clears that takes both back. */
	smp_mb__after_atomic();
	set_bit(nr, area->live[client]);
}

/* Returns whose it was, or -1 if it was not live. A full barrier if it was. */
static int clear_live(struct dmem_area *area, unsigned long nr)
{
	int client;

	for (client = 0; client < DMEM_CLIENTS; client++) {
		if (!test_bit(nr, area->live[client]) ||
		    !test_and_clear_bit(nr, area->live[client]))
			continue;
		atomic_sub(1 << (LIVE_SHIFT * client),
			   &area->nr_live[nr / DMEM_BLOCK]);
		return client;
	}
	return -1;
}

/* The frame has become free: let the next refill know. */
static void mark_avail(struct dmem_area *area, unsigned long nr)
{
	/*
	 * Pairs with test_and_clear_bit() in refill(): either it sees the
	 * frame not live, or the bit is set after it was cleared there. The
	 * barrier is the one in clear_live().
	 */
	if (!test_bit(nr / BITS_PER_LONG, area->avail))
		set_bit(nr / BITS_PER_LONG, area->avail);
}

/* Likewise for many frames. What is owned or live is found not to be free. */
static void all_avail(struct dmem_area *area)
{
	/* Bits that others clear meanwhile may be set again. */
	data_race(memset(area->avail, 0xff, bitmap_size(area->words)));
}

/* The next frame that may hold content of a client. */
static unsigned long next_live(const struct dmem_area *area, unsigned int client,
			       unsigned long nr, unsigned long end)
{
	/* Only where to look; frame_clear() looks again. */
	return data_race(find_next_bit(area->live[client], end, nr));
}

/* Keep others from filling and freeing a frame. Under its chain's lock. */
static bool frame_tryread(struct dmem_frame *frame)
{
	int busy = atomic_read(&frame->busy);

	do {
		if (busy & FRAME_LOCKED)
			return false;
	} while (!atomic_try_cmpxchg_acquire(&frame->busy, &busy,
					     busy + FRAME_READER));
	return true;
}

/* Forget what a frame holds. If the owner has it nothing is left to forget. */
static bool frame_clear(struct dmem_area *area, unsigned long nr)
{
	bool cleared;

	if (!frame_live(area, nr))
		return false;
	cleared = dmem_enter(area, nr) && clear_live(area, nr) >= 0;
	dmem_leave();
	return cleared;
}

/* Forget what a busy frame holds, and let go of it. */
static void frame_free(struct dmem *dmem, struct dmem_frame *frame)
{
	struct dmem_area *area = frame_area(dmem, frame);
	unsigned long nr = frame_nr(area, frame);

	if (frame_clear(area, nr))
		mark_avail(area, nr);
	frame_unlock(frame);
}

/* Pairs with the acquire in frame_trylock(): the copy out is over. */
static void frame_unread(struct dmem *dmem, struct dmem_frame *frame)
{
	if (atomic_sub_return_release(FRAME_READER, &frame->busy) ||
	    READ_ONCE(frame->space) || !frame_trylock(frame))
		return;
	/*
	 * Whoever took it out of the index could not free it. If that happens
	 * just now nobody does, and it is evicted in its turn.
	 */
	if (READ_ONCE(frame->space))
		frame_unlock(frame);
	else
		frame_free(dmem, frame);
}

/* Take an entry out of the index. Returns its frame, busy, or %NULL. */
static struct dmem_frame *frame_get(struct dmem *dmem, const void *space,
				    unsigned long offset)
{
	unsigned int hash = dmem_hash(dmem, space, offset);
	raw_spinlock_t *lock = chain_lock(dmem, hash);
	struct dmem_frame **link, *frame;
	unsigned long flags;

	raw_spin_lock_irqsave(lock, flags);
	link = chain_find(dmem, hash, space, offset);
	frame = *link;
	if (frame) {
		/* Somebody is about to fill it anew, or frees it when done. */
		bool busy = !frame_trylock(frame);

		chain_unlink(link);
		if (busy)
			frame = NULL;
	}
	raw_spin_unlock_irqrestore(lock, flags);
	return frame;
}

/* In dmem_frame.stamp, below the time. */
#define STAMP_READ	1
#define STAMP_SHIFT	1

static bool frame_young(const struct dmem_area *area, unsigned long nr, u32 now)
{
	/* Negative if it was read or stored after @now, which CPUs take early. */
	s32 age = (now << STAMP_SHIFT | STAMP_READ) -
		  READ_ONCE(area->frame[nr].stamp);

	return age >> STAMP_SHIFT < (long)(area->nr / 2);
}

/*
 * The content of a frame is of use for the first time. Would it have been there
 * if every page since it was stored had been taken in?
 */
static void count_use(struct dmem_area *area, const struct dmem_frame *frame)
{
	u32 stamp = READ_ONCE(frame->stamp);
	u32 age = ((u32)atomic_read(&area->clock) << STAMP_SHIFT) - stamp;

	if (!(stamp & STAMP_READ) && age >> STAMP_SHIFT < area->nr)
		this_cpu_inc(area->cpu->near);
}

static unsigned long sum_near(const struct dmem_area *area)
{
	unsigned long sum = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(area->cpu, cpu)->near);
	return sum;
}

static unsigned long sum_evicted(const struct dmem_area *area)
{
	unsigned long sum = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct dmem_stats *stats = per_cpu_ptr(area->stats, cpu);

		sum += READ_ONCE(stats->evicted[0]) +
		       READ_ONCE(stats->evicted[1]);
	}
	return sum;
}

/*
 * Whether to take in every page or few of them, now and then. Pages that come
 * back only after the area has been filled anew, such as those of a large file
 * that is read over and over, are copied in vain if all are taken in; of a few
 * some are still there.
 */
static void reconsider(struct dmem_area *area, u32 now)
{
	unsigned int few = READ_ONCE(area->few);
	u32 then = atomic_read(&area->begun);
	/* Negative if another CPU was quicker. */
	s32 offered = now - then;
	unsigned long near, evicted, used;

	if (offered < (long)(few ? area->nr / 8 : area->nr) ||
	    atomic_cmpxchg(&area->begun, then, now) != then)
		return;
	near = sum_near(area);
	evicted = sum_evicted(area);
	/* A worse guess if whoever did this last is at it still. */
	used = near - READ_ONCE(area->near);
	if (few && used << few > offered / 8)
		WRITE_ONCE(area->few, 0);
	else if (!few && used < (evicted - READ_ONCE(area->evicted)) / 16)
		WRITE_ONCE(area->few, DMEM_FEW);
	WRITE_ONCE(area->near, near);
	WRITE_ONCE(area->evicted, evicted);
}

/* Are few pages taken in, and if so one of 2^how many pieces of a file? */
static unsigned int few_now(const struct dmem_area *area)
{
	return READ_ONCE(area->adaptive) ? READ_ONCE(area->few) : 0;
}

/* Of the frames in @mask those that are free or were filled long ago. */
static unsigned long old_frames(struct dmem_area *area, unsigned int word,
				unsigned long mask)
{
	u32 now = atomic_read(&area->clock);
	unsigned long live = mask & live_word(area, word);
	unsigned int i;

	for_each_set_bit(i, &live, BITS_PER_LONG)
		if (frame_young(area, (unsigned long)word * BITS_PER_LONG + i, now))
			mask &= ~BIT(i);
	return mask;
}

static bool refill(struct dmem_area *area, struct dmem_cpu *cpu)
{
	unsigned long mask, young = 0;
	unsigned int young_word = 0;
	unsigned int word, i;
	bool picky = true;

	for (i = 0; i < DMEM_SCAN_WORDS; i++) {
		/* Only where to look; bits are taken one by one below. */
		word = data_race(find_last_bit(area->avail, area->words));
		if (word >= area->words)
			break;
		/* A full barrier; pairs with mark_avail(). */
		if (!test_and_clear_bit(word, area->avail))
			continue;
		mask = ~(owned_word(area, word) | live_word(area, word));
		if (mask)
			goto found;
	}

	for (i = 0; i < DMEM_SCAN_WORDS; i++) {
		word = (u32)atomic_dec_return(&area->cursor) % area->words;
		mask = ~owned_word(area, word);
		if (!mask)
			continue;
		if (i >= DMEM_PICKY_WORDS) {
			picky = false;
			goto found;
		}
		if (!young) {
			young = mask;
			young_word = word;
		}
		mask = old_frames(area, word, mask);
		if (mask)
			goto found;
	}
	if (!young)
		return false;
	mask = young;
	word = young_word;
	picky = false;
found:
	cpu->word = word;
	cpu->mask = mask;
	cpu->picky = picky;
	i = hweight_long(mask);
	/* The clock counts pages offered, also those that are not taken in. */
	cpu->few = few_now(area);
	i <<= cpu->few;
	cpu->stamp = atomic_add_return_relaxed(i, &area->clock) - i;
	if (READ_ONCE(area->adaptive))
		reconsider(area, cpu->stamp);
	return true;
}

/*
 * Take a frame to fill, out of the index and not live. Returns it busy, with
 * its hazard set and preemption disabled, or %NULL with neither.
 */
static struct dmem_frame *frame_take(struct dmem *dmem, struct dmem_area *area)
{
	struct dmem_frame *frame;
	struct dmem_cpu *cpu;
	unsigned long nr;
	unsigned int bit, tries;
	int client;

	preempt_disable();
	cpu = this_cpu_ptr(area->cpu);
	for (tries = 0; tries < 2 * BITS_PER_LONG; tries++) {
		if (!cpu->mask && !refill(area, cpu))
			break;
		bit = __fls(cpu->mask);
		cpu->mask &= ~BIT(bit);
		nr = (unsigned long)cpu->word * BITS_PER_LONG + bit;
		frame = area->frame + nr;
		if (frame_owned(area, nr))
			continue;
		/* Another CPU may have been quicker to fill it. */
		if (cpu->picky && frame_live(area, nr) &&
		    frame_young(area, nr, cpu->stamp))
			continue;
		if (!frame_trylock(frame))
			continue;
		frame_unlink(dmem, frame);
		WRITE_ONCE(frame->stamp, cpu->stamp << STAMP_SHIFT);
		cpu->stamp += 1U << cpu->few;
		if (dmem_enter(area, nr)) {
			client = clear_live(area, nr);
			if (client >= 0)
				this_cpu_inc(area->stats->evicted[client]);
			if (test_bit(nr, area->zero))
				clear_bit(nr, area->zero);
			/* dmem_enter() has disabled it once more. */
			preempt_enable();
			return frame;
		}
		dmem_leave();
		frame_unlock(frame);
	}
	preempt_enable();
	return NULL;
}

/*
 * Whether an area that takes in few pages does without this one. Of a file it
 * is always the same, in pieces, as readahead reads pieces. What is free is
 * filled with anything.
 */
static bool declines(const struct dmem *dmem, const struct dmem_area *area,
		     const void *space, unsigned long offset)
{
	if (!(dmem_hash(dmem, space, offset >> DMEM_PIECE_ORDER) %
	      (1U << DMEM_FEW)))
		return false;
	/* An answer that is out of date does no harm. */
	return data_race(bitmap_empty(area->avail, area->words));
}

/**
 * dmem_stage() - copy a page into a frame, not yet reachable
 * @dmem: the store
 * @page: what to copy; must not change before dmem_publish() unless that is
 *        noticed by the caller, who then calls dmem_abort()
 * @space: first part of the key that it will get
 * @offset: second part of the key; of pages that only make sense together, that
 *	of the first
 * @client: whose page it is
 *
 * Context: Any but interrupt handlers. Does not sleep, takes no lock of others.
 * Return: the frame, or %NULL if there is none to be had.
 */
struct dmem_frame *dmem_stage(struct dmem *dmem, struct page *page,
			      const void *space, unsigned long offset,
			      unsigned int client)
{
	struct dmem_frame *frame;
	struct dmem_area *area;
	unsigned long nr;
	unsigned int i;

	/* Pairs with smp_store_release() in dmem_add_area(). */
	for (i = 0; i < smp_load_acquire(&dmem->nr_areas); i++) {
		area = dmem->area[i];
		if (!(READ_ONCE(area->clients) & BIT(client)))
			continue;
		/* Do not search what the owner has all of. */
		if (atomic_long_read(&area->idle) <= 0) {
			this_cpu_inc(area->stats->refused[client]);
			continue;
		}
		if (few_now(area) && declines(dmem, area, space, offset)) {
			this_cpu_inc(area->stats->declined[client]);
			continue;
		}
		frame = frame_take(dmem, area);
		if (!frame) {
			this_cpu_inc(area->stats->refused[client]);
			continue;
		}
		/* Again: dmem_set_clients() waits for copies that it sees. */
		if (unlikely(!(READ_ONCE(area->clients) & BIT(client)))) {
			dmem_leave();
			frame_free(dmem, frame);
			continue;
		}
		nr = frame_nr(area, frame);
		if (!copy_content(pfn_to_page(area->base_pfn + nr), page)) {
			dmem_leave();
			frame_free(dmem, frame);
			return NULL;
		}
		set_live(area, nr, client);
		dmem_leave();
		return frame;
	}
	return NULL;
}

/**
 * dmem_publish() - make a staged page reachable under a key
 * @dmem: the store
 * @frame: what dmem_stage() returned
 * @space: first part of the key, not %NULL
 * @offset: second part of the key
 *
 * Whatever was stored under the same key before is dropped.
 *
 * Context: Any but interrupt handlers; interrupts may be off.
 * Return: true if the page can be loaded, false if it was discarded already.
 */
bool dmem_publish(struct dmem *dmem, struct dmem_frame *frame,
		  const void *space, unsigned long offset)
{
	struct dmem_area *area = frame_area(dmem, frame);
	unsigned int hash = dmem_hash(dmem, space, offset);
	raw_spinlock_t *lock = chain_lock(dmem, hash);
	unsigned long nr = frame_nr(area, frame);
	struct dmem_frame **link, *old;
	bool live, client = test_bit(nr, area->live[1]);
	unsigned long flags;

	raw_spin_lock_irqsave(lock, flags);
	link = chain_find(dmem, hash, space, offset);
	old = *link;
	if (old) {
		struct dmem_area *old_area = frame_area(dmem, old);
		unsigned long old_nr = frame_nr(old_area, old);

		/*
		 * Whoever takes @old to fill it must unlink it first, and so
		 * waits for this lock: the content is still that of the key.
		 */
		chain_unlink(link);
		if (frame_clear(old_area, old_nr))
			mark_avail(old_area, old_nr);
	}
	/*
	 * If the owner takes the frame after this test the entry is linked
	 * all the same, and loads notice.
	 */
	live = frame_live(area, nr) && !frame_owned(area, nr);
	if (live) {
		WRITE_ONCE(frame->offset, offset);
		WRITE_ONCE(frame->space, space);
		WRITE_ONCE(frame->next, dmem->chain[hash]);
		WRITE_ONCE(dmem->chain[hash], frame);
	}
	raw_spin_unlock_irqrestore(lock, flags);
	frame_unlock(frame);
	if (live)
		this_cpu_inc(area->stats->stored[client]);
	return live;
}

/**
 * dmem_abort() - give up a staged page
 * @dmem: the store
 * @frame: what dmem_stage() returned
 */
void dmem_abort(struct dmem *dmem, struct dmem_frame *frame)
{
	frame_free(dmem, frame);
}

/* A miss has no area; the first one that serves the client counts it. */
static void count_missed(struct dmem *dmem, unsigned int client)
{
	unsigned int i = 0;

	while (i < READ_ONCE(dmem->nr_areas) - 1 &&
	       !(READ_ONCE(dmem->area[i]->clients) & BIT(client)))
		i++;
	this_cpu_inc(dmem->area[i]->stats->missed[client]);
}

/**
 * dmem_load() - move a page out of the store
 * @dmem: the store
 * @space: first part of the key
 * @offset: second part of the key
 * @page: where to copy it
 * @client: whose page it is
 *
 * Context: Any but interrupt handlers. Does not sleep.
 * Return: true if @page has been filled. If not, the store holds nothing under
 * the key that a load could ever return, and @page is to be filled elsewhere.
 */
bool dmem_load(struct dmem *dmem, const void *space, unsigned long offset,
	       struct page *page, unsigned int client)
{
	struct dmem_frame *frame = frame_get(dmem, space, offset);
	struct dmem_area *area;
	bool found = false;
	unsigned long nr;

	if (!frame) {
		count_missed(dmem, client);
		return false;
	}

	area = frame_area(dmem, frame);
	nr = frame_nr(area, frame);
	if (dmem_enter(area, nr) && test_bit(nr, area->live[client])) {
		found = copy_content(page, pfn_to_page(area->base_pfn + nr));
		clear_live(area, nr);
		if (found) {
			count_use(area, frame);
			mark_avail(area, nr);
		}
	}
	dmem_leave();
	frame_unlock(frame);
	if (found)
		this_cpu_inc(area->stats->loaded[client]);
	else
		this_cpu_inc(area->stats->missed[client]);
	return found;
}

/**
 * dmem_has() - is there a page under a key
 * @dmem: the store
 * @space: first part of the key
 * @offset: second part of the key
 * @client: whose page it is
 *
 * Context: Any but interrupt handlers. Does not sleep.
 * Return: whether there is, out of date at once.
 */
bool dmem_has(struct dmem *dmem, const void *space, unsigned long offset,
	      unsigned int client)
{
	unsigned int hash = dmem_hash(dmem, space, offset);
	raw_spinlock_t *lock = chain_lock(dmem, hash);
	struct dmem_frame *frame;
	unsigned long flags, nr;
	bool found = false;

	raw_spin_lock_irqsave(lock, flags);
	frame = *chain_find(dmem, hash, space, offset);
	if (frame) {
		struct dmem_area *area = frame_area(dmem, frame);

		nr = frame_nr(area, frame);
		found = test_bit(nr, area->live[client]) &&
			!frame_owned(area, nr);
	}
	raw_spin_unlock_irqrestore(lock, flags);
	return found;
}

/*
 * Find a frame and hold it without a lock. A chain may change meanwhile, so that
 * a page is not found though it is there; or lead into another one, where keys
 * differ.
 */
static struct dmem_frame *hold_quickly(struct dmem *dmem, const void *space,
				       unsigned long offset)
{
	struct dmem_frame *frame;
	unsigned int steps;

	frame = READ_ONCE(dmem->chain[dmem_hash(dmem, space, offset)]);
	for (steps = 0; frame && steps < DMEM_QUICK_STEPS; steps++) {
		if (READ_ONCE(frame->space) == space &&
		    READ_ONCE(frame->offset) == offset) {
			if (!frame_tryread(frame))
				break;
			/* From now on the frame gets no other key. */
			if (READ_ONCE(frame->space) == space &&
			    READ_ONCE(frame->offset) == offset)
				return frame;
			frame_unread(dmem, frame);
			break;
		}
		frame = READ_ONCE(frame->next);
	}
	return NULL;
}

static struct dmem_frame *hold_slowly(struct dmem *dmem, const void *space,
				      unsigned long offset)
{
	unsigned int hash = dmem_hash(dmem, space, offset);
	raw_spinlock_t *lock = chain_lock(dmem, hash);
	struct dmem_frame *frame;
	unsigned long flags;

	raw_spin_lock_irqsave(lock, flags);
	frame = *chain_find(dmem, hash, space, offset);
	if (frame && !frame_tryread(frame))
		frame = NULL;
	raw_spin_unlock_irqrestore(lock, flags);
	return frame;
}

/* Somebody has read the content of a frame where it is. */
static void note_read(struct dmem_area *area, struct dmem_frame *frame,
		      unsigned int client)
{
	u32 stamp = (u32)atomic_read(&area->clock) << STAMP_SHIFT | STAMP_READ;

	/* Read again lately: not to be evicted soon. */
	if (READ_ONCE(frame->stamp) != stamp) {
		count_use(area, frame);
		WRITE_ONCE(frame->stamp, stamp);
	}
	this_cpu_inc(area->stats->served[client]);
}

/**
 * dmem_read() - copy pages that stay in the store
 * @dmem: the store
 * @space: first part of the keys
 * @pos: first byte; the second part of its key counts pages
 * @len: number of bytes
 * @buf: where to copy them; or %NULL
 * @to: for user memory that access_ok() allows
 * @client: whose pages they are
 *
 * The owner waits for the copy of each page like for any other. So page faults
 * are not served, and the caller sees to it that @to is memory and no device.
 *
 * Context: Process. Does not sleep.
 * Return: number of bytes copied, up to the first page that is not in the store
 * or was to go where @to is not resident; -EFAULT if that was the first one.
 */
ssize_t dmem_read(struct dmem *dmem, const void *space, loff_t pos, size_t len,
		  void *buf, void __user *to, unsigned int client)
{
	size_t done = 0;
	int err = 0;

	while (done < len) {
		unsigned long offset = (pos + done) >> PAGE_SHIFT, nr;
		size_t from = offset_in_page(pos + done);
		size_t part = min(PAGE_SIZE - from, len - done), left = part;
		struct dmem_frame *frame;
		struct dmem_area *area;

		frame = hold_quickly(dmem, space, offset) ?:
			hold_slowly(dmem, space, offset);
		if (!frame)
			break;
		area = frame_area(dmem, frame);
		nr = frame_nr(area, frame);
		if (dmem_enter(area, nr) && test_bit(nr, area->live[client])) {
			struct page *page = pfn_to_page(area->base_pfn + nr);
			void *start = kmap_local_page(page);

			if (buf) {
				memcpy(buf + done, start + from, part);
				left = 0;
			} else {
				pagefault_disable();
				left = __copy_to_user_inatomic(to + done,
							       start + from,
							       part);
				pagefault_enable();
				err = left ? -EFAULT : 0;
			}
			kunmap_local(start);
		}
		dmem_leave();
		if (left < part)
			note_read(area, frame, client);
		frame_unread(dmem, frame);
		done += part - left;
		if (left)
			break;
	}
	return done ? (ssize_t)done : err;
}

/**
 * dmem_drop() - discard a page
 * @dmem: the store
 * @space: first part of the key
 * @offset: second part of the key
 *
 * Context: Any but interrupt handlers; interrupts may be off.
 */
void dmem_drop(struct dmem *dmem, const void *space, unsigned long offset)
{
	struct dmem_frame *frame = frame_get(dmem, space, offset);

	if (frame)
		frame_free(dmem, frame);
}

/*
 * Wait for the copies into and out of frames that are going on, none of which
 * is waited for twice: those that begin now see what the caller has written.
 * Returns how often one was found still going on.
 */
static unsigned long wait_for_copies(const struct dmem_area *area,
				     unsigned long first, unsigned long nr)
{
	unsigned long start = area->base_pfn + first;
	unsigned long waits = 0;
	unsigned int cpu;

	/* Pairs with smp_mb() in dmem_enter(): what was written before hazard. */
	smp_mb();
	for_each_possible_cpu(cpu) {
		const unsigned long *hazard = per_cpu_ptr(&dmem_hazard, cpu);
		/* Pairs with smp_store_release() in dmem_leave(). */
		unsigned long pfn = smp_load_acquire(hazard);

		if (pfn - start >= nr)
			continue;
		/* Likewise. */
		while (smp_load_acquire(hazard) == pfn) {
			waits++;
			cpu_relax();
		}
	}
	return waits;
}

/* Discard what some clients have in a range of frames. Returns how much. */
static unsigned long clear_range(struct dmem_area *area, unsigned long first,
				 unsigned long nr, unsigned int clients)
{
	unsigned long end = first + nr, gone = 0;
	unsigned int client;

	for (client = 0; client < DMEM_CLIENTS; client++) {
		if (!(clients & BIT(client)))
			continue;
		for (nr = next_live(area, client, first, end); nr < end;
		     nr = next_live(area, client, nr + 1, end)) {
			gone += frame_clear(area, nr);
			cond_resched();
		}
	}
	return gone;
}

/**
 * dmem_drop_all() - discard everything
 * @dmem: the store
 *
 * Context: Process. Pages stored meanwhile may remain.
 */
void dmem_drop_all(struct dmem *dmem)
{
	unsigned int i;

	/* Pairs with smp_store_release() in dmem_add_area(). */
	for (i = 0; i < smp_load_acquire(&dmem->nr_areas); i++) {
		struct dmem_area *area = dmem->area[i];

		dmem_clear(area, 0, area->nr);
		all_avail(area);
	}
}

/**
 * dmem_set_clients() - change who may store in an area
 * @area: the area
 * @clients: bit mask of the clients
 *
 * Pages of those who no longer may are discarded. Neither stores and loads nor
 * the owner wait for that.
 *
 * Context: Process. The caller sees to it that there is one at a time.
 */
void dmem_set_clients(struct dmem_area *area, unsigned int clients)
{
	unsigned int gone = area->clients & ~clients;

	WRITE_ONCE(area->clients, clients);
	if (!gone)
		return;
	wait_for_copies(area, 0, area->nr);
	clear_range(area, 0, area->nr, gone);
	all_avail(area);
}

/**
 * dmem_set_adaptive() - may an area take in few of the pages offered
 * @area: the area
 * @adaptive: whether it may, where hardly any would be of use
 *
 * Context: Any.
 */
void dmem_set_adaptive(struct dmem_area *area, bool adaptive)
{
	/* The time without is not judged. */
	WRITE_ONCE(area->near, sum_near(area));
	WRITE_ONCE(area->evicted, sum_evicted(area));
	atomic_set(&area->begun, atomic_read(&area->clock));
	WRITE_ONCE(area->adaptive, adaptive);
}

/**
 * dmem_clear() - discard what is in frames that will soon be taken back
 * @area: the area
 * @first: first frame
 * @nr: number of frames
 *
 * They stay empty until stores have gone once round the area, unless the owner
 * takes them before.
 *
 * Context: Process.
 * Return: number of pages that were discarded.
 */
unsigned long dmem_clear(struct dmem_area *area, unsigned long first,
			 unsigned long nr)
{
	return clear_range(area, first, nr, GENMASK(DMEM_CLIENTS - 1, 0));
}

/* Blocks whose counts can be added up before a half overflows. */
#define LIVE_SUM_BLOCKS	(LIVE_MASK / DMEM_BLOCK)

/* Live frames of whole blocks, by client. */
static void sum_blocks(const struct dmem_area *area, unsigned long block,
		       unsigned long end, unsigned long *sum)
{
	while (block < end) {
		unsigned long next = min(end, block + LIVE_SUM_BLOCKS);
		unsigned int both = 0;

		for (; block < next; block++)
			both += atomic_read(&area->nr_live[block]);
		sum[0] += both & LIVE_MASK;
		sum[1] += both >> LIVE_SHIFT;
	}
}

/* Live frames of a range, by client. */
static void sum_live(const struct dmem_area *area, unsigned long first,
		     unsigned long end, unsigned long *sum)
{
	while (first < end) {
		unsigned int bit = first % BITS_PER_LONG;
		unsigned int word = first / BITS_PER_LONG;
		unsigned long mask;

		if (first % DMEM_BLOCK == 0 && end - first >= DMEM_BLOCK) {
			sum_blocks(area, first / DMEM_BLOCK, end / DMEM_BLOCK,
				   sum);
			first = rounddown(end, DMEM_BLOCK);
			continue;
		}
		mask = GENMASK(min(bit + end - first, (unsigned long)BITS_PER_LONG) - 1,
			       bit);
		sum[0] += hweight_long(READ_ONCE(area->live[0][word]) & mask);
		sum[1] += hweight_long(READ_ONCE(area->live[1][word]) & mask);
		first += BITS_PER_LONG - bit;
	}
}

/**
 * dmem_revoke() - the first-class client takes frames back
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 * @spins: how often a copy in flight was found still going on, or %NULL
 *
 * The caller has set the bits of the frames in the bitmap of owned frames and
 * holds no lock. When this returns, nobody but the caller reads or writes the
 * frames, and what dmem knows of them stays as it is until dmem_give(). The
 * time it takes is that of copying one page at worst, plus a few instructions
 * for each block of frames to count what is lost.
 *
 * Context: Any but interrupt handlers, which may have interrupted the copy that
 * they would wait for.
 * Return: number of pages that were discarded.
 */
unsigned long dmem_revoke(struct dmem_area *area, unsigned long first,
			  unsigned long nr, unsigned long *spins)
{
	unsigned long waits = wait_for_copies(area, first, nr);
	unsigned long dropped[DMEM_CLIENTS] = {};

	atomic_long_sub(nr, &area->idle);
	sum_live(area, first, first + nr, dropped);
	if (dropped[0])
		this_cpu_add(area->stats->discarded[0], dropped[0]);
	if (dropped[1])
		this_cpu_add(area->stats->discarded[1], dropped[1]);
	if (spins)
		*spins = waits;
	return dropped[0] + dropped[1];
}

/**
 * dmem_zero_owned() - clear the frames of the first-class client that need it
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * After dmem_revoke(), and before anybody writes to the frames: those known to
 * be all zeros are left out.
 *
 * Context: Process. May sleep.
 */
void dmem_zero_owned(const struct dmem_area *area, unsigned long first,
		     unsigned long nr)
{
	unsigned long end = first + nr;

	for (;; first++) {
		/* Bits of other frames may change, those of the owner's do not. */
		first = data_race(find_next_zero_bit(area->zero, end, first));
		if (first >= end)
			break;
		clear_highpage(pfn_to_page(area->base_pfn + first));
		cond_resched();
	}
}

/**
 * dmem_zero_idle() - clear frames before the first-class client wants them
 * @area: the area
 * @first: first frame
 * @nr: number of frames
 *
 * Frames that hold content are left alone. The owner waits for at most one page
 * to be cleared, as it does for copies.
 *
 * Context: Process. May sleep.
 */
void dmem_zero_idle(struct dmem_area *area, unsigned long first,
		    unsigned long nr)
{
	unsigned long end = first + nr;

	/* Before any of the bits, which the owner sees only with a frame. */
	WRITE_ONCE(area->zeroed, true);
	for (nr = first; nr < end; nr++) {
		struct dmem_frame *frame = area->frame + nr;

		if (test_bit(nr, area->zero) || frame_live(area, nr) ||
		    frame_owned(area, nr) || !frame_trylock(frame))
			continue;
		if (dmem_enter(area, nr) && !frame_live(area, nr)) {
			clear_highpage(pfn_to_page(area->base_pfn + nr));
			set_bit(nr, area->zero);
		}
		dmem_leave();
		frame_unlock(frame);
		cond_resched();
	}
}

/* Clear bits of frames whose owner has them; others of a word are not its own. */
static void clear_bits(unsigned long *bitmap, unsigned long first,
		       unsigned long nr)
{
	while (nr) {
		unsigned int bit = first % BITS_PER_LONG;
		unsigned long n = min(BITS_PER_LONG - bit, nr);

		if (n == BITS_PER_LONG)
			WRITE_ONCE(bitmap[first / BITS_PER_LONG], 0);
		else
			set_mask_bits(&bitmap[first / BITS_PER_LONG],
				      GENMASK(bit + n - 1, bit), 0UL);
		first += n;
		nr -= n;
	}
}

/**
 * dmem_forget() - the first-class client is about to give frames back
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * The bits of the frames in the bitmap of owned frames are still set. What they
 * held before they were taken is gone for good.
 *
 * Context: Any.
 */
void dmem_forget(struct dmem_area *area, unsigned long first, unsigned long nr)
{
	unsigned long end = first + nr, next;
	unsigned int client;

	/* The owner may have written to them. */
	if (READ_ONCE(area->zeroed))
		clear_bits(area->zero, first, nr);
	for (; first < end; first = next) {
		atomic_t *nr_live = &area->nr_live[first / DMEM_BLOCK];
		unsigned long gone[DMEM_CLIENTS] = {};

		next = min(end, (first / DMEM_BLOCK + 1) * DMEM_BLOCK);
		if (!atomic_read(nr_live))
			continue;
		if (next - first == DMEM_BLOCK) {
			for (client = 0; client < DMEM_CLIENTS; client++) {
				unsigned long *live = area->live[client] +
						      first / BITS_PER_LONG;

				/* Who looks finds out that they are owned. */
				data_race(memset(live, 0,
						 DMEM_BLOCK / BITS_PER_BYTE));
			}
			atomic_set(nr_live, 0);
			continue;
		}
		sum_live(area, first, next, gone);
		atomic_sub(gone[0] | gone[1] << LIVE_SHIFT, nr_live);
		for (client = 0; client < DMEM_CLIENTS; client++)
			clear_bits(area->live[client], first, next - first);
	}
	/* Pairs with test_bit_acquire() in dmem_enter(): not live, then not owned. */
	smp_wmb();
}

/**
 * dmem_give() - the first-class client is done with frames
 * @area: the area
 * @first: first frame, counted from the start of the area
 * @nr: number of frames
 *
 * The caller has called dmem_forget(), and then cleared the bits of the frames
 * in the bitmap of owned frames.
 *
 * Context: Any.
 */
void dmem_give(struct dmem_area *area, unsigned long first, unsigned long nr)
{
	unsigned long word = first / BITS_PER_LONG;
	unsigned long last = (first + nr - 1) / BITS_PER_LONG;

	/* The cleared bits come first, or a refill might find nothing. */
	smp_mb();
	for (; word <= last; word++)
		if (!test_bit(word, area->avail))
			set_bit(word, area->avail);
	atomic_long_add(nr, &area->idle);
}

/**
 * dmem_live() - count the frames that hold content
 * @area: the area
 * @first: first frame
 * @nr: number of frames, none of them owned
 *
 * Return: their number, out of date at once.
 */
unsigned long dmem_live(const struct dmem_area *area, unsigned long first,
			unsigned long nr)
{
	unsigned long sum[DMEM_CLIENTS] = {};

	sum_live(area, first, first + nr, sum);
	return sum[0] + sum[1];
}

/**
 * dmem_cached() - count the pages of a client that can be had
 * @area: the area
 * @client: the client
 *
 * Return: their number, out of date at once.
 */
unsigned long dmem_cached(const struct dmem_area *area, unsigned int client)
{
	unsigned long nr = 0;
	unsigned int word;

	for (word = 0; word < area->words; word++)
		nr += hweight_long(READ_ONCE(area->live[client][word]) &
				   ~owned_word(area, word));
	return nr;
}

/**
 * dmem_sum_stats() - add up the counters of all CPUs
 * @area: the area
 * @sum: where to put them
 */
void dmem_sum_stats(const struct dmem_area *area, struct dmem_stats *sum)
{
	unsigned long *to = (unsigned long *)sum;
	unsigned int cpu, i;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu) {
		const unsigned long *from;

		from = (const unsigned long *)per_cpu_ptr(area->stats, cpu);
		for (i = 0; i < sizeof(*sum) / sizeof(*to); i++)
			/* Other CPUs go on counting. */
			to[i] += data_race(from[i]);
	}
}

/**
 * dmem_area_init() - prepare an area
 * @area: the area
 * @base_pfn: first page frame
 * @nr: number of frames, a multiple of BITS_PER_LONG
 * @owned: bitmap of the first-class client
 * @owned_order: each bit of @owned stands for 2^@owned_order frames
 * @clients: bit mask of the clients that may store here
 *
 * Return: 0, -EINVAL or -ENOMEM.
 */
int dmem_area_init(struct dmem_area *area, unsigned long base_pfn,
		   unsigned long nr, const unsigned long *owned,
		   unsigned int owned_order, unsigned int clients)
{
	memset(area, 0, sizeof(*area));
	if (!base_pfn || !nr || nr % BITS_PER_LONG)
		return -EINVAL;
	area->base_pfn = base_pfn;
	area->nr = nr;
	area->words = nr / BITS_PER_LONG;
	area->owned = owned;
	area->owned_order = owned_order;
	area->clients = clients;
	atomic_long_set(&area->idle, nr);
	area->live[0] = bitmap_zalloc(nr, GFP_KERNEL);
	area->live[1] = bitmap_zalloc(nr, GFP_KERNEL);
	area->nr_live = kvcalloc(DIV_ROUND_UP(nr, DMEM_BLOCK),
				 sizeof(*area->nr_live), GFP_KERNEL);
	area->zero = bitmap_zalloc(nr, GFP_KERNEL);
	area->avail = bitmap_zalloc(area->words, GFP_KERNEL);
	area->frame = kvcalloc(nr, sizeof(*area->frame), GFP_KERNEL);
	area->cpu = alloc_percpu(struct dmem_cpu);
	area->stats = alloc_percpu(struct dmem_stats);
	if (!area->live[0] || !area->live[1] || !area->nr_live || !area->zero ||
	    !area->avail || !area->frame || !area->cpu || !area->stats) {
		dmem_area_exit(area);
		return -ENOMEM;
	}
	bitmap_fill(area->avail, area->words);
	/* Down from the upper end, a whole number of rounds. */
	atomic_set(&area->cursor, rounddown((unsigned int)INT_MAX, area->words));
	return 0;
}

/**
 * dmem_area_exit() - free what dmem_area_init() allocated
 * @area: the area, in no use any more
 */
void dmem_area_exit(struct dmem_area *area)
{
	bitmap_free(area->live[0]);
	bitmap_free(area->live[1]);
	kvfree(area->nr_live);
	bitmap_free(area->zero);
	bitmap_free(area->avail);
	kvfree(area->frame);
	free_percpu(area->cpu);
	free_percpu(area->stats);
	memset(area, 0, sizeof(*area));
}

/**
 * dmem_init() - prepare the index
 * @dmem: the store, zeroed
 * @nr: number of frames of all areas that it will have
 *
 * Return: 0 or -ENOMEM.
 */
int dmem_init(struct dmem *dmem, unsigned long nr)
{
	unsigned int i;

	/* Chains of two on average in a full store: 4 bytes a frame. */
	dmem->bits = max(ilog2(nr) - 1, ilog2(DMEM_LOCKS));
	dmem->chain = kvcalloc(1UL << dmem->bits, sizeof(*dmem->chain),
			       GFP_KERNEL);
	if (!dmem->chain)
		return -ENOMEM;
	for (i = 0; i < DMEM_LOCKS; i++)
		raw_spin_lock_init(&dmem->lock[i].lock);
	return 0;
}

/**
 * dmem_add_area() - begin to store in an area
 * @dmem: the store
 * @area: the area, after dmem_area_init(); stays for good
 *
 * Context: The caller sees to it that there is one at a time.
 * Return: 0, or -ENOSPC if there are too many.
 */
int dmem_add_area(struct dmem *dmem, struct dmem_area *area)
{
	if (dmem->nr_areas == DMEM_MAX_AREAS)
		return -ENOSPC;
	dmem->area[dmem->nr_areas] = area;
	/* Pairs with smp_load_acquire() in dmem_stage(). */
	smp_store_release(&dmem->nr_areas, dmem->nr_areas + 1);
	return 0;
}

/**
 * dmem_exit() - free the index
 * @dmem: the store, in no use any more
 */
void dmem_exit(struct dmem *dmem)
{
	kvfree(dmem->chain);
	dmem->chain = NULL;
}
