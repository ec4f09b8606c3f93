// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of where GCMA places allocations, of what becomes of those that are
 * released, and of what it accepts as a choice of clients. Part of gcma.c.
 */

#include <kunit/test.h>
#include <linux/dma-map-ops.h>
#include <linux/prandom.h>

#include "compat_test.h"

#define TEST_PAGES	4096UL
#define TEST_BASE	0x10000UL

/* Sizes that cameras and their pipelines ask for, 80 KiB to 24 MiB. */
#define CHURN_LEAST	20UL
#define CHURN_MOST	6144UL
#define CHURN_HELD	1024
#define CHURN_TURNS	20000

static int place_init(struct kunit *test)
{
	struct cma *cma = kunit_kzalloc(test, sizeof(*cma), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, cma);
	spin_lock_init(&cma->lock);
	cma_range(cma)->base_pfn = TEST_BASE;
	cma->count = TEST_PAGES;
	cma_range(cma)->bitmap = kunit_kzalloc(test, bitmap_size(TEST_PAGES), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, cma_range(cma)->bitmap);
	test->priv = cma;
	return 0;
}

static unsigned long place_in(struct cma *cma, unsigned long count,
			      unsigned int align)
{
	unsigned long bit;

	scoped_guard(spinlock_irq, &cma->lock)
		bit = place(cma, count, align);
	return bit;
}

