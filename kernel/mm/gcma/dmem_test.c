// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of dmem: what it promises to clients and to the owner of frames
 */

#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/delay.h>
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
/* A cache with a set for each page of a piece. */
#define GROUP_ORDER	10
#define GROUP_FRAMES	BIT(GROUP_ORDER)
#define GROUP_KEYS	(2 * GROUP_FRAMES)
/* A cache large enough to have leaders, in several areas. */
#define LARGE_ORDER	10
#define LARGE_AREAS	4
#define LARGE_FRAMES	(LARGE_AREAS * BIT(LARGE_ORDER))

/* A counter of the first area. */
#define counted(fx, counter) \
	dmem_sum(&(fx)->area[0], offsetof(struct dmem_stats, counter))

struct dmem_fixture {
	struct dmem dmem;
	struct dmem_area area[LARGE_AREAS];
	unsigned long *owned[LARGE_AREAS];
	struct page *frames[LARGE_AREAS];
	struct page *page;
	unsigned int order;
};

/* Addresses that are never looked at, the same in each run. */
static const void *const test_space[] = { (void *)0x51000, (void *)0x52000 };

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

/* A cache for a number of areas of 2^@order frames, and the first @lent of them. */
static struct dmem_fixture *fixture_init(struct kunit *test, unsigned int areas,
					 unsigned int lent, unsigned int order,
					 unsigned int owned_order)
{
	struct dmem_fixture *fx = kunit_kzalloc(test, sizeof(*fx), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, fx);
	test->priv = fx;
	fx->order = order;
	fx->page = alloc_page(GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fx->page);
	dmem_init(&fx->dmem, areas << order);
	for (i = 0; i < lent; i++) {
		fx->frames[i] = alloc_pages(GFP_KERNEL, order);
		fx->owned[i] = bitmap_zalloc(1UL << order, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, fx->frames[i]);
		KUNIT_ASSERT_NOT_NULL(test, fx->owned[i]);
		fx->area[i].base_pfn = page_to_pfn(fx->frames[i]);
		fx->area[i].nr = 1UL << order;
		fx->area[i].owned = fx->owned[i];
		fx->area[i].owned_order = owned_order;
		fx->area[i].clients = BIT(0) | BIT(1);
		KUNIT_ASSERT_EQ(test, dmem_add_area(&fx->dmem, &fx->area[i]), 0);
	}
	return fx;
}

static int dmem_test_init(struct kunit *test)
{
	fixture_init(test, 1, 1, TEST_ORDER, 0);
	return 0;
}

static void dmem_test_exit(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned int i;

	if (!fx)
		return;
	dmem_exit(&fx->dmem);
	for (i = 0; i < LARGE_AREAS; i++) {
		bitmap_free(fx->owned[i]);
		if (fx->frames[i])
			__free_pages(fx->frames[i], fx->order);
	}
	if (fx->page)
		__free_page(fx->page);
	test->priv = NULL;
}

static struct dmem_fixture *large_fixture(struct kunit *test)
{
	dmem_test_exit(test);
	return fixture_init(test, LARGE_AREAS, LARGE_AREAS, LARGE_ORDER, 0);
}

static struct dmem_fixture *group_fixture(struct kunit *test)
{
	dmem_test_exit(test);
	return fixture_init(test, 1, 1, GROUP_ORDER, 0);
}

static bool store_as(struct dmem_fixture *fx, struct page *page,
		     unsigned long key, u64 value, unsigned int client)
{
	page_fill(page, value);
	return dmem_store(&fx->dmem, page_folio(page), test_space[client], key,
			  client, 0);
}

static bool store(struct dmem_fixture *fx, unsigned long key, u64 value)
{
	return store_as(fx, fx->page, key, value, 0);
}

/* Is the key there with this value? It is gone afterwards. */
static bool load(struct dmem_fixture *fx, unsigned long key, u64 value)
{
	page_fill(fx->page, ~value);
	return dmem_load(&fx->dmem, test_space[0], key, fx->page, 0) &&
	       page_is(fx->page, value);
}

/* Read part of a page where it is, so that it becomes near. */
static ssize_t read_part(struct dmem_fixture *fx, unsigned long key,
			 struct page *page, size_t from, size_t len)
{
	return dmem_read(&fx->dmem, test_space[0],
			 ((loff_t)key << PAGE_SHIFT) + from, len,
			 page_address(page), NULL, 0, true);
}

static unsigned long live(struct dmem_fixture *fx)
{
	return dmem_cached(&fx->area[0], 0) + dmem_cached(&fx->area[0], 1);
}

static void own(struct dmem_fixture *fx, unsigned long first, unsigned long nr)
{
	bitmap_set(fx->owned[0], first, nr);
	dmem_revoke(&fx->area[0], first, nr);
}

/* Returns how many pages that has cost. */
static unsigned long disown(struct dmem_fixture *fx, unsigned long first,
			    unsigned long nr)
{
	unsigned long gone = dmem_release(&fx->area[0], first, nr);

	bitmap_clear(fx->owned[0], first, nr);
	dmem_changed(&fx->dmem);
	return gone;
}

/* Store until no frame is free. Returns how many keys it took, from zero. */
static unsigned long fill(struct kunit *test, struct dmem_fixture *fx, u64 value)
{
	unsigned long key;

	for (key = 0; live(fx) < TEST_FRAMES && key < 10 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, value ?: key));
	KUNIT_ASSERT_EQ(test, live(fx), TEST_FRAMES);
	return key;
}

/* The frame that has a page, counted over all areas, or a number beyond. */
static unsigned long frame_of(struct dmem_fixture *fx, unsigned long key)
{
	unsigned long nr;

	for (nr = 0; nr < DMEM_WAYS * fx->dmem.nr_sets; nr++) {
		const struct dmem_set *set = &fx->dmem.set[nr % fx->dmem.nr_sets];
		unsigned int way = nr / fx->dmem.nr_sets;

		if (set->tag[way] && set->way[way].offset == key &&
		    set->way[way].space == test_space[0])
			break;
	}
	return nr;
}

