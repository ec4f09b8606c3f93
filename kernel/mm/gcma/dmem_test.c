// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of dmem: what it promises to clients and to the owner of frames
 */

#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/prandom.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dmem.h"

#define TEST_ORDER	9
#define TEST_FRAMES	BIT(TEST_ORDER)
#define TEST_KEYS	(3 * TEST_FRAMES)

struct dmem_fixture {
	struct dmem dmem;
	struct dmem_area area;
	struct page *frames;
	struct page *page;
	unsigned long *owned;
};

/* Keys need an address that nobody else uses. */
static char test_space[2];

static void page_fill(struct page *page, u64 value)
{
	u64 *word = kmap_local_page(page);

	memset64(word, value, PAGE_SIZE / sizeof(*word));
	kunmap_local(word);
}

static bool page_is(struct page *page, u64 value)
{
	u64 *word = kmap_local_page(page);
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*word); i++)
		if (word[i] != value)
			break;
	kunmap_local(word);
	return i == PAGE_SIZE / sizeof(*word);
}

static int fixture_init(struct kunit *test, unsigned int owned_order)
{
	struct dmem_fixture *fx = kunit_kzalloc(test, sizeof(*fx), GFP_KERNEL);
	int err;

	KUNIT_ASSERT_NOT_NULL(test, fx);
	test->priv = fx;
	/* Each CPU has a word of frames of its own: stay on one. */
	set_cpus_allowed_ptr(current, cpumask_of(0));
	fx->frames = alloc_pages(GFP_KERNEL, TEST_ORDER);
	fx->page = alloc_page(GFP_KERNEL);
	fx->owned = bitmap_zalloc(TEST_FRAMES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fx->frames);
	KUNIT_ASSERT_NOT_NULL(test, fx->page);
	KUNIT_ASSERT_NOT_NULL(test, fx->owned);
	err = dmem_area_init(&fx->area, page_to_pfn(fx->frames), TEST_FRAMES,
			     fx->owned, owned_order, BIT(0) | BIT(1));
	KUNIT_ASSERT_EQ(test, err, 0);
	KUNIT_ASSERT_EQ(test, dmem_init(&fx->dmem, TEST_FRAMES), 0);
	KUNIT_ASSERT_EQ(test, dmem_add_area(&fx->dmem, &fx->area), 0);
	return 0;
}

static int dmem_test_init(struct kunit *test)
{
	return fixture_init(test, 0);
}

static void dmem_test_exit(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	if (!fx)
		return;
	dmem_exit(&fx->dmem);
	dmem_area_exit(&fx->area);
	bitmap_free(fx->owned);
	if (fx->page)
		__free_page(fx->page);
	if (fx->frames)
		__free_pages(fx->frames, TEST_ORDER);
}

static bool store_as(struct dmem_fixture *fx, struct page *page,
		     unsigned long key, u64 value, unsigned int client)
{
	struct dmem_frame *frame;

	page_fill(page, value);
	frame = dmem_stage(&fx->dmem, page, &test_space[client], key, client);
	return frame && dmem_publish(&fx->dmem, frame, &test_space[client], key);
}

static bool store(struct dmem_fixture *fx, unsigned long key, u64 value)
{
	return store_as(fx, fx->page, key, value, 0);
}

/* Is the key there with this value? It is gone afterwards. */
static bool load(struct dmem_fixture *fx, unsigned long key, u64 value)
{
	page_fill(fx->page, ~value);
	return dmem_load(&fx->dmem, &test_space[0], key, fx->page, 0) &&
	       page_is(fx->page, value);
}

/* Read part of a page where it is. */
static ssize_t read_part(struct dmem_fixture *fx, unsigned long key,
			 struct page *page, size_t from, size_t len)
{
	return dmem_read(&fx->dmem, &test_space[0],
			 ((loff_t)key << PAGE_SHIFT) + from, len,
			 page_address(page), NULL, 0);
}

static unsigned long live(struct dmem_fixture *fx)
{
	return dmem_cached(&fx->area, 0) + dmem_cached(&fx->area, 1);
}

static unsigned long own(struct dmem_fixture *fx, unsigned long first,
			 unsigned long nr)
{
	bitmap_set(fx->owned, first, nr);
	return dmem_revoke(&fx->area, first, nr, NULL);
}

static void disown(struct dmem_fixture *fx, unsigned long first,
		   unsigned long nr)
{
	dmem_forget(&fx->area, first, nr);
	bitmap_clear(fx->owned, first, nr);
	dmem_give(&fx->area, first, nr);
}

