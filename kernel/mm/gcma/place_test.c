// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of where GCMA places allocations, and of what it accepts as a
 * choice of clients
 */

#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/slab.h>

#include "gcma.h"

/* Both ends of a range this long are looked at. */
#define TEST_PAGES	4096UL
#define TEST_BASE	0x10000UL

struct place_fixture {
	struct cma cma;
	struct dmem_area dmem;
};

static void place_area(struct kunit *test, unsigned long pages)
{
	struct place_fixture *fx = test->priv;

	spin_lock_init(&fx->cma.lock);
	fx->cma.base_pfn = TEST_BASE;
	fx->cma.count = pages;
	fx->cma.bitmap = bitmap_zalloc(pages, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fx->cma.bitmap);
	KUNIT_ASSERT_EQ(test, 0, dmem_area_init(&fx->dmem, TEST_BASE, pages,
						fx->cma.bitmap, 0, 1));
}

static int place_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct place_fixture),
				   GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, test->priv);
	place_area(test, TEST_PAGES);
	return 0;
}

static void place_exit(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	bitmap_free(fx->cma.bitmap);
	dmem_area_exit(&fx->dmem);
}

static unsigned long place_in(struct place_fixture *fx, struct dmem_area *dmem,
			      unsigned long count, unsigned int align)
{
	unsigned long bit;

	spin_lock_irq(&fx->cma.lock);
	bit = gcma_place(&fx->cma, dmem, count, align);
	spin_unlock_irq(&fx->cma.lock);
	return bit;
}

static unsigned long place(struct place_fixture *fx, unsigned long count,
			   unsigned int align)
{
	return place_in(fx, &fx->dmem, count, align);
}

static void count_live(struct place_fixture *fx)
{
	unsigned long nr;

	memset(fx->dmem.nr_live, 0,
	       fx->dmem.nr / DMEM_BLOCK * sizeof(*fx->dmem.nr_live));
	for_each_set_bit(nr, fx->dmem.live[0], fx->dmem.nr)
		atomic_inc(&fx->dmem.nr_live[nr / DMEM_BLOCK]);
}

static void set_live(struct place_fixture *fx, unsigned long first,
		     unsigned long nr)
{
	unsigned long word;

	bitmap_set(fx->dmem.live[0], first, nr);
	for (word = 0; word < fx->dmem.words; word++)
		if (fx->dmem.live[0][word] == ~0UL)
			clear_bit(word, fx->dmem.avail);
	count_live(fx);
}