/* How many ways are passed over? */
static unsigned long passed_over(struct dmem_fixture *fx)
{
	unsigned long nr, sum = 0;

	for (nr = 0; nr < DMEM_WAYS * fx->dmem.nr_sets; nr++) {
		const struct dmem_set *set = &fx->dmem.set[nr % fx->dmem.nr_sets];
		unsigned int way = nr / fx->dmem.nr_sets;

		sum += set->used >> way & 1 && !set->tag[way];
	}
	return sum;
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

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 42));
	page_fill(fx->page, 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, 800, 16), 16);
	KUNIT_EXPECT_EQ(test, word[0], 42);
	KUNIT_EXPECT_EQ(test, word[1], 42);
	KUNIT_EXPECT_EQ(test, word[2], 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 7, fx->page, PAGE_SIZE - 1, 1), 1);
	KUNIT_EXPECT_EQ(test, read_part(fx, 8, fx->page, 0, PAGE_SIZE), 0);
	KUNIT_EXPECT_TRUE(test, dmem_has(&fx->dmem, test_space[0], 7));
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], 8));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_EQ(test, counted(fx, served[0]), 2);
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
	/* From one piece into the next. */
	for (key = 14; key < 17; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, dmem_read(&fx->dmem, test_space[0],
					15 * PAGE_SIZE - 8, 4 * PAGE_SIZE, word,
					NULL, 0, true), 2 * PAGE_SIZE + 8);
	KUNIT_EXPECT_EQ(test, word[0], 14);
	KUNIT_EXPECT_EQ(test, word[1], 15);
	KUNIT_EXPECT_EQ(test, word[words], 15);
	KUNIT_EXPECT_EQ(test, word[words + 1], 16);
	KUNIT_EXPECT_EQ(test, word[2 * words], 16);
	KUNIT_EXPECT_EQ(test, word[2 * words + 1], 0);
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

static void dmem_test_invalidate(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	/* From one piece into the next. */
	KUNIT_EXPECT_TRUE(test, store(fx, 15, 1));
	KUNIT_EXPECT_TRUE(test, store(fx, 16, 1));
	KUNIT_EXPECT_TRUE(test, store(fx, 17, 1));
	dmem_invalidate(&fx->dmem, test_space[0], 15, 2);
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 15, 1));
	KUNIT_EXPECT_FALSE(test, load(fx, 16, 1));
	KUNIT_EXPECT_TRUE(test, dmem_store(&fx->dmem, page_folio(fx->page), test_space[0],
					   18, 1, 0));
	dmem_invalidate_all(&fx->dmem);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	KUNIT_EXPECT_FALSE(test, load(fx, 17, 1));
}

static void dmem_test_clients_are_apart(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 2, 1));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 8, 2, 1));
	KUNIT_EXPECT_TRUE(test, load(fx, 7, 1));
	KUNIT_EXPECT_TRUE(test, dmem_load(&fx->dmem, test_space[1], 7,
					  fx->page, 1));
	KUNIT_EXPECT_TRUE(test, page_is(fx->page, 2));
	own(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, disown(fx, 0, TEST_FRAMES), 1);
	KUNIT_EXPECT_EQ(test, counted(fx, stored[0]), 1);
	KUNIT_EXPECT_EQ(test, counted(fx, stored[1]), 2);
	KUNIT_EXPECT_EQ(test, counted(fx, loaded[0]), 1);
	KUNIT_EXPECT_EQ(test, counted(fx, loaded[1]), 1);
	KUNIT_EXPECT_EQ(test, counted(fx, discarded[0]), 1);
}

static void dmem_test_clients_come_and_go(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 8, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 7, 2, 1));
	dmem_set_clients(&fx->area[0], BIT(1));
	KUNIT_EXPECT_EQ(test, live(fx), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 1));
	KUNIT_EXPECT_FALSE(test, store_as(fx, fx->page, 9, 1, 0));
	KUNIT_EXPECT_TRUE(test, store_as(fx, fx->page, 9, 2, 1));
	KUNIT_EXPECT_TRUE(test, dmem_load(&fx->dmem, test_space[1], 7, fx->page, 1));
	dmem_set_clients(&fx->area[0], 0);
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	KUNIT_EXPECT_FALSE(test, store_as(fx, fx->page, 9, 2, 1));
	dmem_set_clients(&fx->area[0], BIT(0) | BIT(1));
	KUNIT_EXPECT_TRUE(test, store(fx, 9, 3));
	KUNIT_EXPECT_TRUE(test, load(fx, 9, 3));
}

/* What the owner is given is zero where that was wanted, whatever was there. */
static void dmem_test_owner_gets_zeros(struct kunit *test)
{
	const unsigned long first = 40, nr = TEST_FRAMES / 2 + 5;
	struct dmem_fixture *fx = test->priv;
	unsigned long key, i;

	fill(test, fx, ~0ULL);
	/* Content, content that was dropped, zeros, and content again. */
	dmem_sweep(&fx->area[0], first, nr / 2, DMEM_ALL);
	dmem_sweep(&fx->area[0], first, nr, DMEM_CLEAR);
	KUNIT_EXPECT_EQ(test, bitmap_weight(fx->dmem.zero, TEST_FRAMES), nr / 2);
	for (key = 0; key < 7; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, TEST_KEYS + key, ~0ULL));
	dmem_sweep(&fx->area[0], first, 3, DMEM_ALL);
	own(fx, first, nr);
	dmem_zero_owned(&fx->area[0], first, nr);
	for (i = first; i < first + nr; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames[0] + i, 0));
	/* What the owner leaves there is not taken for zeros. */
	for (i = first; i < first + nr; i++)
		page_fill(fx->frames[0] + i, ~0ULL);
	disown(fx, first, nr);
	KUNIT_EXPECT_TRUE(test, bitmap_empty(fx->dmem.zero, TEST_FRAMES));
	own(fx, first, nr);
	dmem_zero_owned(&fx->area[0], first, nr);
	for (i = first; i < first + nr; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames[0] + i, 0));
	disown(fx, first, nr);
}

/* A frame that is filled is not zero, whoever cleared it before. */
static void dmem_test_filled_frames_are_not_zero(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key, i;

	dmem_sweep(&fx->area[0], 0, TEST_FRAMES, DMEM_CLEAR);
	KUNIT_EXPECT_TRUE(test, bitmap_full(fx->dmem.zero, TEST_FRAMES));
	for (key = 0; key < TEST_FRAMES / 3; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, ~0ULL));
	for (key = 0; key < TEST_FRAMES / 3; key += 2)
		KUNIT_EXPECT_TRUE(test, load(fx, key, ~0ULL));
	for (i = 0; i < TEST_FRAMES; i++)
		KUNIT_ASSERT_EQ(test, page_is(fx->frames[0] + i, 0),
				test_bit(i, fx->dmem.zero));
	own(fx, 0, TEST_FRAMES);
	dmem_zero_owned(&fx->area[0], 0, TEST_FRAMES);
	for (i = 0; i < TEST_FRAMES; i++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames[0] + i, 0));
	disown(fx, 0, TEST_FRAMES);
}