static void dmem_test_load_moves_content_out(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 42));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 8, 42));
	KUNIT_EXPECT_TRUE(test, load(fx, 7, 42));
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 42));
	KUNIT_EXPECT_EQ(test, live(fx), 0);
}

static void dmem_test_read_leaves_content(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	u64 *word = page_address(fx->page);
	struct dmem_stats sum;

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 42));
	page_fill(fx->page, 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, 800, 16), 16);
	KUNIT_EXPECT_EQ(test, word[0], 42);
	KUNIT_EXPECT_EQ(test, word[1], 42);
	KUNIT_EXPECT_EQ(test, word[2], 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, PAGE_SIZE - 1, 1), 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 8, fx->page, 0, PAGE_SIZE), 0);
	KUNIT_EXPECT_TRUE(test, dmem_has(&fx->dmem, &test_space[0], 7, 0));
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, &test_space[0], 8, 0));
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, &test_space[0], 7, 1));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	dmem_sum_stats(&fx->area, &sum);
	KUNIT_EXPECT_EQ(test, sum.served[0], 2);
	KUNIT_EXPECT_TRUE(test, load(fx, 7, 42));
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, 0, PAGE_SIZE), 0);

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 43));
	own(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, 0, PAGE_SIZE), 0);
	disown(fx, 0, TEST_FRAMES);
}

/* Pages in a row, up to the first one that is not there. */
static void dmem_test_read_several(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	u64 *word = kunit_kzalloc(test, 4 * PAGE_SIZE, GFP_KERNEL);
	const size_t words = PAGE_SIZE / sizeof(*word);
	unsigned long key;

	KUNIT_ASSERT_NOT_NULL(test, word);
	for (key = 7; key < 10; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, dmem_read(&fx->dmem, &test_space[0],
					8 * PAGE_SIZE - 8, 4 * PAGE_SIZE, word,
					NULL, 0), 2 * PAGE_SIZE + 8);
	KUNIT_EXPECT_EQ(test, word[0], 7);
	KUNIT_EXPECT_EQ(test, word[1], 8);
	KUNIT_EXPECT_EQ(test, word[words], 8);
	KUNIT_EXPECT_EQ(test, word[words + 1], 9);
	KUNIT_EXPECT_EQ(test, word[2 * words], 9);
	KUNIT_EXPECT_EQ(test, word[2 * words + 1], 0);
}

/* A page that is read again and again outlives younger ones. */
static void dmem_test_read_keeps_young(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key;

	KUNIT_EXPECT_TRUE(test, store(fx, 0, 7));
	for (key = 1; key < 3 * TEST_FRAMES; key++) {
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
		if (key % (TEST_FRAMES / 4) == 0)
			KUNIT_EXPECT_EQ(test, read_part(fx, 0, fx->page, 0, 8), 8);
	}
	KUNIT_EXPECT_TRUE(test, load(fx, 0, 7));
}

/* A page that is read when its turn is near stays, too. */
static void dmem_test_read_before_its_turn(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key;

	/* The last store has chosen the frames of the next ones. */
	for (key = 0; key <= TEST_FRAMES; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, read_part(fx, 5, fx->page, 0, 8), 8);
	for (; key < TEST_FRAMES + 10; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_FALSE(test, load(fx, 4, 4));
	KUNIT_EXPECT_TRUE(test, load(fx, 5, 5));
	KUNIT_EXPECT_FALSE(test, load(fx, 6, 6));
}

static void dmem_test_newest_store_wins(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 1));
	KUNIT_EXPECT_TRUE(test, store(fx, 7, 2));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_TRUE(test, load(fx, 7, 2));
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 1));
}

static void dmem_test_abort_leaves_nothing(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_frame *frame = dmem_stage(&fx->dmem, fx->page, &test_space[0], 7, 0);

	KUNIT_ASSERT_NOT_NULL(test, frame);
	dmem_abort(&fx->dmem, frame);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
}

static void dmem_test_drop(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 1));
	KUNIT_EXPECT_TRUE(test, store(fx, 8, 1));
	dmem_drop(&fx->dmem, &test_space[0], 7);
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 1));
	dmem_drop_all(&fx->dmem);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	KUNIT_EXPECT_FALSE(test, load(fx, 8, 1));
}

