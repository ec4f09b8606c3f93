// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * sweep - time and test contiguous allocations through /dev/cma_bench
 *
 * Without a mode: for each repetition and each size allocate, hold, release;
 * one line {"type":"alloc"} each, times taken inside the kernel.
 *
 *   --sizes N,N,...    pages (64,128,...,32768)
 *   --reps N           (30)
 *   --interval-ms N    pause after each allocation was released (0)
 *   --hold-ms N        pause before the release (0)
 *   --fill             write a pattern and look for it before the release
 *   --zeroed           look first that every byte is zero
 *
 * --random: sizes and alignments at random, half of the area held at most, given back
 * in random order, each filled and checked; one line {"type":"random_summary"}.
 *
 *   --count N          allocations (1000)
 *   --max-pages N      largest allocation (4096)
 *   --dma              through dma_alloc_coherent(), which also zeroes
 *
 * --edge: what must be refused is refused and what must work works; one line
 * {"type":"edge"} a case, exit status 1 if one is not ok.
 *
 * --dmem N: store N pages in the area and load them again, through the hooks of
 * reclaim and the page cache; one line {"type":"dmem"}, --reps times.
 *
 * --find TEXT: how many 8-byte words of the whole area are these seven characters
 * and a newline, in free, lent and allocated frames; one line {"type":"found"}.
 *
 *   --fifo             no task of ordinary priority takes the processor away
 *   --seed N           (1)
 */
#include "options.h"

#include <sched.h>
#include <sys/ioctl.h>

#include "bench_abi.h"

#define SIZES_MAX	64
#define LIVE_MAX	1024
#define ALIGN_MAX	4	/* as an order of pages */
#define DEVICE		"/dev/cma_bench"
/* a page that was pinned and takes so long to come back on any host never does */
#define RETURN_NS	(300 * NSEC_PER_SEC)

static struct {
	const char *find;
	u64 sizes[SIZES_MAX];
	u32 nr_sizes;
	u32 reps, interval_ms, hold_ms;
	bool fill, zeroed, random, edge, dma, fifo;
	u64 nr_random, max_pages, dmem;
	u64 seed;
} opt = {
	.reps = 30, .nr_random = 1000, .max_pages = 4096, .seed = 1,
};

static int dev;

/* 0 or the error number */
static int request(unsigned long what, struct cma_bench_op *o)
{
	return ioctl(dev, what, o) ? errno : 0;
}

static void must(unsigned long what, const char *name, struct cma_bench_op *o)
{
	int err = request(what, o);

	if (err)
		die("%s of %llu pages at %llu failed: %s", name,
		    (unsigned long long)o->pages, (unsigned long long)o->pfn,
		    strerror(err));
}

/* --------------------------------------------------------------- sweep */

static bool one(u64 pages, u32 rep, struct rng *rng)
{
	struct cma_bench_op o = {
		.pages = pages, .seed = rng_next(rng),
	};
	struct json j = json_line("alloc");
	int err = request(CMA_BENCH_ALLOC, &o);
	u64 dirty = 0;

	if (err && err != ENOMEM && err != EBUSY)
		die("allocating %" PRIu64 " pages: %s", pages, strerror(err));
	json_u64(&j, "pages", pages);
	json_u64(&j, "rep", rep);
	json_u64(&j, "ns", o.ns);
	o.bad = 0;
	if (!err) {
		if (opt.zeroed)
			must(CMA_BENCH_LOOK, "looking", &o);
		dirty = o.bad;
		o.bad = 0;
		if (opt.fill)
			must(CMA_BENCH_FILL, "filling", &o);
		sleep_ms(opt.hold_ms);
		if (opt.fill)
			must(CMA_BENCH_CHECK, "checking", &o);
		must(CMA_BENCH_RELEASE, "releasing", &o);
	}
	json_u64(&j, "release_ns", err ? 0 : o.ns);
	json_bool(&j, "ok", !err);
	json_u64(&j, "wrong", o.bad);
	if (opt.zeroed)
		json_u64(&j, "not_zeroed", dirty);
	json_end(&j);
	sleep_ms(opt.interval_ms);
	return !o.bad && !dirty;
}