static void dmem_test_revoke_discards(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	const unsigned long first = 40, nr = TEST_FRAMES / 2 + 5;
	unsigned long key, keys, found = 0;

	keys = fill(test, fx, 0);
	own(fx, first, nr);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES - nr);
	for (key = 0; key < nr; key++)
		page_fill(fx->frames[0] + first + key, 0xbad);
	for (key = 0; key < keys; key++)
		found += load(fx, key, key);
	KUNIT_EXPECT_EQ(test, found, TEST_FRAMES - nr);

	/* Nothing is stored in frames that are owned… */
	for (key = 0; key < 2 * TEST_FRAMES; key++)
		store(fx, key, key);
	KUNIT_EXPECT_LE(test, live(fx), TEST_FRAMES - nr);
	KUNIT_EXPECT_GE(test, live(fx), (TEST_FRAMES - nr) * 9 / 10);
	for (key = 0; key < nr; key++)
		KUNIT_ASSERT_TRUE(test, page_is(fx->frames[0] + first + key, 0xbad));

	/* …until they are given back, when what was lost is counted. */
	KUNIT_EXPECT_EQ(test, disown(fx, first, nr), nr);
	KUNIT_EXPECT_EQ(test, counted(fx, discarded[0]), nr);
	own(fx, first, nr);
	KUNIT_EXPECT_EQ(test, disown(fx, first, nr), 0);
	fill(test, fx, 0);
}

static void dmem_test_nothing_to_be_had(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	own(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_FALSE(test, store(fx, 7, 1));
	KUNIT_EXPECT_EQ(test, counted(fx, refused[0]), 1);
	disown(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_TRUE(test, store(fx, 1, 1));
}

/* What the owner gives back is filled before anything else is evicted. */
static void dmem_test_returned_frames_are_free(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long *used, key, sets = fx->dmem.nr_sets, set, nr;

	used = kunit_kcalloc(test, sets, sizeof(*used), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, used);
	key = fill(test, fx, 0);
	/* A quarter of the ways of each set. */
	own(fx, 0, TEST_FRAMES / 4);
	for (nr = 0; nr < TEST_KEYS; nr++, key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	/* Stores have passed over them, so that others need not try them first. */
	KUNIT_EXPECT_EQ(test, passed_over(fx), TEST_FRAMES / 4);
	KUNIT_EXPECT_EQ(test, disown(fx, 0, TEST_FRAMES / 4), TEST_FRAMES / 4);
	for (set = 0; set < sets; set++)
		used[set] = DMEM_WAYS - DMEM_WAYS / 4;
	for (; live(fx) < TEST_FRAMES; key++) {
		unsigned long evicted;

		evicted = counted(fx, evicted[0]);
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
		set = frame_of(fx, key) % sets;
		KUNIT_ASSERT_EQ(test, counted(fx, evicted[0]) - evicted, used[set] == DMEM_WAYS);
		used[set] += used[set] < DMEM_WAYS;
	}
}

/* Different keys with the same tag in one set are different all the same. */
static void dmem_test_same_tags(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long same = 0, set;
	unsigned int way, other;

	fill(test, fx, 0);
	for (set = 0; set < fx->dmem.nr_sets; set++) {
		const struct dmem_set *ways = &fx->dmem.set[set];

		for (way = 0; way < DMEM_WAYS; way++) {
			for (other = way + 1; other < DMEM_WAYS; other++)
				if (ways->tag[way] && ways->tag[way] == ways->tag[other])
					break;
			if (other == DMEM_WAYS)
				continue;
			same++;
			/* The later one is not found by being the first with this tag. */
			KUNIT_EXPECT_TRUE(test, load(fx, ways->way[other].offset,
						     ways->way[other].offset));
			KUNIT_EXPECT_FALSE(test, load(fx, ways->way[other].offset,
						      ways->way[other].offset));
			KUNIT_EXPECT_TRUE(test, load(fx, ways->way[way].offset,
						     ways->way[way].offset));
		}
	}
	kunit_info(test, "%lu pairs\n", same);
	KUNIT_EXPECT_GT(test, same, 0);
}

static struct folio *test_folio(struct kunit *test)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, 2);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, page);
	for (i = 0; i < 4; i++)
		page_fill(page + i, 100 + i);
	return page_folio(page);
}

/* Each has its frame, and each may be lost. */
static void dmem_test_pages_of_a_folio(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct folio *folio = test_folio(test);
	unsigned long key, lost;

	/* From one piece into the next. */
	for (key = 14; key < 18; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_TRUE(test, dmem_store(&fx->dmem, folio, test_space[0], 14, 0, 0));
	KUNIT_EXPECT_EQ(test, live(fx), 4);
	lost = frame_of(fx, 16);
	own(fx, lost, 1);
	/* Nothing is found of the lost one, not even what was there before. */
	for (key = 14; key < 18; key++)
		KUNIT_EXPECT_EQ(test, key != 16, load(fx, key, 86 + key));
	KUNIT_EXPECT_EQ(test, disown(fx, lost, 1), 1);
	KUNIT_EXPECT_FALSE(test, load(fx, 16, 102));
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	folio_put(folio);
}

/* A folio of which a page finds no frame is not stored. */
static void dmem_test_folio_in_part(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct folio *folio = test_folio(test);
	unsigned long key, set, way;

	for (key = 0; key < 4; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
	set = frame_of(fx, 2) % fx->dmem.nr_sets;
	for (way = 0; way < DMEM_WAYS; way++)
		own(fx, way * fx->dmem.nr_sets + set, 1);
	KUNIT_EXPECT_FALSE(test, dmem_store(&fx->dmem, folio, test_space[0], 0, 0, 0));
	for (way = 0; way < DMEM_WAYS; way++)
		disown(fx, way * fx->dmem.nr_sets + set, 1);
	for (key = 0; key < 3; key++)
		KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], key));
	folio_put(folio);
}

static void dmem_test_owned_in_larger_units(struct kunit *test)
{
	struct dmem_fixture *fx;
	unsigned long key;

	dmem_test_exit(test);
	fx = fixture_init(test, 1, 1, TEST_ORDER, 2);
	fill(test, fx, 0);
	bitmap_set(fx->owned[0], 3, 30);
	dmem_revoke(&fx->area[0], 12, 120);
	for (key = 0; key < 8 * TEST_FRAMES; key++)
		store(fx, key, key);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES - 120);
	KUNIT_EXPECT_EQ(test, dmem_release(&fx->area[0], 12, 120), 120);
}

/* Memory may begin with an area: a CPU that copies nothing is not in its first frame. */
static void dmem_test_area_at_zero(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct dmem_area low = fx->area[0];

	low.base_pfn = 0;
	KUNIT_EXPECT_EQ(test, dmem_revoke(&low, 0, 4), 0);
}