static void dmem_test_clients_are_apart(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_stats sum;

	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 2, 1));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 8, 2, 1));
	KUNIT_EXPECT_TRUE(test, load(fx, 7, 1));
	KUNIT_EXPECT_TRUE(test, dmem_load(&fx->dmem, &test_space[1], 7,
					  fx->page, 1));
	KUNIT_EXPECT_TRUE(test, page_is(fx->page, 2));
	KUNIT_EXPECT_EQ(test, own(fx, 0, TEST_FRAMES), 1);
	dmem_sum_stats(&fx->area, &sum);
	KUNIT_EXPECT_EQ(test, sum.stored[0], 1);
	KUNIT_EXPECT_EQ(test, sum.stored[1], 2);
	KUNIT_EXPECT_EQ(test, sum.loaded[0], 1);
	KUNIT_EXPECT_EQ(test, sum.loaded[1], 1);
	KUNIT_EXPECT_EQ(test, sum.discarded[0], 0);
	KUNIT_EXPECT_EQ(test, sum.discarded[1], 1);
}

static void dmem_test_clients_come_and_go(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 8, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 2, 1));
	dmem_set_clients(&fx->area, BIT(1));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 1));
	KUNIT_EXPECT_FALSE(test, store_as(fx, fx->page, 9, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 9, 2, 1));
	KUNIT_EXPECT_TRUE(test, dmem_load(&fx->dmem, &test_space[1], 7, fx->page, 1));
	dmem_set_clients(&fx->area, 0);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	KUNIT_EXPECT_FALSE(test, store_as(fx, fx->page, 9, 2, 1));
	dmem_set_clients(&fx->area, BIT(0) | BIT(1));
	KUNIT_EXPECT_TRUE(test, store(fx, 9, 3));
	KUNIT_EXPECT_TRUE(test, load(fx, 9, 3));
}

/* What was cleared is filled last. */
static void dmem_test_cleared_stays_empty(struct kunit *test)
{
	const unsigned long nr = TEST_FRAMES / 2 + 3;
	struct dmem_fixture *fx = test->priv;
	unsigned long key;

	for (key = 0; key < 2 * TEST_FRAMES; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, dmem_clear(&fx->area, 1, nr), nr);
	KUNIT_EXPECT_EQ(test, dmem_live(&fx->area, 1, nr), 0);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES - nr);
	KUNIT_EXPECT_EQ(test, dmem_clear(&fx->area, 1, nr), 0);
	/* Nothing is lost for good: all of it is used again in the end. */
	for (key = 0; key < 2 * TEST_FRAMES; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
}

/* What the owner is given is zero where that was wanted, whatever was there. */
static void dmem_test_owner_gets_zeros(struct kunit *test)
{
	const unsigned long first = 40, nr = TEST_FRAMES / 2 + 5;
	struct dmem_fixture *fx = test->priv;
	unsigned long key, i;

	for (key = 0; key < TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, ~0ULL));
	/* Content, content that was dropped, zeros, and content again. */
	dmem_clear(&fx->area, first, nr / 2);
	dmem_zero_idle(&fx->area, first, nr);
	KUNIT_EXPECT_EQ(test, bitmap_weight(fx->area.zero, TEST_FRAMES), nr / 2);
	for (key = 0; key < 7; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, TEST_KEYS + key, ~0ULL));
	dmem_clear(&fx->area, first, 3);
	own(fx, first, nr);
	dmem_zero_owned(&fx->area, first, nr);
	for (i = first; i < first + nr; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames + i, 0));
	/* What the owner leaves there is not taken for zeros. */
	for (i = first; i < first + nr; i++)
		page_fill(fx->frames + i, ~0ULL);
	disown(fx, first, nr);
	KUNIT_EXPECT_TRUE(test, bitmap_empty(fx->area.zero, TEST_FRAMES));
	own(fx, first, nr);
	dmem_zero_owned(&fx->area, first, nr);
	for (i = first; i < first + nr; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames + i, 0));
	disown(fx, first, nr);
}

/* A frame that is filled is not zero, whoever cleared it before. */
static void dmem_test_filled_frames_are_not_zero(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key, i;

	dmem_zero_idle(&fx->area, 0, TEST_FRAMES);
	KUNIT_EXPECT_TRUE(test, bitmap_full(fx->area.zero, TEST_FRAMES));
	for (key = 0; key < TEST_FRAMES / 3; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, ~0ULL));
	for (key = 0; key < TEST_FRAMES / 3; key += 2)
		KUNIT_EXPECT_TRUE(test, load(fx, key, ~0ULL));
	for (i = 0; i < TEST_FRAMES; i++)
		KUNIT_ASSERT_EQ(test, page_is(fx->frames + i, 0),
				test_bit(i, fx->area.zero));
	own(fx, 0, TEST_FRAMES);
	dmem_zero_owned(&fx->area, 0, TEST_FRAMES);
	for (i = 0; i < TEST_FRAMES; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames + i, 0));
	disown(fx, 0, TEST_FRAMES);
}