static void place_test_lowest(struct kunit *test)
{
	struct cma *cma = test->priv;

	KUNIT_EXPECT_EQ(test, place_in(cma, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, place_in(cma, TEST_PAGES, 0), 0);
	bitmap_set(cma_range(cma)->bitmap, 0, 10);
	KUNIT_EXPECT_EQ(test, place_in(cma, 1000, 0), 10);
	KUNIT_EXPECT_EQ(test, place_in(cma, 1000, 4), 16);
	KUNIT_EXPECT_EQ(test, place_in(cma, TEST_PAGES - 10, 0), 10);
	KUNIT_EXPECT_GE(test, place_in(cma, TEST_PAGES - 9, 0), TEST_PAGES);
}

static void place_test_aligns_the_address(struct kunit *test)
{
	struct cma *cma = test->priv;

	cma_range(cma)->base_pfn = TEST_BASE + 512;
	KUNIT_EXPECT_EQ(test, place_in(cma, 64, 9), 0);
	KUNIT_EXPECT_EQ(test, place_in(cma, 64, 10), 512);
}

/* Whatever fits is found: the guarantee. */
static void place_test_finds_the_only_hole(struct kunit *test)
{
	struct cma *cma = test->priv;
	unsigned long hole;

	for (hole = 0; hole + 300 <= TEST_PAGES; hole += 777) {
		bitmap_set(cma_range(cma)->bitmap, 0, TEST_PAGES);
		bitmap_clear(cma_range(cma)->bitmap, hole, 300);
		KUNIT_EXPECT_EQ(test, place_in(cma, 300, 0), hole);
		KUNIT_EXPECT_GE(test, place_in(cma, 301, 0), TEST_PAGES);
	}
}

static void place_test_larger_units(struct kunit *test)
{
	struct cma *cma = test->priv;

	cma->order_per_bit = 3;
	bitmap_set(cma_range(cma)->bitmap, 0, 1);
	KUNIT_EXPECT_EQ(test, place_in(cma, 9, 0), 1);
	KUNIT_EXPECT_EQ(test, place_in(cma, TEST_PAGES - 8, 0), 1);
	KUNIT_EXPECT_GE(test, place_in(cma, TEST_PAGES - 7, 0), TEST_PAGES >> 3);
	KUNIT_EXPECT_EQ(test, place_in(cma, 8, 4), 2);
}

struct churn {
	struct cma cma;
	struct rnd_state rnd;
	unsigned int nr;
	unsigned long pages;
	struct {
		unsigned long first, count;
		unsigned int until;
	} held[CHURN_HELD];
};

static void churn_release(struct churn *c, unsigned int i)
{
	bitmap_clear(cma_range(&c->cma)->bitmap, c->held[i].first, c->held[i].count);
	c->pages -= c->held[i].count;
	c->held[i] = c->held[--c->nr];
}

/* One of 16 is held for hundreds of turns, the others for some sixty at most. */
static bool churn_alloc(struct churn *c, unsigned long count, unsigned int turn)
{
	unsigned int align = min(order_base_2(count), 8);
	unsigned long first = place_in(&c->cma, count, align);
	u32 rnd = prandom_u32_state(&c->rnd);

	if (first >= c->cma.count)
		return false;
	bitmap_set(cma_range(&c->cma)->bitmap, first, count);
	c->pages += count;
	c->held[c->nr].first = first;
	c->held[c->nr].count = count;
	c->held[c->nr++].until = turn + (rnd % 16 ? 1 + rnd / 16 % 60 :
						    200 + rnd / 16 % 5000);
	return true;
}

/* Sizes of all orders, as of many users, or small ones beside the largest. */
static unsigned long churn_size(struct churn *c, bool all)
{
	u32 rnd = prandom_u32_state(&c->rnd);
	unsigned long least = all ? CHURN_LEAST << rnd % 9 :
			      rnd % 2 ? CHURN_LEAST * 4 : CHURN_MOST / 2;

	return min(least + rnd / 16 % least, CHURN_MOST);
}

static void churn_in(struct kunit *test, unsigned long pages, bool all)
{
	struct churn *c = kunit_kzalloc(test, sizeof(*c), GFP_KERNEL);
	unsigned long count, most = (pages - CHURN_MOST) / 2;
	unsigned int i, turn, failed = 0;

	KUNIT_ASSERT_NOT_NULL(test, c);
	spin_lock_init(&c->cma.lock);
	prandom_seed_state(&c->rnd, pages + all);
	c->cma.count = pages;
	cma_range(&c->cma)->bitmap = kunit_kzalloc(test, bitmap_size(pages), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, cma_range(&c->cma)->bitmap);
	for (turn = 0; turn < CHURN_TURNS; turn++) {
		for (i = c->nr; i--;)
			if (c->held[i].until <= turn)
				churn_release(c, i);
		count = churn_size(c, all);
		while (c->nr && (c->pages + count > most || c->nr == CHURN_HELD))
			churn_release(c, prandom_u32_state(&c->rnd) % c->nr);
		failed += !churn_alloc(c, count, turn);
	}
	KUNIT_EXPECT_EQ_MSG(test, failed, 0, "of %lu pages, %lu in use", pages, most);
}

/* The bound that the head of gcma.c states. */
static void place_test_churn(struct kunit *test)
{
	unsigned long pages;

	for (pages = 16384; pages <= 65536; pages *= 2) {
		churn_in(test, pages, true);
		churn_in(test, pages, false);
	}
}

/* The default area of this kernel, if it is a guaranteed one. */
static struct gcma *real_area(struct kunit *test)
{
	struct cma *cma = dev_get_cma_area(NULL);

	if (!cma || !cma->gcma)
		kunit_skip(test, "boot with cma=32M gcma=file+swap");
	return cma->gcma;
}

/* What is in quarantine after all that can be freed has been. */
static unsigned long look_again(struct gcma *gcma)
{
	mod_delayed_work(system_dfl_wq, &gcma_tidy_work, 0);
	flush_delayed_work(&gcma_tidy_work);
	return gcma->quarantined;
}

/* Holds a reference to an idle page for a moment, as a scan of all memory does. */
struct holder {
	struct delayed_work	work;
	struct page		*page;
};

static void let_go(struct work_struct *work)
{
	put_page(container_of(work, struct holder, work.work)->page);
}

static void alloc_test_waits_for_no_holder(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	struct page *page = cma_alloc(gcma->cma, 8, 0, true);
	struct holder holder = { .page = page + 3 };

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 8));
	INIT_DELAYED_WORK_ONSTACK(&holder.work, let_go);
	get_page(holder.page);
	schedule_delayed_work(&holder.work, 2 * HZ);
	KUNIT_EXPECT_PTR_EQ(test, cma_alloc(gcma->cma, 8, 0, true), page);
	KUNIT_EXPECT_EQ(test, page_ref_count(holder.page), 2);
	flush_delayed_work(&holder.work);
	destroy_delayed_work_on_stack(&holder.work);
	KUNIT_EXPECT_EQ(test, page_ref_count(holder.page), 1);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 8));
}

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3, see compat.h */
static void expect_references(struct kunit *test, struct page *page, int references)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, page_ref_count(page + i), references);
}