/* A key whose set the owner has cannot be stored until some of it comes back. */
static void dmem_test_set_owned(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long set;
	unsigned int way;

	KUNIT_ASSERT_TRUE(test, store(fx, 7, 1));
	set = frame_of(fx, 7) % fx->dmem.nr_sets;
	KUNIT_EXPECT_TRUE(test, dmem_has(&fx->dmem, test_space[0], 7));
	for (way = 0; way < DMEM_WAYS; way++)
		own(fx, way * fx->dmem.nr_sets + set, 1);
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], 7));
	KUNIT_EXPECT_FALSE(test, store(fx, 7, 2));
	KUNIT_EXPECT_FALSE(test, load(fx, 7, 2));
	/* Until some comes back, none is tried. */
	KUNIT_EXPECT_EQ(test, fx->dmem.set[set].lost, ~0ULL);
	while (way-- > 0) {
		disown(fx, way * fx->dmem.nr_sets + set, 1);
		KUNIT_EXPECT_TRUE(test, store(fx, 7, 3 + way));
		KUNIT_EXPECT_TRUE(test, load(fx, 7, 3 + way));
	}
}

/* Who may not store any more does not leave an older page either. */
static void dmem_test_refused_store_leaves_nothing(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;

	KUNIT_EXPECT_TRUE(test, store(fx, 7, 1));
	/* As somebody sees it who looks before dmem_set_clients() gets to the page. */
	WRITE_ONCE(fx->area[0].clients, BIT(1));
	KUNIT_EXPECT_FALSE(test, store(fx, 7, 2));
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], 7));
	KUNIT_EXPECT_EQ(test, live(fx), 0);
}

/* Nor does a large folio for which there is no room. */
static void dmem_test_unfit_folio_leaves_nothing(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct folio *folio = folio_alloc(GFP_KERNEL, 2);
	unsigned long key;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	for (key = 0; key < 64; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, 1));
	fx->dmem.thrifty = true;
	WRITE_ONCE(fx->area[0].clients, BIT(1));
	for (key = 0; key < 64; key += 4)
		KUNIT_EXPECT_FALSE(test, dmem_store(&fx->dmem, folio, test_space[0], key, 0, 0));
	folio_put(folio);
	for (key = 0; key < 64; key++)
		KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], key));
	KUNIT_EXPECT_EQ(test, live(fx), 0);
}

/* Nor one of which the first page has a set that the owner has. */
static void dmem_test_unlucky_folio_leaves_nothing(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	struct folio *folio = folio_alloc(GFP_KERNEL, 2);
	unsigned long key, set, way;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	for (key = 0; key < 4; key++)
		KUNIT_EXPECT_TRUE(test, store(fx, key, 1));
	set = frame_of(fx, 0) % fx->dmem.nr_sets;
	for (way = 0; way < DMEM_WAYS; way++)
		own(fx, way * fx->dmem.nr_sets + set, 1);
	KUNIT_EXPECT_EQ(test, live(fx), 3);
	KUNIT_EXPECT_FALSE(test, dmem_store(&fx->dmem, folio, test_space[0], 0, 0, 0));
	folio_put(folio);
	for (key = 0; key < 4; key++)
		KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], key));
	KUNIT_EXPECT_EQ(test, live(fx), 0);
	while (way-- > 0)
		disown(fx, way * fx->dmem.nr_sets + set, 1);
}

/* However many frames and sets there are, all frames are of use. */
static void dmem_test_all_sets_are_used(struct kunit *test)
{
	static const unsigned int sets[] = { 1, 3, 15, 16, 17, 31, 40, 62, 64 };
	struct dmem_fixture *fx = large_fixture(test);
	unsigned long nr, key;
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(sets); i++) {
		nr = DMEM_WAYS * sets[i] - 7 * i;
		dmem_exit(&fx->dmem);
		dmem_init(&fx->dmem, nr);
		for (k = 0; k << LARGE_ORDER < nr; k++) {
			fx->area[k].nr = min(nr - (k << LARGE_ORDER), BIT(LARGE_ORDER));
			KUNIT_ASSERT_EQ(test, dmem_add_area(&fx->dmem, &fx->area[k]), 0);
		}
		for (key = 0; key < 8 * nr; key++)
			store(fx, key, key);
		KUNIT_EXPECT_EQ_MSG(test, bitmap_weight(fx->dmem.live, nr), nr,
				    "of %u sets", sets[i]);
	}
}

/* Very large areas have no more sets than memory may be allocated for at once. */
static void dmem_test_sets_are_bounded(struct kunit *test)
{
	struct dmem *dmem = kunit_kzalloc(test, sizeof(*dmem), GFP_KERNEL);
	const struct dmem_class *class;

	KUNIT_ASSERT_NOT_NULL(test, dmem);
	dmem_init(dmem, BIT(30));
	KUNIT_EXPECT_LE(test, (u64)dmem->nr_sets * sizeof(*dmem->set), INT_MAX);
	/* The last class ends with the last set. */
	class = &dmem->class[DMEM_LEADERS];
	KUNIT_EXPECT_EQ(test, class->first + class->groups * class->width + class->wide,
			dmem->nr_sets);
}

/* Of frames that are had, hold content or hold nothing, the last alone are cleared. */
static void dmem_test_sweep_finds_all(struct kunit *test)
{
	const unsigned int order = 2;
	struct dmem_fixture *fx;
	struct rnd_state rnd;
	unsigned long nr, key, keys;

	dmem_test_exit(test);
	fx = fixture_init(test, 1, 1, TEST_ORDER, order);
	prandom_seed_state(&rnd, 7);
	keys = fill(test, fx, ~0ULL);
	for (key = 0; key < keys; key++)
		if (prandom_u32_state(&rnd) % 4 == 0)
			dmem_invalidate(&fx->dmem, test_space[0], key, 1);
	for (nr = 0; nr < TEST_FRAMES; nr += BIT(order)) {
		if (prandom_u32_state(&rnd) % 4)
			continue;
		bitmap_set(fx->owned[0], nr >> order, 1);
		dmem_revoke(&fx->area[0], nr, BIT(order));
	}
	dmem_sweep(&fx->area[0], 3, TEST_FRAMES - 5, DMEM_CLEAR);
	for (nr = 0; nr < TEST_FRAMES; nr++) {
		bool cleared = nr >= 3 && nr < TEST_FRAMES - 2 &&
			       !test_bit(nr >> order, fx->owned[0]) &&
			       !test_bit(nr, fx->dmem.live);

		KUNIT_EXPECT_EQ(test, page_is(fx->frames[0] + nr, 0), cleared);
		KUNIT_EXPECT_EQ(test, test_bit(nr, fx->dmem.zero), cleared);
	}
}