static void dmem_test_oldest_go_first(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	const unsigned long more = 2 * BITS_PER_LONG;
	unsigned long key, gone = 0, kept = 0;

	for (key = 0; key < TEST_FRAMES + more; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
	for (key = 0; key < more; key++)
		gone += !load(fx, key, key);
	for (; key < TEST_FRAMES + more; key++)
		kept += load(fx, key, key);
	KUNIT_EXPECT_EQ(test, gone, more);
	KUNIT_EXPECT_EQ(test, kept, TEST_FRAMES);
}

static void dmem_test_free_frames_come_first(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_stats sum;
	unsigned long key;

	for (key = 0; key < TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	for (key = 0; key < TEST_FRAMES; key += 3)
		KUNIT_EXPECT_TRUE(test, load(fx, key, key));
	for (key = 0; key < TEST_FRAMES; key += 3)
		KUNIT_EXPECT_TRUE(test, store(fx, key, ~key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
	dmem_sum_stats(&fx->area, &sum);
	KUNIT_EXPECT_EQ(test, sum.evicted[0], 0);
}

static void dmem_test_revoke_discards(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	const unsigned long first = 40, nr = TEST_FRAMES / 2 + 5;
	unsigned long key, found = 0;

	for (key = 0; key < TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, own(fx, first, nr), nr);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES - nr);
	for (key = 0; key < nr; key++)
		page_fill(fx->frames + first + key, 0xbad);
	for (key = 0; key < TEST_FRAMES; key++)
		found += load(fx, key, key);
	KUNIT_EXPECT_EQ(test, found, TEST_FRAMES - nr);

	/* Nothing is stored in frames that are owned… */
	for (key = 0; key < TEST_FRAMES; key++)
		store(fx, key, key);
	KUNIT_EXPECT_LE(test, live(fx), TEST_FRAMES - nr);
	for (key = 0; key < nr; key++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames + first + key, 0xbad));

	/* …until they are given back. */
	disown(fx, first, nr);
	for (key = 0; key < 2 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
}

static void dmem_test_nothing_to_be_had(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_stats sum;

	own(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_NULL(test, dmem_stage(&fx->dmem, fx->page, &test_space[0], 7, 0));
	dmem_sum_stats(&fx->area, &sum);
	KUNIT_EXPECT_EQ(test, sum.refused[0], 1);
	disown(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_TRUE(test, store(fx, 1, 1));
}

static void dmem_test_revoked_before_publish(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_frame *frame;

	page_fill(fx->page, 1);
	frame = dmem_stage(&fx->dmem, fx->page, &test_space[0], 7, 0);
	KUNIT_ASSERT_NOT_NULL(test, frame);
	KUNIT_EXPECT_EQ(test, own(fx, 0, TEST_FRAMES), 1);
	disown(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_FALSE(test, dmem_publish(&fx->dmem, frame, &test_space[0], 7));
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 1));
}

/* As the pages of a large folio are. */
static void dmem_test_staged_together(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_frame *staged = NULL, *frame, *next;
	unsigned long key, lost = 0;

	for (key = 0; key < 4; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	for (key = 4; key-- > 0;) {
		page_fill(fx->page, 100 + key);
		frame = dmem_stage(&fx->dmem, fx->page, &test_space[0], key, 0);
		KUNIT_ASSERT_NOT_NULL(test, frame);
		frame->next = staged;
		staged = frame;
		if (key == 2)
			lost = frame - fx->area.frame;
	}
	KUNIT_EXPECT_EQ(test, own(fx, lost, 1), 1);
	for (key = 0, frame = staged; key < 4; key++, frame = next) {
		next = frame->next;
		KUNIT_EXPECT_EQ(test, key != 2,
				dmem_publish(&fx->dmem, frame, &test_space[0], key));
	}
	/* Nothing is found of the lost one, not even what was there before. */
	for (key = 0; key < 4; key++)
		KUNIT_EXPECT_EQ(test, key != 2, load(fx, key, 100 + key));
	disown(fx, lost, 1);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
}

static void dmem_test_owned_in_larger_units(struct kunit *test)
{
	struct dmem_fixture *fx;
	unsigned long key;

	dmem_test_exit(test);
	fixture_init(test, 2);
	fx = test->priv;
	for (key = 0; key < TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	bitmap_set(fx->owned, 3, 30);
	KUNIT_EXPECT_EQ(test, dmem_revoke(&fx->area, 12, 120, NULL), 120);
	for (key = 0; key < 2 * TEST_FRAMES; key++)
		store(fx, key, key);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES - 120);
}

/* A model that knows the newest value of each key; dmem may forget, not err. */
static void dmem_test_random_operations(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long first = 0, nr = 0;
	unsigned int hits = 0, step;
	struct rnd_state rnd;
	u64 *model;

	model = kunit_kcalloc(test, TEST_KEYS, sizeof(*model), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, model);
	prandom_seed_state(&rnd, 20151008);
	for (step = 1; step < 30000; step++) {
		unsigned long key = prandom_u32_state(&rnd) % TEST_KEYS;

		switch (prandom_u32_state(&rnd) % 64) {
		case 0 ... 29:
			model[key] = store(fx, key, step) ? step : 0;
			break;
		case 30 ... 39:
			page_fill(fx->page, ~0ULL);
			if (read_part(fx, key, fx->page, 0, PAGE_SIZE) > 0) {
				KUNIT_ASSERT_NE(test, model[key], 0);
				KUNIT_ASSERT_TRUE(test, page_is(fx->page, model[key]));
				hits++;
			}
			break;
		case 40 ... 59:
			page_fill(fx->page, ~0ULL);
			if (dmem_load(&fx->dmem, &test_space[0], key, fx->page, 0)) {
				KUNIT_ASSERT_NE(test, model[key], 0);
				KUNIT_ASSERT_TRUE(test, page_is(fx->page, model[key]));
				hits++;
			}
			model[key] = 0;
			break;
		case 60 ... 62:
			dmem_drop(&fx->dmem, &test_space[0], key);
			model[key] = 0;
			break;
		case 63:
			if (nr) {
				disown(fx, first, nr);
				nr = 0;
				break;
			}
			first = prandom_u32_state(&rnd) % TEST_FRAMES;
			nr = 1 + prandom_u32_state(&rnd) % (TEST_FRAMES - first);
			own(fx, first, nr);
			memset(page_address(fx->frames + first), 0xee, nr * PAGE_SIZE);
			break;
		}
	}
	KUNIT_EXPECT_GT(test, hits, 1000);
}

struct race {
	struct dmem_fixture *fx;
	struct page *page;
	unsigned long id;
	unsigned long hits;
	unsigned long wrong;
};

/* Each thread has keys of its own, so that it knows what to expect. */
static int race_thread(void *data)
{
	struct race *race = data;
	u32 version[64] = {};
	struct rnd_state rnd;

	prandom_seed_state(&rnd, race->id);
	while (!kthread_should_stop()) {
		unsigned int slot = prandom_u32_state(&rnd) % ARRAY_SIZE(version);
		unsigned long key = race->id * ARRAY_SIZE(version) + slot;

		if (read_part(race->fx, key, race->page, 0, PAGE_SIZE) > 0 &&
		    !page_is(race->page, ((u64)key << 32) | version[slot]))
			race->wrong++;
		page_fill(race->page, 0);
		if (dmem_load(&race->fx->dmem, &test_space[0], key, race->page, 0)) {
			race->hits++;
			if (!page_is(race->page, ((u64)key << 32) | version[slot]))
				race->wrong++;
		}
		version[slot]++;
		store_as(race->fx, race->page, key,
			 ((u64)key << 32) | version[slot], 0);
		cond_resched();
	}
	return 0;
}

/* The owner is alone with its frames, and content is right, come what may. */
static void dmem_test_owner_is_alone(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct task_struct *task[3];
	struct race race[3] = {};
	unsigned long round, i, wrong = 0, hits = 0;
	struct rnd_state rnd;

	prandom_seed_state(&rnd, 4);
	for (i = 0; i < ARRAY_SIZE(race); i++) {
		race[i].fx = fx;
		race[i].id = i + 1;
		race[i].page = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, race[i].page);
		task[i] = kthread_run(race_thread, &race[i], "dmem_race/%lu", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(task[i]));
	}
	for (round = 0; round < 400; round++) {
		unsigned long first = prandom_u32_state(&rnd) % TEST_FRAMES;
		unsigned long nr = 1 + prandom_u32_state(&rnd) % (TEST_FRAMES - first);

		own(fx, first, nr);
		for (i = 0; i < nr; i++)
			page_fill(fx->frames + first + i, round);
		cond_resched();
		for (i = 0; i < nr; i++)
			wrong += !page_is(fx->frames + first + i, round);
		disown(fx, first, nr);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, wrong, 0);
	for (i = 0; i < ARRAY_SIZE(race); i++) {
		kthread_stop(task[i]);
		KUNIT_EXPECT_EQ(test, race[i].wrong, 0);
		hits += race[i].hits;
		__free_page(race[i].page);
	}
	KUNIT_EXPECT_GT(test, hits, 100);
}

/* Drops what it stored, as truncation does. */
static int drop_thread(void *data)
{
	struct race *race = data;
	unsigned long first = race->id * TEST_FRAMES / 4, i;

	while (!kthread_should_stop()) {
		for (i = first; i < first + TEST_FRAMES / 4; i++)
			race->hits += store_as(race->fx, race->page, i, i, 0);
		for (i = first; i < first + TEST_FRAMES / 4; i++)
			dmem_drop(&race->fx->dmem, &test_space[0], i);
		cond_resched();
	}
	return 0;
}

/* A frame that is dropped while its owner takes it is counted once. */
static void dmem_test_drop_while_revoked(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct task_struct *task[3];
	struct race race[3] = {};
	unsigned long round, i, hits = 0;

	for (i = 0; i < ARRAY_SIZE(race); i++) {
		race[i].fx = fx;
		race[i].id = i;
		race[i].page = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, race[i].page);
		task[i] = kthread_run(drop_thread, &race[i], "dmem_drop/%lu", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(task[i]));
	}
	for (round = 0; round < 3000; round++) {
		while (live(fx) < TEST_FRAMES / 8)
			cond_resched();
		/* All but one: the count of a whole block would begin anew. */
		own(fx, 0, TEST_FRAMES - 1);
		disown(fx, 0, TEST_FRAMES - 1);
		cond_resched();
	}
	for (i = 0; i < ARRAY_SIZE(race); i++) {
		kthread_stop(task[i]);
		hits += race[i].hits;
		__free_page(race[i].page);
	}
	KUNIT_EXPECT_GT(test, hits, 100);
	/* All was dropped: by the bits, and by the count of the block. */
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	KUNIT_EXPECT_EQ(test, dmem_live(&fx->area, 0, TEST_FRAMES), 0);
}

static struct kunit_case dmem_test_cases[] = {
	KUNIT_CASE(dmem_test_load_moves_content_out),
	KUNIT_CASE(dmem_test_read_leaves_content),
	KUNIT_CASE(dmem_test_read_several),
	KUNIT_CASE(dmem_test_read_keeps_young),
	KUNIT_CASE(dmem_test_read_before_its_turn),
	KUNIT_CASE(dmem_test_newest_store_wins),
	KUNIT_CASE(dmem_test_abort_leaves_nothing),
	KUNIT_CASE(dmem_test_drop),
	KUNIT_CASE(dmem_test_clients_are_apart),
	KUNIT_CASE(dmem_test_clients_come_and_go),
	KUNIT_CASE(dmem_test_cleared_stays_empty),
	KUNIT_CASE(dmem_test_owner_gets_zeros),
	KUNIT_CASE(dmem_test_filled_frames_are_not_zero),
	KUNIT_CASE(dmem_test_oldest_go_first),
	KUNIT_CASE(dmem_test_free_frames_come_first),
	KUNIT_CASE(dmem_test_revoke_discards),
	KUNIT_CASE(dmem_test_nothing_to_be_had),
	KUNIT_CASE(dmem_test_revoked_before_publish),
	KUNIT_CASE(dmem_test_staged_together),
	KUNIT_CASE(dmem_test_owned_in_larger_units),
	KUNIT_CASE(dmem_test_random_operations),
	KUNIT_CASE(dmem_test_owner_is_alone),
	KUNIT_CASE(dmem_test_drop_while_revoked),
	{}
};

static struct kunit_suite dmem_test_suite = {
	.name = "gcma-dmem",
	.init = dmem_test_init,
	.exit = dmem_test_exit,
	.test_cases = dmem_test_cases,
};

kunit_test_suite(dmem_test_suite);