/* Who asks for frozen pages counts on it that they have no references. */
static void alloc_test_frozen(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	struct page *page = cma_alloc_frozen(gcma->cma, 8, 0, true);

	KUNIT_ASSERT_NOT_NULL(test, page);
	expect_references(test, page, 0);
	KUNIT_EXPECT_TRUE(test, cma_release_frozen(gcma->cma, page, 8));
	expect_references(test, page, 1);
	page = cma_alloc_frozen_compound(gcma->cma, 3);
	KUNIT_ASSERT_NOT_NULL(test, page);
	expect_references(test, page, 0);
	KUNIT_EXPECT_TRUE(test, cma_release_frozen(gcma->cma, page, 8));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	expect_references(test, page, 1);
}
#endif

/* What is idle counts as long as the area is lent. */
static void release_test_idle(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned int clients = gcma->area.clients;
	struct page *page;
	long others;

	lend(gcma, 0);
	others = atomic_long_read(&gcma_idle);
	page = cma_alloc(gcma->cma, 64, 0, true);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&gcma_idle), others);
	lend(gcma, BIT(0));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&gcma_idle),
			others + gcma->area.nr - gcma->owned);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 64));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&gcma_idle),
			others + gcma->area.nr - gcma->owned);
	lend(gcma, clients);
}

static void release_test_held(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned long owned = gcma->owned;
	struct page *page = cma_alloc(gcma->cma, 64, 0, true), *other;

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned + 64);
	get_page(page + 5);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 64));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 1);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned + 1);
	/* What it lies in is not handed out, what is beside it is. */
	other = cma_alloc(gcma->cma, 64, 0, true);
	KUNIT_ASSERT_NOT_NULL(test, other);
	KUNIT_EXPECT_TRUE(test, other > page + 5);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, other, 64));
	other = cma_alloc(gcma->cma, 5, 0, true);
	KUNIT_EXPECT_PTR_EQ(test, other, page);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, other, 5));
	put_page(page + 5);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned);
	KUNIT_EXPECT_EQ(test, page_ref_count(page + 5), 1);
}

/* Of pages that are held in a row, those that are let go come back, wherever they are. */
static void release_test_row_held(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned long owned = gcma->owned, i;
	struct page *page = cma_alloc(gcma->cma, 64, 0, true);

	KUNIT_ASSERT_NOT_NULL(test, page);
	for (i = 8; i < 40; i++)
		get_page(page + i);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 64));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 32);
	put_page(page + 39);
	put_page(page + 20);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 30);
	for (i = 8; i < 39; i++)
		if (i != 20)
			put_page(page + i);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned);
}

static void release_test_folio(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned long owned = gcma->owned, i;
	struct page *first = cma_alloc(gcma->cma, 3, 0, true);
	struct folio *folio = cma_alloc_folio(gcma->cma, 4, GFP_KERNEL | __GFP_COMP);
	struct page *page;

	KUNIT_ASSERT_NOT_NULL(test, first);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	page = &folio->page;
	KUNIT_EXPECT_EQ(test, folio_nr_pages(folio), 16);
	/* A part of it cannot be released. */
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 8));
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page + 1, 8));
	KUNIT_EXPECT_EQ(test, gcma->quarantined, 0);
	folio_get(folio);
	get_page(first);
	KUNIT_EXPECT_TRUE(test, cma_free_folio(gcma->cma, folio));
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, first, 3));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 17);
	KUNIT_EXPECT_TRUE(test, PageHead(page));
	folio_put(folio);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 1);
	put_page(first);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned);
	for (i = 0; i < 16; i++) {
		KUNIT_EXPECT_FALSE(test, PageCompound(page + i));
		KUNIT_EXPECT_EQ(test, page_ref_count(page + i), 1);
		KUNIT_EXPECT_NULL(test, page[i].mapping);
		KUNIT_EXPECT_EQ(test, page_private(page + i), 0);
#ifdef CONFIG_MEMCG
		KUNIT_EXPECT_EQ(test, page[i].memcg_data, 0);
#endif
	}
}