/* What was dropped of those that no longer may store is cleared like all else. */
static void dmem_test_dropped_frames_are_cleared(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long nr;

	KUNIT_ASSERT_TRUE(test, store(fx, 7, ~0ULL));
	nr = frame_of(fx, 7);
	dmem_set_clients(&fx->area[0], BIT(1));
	dmem_sweep(&fx->area[0], 0, TEST_FRAMES, DMEM_CLEAR);
	KUNIT_EXPECT_TRUE(test, bitmap_full(fx->dmem.zero, TEST_FRAMES));
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + nr, 0));
}

/* Nothing secret outlasts this, wherever it is; what the owner has follows. */
static void dmem_test_secrets_are_wiped(struct kunit *test)
{
	enum { FOUND, DROPPED, LOADED, REPLACED, OWNED, SECRETS };
	const u64 secret = 0x5ec2e7;
	struct dmem_fixture *fx = test->priv;
	unsigned long frame[SECRETS], plain, key;

	for (key = 0; key < SECRETS; key++) {
		page_fill(fx->page, secret);
		KUNIT_ASSERT_TRUE(test, dmem_store(&fx->dmem, page_folio(fx->page),
						   test_space[0], key, 0, DMEM_SECRET));
		frame[key] = frame_of(fx, key);
	}
	KUNIT_ASSERT_TRUE(test, store(fx, SECRETS, 42));
	plain = frame_of(fx, SECRETS);
	dmem_invalidate(&fx->dmem, test_space[0], DROPPED, 1);
	KUNIT_ASSERT_TRUE(test, load(fx, LOADED, secret));
	KUNIT_ASSERT_TRUE(test, store(fx, REPLACED, 43));
	own(fx, frame[OWNED], 1);

	dmem_sweep(&fx->area[0], 0, TEST_FRAMES, DMEM_CLEAR | DMEM_ONLY_SECRET);
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + frame[DROPPED], 0));
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + frame[LOADED], 0));
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + frame[OWNED], secret));
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + frame[FOUND], secret));

	dmem_sweep(&fx->area[0], 0, TEST_FRAMES,
		   DMEM_ALL | DMEM_CLEAR | DMEM_ONLY_SECRET);
	for (key = 0; key < TEST_FRAMES; key++)
		if (key != frame[OWNED])
			KUNIT_EXPECT_FALSE(test, page_is(fx->frames[0] + key, secret));
	KUNIT_EXPECT_FALSE(test, dmem_has(&fx->dmem, test_space[0], FOUND));
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + plain, 42));
	KUNIT_EXPECT_TRUE(test, load(fx, SECRETS, 42));
	KUNIT_EXPECT_TRUE(test, load(fx, REPLACED, 43));

	disown(fx, frame[OWNED], 1);
	dmem_sweep(&fx->area[0], 0, TEST_FRAMES, DMEM_CLEAR | DMEM_ONLY_SECRET);
	KUNIT_EXPECT_TRUE(test, page_is(fx->frames[0] + frame[OWNED], 0));
	KUNIT_EXPECT_TRUE(test, bitmap_empty(fx->dmem.secret, TEST_FRAMES));
}

