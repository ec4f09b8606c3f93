// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of what reclaim and the page cache keep of a file, and what not
 */

#include <kunit/test.h>
#include <linux/errseq.h>
#include <linux/fs.h>
#include <linux/gcma.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

struct clients_fixture {
	struct address_space mapping;
	struct inode inode;
	struct folio *folio;
};

/* A file whose pages may be kept, and a clean page of it. */
static int clients_init(struct kunit *test)
{
	struct clients_fixture *fx = kunit_kzalloc(test, sizeof(*fx), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, fx);
	test->priv = fx;
	xa_init_flags(&fx->mapping.i_pages, XA_FLAGS_LOCK_IRQ);
	fx->mapping.host = &fx->inode;
	mapping_set_gcma(&fx->mapping, true);
	fx->folio = folio_alloc(GFP_KERNEL, 0);
	KUNIT_ASSERT_NOT_NULL(test, fx->folio);
	folio_mark_uptodate(fx->folio);
	/* The reference that the page cache has. */
	folio_get(fx->folio);
	return 0;
}

static void clients_exit(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	if (!fx || !fx->folio)
		return;
	fx->folio->mapping = NULL;
	fx->folio->index = 0;
	folio_clear_uptodate(fx->folio);
	folio_put(fx->folio);
	folio_put(fx->folio);
}

/* Evict the page. Returns the shadow that it leaves. */
static void *evict(struct clients_fixture *fx)
{
	struct dmem_frame *frame = gcma_stage(&fx->mapping, fx->folio, true);
	void *shadow;

	xa_lock_irq(&fx->mapping.i_pages);
	shadow = gcma_publish(frame, &fx->mapping, fx->folio, xa_mk_value(0));
	xa_unlock_irq(&fx->mapping.i_pages);
	return shadow;
}

static bool load(struct clients_fixture *fx, void *shadow)
{
	bool found;

	folio_clear_uptodate(fx->folio);
	gcma_load(&fx->mapping, fx->folio->index, fx->folio, shadow);
	found = folio_test_uptodate(fx->folio);
	folio_mark_uptodate(fx->folio);
	return found;
}

/* Is there an area that keeps file pages? */
static void require_area(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	if (!load(fx, evict(fx)))
		kunit_skip(test, "no area keeps file pages; boot with cma=64M gcma=file");
}

static void clients_test_moves_there_and_back(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	void *shadow;

	require_area(test);
	shadow = evict(fx);
	KUNIT_EXPECT_TRUE(test, gcma_shadow_flagged(shadow));
	KUNIT_EXPECT_TRUE(test, load(fx, shadow));
	KUNIT_EXPECT_FALSE(test, load(fx, shadow));
}

/* What could not be written is not what the device has. */
static void clients_test_no_copy_after_a_failed_write(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	require_area(test);
	errseq_set(&fx->mapping.wb_err, -EIO);
	KUNIT_EXPECT_FALSE(test, gcma_shadow_flagged(evict(fx)));
}

static void clients_test_no_copy_while_invalidated(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	bool begun;

	require_area(test);
	begun = gcma_invalidate_begin(&fx->mapping);
	KUNIT_EXPECT_TRUE(test, begun);
	KUNIT_EXPECT_FALSE(test, gcma_shadow_flagged(evict(fx)));
	gcma_invalidate_end(&fx->mapping, begun);
	KUNIT_EXPECT_TRUE(test, load(fx, evict(fx)));
}

/* Mappings that allow no copies share no counter with those that do. */
static void clients_test_no_guard_without_copies(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	require_area(test);
	mapping_set_gcma(&fx->mapping, false);
	KUNIT_EXPECT_FALSE(test, gcma_invalidate_begin(&fx->mapping));
}

static void clients_test_overwriting_frees_the_frame(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	void *shadow;

	require_area(test);
	shadow = evict(fx);
	fx->folio->mapping = &fx->mapping;
	gcma_overwrite(fx->folio, shadow);
	KUNIT_EXPECT_FALSE(test, load(fx, shadow));
}

static struct kunit_case clients_test_cases[] = {
	KUNIT_CASE(clients_test_moves_there_and_back),
	KUNIT_CASE(clients_test_no_copy_after_a_failed_write),
	KUNIT_CASE(clients_test_no_copy_while_invalidated),
	KUNIT_CASE(clients_test_no_guard_without_copies),
	KUNIT_CASE(clients_test_overwriting_frees_the_frame),
	{}
};

static struct kunit_suite clients_test_suite = {
	.name = "gcma-clients",
	.init = clients_init,
	.exit = clients_exit,
	.test_cases = clients_test_cases,
};

kunit_test_suite(clients_test_suite);