/* What single pages have left is not in the folio that they become. */
static void release_test_leftovers(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	struct page *page = cma_alloc(gcma->cma, 16, 4, true);
	struct folio *folio;
	unsigned long i;

	KUNIT_ASSERT_NOT_NULL(test, page);
	for (i = 0; i < 16; i++) {
		__set_bit(PG_workingset, &page_flags(page + i));
		set_page_private(page + i, i + 1);
	}
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 16));
	folio = cma_alloc_folio(gcma->cma, 4, GFP_KERNEL | __GFP_COMP);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	/* The lowest place again. */
	KUNIT_EXPECT_PTR_EQ(test, &folio->page, page);
	for (i = 0; i < 16; i++) {
		KUNIT_EXPECT_FALSE(test, test_bit(PG_workingset, &page_flags(page + i)));
		KUNIT_EXPECT_EQ(test, page_private(page + i), 0);
	}
	KUNIT_EXPECT_TRUE(test, cma_free_folio(gcma->cma, folio));
}

#ifdef CONFIG_MEMORY_FAILURE
/* A page that hugetlb has marked, and not counted yet, is not freed with its folio. */
static void release_test_broken(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned long owned = gcma->owned, poisoned = gcma->poisoned;
	struct folio *folio = cma_alloc_folio(gcma->cma, 4, GFP_KERNEL | __GFP_COMP);
	struct page *page;
	unsigned long bit;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	page = folio_page(folio, 5);
	bit = page_to_pfn(page) - cma_range(gcma->cma)->base_pfn;
	SetPageHWPoison(page);
	KUNIT_EXPECT_TRUE(test, cma_free_folio(gcma->cma, folio));
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned + 1);
	KUNIT_EXPECT_EQ(test, gcma->poisoned, poisoned + 1);
	/* If somebody calls it sound, it is not freed with the last reference. */
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 2);
	/* It is sound after all: release it once more. */
	page_ref_dec(page);
	ClearPageHWPoison(page);
	scoped_guard(spinlock_irqsave, &gcma->cma->lock) {
		gcma->poisoned--;
		gcma->quarantined++;
		__set_bit(bit >> gcma->cma->order_per_bit, gcma->quarantine);
	}
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned);
}
#endif

/* What was allocated when a key was removed is cleared when it is free. */
static void release_test_key_is_removed(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	struct page *page = cma_alloc(gcma->cma, 8, 0, true);
	unsigned long nr;

	KUNIT_ASSERT_NOT_NULL(test, page);
	nr = gcma->area.first + page_to_pfn(page + 3) - gcma->area.base_pfn;
	/* It holds a copy that nobody finds as long as it is allocated. */
	set_bit(nr, gcma_dmem.live);
	set_bit(nr, gcma_dmem.secret);
	__gcma_forget_encrypted();
	look_again(gcma);
	KUNIT_EXPECT_TRUE(test, key_removed);
	KUNIT_EXPECT_TRUE(test, cma_release(gcma->cma, page, 8));
	/* The release has seen to it. */
	flush_delayed_work(&gcma_tidy_work);
	KUNIT_EXPECT_FALSE(test, test_bit(nr, gcma_dmem.secret));
	KUNIT_EXPECT_TRUE(test, test_bit(nr, gcma_dmem.zero));
	WRITE_ONCE(key_removed, false);
}

static void release_test_bad(struct kunit *test)
{
	struct gcma *gcma = real_area(test);
	unsigned long owned = gcma->owned, bad = gcma->bad_releases;
	struct page *page = cma_alloc(gcma->cma, 64, 0, true);

	KUNIT_ASSERT_NOT_NULL(test, page);
	cma_release(gcma->cma, page, 65);
	KUNIT_EXPECT_EQ(test, gcma->bad_releases, bad + 1);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned + 64);
	get_page(page);
	cma_release(gcma->cma, page, 64);
	/* Twice: one page in quarantine, one that is free. */
	cma_release(gcma->cma, page, 1);
	cma_release(gcma->cma, page + 1, 1);
	KUNIT_EXPECT_EQ(test, gcma->bad_releases, bad + 3);