/* Two areas, lent to different clients: frames that nobody may take are tried once. */
static void dmem_test_two_areas(struct kunit *test)
{
	struct dmem_fixture *fx;
	unsigned long key;

	dmem_test_exit(test);
	fx = fixture_init(test, 2, 1, TEST_ORDER, 0);
	fx->frames[1] = alloc_pages(GFP_KERNEL, TEST_ORDER);
	fx->owned[1] = bitmap_zalloc(TEST_FRAMES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fx->frames[1]);
	KUNIT_ASSERT_NOT_NULL(test, fx->owned[1]);
	/* An odd number of frames, the first of them owned. */
	__set_bit(0, fx->owned[1]);
	fx->area[1] = (struct dmem_area) {
		.base_pfn = page_to_pfn(fx->frames[1]),
		.nr = TEST_FRAMES - 3,
		.owned = fx->owned[1],
		.clients = BIT(0),
	};
	KUNIT_ASSERT_EQ(test, dmem_add_area(&fx->dmem, &fx->area[1]), 0);
	for (key = 0; key < 16 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	/* The owned frame, and three that belong to no area. */
	KUNIT_EXPECT_EQ(test, passed_over(fx), 4);
	KUNIT_EXPECT_EQ(test, dmem_cached(&fx->area[0], 0), TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, dmem_cached(&fx->area[1], 0), TEST_FRAMES - 4);
	/* Areas do not meet where they share a word of a bitmap. */
	own(fx, 0, TEST_FRAMES);
	disown(fx, 0, TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, dmem_cached(&fx->area[1], 0), TEST_FRAMES - 4);
	dmem_set_clients(&fx->area[1], 0);
	KUNIT_EXPECT_EQ(test, bitmap_weight(fx->dmem.live, 2 * TEST_FRAMES), 0);
	/* There is room for no more. */
	fx->area[2].nr = 4;
	KUNIT_EXPECT_EQ(test, dmem_add_area(&fx->dmem, &fx->area[2]), -ENOSPC);
}

/* An area that nobody may store in is passed over; what it is lent for can change. */
static void dmem_test_area_without_clients(struct kunit *test)
{
	struct dmem_fixture *fx;
	unsigned long key;

	dmem_test_exit(test);
	fx = fixture_init(test, 2, 2, TEST_ORDER, 0);
	for (key = 0; key < 16 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, passed_over(fx), 0);
	dmem_set_clients(&fx->area[1], 0);
	for (; key < 32 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, passed_over(fx), TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
	dmem_set_clients(&fx->area[1], BIT(0));
	for (; key < 48 * TEST_FRAMES; key++)
		KUNIT_ASSERT_TRUE(test, store(fx, key, key));
	KUNIT_EXPECT_EQ(test, passed_over(fx), 0);
	KUNIT_EXPECT_EQ(test, dmem_cached(&fx->area[1], 0), TEST_FRAMES);
}

/* Store a page of which nothing but the first word matters. */
static bool put(struct dmem_fixture *fx, unsigned long key, bool workingset)
{
	*(u64 *)page_address(fx->page) = key;
	return dmem_store(&fx->dmem, page_folio(fx->page), test_space[0], key, 0,
			  workingset ? DMEM_WORKINGSET : 0);
}

static bool take(struct kunit *test, struct dmem_fixture *fx, unsigned long key)
{
	if (!dmem_load(&fx->dmem, test_space[0], key, fx->page, 0))
		return false;
	KUNIT_EXPECT_EQ(test, *(u64 *)page_address(fx->page), key);
	return true;
}

/* How many of @nr pages in a row, read again and again, are kept? The sum of @parts places. */
static unsigned long kept_in_loops(struct kunit *test, unsigned long nr, unsigned long parts)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long part, first, key, kept = 0, sum = 0;
	unsigned int round;

	for (part = 0; part < parts; part++) {
		dmem_invalidate_all(&fx->dmem);
		first = part * nr;
		for (round = 0; round < 3; round++) {
			for (kept = 0, key = first; key < first + nr; key++)
				kept += take(test, fx, key);
			for (key = first; key < first + nr; key++)
				put(fx, key, round);
		}
		sum += kept;
	}
	kunit_info(test, "kept %lu of %lu\n", sum, parts * nr);
	return sum;
}

/* What fits is kept, wherever its keys happen to be: the mean of four places. */
static void dmem_test_what_fits_is_kept(struct kunit *test)
{
	const unsigned long nr = LARGE_FRAMES * 3 / 4, parts = 4;

	large_fixture(test);
	KUNIT_EXPECT_GE(test, kept_in_loops(test, nr, parts), parts * nr * 98 / 100);
}

/*
 * Where owners have seven of eight frames for good, each set has eight ways that are of
 * use, and what would fit meets in some of them and leaves others empty.
 */
static void dmem_test_few_ways_keep_less(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	const unsigned long idle = LARGE_FRAMES / 8, nr = idle * 3 / 4, parts = 16;
	unsigned int i;

	own(fx, idle, BIT(LARGE_ORDER) - idle);
	for (i = 1; i < LARGE_AREAS; i++) {
		bitmap_fill(fx->owned[i], BIT(LARGE_ORDER));
		dmem_revoke(&fx->area[i], 0, BIT(LARGE_ORDER));
	}
	KUNIT_EXPECT_GE(test, kept_in_loops(test, nr, parts), parts * nr * 80 / 100);
}

/* Pages that RAM has, in a loop. */
#define RAM_PAGES	64

/* Of a loop of 1.5 times the room a part is kept. */
static void dmem_test_loop_is_kept_in_part(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	const unsigned long nr = (LARGE_FRAMES + RAM_PAGES) * 3 / 2;
	unsigned long i, hits = 0;
	unsigned int again, round;

	for (again = 0; again < 2; again++) {
		for (round = 0; round < 12; round++) {
			/* It is not the start that decides. */
			if (round == 2)
				WRITE_ONCE(fx->dmem.thrifty, false);
			for (hits = 0, i = 0; i < nr; i++) {
				hits += take(test, fx, i);
				put(fx, (i + nr - RAM_PAGES) % nr, again);
			}
		}
		kunit_info(test, "workingset %u: served %lu of %lu\n", again, hits, nr);
		KUNIT_EXPECT_GE(test, hits, nr / 5);
	}
}

/* A stream takes few copies, and leaves alone what is used again. */
static void dmem_test_stream_passes_by(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	const unsigned long nr = LARGE_FRAMES / 2, stream = 1UL << 24;
	unsigned long i, hits = 0, copies = 0;

	/* First a stream alone: it fills what is free. */
	for (i = 0; i < 2 * LARGE_FRAMES; i++)
		put(fx, stream + i, false);
	/* Then others as well, whose pages are of the working set. */
	for (i = 0; i < 12 * nr; i++) {
		if (i == 6 * nr) {
			hits = 0;
			copies = 0;
		}
		hits += take(test, fx, i % nr);
		put(fx, (i + nr - RAM_PAGES) % nr, true);
		copies += put(fx, 2 * stream + i, false);
	}
	kunit_info(test, "served %lu, stream %lu of %lu\n", hits, copies, 6 * nr);
	KUNIT_EXPECT_GE(test, hits, 6 * nr * 95 / 100);
	KUNIT_EXPECT_LE(test, copies, 6 * nr / 2);
}

/* Where neither policy finds anything the one with fewer copies is chosen. */
static void dmem_test_tie_goes_to_fewer_copies(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	unsigned long key;

	WRITE_ONCE(fx->dmem.thrifty, false);
	for (key = 0; key < 64 * LARGE_FRAMES && !READ_ONCE(fx->dmem.thrifty); key++)
		put(fx, key, false);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(fx->dmem.thrifty));
}

/* Pages of a large folio count for the classes that they count for alone. */
static void dmem_test_folio_is_offered_by_piece(struct kunit *test)
{
	/* From the middle of a piece on, and too few for a round. */
	const unsigned long first = 3, end = first + 16000;
	struct folio *folio = folio_alloc(GFP_KERNEL, DMEM_PIECE_ORDER + 2);
	struct dmem_fixture *fx = large_fixture(test);
	int alone[DMEM_LEADERS], i;
	unsigned long key;

	for (key = first; key < end; key++)
		put(fx, key, false);
	for (i = 0; i < DMEM_LEADERS; i++)
		alone[i] = atomic_read(&fx->dmem.offered[i]);
	fx = large_fixture(test);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	for (key = first; key < end; key += folio_nr_pages(folio))
		dmem_store(&fx->dmem, folio, test_space[0], key, 0, 0);
	folio_put(folio);
	for (i = 0; i < DMEM_LEADERS; i++) {
		KUNIT_EXPECT_GT(test, alone[i], 0);
		KUNIT_EXPECT_EQ(test, atomic_read(&fx->dmem.offered[i]), alone[i]);
	}
}

/* A policy is chosen again also if who was to do it came late for several rounds. */
static void dmem_test_policy_is_chosen_again(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	unsigned long key;
	unsigned int i;

	for (i = 0; i < DMEM_LEADERS; i++)
		atomic_set(&fx->dmem.offered[i], 1000);
	WRITE_ONCE(fx->dmem.thrifty, false);
	for (key = 0; key < 64 * LARGE_FRAMES && !READ_ONCE(fx->dmem.thrifty); key++)
		put(fx, key, false);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(fx->dmem.thrifty));
}

/* New content that comes back soon takes the place of content that does not. */
static void dmem_test_new_set_is_taken_in(struct kunit *test)
{
	struct dmem_fixture *fx = large_fixture(test);
	unsigned long key, lag = LARGE_FRAMES / 2, hits = 0;
	bool generous = false;

	for (key = 0; key < 2 * LARGE_FRAMES; key++)
		put(fx, key, false);
	/* Each page comes back once. */
	for (key = 1UL << 24; key < (1UL << 24) + 24 * LARGE_FRAMES; key++) {
		put(fx, key, false);
		hits += take(test, fx, key - lag);
		generous |= !READ_ONCE(fx->dmem.thrifty);
	}
	kunit_info(test, "served %lu of %lu\n", hits, 24 * LARGE_FRAMES);
	KUNIT_EXPECT_TRUE(test, generous);
	KUNIT_EXPECT_GE(test, hits, 24 * LARGE_FRAMES / 2);
}