static int sweep(void)
{
	struct rng rng = rng_make(opt.seed, 0);
	u32 rep, i;
	bool ok = true;

	for (rep = 0; rep < opt.reps; rep++)
		for (i = 0; i < opt.nr_sizes; i++)
			ok = one(opt.sizes[i], rep, &rng) && ok;
	return !ok;
}

/* ---------------------------------------------------------------- dmem */

static int dmem(void)
{
	u32 rep;

	for (rep = 0; rep < opt.reps; rep++) {
		struct cma_bench_dmem d = { .pages = opt.dmem };
		struct json j;

		if (ioctl(dev, CMA_BENCH_DMEM, &d))
			die("cannot store and load %" PRIu64 " pages: %s",
			    opt.dmem, errno == ENODATA ?
			    "no area keeps file pages" : strerror(errno));
		j = json_line("dmem");
		json_u64(&j, "rep", rep);
		json_u64(&j, "pages", d.pages);
		json_u64(&j, "loaded", d.loaded);
		json_u64(&j, "store_ns", d.store_ns / d.pages);
		json_u64(&j, "load_ns", d.load_ns / d.pages);
		json_u64(&j, "copy_ns", d.copy_ns / d.pages);
		json_end(&j);
	}
	return 0;
}

/* ---------------------------------------------------------------- find */

static int find(void)
{
	struct cma_bench_op o = { 0 };
	struct json j = json_line("found");
	char text[9] = { 0 };

	if (snprintf(text, sizeof(text), "%s\n", opt.find) != sizeof(o.seed))
		die("--find wants 7 characters");
	memcpy(&o.seed, text, sizeof(o.seed));
	must(CMA_BENCH_FIND, "looking", &o);
	json_u64(&j, "words", o.bad);
	json_end(&j);
	return 0;
}

/* -------------------------------------------------------------- random */

static int random_allocs(const struct cma_bench_info *area)
{
	static struct cma_bench_op live[LIVE_MAX];
	u64 held = 0, allocs = 0, failed = 0, wrong = 0, worst = 0, total = 0;
	u64 limit = area->pages / 2;
	struct rng rng = rng_make(opt.seed, 1);
	u32 n = 0, bits = 0;
	struct json j;

	while (opt.max_pages >> (bits + 1))
		bits++;
	while (allocs < opt.nr_random || n) {
		struct cma_bench_op o = { 0 };
		bool want = allocs < opt.nr_random && n < LIVE_MAX &&
			    rng_below(&rng, 16) < 9;
		u32 i;

		/* all magnitudes are equally likely */
		o.pages = 1 + rng_below(&rng, 1u << rng_below(&rng, bits + 2));
		if (o.pages > opt.max_pages)
			o.pages = opt.max_pages;
		if (o.pages > limit)
			o.pages = limit;
		/* the page allocator has the single ones */
		if (opt.dma && o.pages < 2)
			o.pages = 2;
		o.align = rng_below(&rng, ALIGN_MAX + 1);
		o.seed = rng_next(&rng);
		if (want && held + o.pages <= limit) {
			int err = request(opt.dma ? CMA_BENCH_ALLOC_DMA :
						    CMA_BENCH_ALLOC, &o);

			allocs++;
			total += o.ns;
			if (o.ns > worst)
				worst = o.ns;
			if (err) {
				failed++;
				continue;
			}
			if (opt.dma ? o.bad : o.pfn % (1u << o.align))
				wrong++;
			must(CMA_BENCH_FILL, "filling", &o);
			held += o.pages;
			live[n++] = o;
		} else if (n) {
			i = rng_below(&rng, n);
			o = live[i];
			live[i] = live[--n];
			must(CMA_BENCH_CHECK, "checking", &o);
			wrong += o.bad != 0;
			must(opt.dma ? CMA_BENCH_FREE_DMA : CMA_BENCH_RELEASE,
			     "releasing", &o);
			held -= o.pages;
		}
	}
	j = json_line("random_summary");
	json_u64(&j, "allocs", allocs);
	json_u64(&j, "failed", failed);
	json_u64(&j, "wrong", wrong);
	json_u64(&j, "worst_ns", worst);
	json_u64(&j, "mean_ns", allocs ? total / allocs : 0);
	json_u64(&j, "live_pages", limit);
	json_u64(&j, "seed", opt.seed);
	json_end(&j);
	return wrong != 0;
}