static void place_test_lowest_if_free(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	KUNIT_EXPECT_EQ(test, place(fx, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, place(fx, 1000, 0), 0);
	bitmap_set(fx->cma.bitmap, 0, 10);
	KUNIT_EXPECT_EQ(test, place(fx, 1000, 0), 10);
	KUNIT_EXPECT_EQ(test, place(fx, 1000, 4), 16);
	KUNIT_EXPECT_EQ(test, place(fx, TEST_PAGES - 10, 0), 10);
	KUNIT_EXPECT_GE(test, place(fx, TEST_PAGES, 0), TEST_PAGES);
}

static void place_test_aligns_the_address(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	fx->cma.base_pfn = TEST_BASE + 512;
	KUNIT_EXPECT_EQ(test, place(fx, 64, 9), 0);
	KUNIT_EXPECT_EQ(test, place(fx, 64, 10), 512);
	set_live(fx, 0, TEST_PAGES);
	KUNIT_EXPECT_EQ(test, (fx->cma.base_pfn + place(fx, 128, 10)) % 1024, 0);
}

static void place_test_free_memory_before_cached(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	set_live(fx, 0, TEST_PAGES - 1024);
	KUNIT_EXPECT_EQ(test, place(fx, 512, 0), TEST_PAGES - 512);
	KUNIT_EXPECT_EQ(test, place(fx, 64, 0), TEST_PAGES - 64);
	/* Owned memory is not free. */
	bitmap_set(fx->cma.bitmap, TEST_PAGES - 1024, 1024);
	KUNIT_EXPECT_EQ(test, place(fx, 512, 0), 0);
	/* The lower end of a free range between allocations. */
	bitmap_set(fx->cma.bitmap, 2000, 48);
	bitmap_clear(fx->dmem.live[0], 2048, 256);
	count_live(fx);
	KUNIT_EXPECT_EQ(test, place(fx, 256, 0), 2048);
	KUNIT_EXPECT_EQ(test, place(fx, 200, 0), 2048);
}

static void place_test_far_end_is_left(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	place_exit(test);
	place_area(test, 4 * TEST_PAGES);
	bitmap_set(fx->cma.bitmap, 0, 10);
	set_live(fx, 0, 3 * TEST_PAGES);
	KUNIT_EXPECT_EQ(test, place(fx, 64, 0), 10);
	/* The next range is close, and free. */
	bitmap_set(fx->cma.bitmap, 1000, 10);
	bitmap_clear(fx->dmem.live[0], 1010, 1000);
	count_live(fx);
	KUNIT_EXPECT_EQ(test, place(fx, 64, 0), 1010);
	/* What does not fit before is looked for all over the area. */
	KUNIT_EXPECT_EQ(test, place(fx, 3 * TEST_PAGES, 0), TEST_PAGES);
	bitmap_set(fx->cma.bitmap, 3 * TEST_PAGES, 100);
	KUNIT_EXPECT_EQ(test, place(fx, TEST_PAGES - 100, 0), 1010);
	KUNIT_EXPECT_EQ(test, place(fx, 3 * TEST_PAGES - 1000, 0),
			4 * TEST_PAGES);
}

static void place_test_least_loss(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	unsigned long bit;

	set_live(fx, 0, TEST_PAGES);
	/* Every second page of the upper half is free. */
	for (bit = TEST_PAGES / 2; bit < TEST_PAGES; bit += 2)
		clear_bit(bit, fx->dmem.live[0]);
	count_live(fx);
	KUNIT_EXPECT_EQ(test, place(fx, 1024, 0), TEST_PAGES - 1024);
	/* Of two free ranges the one with more free pages. */
	bitmap_set(fx->cma.bitmap, 1024, TEST_PAGES / 2 - 1024);
	bitmap_clear(fx->dmem.live[0], TEST_PAGES / 2, TEST_PAGES / 2);
	bitmap_set(fx->dmem.live[0], TEST_PAGES / 2, 1);
	bitmap_set(fx->dmem.live[0], TEST_PAGES - 1, 1);
	count_live(fx);
	KUNIT_EXPECT_EQ(test, place(fx, 1000, 0), TEST_PAGES / 2);
}

static void place_test_leaves_one_piece(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	unsigned long bit, end = TEST_PAGES;

	/* Free pages in the middle do not tempt it to cut the range in two. */
	set_live(fx, 0, TEST_PAGES);
	bitmap_clear(fx->dmem.live[0], TEST_PAGES / 2, 512);
	count_live(fx);
	bit = place(fx, 512, 0);
	KUNIT_EXPECT_TRUE(test, bit == 0 || bit + 512 == end);
}

static void place_test_full_of_cached_pages(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	unsigned long count;

	set_live(fx, 0, TEST_PAGES);
	for (count = 1; count <= TEST_PAGES; count *= 2)
		KUNIT_EXPECT_LE(test, place(fx, count, 0) + count, TEST_PAGES);
}

static void place_test_small_ones_stay_together(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	unsigned long i;

	set_live(fx, 0, TEST_PAGES / 2);
	for (i = 0; i < 16; i++) {
		KUNIT_EXPECT_EQ(test, place(fx, 4, 0), 4 * i);
		bitmap_set(fx->cma.bitmap, 4 * i, 4);
	}
}

/* Whatever fits is found: the guarantee. */
static void place_test_finds_the_only_hole(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	unsigned long hole;

	for (hole = 0; hole + 300 <= TEST_PAGES; hole += 777) {
		bitmap_zero(fx->dmem.live[0], TEST_PAGES);
		set_live(fx, 0, TEST_PAGES);
		bitmap_set(fx->cma.bitmap, 0, TEST_PAGES);
		bitmap_clear(fx->cma.bitmap, hole, 300);
		KUNIT_EXPECT_EQ(test, place(fx, 300, 0), hole);
		KUNIT_EXPECT_GE(test, place(fx, 301, 0), TEST_PAGES);
	}
}

static void place_test_without_clients(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	KUNIT_EXPECT_EQ(test, place_in(fx, NULL, 64, 0), 0);
	KUNIT_EXPECT_GE(test, place_in(fx, NULL, TEST_PAGES + 1, 0), TEST_PAGES);
}

static void place_test_larger_units(struct kunit *test)
{
	struct place_fixture *fx = test->priv;

	fx->cma.order_per_bit = 3;
	fx->dmem.owned_order = 3;
	bitmap_set(fx->cma.bitmap, 0, 1);
	KUNIT_EXPECT_EQ(test, place(fx, 9, 0), 1);
	KUNIT_EXPECT_EQ(test, place(fx, TEST_PAGES - 8, 0), 1);
	KUNIT_EXPECT_GE(test, place(fx, TEST_PAGES - 7, 0), TEST_PAGES >> 3);
	KUNIT_EXPECT_EQ(test, place(fx, 8, 4), 2);
	/* The last unit is taken as a whole, and what it holds is lost. */
	set_live(fx, 79, 1);
	KUNIT_EXPECT_EQ(test, place(fx, 65, 0), (TEST_PAGES >> 3) - 9);
}

static void parse_test_modes(struct kunit *test)
{
	static const char * const bad[] = {
		"", "file+", "+swap", "file+none", "none+swap", "cma+file", "File",
	};
	unsigned int clients, i;

	KUNIT_EXPECT_EQ(test, gcma_parse_clients("none", 4, &clients), 0);
	KUNIT_EXPECT_EQ(test, clients, GCMA_CHOSEN);
	KUNIT_EXPECT_EQ(test, gcma_parse_clients("file+swap,x", 9, &clients), 0);
	KUNIT_EXPECT_EQ(test, clients, GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP);
	KUNIT_EXPECT_STREQ(test, gcma_clients_name(clients), "file+swap");
	KUNIT_EXPECT_EQ(test, gcma_parse_clients("cma", 3, &clients), 0);
	KUNIT_EXPECT_EQ(test, clients, GCMA_STOCK);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_EQ(test, -EINVAL,
				gcma_parse_clients(bad[i], strlen(bad[i]), &clients));
}

static void declare_test(struct kunit *test)
{
	struct place_fixture *fx = test->priv;
	struct cma young = {};

	KUNIT_EXPECT_EQ(test, gcma_declare(NULL, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, gcma_declare(&young, GCMA_STOCK | GCMA_FILE), -EINVAL);
	KUNIT_EXPECT_EQ(test, gcma_declare(&young, 0x100), -EINVAL);
	KUNIT_EXPECT_EQ(test, gcma_declare(&young, GCMA_FILE | GCMA_SWAP), 0);
	KUNIT_EXPECT_EQ(test, young.gcma_clients,
			GCMA_CHOSEN | GCMA_FILE | GCMA_SWAP);
	KUNIT_EXPECT_EQ(test, gcma_declare(&young, 0), 0);
	KUNIT_EXPECT_EQ(test, young.gcma_clients, GCMA_CHOSEN);
	KUNIT_EXPECT_EQ(test, gcma_declare(&fx->cma, 0), -EBUSY);
}

static struct kunit_case place_test_cases[] = {
	KUNIT_CASE(place_test_lowest_if_free),
	KUNIT_CASE(place_test_aligns_the_address),
	KUNIT_CASE(place_test_free_memory_before_cached),
	KUNIT_CASE(place_test_far_end_is_left),
	KUNIT_CASE(place_test_least_loss),
	KUNIT_CASE(place_test_leaves_one_piece),
	KUNIT_CASE(place_test_full_of_cached_pages),
	KUNIT_CASE(place_test_small_ones_stay_together),
	KUNIT_CASE(place_test_finds_the_only_hole),
	KUNIT_CASE(place_test_without_clients),
	KUNIT_CASE(place_test_larger_units),
	KUNIT_CASE(parse_test_modes),
	KUNIT_CASE(declare_test),
	{}
};

static struct kunit_suite place_test_suite = {
	.name = "gcma-place",
	.init = place_init,
	.exit = place_exit,
	.test_cases = place_test_cases,
};

kunit_test_suite(place_test_suite);