/* What is read where it is stays; other content of its sets goes. */
static void dmem_test_read_keeps_near(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key;

	KUNIT_EXPECT_TRUE(test, store(fx, 0, 7));
	for (key = 1; key < 8 * TEST_FRAMES; key++) {
		KUNIT_EXPECT_TRUE(test, store(fx, key, key));
		if (key % 32)
			continue;
		KUNIT_EXPECT_EQ(test, read_part(fx, 0, fx->page, 0, 8), 8);
		/* Not so if it is not to be near. */
		dmem_read(&fx->dmem, test_space[0], PAGE_SIZE, 8,
			  page_address(fx->page), NULL, 0, false);
	}
	KUNIT_EXPECT_TRUE(test, load(fx, 0, 7));
	KUNIT_EXPECT_FALSE(test, load(fx, 1, 1));
}

/* Free frames are taken before anything is evicted. */
static void dmem_test_free_frames_come_first(struct kunit *test)
{
	struct dmem_fixture *fx = test->priv;
	unsigned long key, keys = fill(test, fx, 0), evicted;

	evicted = counted(fx, evicted[0]);
	for (key = 0; key < keys; key++)
		if (load(fx, key, key))
			KUNIT_ASSERT_TRUE(test, store(fx, key, ~key));
	KUNIT_EXPECT_EQ(test, live(fx), TEST_FRAMES);
	KUNIT_EXPECT_EQ(test, counted(fx, evicted[0]), evicted);
}

