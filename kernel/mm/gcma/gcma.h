/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of GCMA share. */
#ifndef _MM_GCMA_GCMA_H
#define _MM_GCMA_GCMA_H

#include <linux/gcma.h>
#include <linux/mm.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "dmem.h"

/* Clients of dmem, see GCMA_FILE and GCMA_SWAP. */
enum gcma_client {
	GCMA_CLIENT_FILE,
	GCMA_CLIENT_SWAP,
};

static_assert(GCMA_FILE == 2 << GCMA_CLIENT_FILE &&
	      GCMA_SWAP == 2 << GCMA_CLIENT_SWAP);
/* The frames of an area that dmem does not take would be places that are always lost. */
static_assert(DMEM_MAX_AREAS >= MAX_CMA_AREAS);

extern struct dmem gcma_dmem;
extern unsigned int gcma_clients;
extern atomic_long_t gcma_idle;
extern struct delayed_work gcma_tidy_work;

bool gcma_workingset(struct folio *folio);

/* Is memory that nobody uses to hold nothing of what was there? */
static inline bool gcma_wipes(void)
{
	return want_init_on_free() || page_poisoning_enabled_static();
}

/* Frames have become idle: clear them soon, if that is wanted. In any context. */
static inline void gcma_wipe(void)
{
	if (gcma_wipes())
		queue_delayed_work(system_dfl_wq, &gcma_tidy_work, HZ / 10);
}

#endif /* _MM_GCMA_GCMA_H */
