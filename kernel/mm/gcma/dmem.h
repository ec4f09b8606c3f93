/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dmem: discardable memory, a key-value store of pages that may lose any of
 * its entries at any time. See dmem.c.
 */
#ifndef _MM_GCMA_DMEM_H
#define _MM_GCMA_DMEM_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct page;

#define DMEM_CLIENTS	2	/* clients are told apart by one bit */
#define DMEM_MAX_AREAS	16
#define DMEM_LOCKS	256	/* stripes of the index, a power of two */
#define DMEM_BLOCK	512UL	/* frames whose live ones are counted together */

/**
 * struct dmem_frame - what is known of one page frame of an area
 * @next: next in the chain of the index, or of pages staged together
 * @space: first part of the key; %NULL while not in the index
 * @offset: second part of the key
 * @busy: held by whoever fills, empties or takes the frame out of the index, or
 *	shared by those who read it in place
 * @stamp: when it was stored or last read, in pages offered to the area, times
 *	two; plus one if it has been read
 *
 * @next and @space change under the lock of the chain. @space and @offset are
 * set only by the holder of @busy, to whom @next belongs from dmem_stage() to
 * dmem_publish(). dmem_read() follows @next without the lock; what it finds it
 * compares again when it shares @busy, and nobody sets another key then.
 */
struct dmem_frame {
	struct dmem_frame	*next;
	const void		*space;
	unsigned long		offset;
	atomic_t		busy;
	u32			stamp;
};

/**
 * struct dmem_stats - event counters of an area, by client
 * @stored: pages copied in and made reachable
 * @loaded: pages found and moved out
 * @served: reads of pages that stayed
 * @missed: pages looked for that were gone
 * @discarded: pages dropped for the first-class client
 * @evicted: pages dropped to make room for younger ones
 * @refused: pages that found no usable frame
 * @declined: pages not taken in as hardly any like them were of use
 */
struct dmem_stats {
	unsigned long stored[DMEM_CLIENTS];
	unsigned long loaded[DMEM_CLIENTS];
	unsigned long served[DMEM_CLIENTS];
	unsigned long missed[DMEM_CLIENTS];
	unsigned long discarded[DMEM_CLIENTS];
	unsigned long evicted[DMEM_CLIENTS];
	unsigned long refused[DMEM_CLIENTS];
	unsigned long declined[DMEM_CLIENTS];
};

/**
 * struct dmem_cpu - the frames one CPU will fill next
 * @word: which group of BITS_PER_LONG frames
 * @stamp: time of the next store
 * @mask: which frames of the group
 * @picky: leave out frames that hold young content
 * @few: dmem_area.few when the group was taken
 * @near: first uses of content that would have been there in any case
 */
struct dmem_cpu {
	unsigned int	word;
	u32		stamp;
	unsigned long	mask;
	bool		picky;
	unsigned int	few;
	unsigned long	near;
};

/**
 * struct dmem_area - page frames lent to dmem by a first-class client
 * @base_pfn: first page frame
 * @nr: number of frames, a multiple of BITS_PER_LONG
 * @words: @nr in bitmap words
 * @owned: bitmap of the first-class client, one bit for 2^@owned_order frames
 * @owned_order: see @owned
 * @clients: bit mask of the clients that may store here
 * @idle: number of frames that the owner does not have, a hint
 * @live: bitmap for each client, the frame holds content of it that may be
 *	copied out; what it says of a frame that the owner has means nothing and
 *	does not change
 * @nr_live: number of live frames in each block of DMEM_BLOCK, those of the
 *	first client in the lower half
 * @zero: bitmap, the frame is all zeros if it is neither owned nor live
 * @zeroed: there may be bits in @zero
 * @avail: bitmap of words that may have frames neither owned nor live
 * @cursor: word whose frames are next to be evicted, moving downwards
 * @clock: pages offered so far
 * @adaptive: may be in the mood for few pages
 * @few: if not zero and @adaptive, one of 2^@few pieces of a file is taken in
 * @begun: time at which @near and @evicted were taken
 * @near: uses then, summed over the CPUs
 * @evicted: pages evicted by then
 * @frame: one entry a frame
 * @cpu: the frames each CPU fills next
 * @stats: event counters
 */