/* A model that knows the newest value of each key; dmem may forget, not err. */
static void dmem_test_random_operations(struct kunit *test)
{
	struct dmem_fixture *fx = group_fixture(test);
	unsigned long first = 0, nr = 0;
	unsigned int hits = 0, step;
	struct rnd_state rnd;
	u64 *model;

	model = kunit_kcalloc(test, GROUP_KEYS, sizeof(*model), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, model);
	prandom_seed_state(&rnd, 20151008);
	for (step = 1; step < 30000; step++) {
		unsigned long key = prandom_u32_state(&rnd) % GROUP_KEYS;

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
			if (dmem_load(&fx->dmem, test_space[0], key, fx->page, 0)) {
				KUNIT_ASSERT_NE(test, model[key], 0);
				KUNIT_ASSERT_TRUE(test, page_is(fx->page, model[key]));
				hits++;
			}
			model[key] = 0;
			break;
		case 60 ... 62:
			dmem_invalidate(&fx->dmem, test_space[0], key, 1);
			model[key] = 0;
			break;
		case 63:
			if (nr) {
				disown(fx, first, nr);
				nr = 0;
				break;
			}
			first = prandom_u32_state(&rnd) % GROUP_FRAMES;
			nr = 1 + prandom_u32_state(&rnd) % (GROUP_FRAMES - first);
			own(fx, first, nr);
			memset(page_address(fx->frames[0] + first), 0xee, nr * PAGE_SIZE);
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
		if (dmem_load(&race->fx->dmem, test_space[0], key, race->page, 0)) {
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

static unsigned long race_hits(const struct race race[3])
{
	/* The threads count on meanwhile; whatever is seen will do. */
	return data_race(race[0].hits + race[1].hits + race[2].hits);
}

/* The owner is alone with its frames, and content is right, come what may. */
static void dmem_test_owner_is_alone(struct kunit *test)
{
	struct dmem_fixture *fx = group_fixture(test);
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
	/* The threads may be late: on with it until they have met content. */
	for (round = 0; round < 400 || (race_hits(race) <= 100 && round < 100000); round++) {
		unsigned long first = prandom_u32_state(&rnd) % GROUP_FRAMES;
		unsigned long nr = 1 + prandom_u32_state(&rnd) % (GROUP_FRAMES - first);

		own(fx, first, nr);
		for (i = 0; i < nr; i++)
			page_fill(fx->frames[0] + first + i, round);
		cond_resched();
		for (i = 0; i < nr; i++)
			wrong += !page_is(fx->frames[0] + first + i, round);
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
	unsigned long first = race->id * GROUP_FRAMES / 4, i;

	while (!kthread_should_stop()) {
		for (i = first; i < first + GROUP_FRAMES / 4; i++)
			race->hits += store_as(race->fx, race->page, i, i, 0);
		cond_resched();
		for (i = first; i < first + GROUP_FRAMES / 4; i++)
			dmem_invalidate(&race->fx->dmem, test_space[0], i, 1);
		cond_resched();
	}
	return 0;
}

/* A frame that is dropped while its owner takes it is counted once. */
static void dmem_test_invalidate_while_revoked(struct kunit *test)
{
	struct dmem_fixture *fx = group_fixture(test);
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
	for (round = 0; round < 200; round++) {
		/* Others change it; whatever is seen will do. */
		while (data_race(bitmap_weight(fx->dmem.live, GROUP_FRAMES)) < GROUP_FRAMES / 8)
			usleep_range(1, 20);
		own(fx, 0, GROUP_FRAMES - 1);
		disown(fx, 0, GROUP_FRAMES - 1);
		cond_resched();
	}
	for (i = 0; i < ARRAY_SIZE(race); i++) {
		kthread_stop(task[i]);
		hits += race[i].hits;
		__free_page(race[i].page);
	}
	KUNIT_EXPECT_GT(test, hits, 100);
	KUNIT_EXPECT_EQ(test, bitmap_weight(fx->dmem.live, GROUP_FRAMES), 0);
}

#define NEWEST_KEYS	(2 * GROUP_FRAMES)

struct newest {
	struct dmem_fixture *fx;
	/* Of each key the version that was stored last and may be found. */
	u32 version[NEWEST_KEYS];
	unsigned long hits;
	unsigned long wrong;
};

struct newest_thread {
	struct newest *newest;
	struct page *page;
	unsigned long id;
};

/* Store new versions of every other key, of which some turn out to be in vain. */
static int newest_store(void *data)
{
	struct newest_thread *me = data;
	struct newest *newest = me->newest;
	struct dmem *dmem = &newest->fx->dmem;
	struct rnd_state rnd;

	prandom_seed_state(&rnd, me->id);
	while (!kthread_should_stop()) {
		unsigned long key = prandom_u32_state(&rnd) % NEWEST_KEYS;
		u32 version;

		key = (key & ~1UL) | (me->id & 1);
		version = newest->version[key] + 1;
		page_fill(me->page, (u64)key << 32 | version);
		if (dmem_store(dmem, page_folio(me->page), test_space[0], key, 0,
			       key & 2 ? DMEM_WORKINGSET : 0) &&
		    version % 8 == 0)
			dmem_invalidate(dmem, test_space[0], key, 1);
		/* From now on nothing older may be found. */
		smp_store_release(&newest->version[key], version);
		cond_resched();
	}
	return 0;
}

/* Look for all keys. */
static int newest_look(void *data)
{
	struct newest_thread *me = data;
	struct newest *newest = me->newest;
	struct dmem *dmem = &newest->fx->dmem;
	u64 *word = page_address(me->page);
	struct rnd_state rnd;

	prandom_seed_state(&rnd, me->id);
	while (!kthread_should_stop()) {
		unsigned long key = prandom_u32_state(&rnd) % NEWEST_KEYS;
		loff_t pos = (loff_t)key << PAGE_SHIFT;
		u32 version;

		cond_resched();
		/* Pairs with smp_store_release() in newest_store(). */
		version = smp_load_acquire(&newest->version[key]);
		word[0] = 0;
		if (prandom_u32_state(&rnd) % 2 ?
		    dmem_read(dmem, test_space[0], pos, PAGE_SIZE, word, NULL, 0, true) <= 0 :
		    !dmem_load(dmem, test_space[0], key, me->page, 0))
			continue;
		newest->hits++;
		if (word[0] >> 32 != key || (u32)word[0] < version ||
		    !page_is(me->page, word[0]))
			newest->wrong++;
	}
	return 0;
}

/* What is found is the newest store, whoever else is busy with the frames. */
static void dmem_test_newest_is_found(struct kunit *test)
{
	struct dmem_fixture *fx = group_fixture(test);
	struct task_struct *task[4];
	struct newest_thread thread[4] = {};
	struct newest *newest;
	struct rnd_state rnd;
	unsigned long round, i, wrong = 0;

	newest = kunit_kzalloc(test, sizeof(*newest), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, newest);
	newest->fx = fx;
	prandom_seed_state(&rnd, 4);
	for (i = 0; i < ARRAY_SIZE(task); i++) {
		thread[i].newest = newest;
		thread[i].id = i;
		thread[i].page = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, thread[i].page);
		task[i] = kthread_run(i < 2 ? newest_store : newest_look,
				      &thread[i], "dmem_newest/%lu", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(task[i]));
	}
	for (round = 0; round < 200 || READ_ONCE(newest->hits) < 100; round++) {
		unsigned long first = prandom_u32_state(&rnd) % GROUP_FRAMES;
		unsigned long nr = 1 + prandom_u32_state(&rnd) % (GROUP_FRAMES - first);

		usleep_range(1, 20);
		own(fx, first, nr);
		dmem_zero_owned(&fx->area[0], first, nr);
		for (i = first; i < first + nr; i++)
			wrong += !page_is(fx->frames[0] + i, 0);
		for (i = first; i < first + nr; i++)
			page_fill(fx->frames[0] + i, ~0ULL);
		disown(fx, first, nr);
		if (round % 8 == 0)
			dmem_set_clients(&fx->area[0], BIT(1));
		if (round % 4 == 0)
			dmem_sweep(&fx->area[0], first, nr, DMEM_CLEAR);
		dmem_set_clients(&fx->area[0], BIT(0));
		if (round % 32 == 0)
			dmem_invalidate_all(&fx->dmem);
	}
	for (i = 0; i < ARRAY_SIZE(task); i++) {
		kthread_stop(task[i]);
		__free_page(thread[i].page);
	}
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_EQ(test, newest->wrong, 0);
}

static struct kunit_case dmem_test_cases[] = {
	KUNIT_CASE(dmem_test_load_moves_content_out),
	KUNIT_CASE(dmem_test_read_leaves_content),
	KUNIT_CASE(dmem_test_read_several),
	KUNIT_CASE(dmem_test_newest_store_wins),
	KUNIT_CASE(dmem_test_invalidate),
	KUNIT_CASE(dmem_test_clients_are_apart),
	KUNIT_CASE(dmem_test_clients_come_and_go),
	KUNIT_CASE(dmem_test_owner_gets_zeros),
	KUNIT_CASE(dmem_test_filled_frames_are_not_zero),
	KUNIT_CASE(dmem_test_revoke_discards),
	KUNIT_CASE(dmem_test_nothing_to_be_had),
	KUNIT_CASE(dmem_test_returned_frames_are_free),
	KUNIT_CASE(dmem_test_same_tags),
	KUNIT_CASE(dmem_test_pages_of_a_folio),
	KUNIT_CASE(dmem_test_folio_in_part),
	KUNIT_CASE(dmem_test_owned_in_larger_units),
	KUNIT_CASE(dmem_test_area_at_zero),
	KUNIT_CASE(dmem_test_set_owned),
	KUNIT_CASE(dmem_test_refused_store_leaves_nothing),
	KUNIT_CASE(dmem_test_unfit_folio_leaves_nothing),
	KUNIT_CASE(dmem_test_unlucky_folio_leaves_nothing),
	KUNIT_CASE(dmem_test_all_sets_are_used),
	KUNIT_CASE(dmem_test_sets_are_bounded),
	KUNIT_CASE(dmem_test_sweep_finds_all),
	KUNIT_CASE(dmem_test_dropped_frames_are_cleared),
	KUNIT_CASE(dmem_test_secrets_are_wiped),
	KUNIT_CASE(dmem_test_two_areas),
	KUNIT_CASE(dmem_test_area_without_clients),
	KUNIT_CASE(dmem_test_what_fits_is_kept),
	KUNIT_CASE(dmem_test_few_ways_keep_less),
	KUNIT_CASE(dmem_test_loop_is_kept_in_part),
	KUNIT_CASE(dmem_test_stream_passes_by),
	KUNIT_CASE(dmem_test_tie_goes_to_fewer_copies),
	KUNIT_CASE(dmem_test_folio_is_offered_by_piece),
	KUNIT_CASE(dmem_test_policy_is_chosen_again),
	KUNIT_CASE(dmem_test_new_set_is_taken_in),
	KUNIT_CASE(dmem_test_read_keeps_near),
	KUNIT_CASE(dmem_test_free_frames_come_first),
	KUNIT_CASE(dmem_test_random_operations),
	KUNIT_CASE(dmem_test_owner_is_alone),
	KUNIT_CASE(dmem_test_invalidate_while_revoked),
	KUNIT_CASE(dmem_test_newest_is_found),
	{}
};

static struct kunit_suite dmem_test_suite = {
	.name = "gcma-dmem",
	.init = dmem_test_init,
	.exit = dmem_test_exit,
	.test_cases = dmem_test_cases,
};

kunit_test_suite(dmem_test_suite);
