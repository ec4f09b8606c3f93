/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of GCMA share. */
#ifndef _MM_GCMA_GCMA_H
#define _MM_GCMA_GCMA_H

#include <linux/cma.h>
#include <linux/gcma.h>
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "../cma.h"
#include "dmem.h"

/* Clients of dmem, see GCMA_FILE and GCMA_SWAP. */
enum gcma_client {
	GCMA_CLIENT_FILE,
	GCMA_CLIENT_SWAP,
};

static_assert(GCMA_FILE == 2 << GCMA_CLIENT_FILE &&
	      GCMA_SWAP == 2 << GCMA_CLIENT_SWAP);

/* Bins of the latency histogram: below 1 µs, 2 µs, 4 µs, … and the rest. */
#define GCMA_LATENCY_BINS	24

/**
 * struct gcma - a guaranteed area
 * @cma: the CMA area
 * @dmem: its frames as dmem sees them
 * @lending: dmem is in use, and stays so; set under the lock of @cma
 * @owned: frames allocated or in quarantine; under @cma->lock
 * @first_free: no bit below is free; under @cma->lock
 * @quarantine: bitmap like that of @cma, what was released while still in use
 *	by someone; under @cma->lock
 * @quarantined: number of frames in quarantine; under @cma->lock
 * @quarantine_work: looks whether they can be had back
 * @poisoned: number of frames that are out of use as their memory is broken;
 *	under @cma->lock
 * @suspect: memory of a frame broke while it was allocated; under @cma->lock
 * @wipe_work: clears idle frames where freed memory is to be cleared
 * @allocs: allocations that succeeded
 * @fails: allocations that failed
 * @bad_releases: releases refused
 * @spins: waits for copies in flight
 * @latency: histogram of the time that allocations took
 * @latency_max: longest time an allocation took, ns
 */
struct gcma {
	struct cma		*cma;
	struct dmem_area	dmem;
	bool			lending;
	unsigned long		owned;
	unsigned long		first_free;
	unsigned long		*quarantine;
	unsigned long		quarantined;
	struct delayed_work	quarantine_work;
	unsigned long		poisoned;
	bool			suspect;
	struct delayed_work	wipe_work;
	atomic_long_t		allocs;
	atomic_long_t		fails;
	atomic_long_t		bad_releases;
	atomic_long_t		spins;
	atomic_long_t		latency[GCMA_LATENCY_BINS];
	atomic64_t		latency_max;
};

/**
 * gcma_lent() - the frames of an area as dmem sees them
 * @gcma: the area
 *
 * Return: them, or %NULL if the area was never lent.
 */
static inline struct dmem_area *gcma_lent(struct gcma *gcma)
{
	/* Pairs with smp_store_release() in lend(). */
	return smp_load_acquire(&gcma->lending) ? &gcma->dmem : NULL;
}

extern struct dmem gcma_dmem;
extern unsigned int gcma_clients;

void __gcma_wipe(void);

/* Is memory that nobody uses to hold nothing of what was there? */
static inline bool gcma_wipes(void)
{
	return want_init_on_free() || page_poisoning_enabled_static();
}

/**
 * gcma_wipe() - frames have become idle: clear them soon, if that is wanted
 *
 * Context: Any.
 */
static inline void gcma_wipe(void)
{
	if (gcma_wipes())
		__gcma_wipe();
}

/**
 * enum gcma_admit - which pages that may be kept are kept
 * @GCMA_ADMIT_ADAPTIVE: all, or a few where hardly any comes back in time
 * @GCMA_ADMIT_ALL: all
 * @GCMA_ADMIT_WORKINGSET: those in use again after a while
 */
enum gcma_admit {
	GCMA_ADMIT_ADAPTIVE,
	GCMA_ADMIT_ALL,
	GCMA_ADMIT_WORKINGSET,
};

extern enum gcma_admit gcma_admit;

const char *gcma_clients_name(unsigned int clients);
int gcma_parse_clients(const char *text, size_t len, unsigned int *clients);
unsigned long gcma_place(const struct cma *cma, const struct dmem_area *dmem,
			 unsigned long count, unsigned int align);
int gcma_set_clients(struct gcma *gcma, unsigned int clients);
void gcma_set_admit(enum gcma_admit admit);
long gcma_prepare(struct gcma *gcma, unsigned long count);
int gcma_sysfs_init(void);
struct gcma *gcma_area(unsigned int nr);

#endif /* _MM_GCMA_GCMA_H */
