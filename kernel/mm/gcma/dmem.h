/* SPDX-License-Identifier: GPL-2.0 */
/* dmem: a cache of pages that may lose any of its entries at any time, see dmem.c */
#ifndef _MM_GCMA_DMEM_H
#define _MM_GCMA_DMEM_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct folio;
struct page;

#define DMEM_CLIENTS	2	/* clients are told apart by one bit */
#define DMEM_MAX_AREAS	CONFIG_CMA_AREAS
#define DMEM_WAYS	64
#define DMEM_PIECE_ORDER	4U	/* a piece: 16 neighbours, which are treated alike */
#define DMEM_LEADERS	2	/* classes of pieces that try out a policy */

/* What is stored: */
#define DMEM_WORKINGSET	BIT(0)	/* was in use more than once */
#define DMEM_SECRET	BIT(1)	/* its frame is cleared on demand */

/* What dmem_sweep() does; it takes single clients as well: */
#define DMEM_ALL		GENMASK(DMEM_CLIENTS - 1, 0)
#define DMEM_CLEAR		BIT(DMEM_CLIENTS)
#define DMEM_ONLY_SECRET	BIT(DMEM_CLIENTS + 1)

/* The key of what a frame holds, if the way has a tag. */
struct dmem_frame {
	const void *space;
	unsigned long offset;
};

/* Frames that compete for the same keys. */
struct dmem_set {
	raw_spinlock_t lock;	/* of all below, and the content of the frames */
	u32 changes;		/* of frames' owners, that it has seen */
	u32 hand;		/* where a way for the next page is looked for */
	u64 used;		/* ways that are not free */
	u64 lost;		/* those of them that nobody could take when last tried */
	u64 client;		/* ways whose content is the second client's */
	u64 rrpv[2];		/* the lower bit of each way, and the higher */
	u8 tag[DMEM_WAYS] __aligned(8);	/* zero if the way has no key */
	struct dmem_frame way[DMEM_WAYS];
};

/*
 * The sets that pieces of one class may be in. A group has one for each page of a piece
 * and perhaps one more, or is all of a small class.
 */
struct dmem_class {
	u32 first;	/* the set that the first group begins with */
	u32 groups;
	u32 width;	/* sets of a group */
	u32 wide;	/* so many groups have one more, so that all sets are used */
};

/* Events of an area, by client. What concerns no frame is counted in the first. */
struct dmem_stats {
	unsigned long stored[DMEM_CLIENTS];	/* pages copied in, can be found */
	unsigned long loaded[DMEM_CLIENTS];	/* pages found and moved out */
	unsigned long served[DMEM_CLIENTS];	/* reads of pages that stayed */
	unsigned long missed[DMEM_CLIENTS];	/* pages looked for that were gone */
	unsigned long discarded[DMEM_CLIENTS];	/* for the owner; only [0] counts */
	unsigned long evicted[DMEM_CLIENTS];	/* to make room for others */
	unsigned long refused[DMEM_CLIENTS];	/* found no usable frame */
	unsigned long copy_waits;	/* how often the owner found one going on */
};

/* Page frames lent by their owner. */
struct dmem_area {
	unsigned long base_pfn;
	unsigned long nr;
	const unsigned long *owned;	/* bitmap, one bit for 2^@owned_order */
	unsigned int owned_order;
	unsigned int clients;		/* bit mask of those that may store */

	struct dmem *dmem;
	unsigned long first;		/* number of frames in areas before it */
	struct dmem_stats __percpu *stats;
};

struct dmem {
	struct dmem_area *area[DMEM_MAX_AREAS];	/* never removed */
	unsigned int nr_areas;
	unsigned long nr;		/* frames of all areas there will be */
	u32 nr_sets;
	u32 nr_led;			/* sets of each class of leaders */
	struct dmem_class class[DMEM_LEADERS + 1];
	struct dmem_set *set;
	unsigned long *live;		/* bitmaps, see dmem.c */
	unsigned long *zero, *secret;
	atomic_t changes;		/* how often frames changed hands */
	atomic_t offered[DMEM_LEADERS];	/* pages offered or served in place, */
	atomic_t found[DMEM_LEADERS];	/* and those of them that were here */
	bool thrifty;			/* policy of all other pieces */
};

void dmem_init(struct dmem *dmem, unsigned long nr);
void dmem_exit(struct dmem *dmem);
int dmem_add_area(struct dmem *dmem, struct dmem_area *area);
bool dmem_store(struct dmem *dmem, struct folio *folio, const void *space,
		unsigned long offset, unsigned int client, unsigned int flags);
bool dmem_load(struct dmem *dmem, const void *space, unsigned long offset,
	       struct page *page, unsigned int client);
bool dmem_has(struct dmem *dmem, const void *space, unsigned long offset);
ssize_t dmem_read(struct dmem *dmem, const void *space, loff_t pos, size_t len,
		  void *buf, void __user *to, unsigned int client, bool near);
void dmem_invalidate(struct dmem *dmem, const void *space, unsigned long offset,
		     unsigned long nr);
void dmem_invalidate_all(struct dmem *dmem);
unsigned long dmem_sweep(struct dmem_area *area, unsigned long first,
			 unsigned long nr, unsigned int what);
void dmem_set_clients(struct dmem_area *area, unsigned int clients);
unsigned long dmem_revoke(struct dmem_area *area, unsigned long first,
			  unsigned long nr);
unsigned long dmem_release(struct dmem_area *area, unsigned long first,
			   unsigned long nr);
void dmem_zero_owned(const struct dmem_area *area, unsigned long first,
		     unsigned long nr);
unsigned long dmem_cached(const struct dmem_area *area, unsigned int client);
unsigned long dmem_sum(const struct dmem_area *area, size_t counter);

/* Frames have changed hands: a store looks at the ways of its set again. */
static inline void dmem_changed(struct dmem *dmem)
{
	/* Pairs with atomic_read_acquire() in place_free(). */
	atomic_fetch_inc_release(&dmem->changes);
}

/* Of which area the page was, nobody knows any more. */
static inline void dmem_count_missed(struct dmem *dmem, unsigned int client)
{
	this_cpu_inc(dmem->area[0]->stats->missed[client]);
}

#endif /* _MM_GCMA_DMEM_H */