/* --------------------------------------------------------------- edges */

static bool all_ok = true;

static void __attribute__((format(printf, 3, 4)))
edge(const char *name, bool ok, const char *fmt, ...)
{
	struct json j = json_line("edge");
	char detail[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	json_str(&j, "case", name);
	json_bool(&j, "ok", ok);
	json_str(&j, "detail", detail);
	json_end(&j);
	all_ok = all_ok && ok;
}

static void edge_refused_alloc(const char *name, u64 pages)
{
	struct cma_bench_op o = { .pages = pages };
	int err = request(CMA_BENCH_ALLOC, &o);

	edge(name, err == ENOMEM || err == EINVAL, "%" PRIu64 " pages: %s",
	     pages, err ? strerror(err) : "allocated");
	if (!err)
		request(CMA_BENCH_RELEASE, &o);
}

static u64 bad_releases(void)
{
	struct fields fs = { 0 };

	fields_read_gcma(&fs);
	return fields_sum(&fs, "/bad_releases");
}

static void edge_double_release(void)
{
	struct cma_bench_op o = { .pages = 64 }, again;
	u64 before;
	int err;

	if (!gcma_present()) {
		edge("double_release", true,
		     "skipped: no %s, plain CMA does not look", GCMA_SYSFS);
		return;
	}
	err = request(CMA_BENCH_ALLOC, &o);
	if (err) {
		edge("double_release", false, "no memory to try with: %s",
		     strerror(err));
		return;
	}
	again = o;
	must(CMA_BENCH_RELEASE, "releasing", &o);
	before = bad_releases();
	/* CMA calls pages of the area released in any case: look if they were. */
	request(CMA_BENCH_RELEASE_RAW, &again);
	edge("double_release", bad_releases() == before + 1, "%s",
	     bad_releases() == before + 1 ? "refused and counted" : "accepted");
}

static void edge_foreign(const struct cma_bench_info *area)
{
	struct cma_bench_op o = { .pages = 1 };
	int err, raw;

	o.pfn = area->base_pfn + area->pages;
	err = request(CMA_BENCH_RELEASE, &o);
	raw = request(CMA_BENCH_RELEASE_RAW, &o);
	edge("foreign_after", err == EINVAL && raw == EINVAL,
	     "checked: %s, raw: %s", err ? strerror(err) : "accepted",
	     raw ? strerror(raw) : "accepted");
	o.pfn = area->base_pfn - 1;
	err = request(CMA_BENCH_RELEASE, &o);
	raw = request(CMA_BENCH_RELEASE_RAW, &o);
	edge("foreign_before", err == EINVAL && raw == EINVAL,
	     "checked: %s, raw: %s", err ? strerror(err) : "accepted",
	     raw ? strerror(raw) : "accepted");
}

/* Take all there is, in pieces down to single pages: then there is none. */
static void edge_exhausted(const struct cma_bench_info *area)
{
	static struct cma_bench_op held[LIVE_MAX];
	u64 pages = 1, got = 0;
	u32 n = 0, i, wrong = 0;
	int err = 0;

	while (pages * 2 <= area->pages)
		pages *= 2;
	while (pages && n < LIVE_MAX) {
		held[n] = (struct cma_bench_op){
			.pages = pages, .seed = opt.seed + n,
		};
		err = request(CMA_BENCH_ALLOC, &held[n]);
		if (err) {
			pages /= 2;
			continue;
		}
		must(CMA_BENCH_FILL, "filling", &held[n]);
		got += held[n++].pages;
	}
	for (i = 0; i < n; i++) {
		must(CMA_BENCH_CHECK, "checking", &held[i]);
		wrong += held[i].bad != 0;
	}
	edge("exhausted", err == ENOMEM && !wrong && got,
	     "got %" PRIu64 " of %llu pages in %u pieces, then: %s; %u wrong",
	     got, (unsigned long long)area->pages, n, strerror(err), wrong);
	for (i = 0; i < n; i++)
		must(CMA_BENCH_RELEASE, "releasing", &held[i]);

	held[0] = (struct cma_bench_op){ .pages = got / 2 };
	err = got > 1 ? request(CMA_BENCH_ALLOC, &held[0]) : 0;
	edge("after_exhaustion", !err, "half of it again: %s",
	     err ? strerror(err) : "allocated");
	if (got > 1 && !err)
		must(CMA_BENCH_RELEASE, "releasing", &held[0]);
}

/* Can a range be had that contains @pfn? Takes as much as there is. */
static bool returned(const struct cma_bench_info *area, u64 pfn, u64 *most)
{
	static struct cma_bench_op held[LIVE_MAX];
	u64 pages = area->pages;
	bool found = false;
	u32 n = 0;

	*most = 0;
	while (pages && n < LIVE_MAX && !found) {
		held[n] = (struct cma_bench_op){ .pages = pages };
		if (request(CMA_BENCH_ALLOC, &held[n])) {
			pages /= 2;
			continue;
		}
		if (pages > *most)
			*most = pages;
		found = pfn >= held[n].pfn && pfn < held[n].pfn + pages;
		n++;
	}
	while (n)
		must(CMA_BENCH_RELEASE, "releasing", &held[--n]);
	return found;
}

/*
 * Other users of the area, such as drivers, keep their part of it. What can
 * be had at all is found out before; it must be possible again afterwards.
 */
static void edge_pinned(const struct cma_bench_info *area)
{
	struct cma_bench_op o = { .pages = 64 }, pin, big;
	u64 part = area->pages / 64 + 1, whole = area->pages, most;
	u64 start, took;
	bool back;
	int err;

	for (;; whole = whole > part ? whole - part : 0) {
		big = (struct cma_bench_op){ .pages = whole };
		if (!whole || !request(CMA_BENCH_ALLOC, &big))
			break;
	}
	if (whole)
		must(CMA_BENCH_RELEASE, "releasing", &big);
	err = request(CMA_BENCH_ALLOC, &o);
	if (!whole || err) {
		edge("pinned", false, "no memory to try with");
		return;
	}
	pin = o;
	pin.pfn += 17;
	pin.pages = 1;
	must(CMA_BENCH_PIN, "pinning", &pin);
	err = request(CMA_BENCH_RELEASE, &o);
	if (err) {
		edge("pinned_release", false, "%s", strerror(err));
		must(CMA_BENCH_UNPIN, "unpinning", &pin);
		return;
	}
	edge("pinned_release", true, "accepted");

	big = (struct cma_bench_op){ .pages = area->pages };
	err = request(CMA_BENCH_ALLOC, &big);
	if (!err)
		must(CMA_BENCH_RELEASE, "releasing", &big);
	back = returned(area, pin.pfn, &most);
	edge("pinned_kept_back", err && !back,
	     "whole area: %s; pinned page %s; largest piece %" PRIu64 " pages",
	     err ? strerror(err) : "allocated",
	     back ? "handed out again" : "kept back", most);

	must(CMA_BENCH_UNPIN, "unpinning", &pin);
	start = now_ns();
	do {
		big = (struct cma_bench_op){ .pages = whole };
		err = request(CMA_BENCH_ALLOC, &big);
		took = now_ns() - start;
		if (err)
			sleep_ms(20);
	} while (err && took < RETURN_NS);
	edge("unpinned_returns", !err, "%" PRIu64 " pages after %" PRIu64
	     " ms: %s", whole, took / NSEC_PER_MSEC,
	     err ? strerror(err) : "allocated");
	if (!err)
		must(CMA_BENCH_RELEASE, "releasing", &big);
}

static void edge_folios(void)
{
	u32 order;

	for (order = 2; order <= 10; order++) {
		struct cma_bench_op o = {
			.pages = 1u << order, .seed = opt.seed + order,
		};
		char name[32];
		int err = request(CMA_BENCH_ALLOC_FOLIO, &o), freed;

		snprintf(name, sizeof(name), "folio_order_%u", order);
		if (err) {
			edge(name, false, "%s", strerror(err));
			continue;
		}
		must(CMA_BENCH_FILL, "filling", &o);
		must(CMA_BENCH_CHECK, "checking", &o);
		freed = request(CMA_BENCH_FREE_FOLIO, &o);
		edge(name, !o.bad && !freed && !(o.pfn % o.pages),
		     "pfn %llu, %llu wrong words, free: %s",
		     (unsigned long long)o.pfn, (unsigned long long)o.bad,
		     freed ? strerror(freed) : "accepted");
	}
}

static int edges(const struct cma_bench_info *area)
{
	edge_refused_alloc("zero_pages", 0);
	edge_refused_alloc("over_size", area->pages + 1);
	edge_refused_alloc("huge_size", 1ULL << 40);
	edge_double_release();
	edge_foreign(area);
	edge_exhausted(area);
	edge_pinned(area);
	edge_folios();
	return !all_ok;
}

/* ------------------------------------------------------------- options */

static void parse_sizes(const char *list)
{
	char *copy = strdup(list), *s, *save = NULL;

	opt.nr_sizes = 0;
	for (s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		if (opt.nr_sizes == SIZES_MAX)
			die("--sizes takes at most %d numbers", SIZES_MAX);
		opt.sizes[opt.nr_sizes++] = parse_u64("sizes", s);
	}
	free(copy);
	if (!opt.nr_sizes)
		die("--sizes wants numbers");
}

static const struct setting settings[] = {
	{ "sizes", .call = parse_sizes },
	{ "reps", .number = &opt.reps },
	{ "interval-ms", .number = &opt.interval_ms },
	{ "hold-ms", .number = &opt.hold_ms },
	{ "fill", .flag = &opt.fill },
	{ "zeroed", .flag = &opt.zeroed },
	{ "random", .flag = &opt.random },
	{ "count", .large = &opt.nr_random },
	{ "max-pages", .large = &opt.max_pages },
	{ "dma", .flag = &opt.dma },
	{ "edge", .flag = &opt.edge },
	{ "dmem", .large = &opt.dmem },
	{ "find", .text = &opt.find },
	{ "fifo", .flag = &opt.fifo },
	{ "seed", .large = &opt.seed },
	{ 0 },
};

int main(int argc, char **argv)
{
	const struct sched_param lowest = { .sched_priority = 1 };
	struct cma_bench_info area = { 0 };
	struct json j;
	u64 size;

	for (size = 64; size <= 32768; size *= 2)
		opt.sizes[opt.nr_sizes++] = size;
	settings_parse(argc, argv, settings);
	if (opt.random + opt.edge + !!opt.dmem + !!opt.find > 1)
		die("--random, --edge, --dmem and --find are separate runs");
	if (!opt.max_pages || opt.max_pages > 1u << 24)
		die("--max-pages must be 1 to %u", 1u << 24);

	if (opt.fifo && sched_setscheduler(0, SCHED_FIFO, &lowest))
		die("cannot set --fifo: %s", strerror(errno));
	dev = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (dev < 0)
		die("cannot open " DEVICE ": %s (boot a kernel with the CMA bench driver)",
		    strerror(errno));
	if (ioctl(dev, CMA_BENCH_INFO, &area))
		die(DEVICE " does not answer: %s", strerror(errno));
	j = json_line("area");
	json_str(&j, "name", area.name);
	json_u64(&j, "base_pfn", area.base_pfn);
	json_u64(&j, "pages", area.pages);
	json_end(&j);
	if (opt.random)
		return random_allocs(&area);
	if (opt.edge)
		return edges(&area);
	if (opt.dmem)
		return dmem();
	if (opt.find)
		return find();
	return sweep();
}