#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3, see compat.h */
	/* Nothing is written to what is not allocated. */
	cma_release_frozen(gcma->cma, page, 1);
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 2);
#endif
	put_page(page);
	KUNIT_EXPECT_EQ(test, look_again(gcma), 0);
	KUNIT_EXPECT_EQ(test, gcma->owned, owned);
}

static void parse_test_modes(struct kunit *test)
{
	static const char * const bad[] = {
		"", "file+", "+swap", "file+none", "none+swap", "cma+file", "File",
		" file", "file\n\n", "swap+file",
	};
	unsigned int i;

	KUNIT_EXPECT_EQ(test, parse_mode("none"), GCMA_CHOSEN);
	KUNIT_EXPECT_EQ(test, parse_mode("file+swap\n"),
			GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP);
	KUNIT_EXPECT_EQ(test, parse_mode("cma"), GCMA_STOCK);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_EQ(test, parse_mode(bad[i]), -EINVAL);
}

/* The names of areas may have commas, as those of a device tree do. */
static void parse_test_entries(struct kunit *test)
{
	char name[CMA_MAX_NAME], param[] = "none,linux,cma:file,linux,cma,other:swap";
	struct cma *cma = real_area(test)->cma;
	char *text = param;

	strscpy(name, cma->name);
	strscpy(cma->name, "linux,cma");
	KUNIT_EXPECT_STREQ(test, next_entry(&text), "none");
	KUNIT_EXPECT_STREQ(test, next_entry(&text), "linux,cma:file");
	KUNIT_EXPECT_STREQ(test, next_entry(&text), "linux");
	KUNIT_EXPECT_STREQ(test, next_entry(&text), "cma");
	KUNIT_EXPECT_STREQ(test, next_entry(&text), "other:swap");
	KUNIT_EXPECT_NULL(test, next_entry(&text));
	strscpy(cma->name, name);
}

/* Nobody means the memory that waits for a crash who does not name it. */
static void parse_test_crash(struct kunit *test)
{
	struct cma *cma = kunit_kzalloc(test, sizeof(*cma), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, cma);
	strscpy(cma->name, "crashkernel", sizeof(cma->name));
	KUNIT_EXPECT_TRUE(test, for_crash(cma));
	strscpy(cma->name, "reserved", sizeof(cma->name));
	KUNIT_EXPECT_FALSE(test, for_crash(cma));
}

static struct kunit_case place_test_cases[] = {
	KUNIT_CASE(place_test_lowest),
	KUNIT_CASE(place_test_aligns_the_address),
	KUNIT_CASE(place_test_finds_the_only_hole),
	KUNIT_CASE(place_test_larger_units),
	KUNIT_CASE_SLOW(place_test_churn),
	KUNIT_CASE(alloc_test_waits_for_no_holder),
#ifdef SWAP_TABLE_HAS_ZEROFLAG
	KUNIT_CASE(alloc_test_frozen),
#endif
	KUNIT_CASE(release_test_idle),
	KUNIT_CASE(release_test_held),
	KUNIT_CASE(release_test_row_held),
	KUNIT_CASE(release_test_folio),
	KUNIT_CASE(release_test_leftovers),
#ifdef CONFIG_MEMORY_FAILURE
	KUNIT_CASE(release_test_broken),
#endif
	KUNIT_CASE(release_test_key_is_removed),
	KUNIT_CASE(release_test_bad),
	KUNIT_CASE(parse_test_modes),
	KUNIT_CASE(parse_test_entries),
	KUNIT_CASE(parse_test_crash),
	{}
};

static struct kunit_suite place_test_suite = {
	.name = "gcma-place",
	.init = place_init,
	.test_cases = place_test_cases,
};

kunit_test_suite(place_test_suite);
