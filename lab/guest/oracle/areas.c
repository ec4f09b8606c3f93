// SPDX-License-Identifier: MIT OR Apache-2.0
/* Contiguous memory, through /dev/cma_bench. */
#include "oracle.h"

#include <sys/ioctl.h>

#include "bench_abi.h"

struct piece {
	struct cma_bench_op op;
	bool folio;
};

static void cma_wrong(const char *what, const struct cma_bench_op *o)
{
	struct json j = json_line("wrong");

	json_str(&j, "where", "cma");
	json_str(&j, "what", what);
	json_u64(&j, "pfn", o->pfn);
	json_u64(&j, "pages", o->pages);
	json_u64(&j, "bad_words", o->bad);
	json_end(&j);
	fail(&shared->cma_wrong);
}

/* Pages that were in use all the time cannot be part of an allocation. */
static void pins_verify(const struct cma_bench_op *o)
{
	u32 i;

	for (i = 0; i < opt.alloc_workers; i++) {
		u64 pfn = atomic_load(&shared->pinned[i]);

		if (pfn && pfn >= o->pfn && pfn < o->pfn + o->pages)
			cma_wrong("a pinned page was handed out", o);
	}
}

static void pin(int fd, u32 id, const struct piece *p, struct rng *rng)
{
	struct cma_bench_op o = { .pages = 1, .pfn = p->op.pfn };

	/* the head of a folio has the references */
	if (!p->folio)
		o.pfn += rng_below(rng, (u32)p->op.pages);
	if (ioctl(fd, CMA_BENCH_PIN, &o))
		die("cannot pin a page: %s", strerror(errno));
	atomic_store(&shared->pinned[id], o.pfn);
	count(&shared->cma_pins, 1);
}

static void unpin(int fd, u32 id)
{
	struct cma_bench_op o = {
		.pages = 1, .pfn = atomic_exchange(&shared->pinned[id], 0),
	};

	if (o.pfn && ioctl(fd, CMA_BENCH_UNPIN, &o))
		die("cannot unpin a page: %s", strerror(errno));
}

void alloc_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 7000 + id);
	struct piece live[LIVE_MAX], asked = { 0 };
	bool again = false, crowded = false;
	u32 n = 0, pages = 0;
	int fd = open("/dev/cma_bench", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("cannot open /dev/cma_bench: %s (a kernel with it is needed for --alloc)",
		    strerror(errno));
	while (!stopping() || n) {
		bool want = !stopping() && !crowded && n < opt.alloc_pieces &&
			    rng_below(&rng, 3);
		struct piece p = { 0 };
		struct cma_bench_op *o = &p.op;

		if (opt.alloc_pins && rng_one_in(&rng, 4))
			unpin(fd, id);
		o->pages = 1 + rng_below(&rng, 1u << rng_below(&rng, 16));
		o->align = rng_below(&rng, 5);
		o->seed = rng_next(&rng);
		if (o->pages > opt.alloc_max_pages)
			o->pages = opt.alloc_max_pages;
		p.folio = opt.alloc_pins && o->pages > 1 && rng_one_in(&rng, 4);
		while (p.folio && o->pages & (o->pages - 1))
			o->pages &= o->pages - 1;
		if (again)
			p = asked;
		if (want && pages + o->pages <= opt.alloc_live) {
			asked = p;
			if (!again)
				count(&shared->cma_allocs, 1);
			if (ioctl(fd, p.folio ? CMA_BENCH_ALLOC_FOLIO :
						CMA_BENCH_ALLOC, o)) {
				/*
				 * This worker's pieces may lie so that no range
				 * is long enough: release some and try again. It
				 * is a failure only when this worker holds none;
				 * other workers have to leave it room.
				 */
				again = n > 0;
				crowded = again;
				if (!again)
					count(&shared->cma_failed, 1);
				sleep_ms(1);
				continue;
			}
			again = false;
			pins_verify(o);
			if (o->ns > atomic_load(&shared->cma_worst_ns))
				atomic_store(&shared->cma_worst_ns, o->ns);
			if (ioctl(fd, CMA_BENCH_FILL, o))
				die("cannot fill an allocation: %s",
				    strerror(errno));
			pages += (u32)o->pages;
			live[n++] = p;
			sleep_ms(rng_below(&rng, 20));
		} else if (n) {
			u32 i = rng_below(&rng, n);

			crowded = false;
			p = live[i];
			live[i] = live[--n];
			if (ioctl(fd, CMA_BENCH_CHECK, o))
				die("cannot check an allocation: %s",
				    strerror(errno));
			if (o->bad)
				cma_wrong("somebody wrote to it", o);
			if (opt.alloc_pins && !shared->pinned[id] &&
			    rng_one_in(&rng, 2))
				pin(fd, id, &p, &rng);
			if (ioctl(fd, p.folio ? CMA_BENCH_FREE_FOLIO :
						CMA_BENCH_RELEASE, o))
				die("cannot release an allocation: %s",
				    strerror(errno));
			pages -= (u32)o->pages;
		}
	}
	unpin(fd, id);
	close(fd);
}