struct dmem_area {
	unsigned long		base_pfn;
	unsigned long		nr;
	unsigned int		words;
	const unsigned long	*owned;
	unsigned int		owned_order;
	unsigned int		clients;
	atomic_long_t		idle;
	unsigned long		*live[DMEM_CLIENTS];
	atomic_t		*nr_live;
	unsigned long		*zero;
	bool			zeroed;
	unsigned long		*avail;
	atomic_t		cursor;
	atomic_t		clock;
	bool			adaptive;
	unsigned int		few;
	atomic_t		begun;
	unsigned long		near;
	unsigned long		evicted;
	struct dmem_frame	*frame;
	struct dmem_cpu __percpu   *cpu;
	struct dmem_stats __percpu *stats;
};

struct dmem_lock {
	raw_spinlock_t lock;
} ____cacheline_aligned_in_smp;

/**
 * struct dmem - areas and the index of what they hold
 * @area: the areas, never removed
 * @nr_areas: how many
 * @bits: log2 of the number of chains
 * @chain: heads of the chains
 * @lock: the locks of the chains, striped
 */
struct dmem {
	struct dmem_area	*area[DMEM_MAX_AREAS];
	unsigned int		nr_areas;
	unsigned int		bits;
	struct dmem_frame	**chain;
	struct dmem_lock	lock[DMEM_LOCKS];
};

/**
 * dmem_full() - are there no frames to store anything in
 * @dmem: the store
 *
 * Return: whether the first-class clients have all of them, a hint.
 */
static inline bool dmem_full(const struct dmem *dmem)
{
	unsigned int i;

	/* Pairs with smp_store_release() in dmem_add_area(). */
	for (i = 0; i < smp_load_acquire(&dmem->nr_areas); i++)
		if (atomic_long_read(&dmem->area[i]->idle) > 0)
			return false;
	return true;
}

int dmem_area_init(struct dmem_area *area, unsigned long base_pfn,
		   unsigned long nr, const unsigned long *owned,
		   unsigned int owned_order, unsigned int clients);
void dmem_area_exit(struct dmem_area *area);
int dmem_init(struct dmem *dmem, unsigned long nr);
int dmem_add_area(struct dmem *dmem, struct dmem_area *area);
void dmem_exit(struct dmem *dmem);

struct dmem_frame *dmem_stage(struct dmem *dmem, struct page *page,
			      const void *space, unsigned long offset,
			      unsigned int client);
bool dmem_publish(struct dmem *dmem, struct dmem_frame *frame,
		  const void *space, unsigned long offset);
void dmem_abort(struct dmem *dmem, struct dmem_frame *frame);
bool dmem_load(struct dmem *dmem, const void *space, unsigned long offset,
	       struct page *page, unsigned int client);
bool dmem_has(struct dmem *dmem, const void *space, unsigned long offset,
	      unsigned int client);
ssize_t dmem_read(struct dmem *dmem, const void *space, loff_t pos, size_t len,
		  void *buf, void __user *to, unsigned int client);
void dmem_drop(struct dmem *dmem, const void *space, unsigned long offset);
void dmem_drop_all(struct dmem *dmem);
void dmem_set_clients(struct dmem_area *area, unsigned int clients);
void dmem_set_adaptive(struct dmem_area *area, bool adaptive);
unsigned long dmem_clear(struct dmem_area *area, unsigned long first,
			 unsigned long nr);

unsigned long dmem_revoke(struct dmem_area *area, unsigned long first,
			  unsigned long nr, unsigned long *spins);
void dmem_zero_owned(const struct dmem_area *area, unsigned long first,
		     unsigned long nr);
void dmem_zero_idle(struct dmem_area *area, unsigned long first,
		    unsigned long nr);
void dmem_forget(struct dmem_area *area, unsigned long first, unsigned long nr);
void dmem_give(struct dmem_area *area, unsigned long first, unsigned long nr);
unsigned long dmem_live(const struct dmem_area *area, unsigned long first,
			unsigned long nr);
unsigned long dmem_cached(const struct dmem_area *area, unsigned int client);

void dmem_sum_stats(const struct dmem_area *area, struct dmem_stats *sum);

#endif /* _MM_GCMA_DMEM_H */
