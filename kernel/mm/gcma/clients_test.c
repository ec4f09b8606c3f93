// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of what is kept of a file and what is not: through the page cache
 * as it is, on a file system of their own whose disk changes behind its back. A
 * test fails if one of the hooks that it is about is not there.
 */

#include <kunit/test.h>
#include <linux/dax.h>
#include <linux/err.h>
#include <linux/errseq.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/gcma.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pipe_fs_i.h>
#include <linux/pseudo_fs.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>

#include "../internal.h"
#include "compat_test.h"
#include "gcma.h"

/* At least two nodes of the page cache. */
#define CLIENTS_PAGES	128

/**
 * struct clients_fixture - a file system with one file
 * @mnt: the file system
 * @file: the file, of %CLIENTS_PAGES pages
 * @mapping: its page cache
 * @disk: what each byte of each page of it is
 * @reads: how many pages were read from there
 * @expand: the next readahead loses all copies, and is of so many bytes more
 * @astray: readahead was of other pages than it said
 * @evict: a page to be evicted while others are invalidated
 * @flagged: it was kept then
 * @called: something was invalidated
 * @stale: something was read that had been overwritten
 */
struct clients_fixture {
	struct vfsmount		*mnt;
	struct file		*file;
	struct address_space	*mapping;
	u8			disk[CLIENTS_PAGES];
	unsigned int		reads;
	size_t			expand;
	bool			astray;
	pgoff_t			evict;
	bool			flagged;
	bool			called;
	bool			stale;
};

static struct clients_fixture *fixture_of(struct folio *folio)
{
	return folio->mapping->host->i_private;
}

static void fill(struct folio *folio)
{
	struct clients_fixture *fx = fixture_of(folio);
	unsigned long i;

	for (i = 0; i < folio_nr_pages(folio); i++) {
		void *to = kmap_local_folio(folio, i << PAGE_SHIFT);

		memset(to, fx->disk[folio->index + i], PAGE_SIZE);
		kunmap_local(to);
		fx->reads++;
	}
	folio_mark_uptodate(folio);
	folio_unlock(folio);
}

static int clients_read_folio(struct file *file, struct folio *folio)
{
	fill(folio);
	return 0;
}

static void clients_readahead(struct readahead_control *ractl)
{
	struct clients_fixture *fx = ractl->mapping->host->i_private;
	pgoff_t index = readahead_index(ractl);
	struct folio *folio;

	if (fx->expand) {
		gcma_invalidate_all();
		readahead_expand(ractl, readahead_pos(ractl),
				 readahead_length(ractl) + fx->expand);
		fx->expand = 0;
	}
	while ((folio = readahead_folio(ractl))) {
		fx->astray |= folio->index != index;
		index = folio_next_index(folio);
		fill(folio);
	}
}

/* Put a page that is to be evicted on a list of its own. */
static bool isolate(struct clients_fixture *fx, pgoff_t index, struct list_head *list)
{
	struct folio *folio = filemap_get_folio(fx->mapping, index);

	if (IS_ERR(folio))
		return false;
	lru_add_drain_all();
	if (folio_isolate_lru(folio))
		list_add(&folio->lru, list);
	folio_put(folio);
	return !list_empty(list);
}

/* Have reclaim remove a page. Returns true if it left a flagged shadow. */
static bool evict(struct clients_fixture *fx, pgoff_t index)
{
	LIST_HEAD(list);

	if (!isolate(fx, index, &list))
		return false;
	reclaim_pages(&list);
	return gcma_flagged(xa_load(&fx->mapping->i_pages, index));
}

static void evict_meanwhile(struct folio *folio)
{
	struct clients_fixture *fx = fixture_of(folio);

	if (!fx->called && folio->index != fx->evict)
		fx->flagged = evict(fx, fx->evict);
	fx->called = true;
}

static void clients_invalidate_folio(struct folio *folio, size_t offset,
				     size_t length)
{
	evict_meanwhile(folio);
}

static bool clients_release_folio(struct folio *folio, gfp_t gfp)
{
	/* Reclaim asks as well, which is not what this is about. */
	if (!(current->flags & PF_MEMALLOC))
		evict_meanwhile(folio);
	return true;
}

static const struct address_space_operations clients_aops = {
	.read_folio		= clients_read_folio,
	.readahead		= clients_readahead,
	.invalidate_folio	= clients_invalidate_folio,
	.release_folio		= clients_release_folio,
	.dirty_folio		= noop_dirty_folio,
};

static const struct file_operations clients_fops = {
	.read_iter		= generic_file_read_iter,
};

static int clients_init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, 0x67636d61) ? 0 : -ENOMEM;
}

static struct file_system_type clients_fs = {
	.name			= "gcma-clients-test",
	.init_fs_context	= clients_init_fs_context,
	.kill_sb		= kill_anon_super,
};

static int clients_init(struct kunit *test)
{
	struct clients_fixture *fx = kunit_kzalloc(test, sizeof(*fx), GFP_KERNEL);
	struct inode *inode;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, fx);
	test->priv = fx;
	if (!(READ_ONCE(gcma_clients) & GCMA_FILE) || !atomic_long_read(&gcma_idle))
		kunit_skip(test, "no area keeps file pages; boot with cma=64M gcma=file");
	for (i = 0; i < CLIENTS_PAGES; i++)
		fx->disk[i] = i;
	fx->mnt = kern_mount(&clients_fs);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->mnt);
	inode = new_inode(fx->mnt->mnt_sb);
	KUNIT_ASSERT_NOT_NULL(test, inode);
	inode->i_mode = S_IFREG | 0600;
	inode->i_private = fx;
	i_size_write(inode, CLIENTS_PAGES << PAGE_SHIFT);
	fx->mapping = inode->i_mapping;
	fx->mapping->a_ops = &clients_aops;
	mapping_set_gfp_mask(fx->mapping, GFP_KERNEL);
	mapping_set_gcma(fx->mapping, true);
	fx->file = alloc_file_pseudo(inode, fx->mnt, "file", O_RDONLY | O_NOATIME,
				     &clients_fops);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->file);
	return 0;
}

static void clients_exit(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	if (!fx)
		return;
	if (!IS_ERR_OR_NULL(fx->file))
		__fput_sync(fx->file);
	if (!IS_ERR_OR_NULL(fx->mnt))
		kern_unmount(fx->mnt);
}

/* The page cache has the page; this is the first byte of it. */
static int cached(struct clients_fixture *fx, pgoff_t index)
{
	struct folio *folio = read_mapping_folio(fx->mapping, index, fx->file);
	u8 *from, byte;

	if (IS_ERR(folio))
		return PTR_ERR(folio);
	from = kmap_local_folio(folio, offset_in_folio(folio, index << PAGE_SHIFT));
	byte = *from;
	kunmap_local(from);
	folio_put(folio);
	return byte;
}

static bool resident(struct clients_fixture *fx, pgoff_t index)
{
	void *entry = xa_load(&fx->mapping->i_pages, index);

	return entry && !xa_is_value(entry);
}

/* Read a page into the page cache, and have it evicted and kept. */
static void keep(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;

	KUNIT_ASSERT_EQ(test, cached(fx, index), fx->disk[index]);
	KUNIT_ASSERT_TRUE(test, evict(fx, index));
	KUNIT_ASSERT_FALSE(test, resident(fx, index));
}

/* The disk changes: who still finds what was there before has a copy. */
static void change(struct clients_fixture *fx, pgoff_t index)
{
	fx->disk[index] ^= 0x80;
}

static void expect_copy(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;

	change(fx, index);
	KUNIT_EXPECT_EQ(test, cached(fx, index), fx->disk[index] ^ 0x80);
}

static void expect_disk(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;

	change(fx, index);
	KUNIT_EXPECT_EQ(test, cached(fx, index), fx->disk[index]);
}

static void clients_test_refault_is_filled(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	expect_copy(test, 3);
	KUNIT_EXPECT_EQ(test, fx->reads, 1);
	/* It has moved: nothing is left to be found under the key. */
	KUNIT_EXPECT_FALSE(test, dmem_has(&gcma_dmem, fx->mapping, 3));
}

static void clients_test_lost_copy_is_read(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	gcma_invalidate_all();
	expect_disk(test, 3);
	/* The one behind it is still there. */
	keep(test, 3);
	keep(test, 4);
	dmem_invalidate(&gcma_dmem, fx->mapping, 3, 1);
	expect_disk(test, 3);
	expect_copy(test, 4);
}

/* Insert a folio that will be overwritten where there is a copy of a page. */
static void overwrite(struct kunit *test, pgoff_t first, unsigned int order, pgoff_t copy)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio;

	keep(test, copy);
	folio = test_alloc_folio(order);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	KUNIT_ASSERT_EQ(test, filemap_add_folio(fx->mapping, folio, first,
						GFP_KERNEL | __GFP_WRITE), 0);
	KUNIT_EXPECT_FALSE(test, folio_test_uptodate(folio));
	KUNIT_EXPECT_FALSE(test, dmem_has(&gcma_dmem, fx->mapping, copy));
	folio_unlock(folio);
	folio_put(folio);
}

static void clients_test_overwrite_is_not_filled(struct kunit *test)
{
	overwrite(test, 3, 0, 3);
}

/* A locked page that reclaim has just copied, and has not removed yet. */
static struct folio *stored(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio;

	cached(fx, index);
	lru_add_drain_all();
	folio = filemap_lock_folio(fx->mapping, index);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, folio);
	KUNIT_ASSERT_TRUE(test, gcma_store(fx->mapping, folio));
	KUNIT_EXPECT_TRUE(test, dmem_has(&gcma_dmem, fx->mapping, index));
	return folio;
}

/* Does the shadow of a page get the flag that leads to its copy? */
static bool published(struct clients_fixture *fx, struct folio *folio)
{
	void *shadow;

	xa_lock_irq(&fx->mapping->i_pages);
	shadow = gcma_publish(true, fx->mapping, folio, xa_mk_value(0));
	xa_unlock_irq(&fx->mapping->i_pages);
	folio_unlock(folio);
	folio_put(folio);
	return gcma_flagged(shadow);
}

static void expect_no_copy(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;

	KUNIT_EXPECT_FALSE(test, dmem_has(&gcma_dmem, fx->mapping, index));
}

/* A page that stays, as somebody has it after all, leaves no copy. */
static void clients_test_store_in_vain(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = stored(test, 3);

	KUNIT_EXPECT_NULL(test, gcma_publish(true, fx->mapping, folio, NULL));
	expect_no_copy(test, 3);
	folio_unlock(folio);
	folio_put(folio);
}

static int reclaim_thread(void *list)
{
	reclaim_pages(list);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/* The same if somebody takes hold of it between its copy and its removal. */
static void clients_test_held_meanwhile(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	spinlock_t *lock = &fx->mapping->host->i_lock;
	unsigned long end = jiffies + 10 * HZ;
	struct task_struct *task;
	struct folio *folio;
	LIST_HEAD(list);
	bool copied;

	if (num_online_cpus() == 1)
		kunit_skip(test, "one processor");
	cached(fx, 3);
	KUNIT_ASSERT_TRUE(test, isolate(fx, 3, &list));
	folio = list_first_entry(&list, struct folio, lru);
	task = kthread_create(reclaim_thread, &list, "clients_reclaim");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	/* Reclaim wants this lock when the copy has been made. */
	spin_lock(lock);
	kthread_bind(task, cpumask_any_but(cpu_online_mask, smp_processor_id()));
	wake_up_process(task);
	do
		copied = dmem_has(&gcma_dmem, fx->mapping, 3);
	while (!copied && time_before(jiffies, end));
	folio_get(folio);
	spin_unlock(lock);
	kthread_stop(task);
	KUNIT_EXPECT_TRUE(test, copied);
	KUNIT_EXPECT_TRUE(test, resident(fx, 3));
	expect_no_copy(test, 3);
	folio_put(folio);
}

static void clients_test_invalidation_meets_store(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = stored(test, 3);
	struct address_space *begun = gcma_invalidate_begin(fx->mapping, 0, 0);

	KUNIT_EXPECT_FALSE(test, published(fx, folio));
	gcma_invalidate_end(begun);
	expect_no_copy(test, 3);
	folio = stored(test, 3);
	mapping_set_gcma(fx->mapping, false);
	KUNIT_EXPECT_FALSE(test, published(fx, folio));
	expect_no_copy(test, 3);
}

/* A copy that is lost before the shadow has its flag is a miss, like any other. */
static void clients_test_loss_meets_store(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = stored(test, 3);

	gcma_invalidate_all();
	KUNIT_EXPECT_TRUE(test, published(fx, folio));
	expect_no_copy(test, 3);
}

/* Truncation and punching holes zero what is resident of the pages they cut. */
static void clients_test_cut_pages(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 2);
	keep(test, 3);
	keep(test, 5);
	truncate_inode_pages_range(fx->mapping, (2 << PAGE_SHIFT) + 100,
				   (5 << PAGE_SHIFT) + 99);
	expect_disk(test, 2);
	expect_disk(test, 3);
	expect_disk(test, 5);
	keep(test, 7);
	truncate_inode_pages(fx->mapping, (7 << PAGE_SHIFT) + 1);
	expect_disk(test, 7);
}

static void clients_test_cut_pages_only(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 2);
	keep(test, 6);
	truncate_inode_pages_range(fx->mapping, 3 << PAGE_SHIFT,
				   (6 << PAGE_SHIFT) - 1);
	expect_copy(test, 2);
	expect_copy(test, 6);
}

/* More than are looked at without letting interrupts in. */
static void clients_test_many_copies_go(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	const pgoff_t last = 64;
	pgoff_t i;

	for (i = 0; i <= last; i++)
		keep(test, i);
	gcma_invalidate_end(gcma_invalidate_begin(fx->mapping, 0, last << PAGE_SHIFT));
	for (i = 0; i <= last; i++)
		expect_disk(test, i);
	for (i = 0; i <= last; i++)
		KUNIT_ASSERT_TRUE(test, evict(fx, i));
	mapping_set_gcma(fx->mapping, false);
	for (i = 0; i <= last; i++)
		expect_disk(test, i);
}

/* What is evicted while others are removed might be found again later. */
static void clients_test_evicted_during_truncation(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	mapping_set_release_always(fx->mapping);
	cached(fx, 2);
	cached(fx, 50);
	fx->evict = 50;
	/* Only what is not in its first batch can be evicted at all. */
	for (int i = 3; i < 40; i++)
		cached(fx, i);
	truncate_inode_pages(fx->mapping, 0);
	KUNIT_EXPECT_TRUE(test, fx->called);
	KUNIT_EXPECT_FALSE(test, fx->flagged);
	/* And not for longer than that. */
	keep(test, 50);
}

static void clients_test_evicted_during_invalidation(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	mapping_set_release_always(fx->mapping);
	cached(fx, 2);
	cached(fx, 50);
	fx->evict = 50;
	for (int i = 3; i < 40; i++)
		cached(fx, i);
	KUNIT_EXPECT_EQ(test, invalidate_inode_pages2(fx->mapping), 0);
	KUNIT_EXPECT_TRUE(test, fx->called);
	KUNIT_EXPECT_FALSE(test, fx->flagged);
	keep(test, 50);
}

static void clients_test_invalidation(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 2);
	keep(test, 3);
	KUNIT_EXPECT_EQ(test, invalidate_inode_pages2_range(fx->mapping, 3, 3), 0);
	expect_copy(test, 2);
	expect_disk(test, 3);
}

/* Mappings that allow no copies share no counter with those that do. */
static void clients_test_no_guard_without_copies(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct address_space *begun = gcma_invalidate_begin(fx->mapping, 0, 0);

	KUNIT_EXPECT_NOT_NULL(test, begun);
	gcma_invalidate_end(begun);
	mapping_set_gcma(fx->mapping, false);
	KUNIT_EXPECT_NULL(test, gcma_invalidate_begin(fx->mapping, 0, 0));
}

/* Direct writes of what was never cached meet in no lock; what comes meanwhile is guarded. */
static void clients_test_invalidation_of_what_is_not_there(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct address_space *begun;

	KUNIT_ASSERT_EQ(test, cached(fx, 0), 0);
	/* Not taken once more, which would not end. */
	xa_lock_irq(&fx->mapping->i_pages);
	begun = gcma_invalidate_begin(fx->mapping, 70 << PAGE_SHIFT, 80 << PAGE_SHIFT);
	xa_unlock_irq(&fx->mapping->i_pages);
	KUNIT_EXPECT_PTR_EQ(test, begun, fx->mapping);
	KUNIT_EXPECT_EQ(test, cached(fx, 75), 75);
	KUNIT_EXPECT_FALSE(test, evict(fx, 75));
	gcma_invalidate_end(begun);
	KUNIT_EXPECT_EQ(test, cached(fx, 75), 75);
	KUNIT_EXPECT_TRUE(test, evict(fx, 75));
}

/* What a reader has left behind that raced with the write. */
static void clients_test_direct_write(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct kiocb iocb = { .ki_filp = fx->file, .ki_pos = 3 << PAGE_SHIFT };

	keep(test, 3);
	KUNIT_ASSERT_EQ(test, fx->mapping->nrpages, 0);
	kiocb_invalidate_post_direct_write(&iocb, PAGE_SIZE);
	expect_disk(test, 3);
}

/* What an asynchronous one waits for is what there is of its own pages. */
static void clients_test_direct_write_elsewhere(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct kiocb iocb = { .ki_filp = fx->file, .ki_pos = 4 << PAGE_SHIFT };

	keep(test, 3);
	keep(test, 6);
	KUNIT_EXPECT_FALSE(test, kiocb_has_cached_data(&iocb, 2 * PAGE_SIZE));
	KUNIT_EXPECT_TRUE(test, kiocb_has_cached_data(&iocb, 2 * PAGE_SIZE + 1));
	iocb.ki_pos--;
	KUNIT_EXPECT_TRUE(test, kiocb_has_cached_data(&iocb, 2));
	/* As long as a page of the file is resident, all of it counts, as ever. */
	KUNIT_EXPECT_EQ(test, cached(fx, 9), fx->disk[9]);
	KUNIT_EXPECT_TRUE(test, kiocb_has_cached_data(&iocb, 1));
}

static void clients_test_invalidate_inode(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	filemap_invalidate_inode(fx->mapping->host, false, 0, LLONG_MAX);
	expect_disk(test, 3);
}

/* fadvise() and others remove shadows: their frames are for others then. */
static void clients_test_removed_shadow_frees_the_frame(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	invalidate_mapping_pages(fx->mapping, 3, 3);
	KUNIT_EXPECT_FALSE(test, dmem_has(&gcma_dmem, fx->mapping, 3));
}

/* Write to the file of that name: 1 for pages, 2 for what shrinkers have. */
static void shrink_caches(struct kunit *test, const char *what)
{
	struct file_system_type *proc = get_fs_type("proc");
	struct vfsmount *mnt;
	struct file *file;
	loff_t pos = 0;

	KUNIT_ASSERT_NOT_NULL(test, proc);
	mnt = kern_mount(proc);
	put_filesystem(proc);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, mnt);
	file = file_open_root_mnt(mnt, "sys/vm/drop_caches", O_WRONLY, 0);
	kern_unmount(mnt);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, file);
	KUNIT_EXPECT_EQ(test, kernel_write(file, what, 1, &pos), 1);
	fput(file);
}

static void clients_test_drop_caches(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	/* An inode that is passed over: all others lose their shadows as well. */
	test_set_new(fx->mapping->host, true);
	shrink_caches(test, "1");
	test_set_new(fx->mapping->host, false);
	expect_no_copy(test, 3);
}

/* More nodes of shadows than may stay: the shrinker takes the oldest ones. */
static void clients_test_node_is_reclaimed(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct xarray *pages = &fx->mapping->i_pages;
	unsigned long nr, i;

	/* It may keep one for eight pages of the node, or of a cgroup. */
	nr = node_present_pages(first_online_node) / (XA_CHUNK_SIZE / 8) +
	     2 * global_node_page_state(WORKINGSET_NODES) + 1024;
	/* In the second node, where the place in the node is not that in the file. */
	keep(test, XA_CHUNK_SIZE);
	keep(test, CLIENTS_PAGES - 1);
	for (i = 2; i < nr; i++) {
		XA_STATE(xas, pages, i << XA_CHUNK_SHIFT);

		mapping_set_update(&xas, fx->mapping);
		do {
			xas_lock_irq(&xas);
			xas_store(&xas, xa_mk_value(0));
			xas_unlock_irq(&xas);
		} while (xas_nomem(&xas, GFP_KERNEL));
	}
	shrink_caches(test, "2");
	KUNIT_ASSERT_NULL(test, xa_load(pages, XA_CHUNK_SIZE));
	expect_no_copy(test, XA_CHUNK_SIZE);
	expect_no_copy(test, CLIENTS_PAGES - 1);
}

/* What could not be written is not what the device has. */
static void clients_test_no_copy_after_a_failed_write(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	cached(fx, 3);
	errseq_set(&fx->mapping->wb_err, -EIO);
	KUNIT_EXPECT_FALSE(test, evict(fx, 3));
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
}

/* Nor is what could not be read. */
static void clients_test_no_copy_after_a_failed_read(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = test_alloc_folio(0);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	KUNIT_ASSERT_EQ(test, filemap_add_folio(fx->mapping, folio, 3, GFP_KERNEL), 0);
	folio_unlock(folio);
	folio_put(folio);
	KUNIT_EXPECT_FALSE(test, evict(fx, 3));
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
}

/* Whatever a file system says of them, as when chattr changes what ext4 does. */
static void clients_test_no_copy_of_such_files(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct inode *inode = fx->mapping->host;
	const unsigned int such[] = { S_SWAPFILE, S_DAX };
	unsigned int i;

	/* S_DAX may be 0, and such files are not there. */
	for (i = 0; i < ARRAY_SIZE(such); i++) {
		mapping_set_gcma(fx->mapping, false);
		inode->i_flags |= such[i];
		mapping_set_gcma(fx->mapping, true);
		inode->i_flags &= ~such[i];
		KUNIT_EXPECT_EQ(test, test_bit(AS_GCMA, &fx->mapping->flags), !such[i]);
	}
	mapping_set_gcma(fx->mapping, false);
	cached(fx, 3);
	KUNIT_EXPECT_FALSE(test, evict(fx, 3));
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
	mapping_set_gcma(fx->mapping, true);
	keep(test, 3);
}

/* Copies of encrypted files are kept, and go when a key does. */
static void clients_test_key_is_removed(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct inode *inode = fx->mapping->host;

	inode->i_flags |= S_ENCRYPTED;
	keep(test, 3);
	cached(fx, 3);
	keep(test, 5);
	inode->i_flags &= ~S_ENCRYPTED;
	keep(test, 4);
	gcma_forget_encrypted();
	KUNIT_EXPECT_FALSE(test, dmem_has(&gcma_dmem, fx->mapping, 5));
	KUNIT_EXPECT_TRUE(test, dmem_has(&gcma_dmem, fx->mapping, 4));
	KUNIT_EXPECT_EQ(test, bitmap_weight(gcma_dmem.secret, gcma_dmem.nr), 0);
}

/* A file that stopped to allow copies may be changed in any way. */
static void clients_test_no_copy_of_a_file_that_forbids(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	mapping_set_gcma(fx->mapping, false);
	cached(fx, 4);
	KUNIT_EXPECT_FALSE(test, evict(fx, 4));
	mapping_set_gcma(fx->mapping, true);
	expect_disk(test, 3);
}

/* Write to a page around the page cache, then read it. */
static int overwrite_thread(void *data)
{
	struct clients_fixture *fx = data;
	const pgoff_t index = CLIENTS_PAGES - 1;
	struct kiocb iocb = { .ki_filp = fx->file, .ki_pos = index << PAGE_SHIFT };

	change(fx, index);
	kiocb_invalidate_post_direct_write(&iocb, PAGE_SIZE);
	fx->stale = cached(fx, index) != fx->disk[index];
	WRITE_ONCE(fx->called, true);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/* Others write to a file that stops to allow copies, while it still has some. */
static void clients_test_write_meets_a_file_that_forbids(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct task_struct *task;
	pgoff_t i;

	/* More than are looked at without letting others run. */
	for (i = 0; i < CLIENTS_PAGES; i++)
		keep(test, i);
	task = kthread_create(overwrite_thread, fx, "clients_write");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	kthread_bind(task, raw_smp_processor_id());
	sched_set_fifo(task);
	wake_up_process(task);
	mapping_set_gcma(fx->mapping, false);
	/* This one may have gone to another processor, and be done before. */
	while (!READ_ONCE(fx->called))
		schedule_timeout_uninterruptible(1);
	kthread_stop(task);
	KUNIT_EXPECT_FALSE(test, fx->stale);
}

static int read_byte(struct clients_fixture *fx, pgoff_t index)
{
	loff_t pos = (loff_t)index << PAGE_SHIFT;
	u8 byte;
	ssize_t err = kernel_read(fx->file, &byte, 1, &pos);

	return err == 1 ? byte : err;
}

static void clients_test_read_in_place(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	change(fx, 3);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 3), 3);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 3), 3);
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
	/* The copy is gone and the flag still there. */
	gcma_invalidate_all();
	KUNIT_EXPECT_EQ(test, read_byte(fx, 3), fx->disk[3]);
	KUNIT_EXPECT_TRUE(test, resident(fx, 3));
}

static unsigned long misses(void)
{
	return dmem_sum(gcma_dmem.area[0],
			offsetof(struct dmem_stats, missed[GCMA_CLIENT_FILE]));
}

/* Each page that is wanted and gone counts as one, however it is read. */
static void clients_test_read_counts_misses(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	unsigned long before;
	pgoff_t i;

	for (i = 3; i < 7; i++)
		keep(test, i);
	gcma_invalidate_all();
	before = misses();
	/* Readahead brings those behind it. */
	fx->file->f_ra.ra_pages = 4;
	for (i = 3; i < 7; i++)
		KUNIT_EXPECT_EQ(test, read_byte(fx, i), i);
	KUNIT_EXPECT_EQ(test, misses() - before, 4);
}

/* Some writes fail only after their pages have gone, and copies have been kept. */
static void clients_test_no_use_after_a_failed_write(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	keep(test, 4);
	errseq_set(&fx->mapping->wb_err, -EIO);
	expect_disk(test, 3);
	change(fx, 4);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 4), fx->disk[4]);
}

/* What was read before verity was enabled has not been verified. */
static void clients_test_no_copies_with_verity(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	keep(test, 4);
	cached(fx, 5);
	inode_set_flags(fx->mapping->host, S_VERITY, S_VERITY);
	expect_disk(test, 3);
	change(fx, 4);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 4), fx->disk[4]);
	KUNIT_EXPECT_FALSE(test, evict(fx, 5));
}

static void clients_test_read_some_in_place(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	loff_t pos = 2 << PAGE_SHIFT;
	u8 *buffer = kunit_kzalloc(test, 4 * PAGE_SIZE, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, buffer);
	keep(test, 3);
	cached(fx, 4);
	pos += 100;
	KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, 3 * PAGE_SIZE, &pos),
			(ssize_t)(3 * PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, buffer[0], 2);
	KUNIT_EXPECT_EQ(test, buffer[PAGE_SIZE - 100], 3);
	KUNIT_EXPECT_EQ(test, buffer[2 * PAGE_SIZE - 101], 3);
	KUNIT_EXPECT_EQ(test, buffer[2 * PAGE_SIZE - 100], 4);
	KUNIT_EXPECT_EQ(test, buffer[3 * PAGE_SIZE - 1], 5);
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
}

/* A page between others whose shadow has lost its flag, or is not there, has an old copy. */
static void clients_test_read_passes_no_old_copy(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct xarray *pages = &fx->mapping->i_pages;
	u8 *buffer = kunit_kzalloc(test, 3 * PAGE_SIZE, GFP_KERNEL);
	unsigned int i;
	loff_t pos;

	KUNIT_ASSERT_NOT_NULL(test, buffer);
	for (i = 0; i < 2; i++) {
		keep(test, 3);
		keep(test, 4);
		keep(test, 5);
		xa_store_irq(pages, 4, i ? NULL : gcma_unflag(xa_load(pages, 4)), GFP_KERNEL);
		change(fx, 4);
		pos = 3 << PAGE_SHIFT;
		KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, 3 * PAGE_SIZE, &pos),
				(ssize_t)(3 * PAGE_SIZE));
		KUNIT_EXPECT_EQ(test, buffer[PAGE_SIZE], fx->disk[4]);
		truncate_inode_pages(fx->mapping, 0);
	}
}

/* How many copies of the file are of use again soon? */
static unsigned int near_copies(const struct clients_fixture *fx)
{
	const struct dmem_set *set;
	unsigned long frame;
	unsigned int nr = 0, way;

	for_each_set_bit(frame, gcma_dmem.live, gcma_dmem.nr) {
		set = &gcma_dmem.set[frame % gcma_dmem.nr_sets];
		way = frame / gcma_dmem.nr_sets;
		nr += set->way[way].space == fx->mapping &&
		      !((set->rrpv[0] | set->rrpv[1]) >> way & 1);
	}
	return nr;
}

/* What is read in sequence is worth less than what is read here and there. */
static void clients_test_read_in_sequence(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	unsigned int i;
	u8 *buffer = kunit_kzalloc(test, 2 * PAGE_SIZE, GFP_KERNEL);
	loff_t pos;

	KUNIT_ASSERT_NOT_NULL(test, buffer);
	for (i = 0; i < CLIENTS_PAGES; i++)
		keep(test, i);
	/* From the start to the end, and the last page in two parts. */
	for (i = 0; i < CLIENTS_PAGES; i++)
		KUNIT_EXPECT_EQ(test, read_byte(fx, i), i);
	KUNIT_EXPECT_EQ(test, read_byte(fx, CLIENTS_PAGES - 1), CLIENTS_PAGES - 1);
	KUNIT_EXPECT_EQ(test, near_copies(fx), 0);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 2), 2);
	KUNIT_EXPECT_EQ(test, near_copies(fx), 1);
	pos = 6 << PAGE_SHIFT;
	KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, 2 * PAGE_SIZE, &pos),
			(ssize_t)(2 * PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, near_copies(fx), 3);
}

/* The same in reads that are served in several parts. */
static void clients_test_long_reads_in_sequence(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	const size_t len = 20 * PAGE_SIZE;
	u8 *buffer = kunit_kzalloc(test, len, GFP_KERNEL);
	unsigned int i;
	loff_t pos = 0;

	KUNIT_ASSERT_NOT_NULL(test, buffer);
	for (i = 0; i < 58; i++)
		keep(test, i);
	fx->file->f_ra.ra_pages = 64;
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, len, &pos), (ssize_t)len);
	KUNIT_EXPECT_EQ(test, near_copies(fx), 0);
	/* The last two pages were read from the disk, and more behind them. */
	KUNIT_EXPECT_FALSE(test, resident(fx, 57));
	KUNIT_EXPECT_TRUE(test, resident(fx, 61));
	/* What is read at random is near in all its parts, and not read ahead. */
	truncate_inode_pages(fx->mapping, 0);
	keep(test, 30);
	keep(test, 31);
	cached(fx, 32);
	keep(test, 33);
	pos = 30 << PAGE_SHIFT;
	KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, 5 * PAGE_SIZE, &pos),
			(ssize_t)(5 * PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, near_copies(fx), 3);
	KUNIT_EXPECT_TRUE(test, resident(fx, 34));
	KUNIT_EXPECT_FALSE(test, resident(fx, 35));
}

/* What was read once is told from what was read again. */
static void clients_test_read_again(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio;

	KUNIT_ASSERT_EQ(test, read_byte(fx, 3), 3);
	folio = filemap_get_folio(fx->mapping, 3);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	lru_add_drain_all();
	KUNIT_EXPECT_FALSE(test, gcma_workingset(folio));
	KUNIT_EXPECT_EQ(test, read_byte(fx, 5), 5);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 3), 3);
	/* The old lists know when it has been active. */
	if (lru_gen_enabled())
		KUNIT_EXPECT_TRUE(test, gcma_workingset(folio));
	folio_put(folio);
}

/* What is read in place needs no page; what is gone does. */
static void clients_test_readahead_passes_over(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	keep(test, 3);
	/* So that a byte is a reason to read four pages. */
	fx->file->f_ra.ra_pages = 64;
	KUNIT_EXPECT_EQ(test, read_byte(fx, 0), 0);
	KUNIT_EXPECT_TRUE(test, resident(fx, 2));
	KUNIT_EXPECT_FALSE(test, resident(fx, 3));
	truncate_inode_pages(fx->mapping, 0);
	keep(test, 3);
	gcma_invalidate_all();
	KUNIT_EXPECT_EQ(test, read_byte(fx, 0), 0);
	KUNIT_EXPECT_TRUE(test, resident(fx, 3));
}

/* Mappings have pages filled, and go on at the mark as if these had been read. */
static void clients_test_filled_page_is_marked(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct rb_root *mappings = &fx->mapping->i_mmap.rb_root;
	struct rb_node mapped;
	struct folio *folio;

	keep(test, 1);
	fx->file->f_ra.ra_pages = 64;
	/* As if there were one. Nobody looks at it until it is gone. */
	mappings->rb_node = &mapped;
	/* Four pages, of which the second is marked. */
	KUNIT_EXPECT_EQ(test, read_byte(fx, 0), 0);
	mappings->rb_node = NULL;
	KUNIT_EXPECT_EQ(test, fx->reads, 1 + 3);
	folio = filemap_get_folio(fx->mapping, 1);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_TRUE(test, folio_test_readahead(folio));
	folio_put(folio);
}

/* Read pages of which the last eight are kept. From @random on, do so at random. */
static void read_up_to_kept(struct kunit *test, pgoff_t random)
{
	struct clients_fixture *fx = test->priv;
	pgoff_t i;

	for (i = 4; i < 12; i++)
		keep(test, i);
	fx->file->f_ra.ra_pages = 4;
	for (i = 0; i < 11; i++) {
		if (i == random)
			fx->file->f_mode |= FMODE_RANDOM;
		KUNIT_EXPECT_EQ(test, read_byte(fx, i), i);
	}
}

/* It goes on while pages are read in place, which have no mark. */
static void clients_test_readahead_goes_on(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	read_up_to_kept(test, ULONG_MAX);
	KUNIT_EXPECT_FALSE(test, resident(fx, 8));
	KUNIT_EXPECT_TRUE(test, resident(fx, 12));
}

/* Also where less is read ahead than is read at once. */
static void clients_test_readahead_outlasts_long_parts(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	const size_t len = 16 * PAGE_SIZE;
	u8 *buffer = kunit_kzalloc(test, len, GFP_KERNEL);
	loff_t pos;
	pgoff_t i;

	KUNIT_ASSERT_NOT_NULL(test, buffer);
	for (i = 4; i < 36; i++)
		keep(test, i);
	fx->file->f_ra.ra_pages = 4;
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, read_byte(fx, i), i);
	for (pos = 4 << PAGE_SHIFT; pos < 36 << PAGE_SHIFT;)
		KUNIT_EXPECT_EQ(test, kernel_read(fx->file, buffer, len, &pos), (ssize_t)len);
	KUNIT_EXPECT_FALSE(test, resident(fx, 35));
	KUNIT_EXPECT_TRUE(test, resident(fx, 39));
}

/* But not where a program has said that it reads at random. */
static void clients_test_readahead_stops_at_random(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	read_up_to_kept(test, 4);
	KUNIT_EXPECT_FALSE(test, resident(fx, 12));
}

/* Splicing takes folios: of copies one at a time, as they are there; else soon a window. */
static void clients_test_splice(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct pipe_inode_info *pipe = alloc_pipe_info();
	ssize_t copied = 0;
	bool ahead[3];
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, pipe);
	fx->file->f_ra.ra_pages = 64;
	for (i = 0; i < 4; i++)
		keep(test, i);
	for (i = 0; i < 3; i++) {
		loff_t pos = i << PAGE_SHIFT;

		copied += filemap_splice_read(fx->file, &pos, pipe, PAGE_SIZE, 0);
		ahead[i] = resident(fx, i + 1);
		gcma_invalidate_all();
	}
	free_pipe_info(pipe);
	KUNIT_EXPECT_EQ(test, copied, (ssize_t)(3 * PAGE_SIZE));
	KUNIT_EXPECT_FALSE(test, ahead[0]);
	/* The second page still had a flag, but no copy. */
	KUNIT_EXPECT_TRUE(test, ahead[2]);
}

/* Have active pages, so that a refault is within reach, and have it known. */
static void activate_others(struct clients_fixture *fx)
{
	struct folio *folio;
	int i, round;

	for (round = 0; round < 8; round++) {
		truncate_inode_pages(fx->mapping, 0);
		for (i = 8; i < CLIENTS_PAGES; i++) {
			cached(fx, i);
			folio = filemap_get_folio(fx->mapping, i);
			if (IS_ERR(folio))
				continue;
			folio_mark_accessed(folio);
			folio_mark_accessed(folio);
			folio_put(folio);
		}
		lru_add_drain_all();
	}
	mem_cgroup_flush_stats(NULL);
}

/* Reclaim must not take a page for read that was copied. */
static void clients_test_refault_costs_no_io(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	unsigned long before;
	struct lruvec *lruvec;
	struct folio *folio;
	int i;

	if (lru_gen_enabled())
		kunit_skip(test, "the multi-generational LRU counts by tiers");
	activate_others(fx);
	for (i = 0; i < 2; i++) {
		cached(fx, 3);
		folio = filemap_get_folio(fx->mapping, 3);
		KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
		folio_set_workingset(folio);
		lruvec = mem_cgroup_lruvec(folio_memcg(folio), folio_pgdat(folio));
		folio_put(folio);
		KUNIT_ASSERT_TRUE(test, evict(fx, 3));
		if (i)
			gcma_invalidate_all();
		before = test_file_io(lruvec);
		cached(fx, 3);
		KUNIT_EXPECT_EQ(test, test_file_io(lruvec) != before, i == 1);
		/* But for that it is a refault as any other. */
		folio = filemap_get_folio(fx->mapping, 3);
		KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
		KUNIT_EXPECT_TRUE(test, folio_test_workingset(folio));
		folio_put(folio);
	}
}

/* Evictions are told apart also when their counter has reached its end. */
static void clients_test_refault_at_the_end_of_the_counter(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct lruvec *lruvec;
	struct folio *folio;
	long age;

	if (lru_gen_enabled())
		kunit_skip(test, "the multi-generational LRU counts by tiers");
	activate_others(fx);
	cached(fx, 3);
	folio = filemap_get_folio(fx->mapping, 3);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	folio_set_workingset(folio);
	lruvec = mem_cgroup_lruvec(folio_memcg(folio), folio_pgdat(folio));
	folio_put(folio);
	age = atomic_long_read(&lruvec->nonresident_age);
	/* All bits that a shadow has of it, and those that it has not. */
	atomic_long_set(&lruvec->nonresident_age, -CLIENTS_PAGES);
	evict(fx, 3);
	cached(fx, 3);
	atomic_long_set(&lruvec->nonresident_age, age);
	folio = filemap_get_folio(fx->mapping, 3);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_TRUE(test, folio_test_workingset(folio));
	folio_put(folio);
}

/* Insert a large folio, as readahead does. Returns true if it was filled. */
static bool add_large(struct kunit *test, pgoff_t index)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = test_alloc_folio(2);
	int err;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	err = filemap_add_folio(fx->mapping, folio, index, GFP_KERNEL);
	if (!err)
		fill(folio);
	folio_put(folio);
	return err == -EEXIST;
}

static void require_large(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		kunit_skip(test, "no large folios");
	mapping_set_large_folios(fx->mapping);
}

static void clients_test_large_there_and_back(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 4));
	KUNIT_ASSERT_TRUE(test, evict(fx, 4));
	KUNIT_EXPECT_TRUE(test, add_large(test, 4));
	KUNIT_ASSERT_TRUE(test, evict(fx, 4));
	/* Small ones take their parts. */
	expect_copy(test, 6);
	expect_copy(test, 4);
}

/* All of it goes if it stays in the page cache after all. */
static void clients_test_large_store_in_vain(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio;
	pgoff_t i;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 4));
	folio = stored(test, 4);
	for (i = 4; i < 8; i++)
		KUNIT_EXPECT_TRUE(test, dmem_has(&gcma_dmem, fx->mapping, i));
	KUNIT_EXPECT_NULL(test, gcma_publish(true, fx->mapping, folio, NULL));
	for (i = 4; i < 8; i++)
		expect_no_copy(test, i);
	folio_unlock(folio);
	folio_put(folio);
}

/* A copy without a flagged shadow may be an old one; nothing will lead to the others. */
static void insert_over_old_copies(struct kunit *test, unsigned long old)
{
	struct clients_fixture *fx = test->priv;
	struct xarray *pages = &fx->mapping->i_pages;
	unsigned long i;

	for (i = 4; i < 8; i++)
		keep(test, i);
	/* The copies of some stay while their pages are written and evicted. */
	for_each_set_bit(i, &old, 8) {
		xa_store_irq(pages, i, gcma_unflag(xa_load(pages, i)), GFP_KERNEL);
		change(fx, i);
	}
	KUNIT_EXPECT_FALSE(test, add_large(test, 4));
	for (i = 4; i < 8; i++) {
		KUNIT_EXPECT_EQ(test, cached(fx, i), fx->disk[i]);
		expect_no_copy(test, i);
	}
	truncate_inode_pages(fx->mapping, 0);
}

static void clients_test_large_is_not_filled_in_part(struct kunit *test)
{
	require_large(test);
	insert_over_old_copies(test, BIT(4));
	insert_over_old_copies(test, BIT(5));
	/* The last shadow is what the page cache goes by. */
	insert_over_old_copies(test, BIT(7));
	insert_over_old_copies(test, GENMASK(6, 4));
	insert_over_old_copies(test, GENMASK(7, 5));
}

/* One that was lost, and nothing leads to the others any more. */
static void clients_test_large_lost_in_part(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	pgoff_t lost, i;

	require_large(test);
	for (lost = 4; lost < 8; lost++) {
		KUNIT_ASSERT_FALSE(test, add_large(test, 4));
		KUNIT_ASSERT_TRUE(test, evict(fx, 4));
		dmem_invalidate(&gcma_dmem, fx->mapping, lost, 1);
		KUNIT_EXPECT_FALSE(test, add_large(test, 4));
		for (i = 4; i < 8; i++)
			expect_no_copy(test, i);
		truncate_inode_pages(fx->mapping, 0);
	}
}

static void clients_test_large_overwrite_frees_the_frames(struct kunit *test)
{
	require_large(test);
	overwrite(test, 4, 2, 5);
}

/* An invalidation finds all of it, and small folios then come for the rest. */
static void clients_test_large_shadow_is_cut(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	pgoff_t i;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 4));
	KUNIT_ASSERT_TRUE(test, evict(fx, 4));
	truncate_inode_pages_range(fx->mapping, (5 << PAGE_SHIFT) + 1,
				   (5 << PAGE_SHIFT) + 2);
	for (i = 4; i < 8; i++)
		expect_no_copy(test, i);
	expect_disk(test, 5);
	expect_disk(test, 7);
}

/* khugepaged makes large folios of files that allow none; small ones come back. */
static void clients_test_large_shadow_of_small_folios(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	pgoff_t i;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 4));
	KUNIT_ASSERT_TRUE(test, evict(fx, 4));
	mapping_set_folio_order_range(fx->mapping, 0, 0);
	for (i = 4; i < 8; i++)
		change(fx, i);
	KUNIT_EXPECT_EQ(test, read_byte(fx, 5), 5);
	KUNIT_EXPECT_EQ(test, cached(fx, 6), 6);
	truncate_inode_pages_range(fx->mapping, 4 << PAGE_SHIFT, (5 << PAGE_SHIFT) - 1);
	KUNIT_EXPECT_EQ(test, cached(fx, 4), 4 ^ 0x80);
	KUNIT_EXPECT_EQ(test, cached(fx, 7), 7);
}

/* Interrupt handlers take the lock, too, and xa_store_range() leaves interrupts on. */
static void store_shadows(struct xarray *pages, pgoff_t first, pgoff_t last,
			  void *shadow)
{
	local_irq_disable();
	xa_store_range(pages, first, last, shadow, GFP_ATOMIC);
	local_irq_enable();
}

/* Of a shadow that begins before the range, and of what comes after it. */
static void clients_test_large_shadows_from_the_middle(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct xarray *pages = &fx->mapping->i_pages;
	void *shadow = xa_mk_value(GCMA_SHADOW_BITS);
	pgoff_t index;

	require_large(test);
	KUNIT_ASSERT_TRUE(test, gcma_flagged(shadow));
	store_shadows(pages, 0, 511, shadow);
	store_shadows(pages, 512, 767, shadow);
	gcma_invalidate_end(gcma_invalidate_begin(fx->mapping, 300 << PAGE_SHIFT,
						  (767 << PAGE_SHIFT) + 1));
	for (index = 0; index < 768; index += 256)
		KUNIT_EXPECT_FALSE(test, gcma_flagged(xa_load(pages, index)));
}

#ifdef CONFIG_FAILSLAB
struct clients_forget {
	struct irq_work work;
	struct address_space *mapping;
};

static void clients_forget(struct irq_work *work)
{
	struct clients_forget *forget = container_of(work, struct clients_forget, work);
	unsigned long flags;

	xa_lock_irqsave(&forget->mapping->i_pages, flags);
	__xa_erase(&forget->mapping->i_pages, 0);
	xa_unlock_irqrestore(&forget->mapping->i_pages, flags);
}

/* A shadow goes while an insertion that has found it waits for memory of a node. */
static void clients_test_large_shadow_gone_meanwhile(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct clients_forget forget = { .mapping = fx->mapping };
	void *shadow = xa_mk_value(GCMA_SHADOW_BITS);
	struct folio *folio;
	int err;

	require_large(test);
	folio = test_alloc_folio(2);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	__folio_set_locked(folio);
	init_irq_work(&forget.work, clients_forget);
	/* The first page alone needs no node, four pages do. */
	xa_store_irq(&fx->mapping->i_pages, 0, shadow, GFP_KERNEL);
	/* The work is done when interrupts are on again: where the lock is let go. */
	local_irq_disable();
	irq_work_queue(&forget.work);
	current->fail_nth = 1;
	err = __filemap_add_folio(fx->mapping, folio, 0, GFP_NOWAIT, &shadow);
	local_irq_enable();
	irq_work_sync(&forget.work);
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, current->fail_nth, 0);
	KUNIT_EXPECT_NULL(test, shadow);
	folio_unlock(folio);
	folio_put(folio);
}
#else
static void clients_test_large_shadow_gone_meanwhile(struct kunit *test)
{
	require_large(test);
	kunit_skip(test, "no failing allocations");
}
#endif

/* Those that a node higher up has, which is reclaimed, are of as many pages as a node. */
static void clients_test_large_shadows_of_a_node(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	const pgoff_t first = (XA_CHUNK_SIZE + 2) << XA_CHUNK_SHIFT;
	const pgoff_t last = first + XA_CHUNK_SIZE - 1;
	XA_STATE(xas, &fx->mapping->i_pages, first);
	const pgoff_t beside = last + 1, twice = beside + XA_CHUNK_SIZE;
	/* The last is in the second slot of two that have one entry. */
	const pgoff_t stored[] = { first, last, twice + XA_CHUNK_SIZE + 3 };
	struct folio *folio = test_alloc_folio(0);
	struct gcma_node gone;
	unsigned int i;

	require_large(test);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	for (i = 0; i < ARRAY_SIZE(stored); i++)
		KUNIT_EXPECT_TRUE(test, dmem_store(&gcma_dmem, folio, fx->mapping, stored[i],
						   0, 0));
	/* An old copy, to which no flag leads. */
	KUNIT_EXPECT_TRUE(test, dmem_store(&gcma_dmem, folio, fx->mapping, beside, 0, 0));
	folio_put(folio);
	store_shadows(xas.xa, first, last, xa_mk_value(GCMA_SHADOW_BITS));
	store_shadows(xas.xa, beside, beside + XA_CHUNK_SIZE - 1, xa_mk_value(0));
	store_shadows(xas.xa, twice, twice + 2 * XA_CHUNK_SIZE - 1,
		      xa_mk_value(GCMA_SHADOW_BITS));
	xas_lock_irq(&xas);
	xas_load(&xas);
	gone = gcma_forget_node(fx->mapping, xas.xa_node);
	xas_unlock_irq(&xas);
	gcma_drop_node(fx->mapping, gone);
	for (i = 0; i < ARRAY_SIZE(stored); i++)
		expect_no_copy(test, stored[i]);
	KUNIT_EXPECT_TRUE(test, dmem_has(&gcma_dmem, fx->mapping, beside));
	dmem_invalidate(&gcma_dmem, fx->mapping, beside, 1);
}

/* Read ahead the first @nr pages of the file, in folios of @order. */
static void read_first(struct clients_fixture *fx, unsigned int nr, unsigned int order)
{
	struct file_ra_state *ra = &fx->file->f_ra;
	DEFINE_READAHEAD(ractl, fx->file, ra, fx->mapping, 0);

	ra->ra_pages = nr;
	ra->size = nr;
	fx->reads = 0;
	test_readahead(&ractl, ra, order);
}

static void expect_order(struct kunit *test, pgoff_t index, unsigned int order)
{
	struct clients_fixture *fx = test->priv;
	struct folio *folio = filemap_get_folio(fx->mapping, index);

	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_EQ(test, folio_order(folio), order);
	folio_put(folio);
}

/* Readahead goes on with large folios behind one that was filled. */
static void clients_test_large_readahead(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	require_large(test);
	/* So nothing of the file is read in place. */
	mapping_set_folio_min_order(fx->mapping, 2);
	KUNIT_ASSERT_FALSE(test, add_large(test, 0));
	KUNIT_ASSERT_TRUE(test, evict(fx, 0));
	read_first(fx, 8, 2);
	KUNIT_EXPECT_EQ(test, fx->reads, 4);
	KUNIT_EXPECT_TRUE(test, resident(fx, 0));
	expect_order(test, 4, 2);
}

/* The same behind one that is read in place. */
static void clients_test_large_readahead_passes_over(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 0));
	KUNIT_ASSERT_TRUE(test, evict(fx, 0));
	read_first(fx, 8, 2);
	KUNIT_EXPECT_EQ(test, fx->reads, 4);
	KUNIT_EXPECT_FALSE(test, resident(fx, 0));
	expect_order(test, 4, 2);
}

/* Also where the file system has read a part of what was passed over. */
static void clients_test_large_readahead_expanded(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	pgoff_t i;

	require_large(test);
	KUNIT_ASSERT_FALSE(test, add_large(test, 4));
	KUNIT_ASSERT_TRUE(test, evict(fx, 4));
	fx->expand = 2 * PAGE_SIZE;
	read_first(fx, 16, 2);
	KUNIT_EXPECT_TRUE(test, resident(fx, 5));
	KUNIT_EXPECT_FALSE(test, resident(fx, 6));
	KUNIT_EXPECT_TRUE(test, resident(fx, 15));
	KUNIT_EXPECT_FALSE(test, fx->astray);
	for (i = 0; i < 16; i++)
		KUNIT_EXPECT_EQ(test, cached(fx, i), fx->disk[i]);
}

/* Folios are no larger than what dmem keeps as a whole where it keeps a part. */
static void clients_test_large_readahead_of_pieces(struct kunit *test)
{
	struct clients_fixture *fx = test->priv;
	struct xarray *pages = &fx->mapping->i_pages;
	unsigned int i;

	require_large(test);
	keep(test, 16);
	read_first(fx, CLIENTS_PAGES, 5);
	KUNIT_EXPECT_EQ(test, fx->reads, CLIENTS_PAGES);
	expect_order(test, 0, DMEM_PIECE_ORDER);
	expect_order(test, 32, 5);
	/* One that is gone, or old, is not kept. */
	for (i = 0; i < 2; i++) {
		truncate_inode_pages(fx->mapping, 0);
		keep(test, 16);
		if (i)
			xa_store_irq(pages, 16, gcma_unflag(xa_load(pages, 16)), GFP_KERNEL);
		else
			gcma_invalidate_all();
		read_first(fx, CLIENTS_PAGES, 5);
		expect_order(test, 0, 5);
	}
}

#ifdef SWAP_TABLE_HAS_ZEROFLAG /* Linux 7.3, see compat.h */
/* A large folio comes for slots of which some have a flagged shadow, first or not. */
static void clients_test_swap_slots_flagged_in_part(struct kunit *test)
{
	struct swap_cluster_info *ci = kunit_kzalloc(test, sizeof(*ci), GFP_KERNEL);
	struct swap_table *table = kunit_kzalloc(test, sizeof(*table), GFP_KERNEL);
	/* Of a device that is not there. */
	swp_entry_t entry = swp_entry(MAX_SWAPFILES - 1, 4);
	struct address_space *space = swap_address_space(entry);
	void *plain = xa_mk_value(0), *flagged = xa_mk_value(GCMA_SHADOW_BITS), *shadow;
	struct folio *folio = test_alloc_folio(0);
	unsigned int old, i;
	bool all;

	KUNIT_ASSERT_NOT_NULL(test, ci);
	KUNIT_ASSERT_NOT_NULL(test, table);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	spin_lock_init(&ci->lock);
	RCU_INIT_POINTER(ci->table, table->entries);
	/* One slot without, of which the first is the one wanted; the last time none. */
	for (old = 0; old <= 4; old++) {
		all = old == 4;
		for (i = 0; i < 4; i++)
			KUNIT_EXPECT_TRUE(test, dmem_store(&gcma_dmem, folio, space, entry.val + i,
							   GCMA_CLIENT_SWAP, 0));
		spin_lock(&ci->lock);
		for (i = 0; i < 4; i++) {
			shadow = i == old ? plain : flagged;
			__swap_table_set(ci, 4 + i, shadow_to_swp_tb(shadow, 1));
		}
		shadow = gcma_swap_shadow(ci, entry, 4, old ? flagged : plain);
		spin_unlock(&ci->lock);
		KUNIT_EXPECT_EQ(test, gcma_flagged(shadow), all);
		for (i = 0; i < 4; i++)
			KUNIT_EXPECT_EQ(test, dmem_has(&gcma_dmem, space, entry.val + i), all);
	}
	/* All have one. Two slots are freed, and the first of them loses its flag before. */
	spin_lock(&ci->lock);
	__swap_table_set(ci, 5, shadow_to_swp_tb(plain, 1));
	gcma_slots_freed(ci, swp_entry(MAX_SWAPFILES - 1, 5), 2);
	spin_unlock(&ci->lock);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, dmem_has(&gcma_dmem, space, entry.val + i), i != 2);
	dmem_invalidate(&gcma_dmem, space, entry.val, 4);
	folio_put(folio);
}
#endif

static struct kunit_case clients_test_cases[] = {
	KUNIT_CASE(clients_test_refault_is_filled),
	KUNIT_CASE(clients_test_lost_copy_is_read),
	KUNIT_CASE(clients_test_overwrite_is_not_filled),
	KUNIT_CASE(clients_test_store_in_vain),
	KUNIT_CASE(clients_test_held_meanwhile),
	KUNIT_CASE(clients_test_invalidation_meets_store),
	KUNIT_CASE(clients_test_loss_meets_store),
	KUNIT_CASE(clients_test_cut_pages),
	KUNIT_CASE(clients_test_cut_pages_only),
	KUNIT_CASE(clients_test_many_copies_go),
	KUNIT_CASE(clients_test_evicted_during_truncation),
	KUNIT_CASE(clients_test_evicted_during_invalidation),
	KUNIT_CASE(clients_test_invalidation),
	KUNIT_CASE(clients_test_no_guard_without_copies),
	KUNIT_CASE(clients_test_invalidation_of_what_is_not_there),
	KUNIT_CASE(clients_test_direct_write),
	KUNIT_CASE(clients_test_direct_write_elsewhere),
	KUNIT_CASE(clients_test_invalidate_inode),
	KUNIT_CASE(clients_test_removed_shadow_frees_the_frame),
	KUNIT_CASE(clients_test_drop_caches),
	KUNIT_CASE(clients_test_node_is_reclaimed),
	KUNIT_CASE(clients_test_no_copy_after_a_failed_write),
	KUNIT_CASE(clients_test_no_copy_after_a_failed_read),
	KUNIT_CASE(clients_test_no_copy_of_such_files),
	KUNIT_CASE(clients_test_key_is_removed),
	KUNIT_CASE(clients_test_no_copy_of_a_file_that_forbids),
	KUNIT_CASE(clients_test_write_meets_a_file_that_forbids),
	KUNIT_CASE(clients_test_read_in_place),
	KUNIT_CASE(clients_test_read_counts_misses),
	KUNIT_CASE(clients_test_no_use_after_a_failed_write),
	KUNIT_CASE(clients_test_no_copies_with_verity),
	KUNIT_CASE(clients_test_read_some_in_place),
	KUNIT_CASE(clients_test_read_passes_no_old_copy),
	KUNIT_CASE(clients_test_read_in_sequence),
	KUNIT_CASE(clients_test_long_reads_in_sequence),
	KUNIT_CASE(clients_test_read_again),
	KUNIT_CASE(clients_test_readahead_passes_over),
	KUNIT_CASE(clients_test_filled_page_is_marked),
	KUNIT_CASE(clients_test_readahead_goes_on),
	KUNIT_CASE(clients_test_readahead_outlasts_long_parts),
	KUNIT_CASE(clients_test_readahead_stops_at_random),
	KUNIT_CASE(clients_test_splice),
	KUNIT_CASE(clients_test_refault_costs_no_io),
	KUNIT_CASE(clients_test_refault_at_the_end_of_the_counter),
	KUNIT_CASE(clients_test_large_there_and_back),
	KUNIT_CASE(clients_test_large_store_in_vain),
	KUNIT_CASE(clients_test_large_is_not_filled_in_part),
	KUNIT_CASE(clients_test_large_lost_in_part),
	KUNIT_CASE(clients_test_large_overwrite_frees_the_frames),
	KUNIT_CASE(clients_test_large_shadow_is_cut),
	KUNIT_CASE(clients_test_large_shadow_of_small_folios),
	KUNIT_CASE(clients_test_large_shadows_from_the_middle),
	KUNIT_CASE(clients_test_large_shadow_gone_meanwhile),
	KUNIT_CASE(clients_test_large_shadows_of_a_node),
	KUNIT_CASE(clients_test_large_readahead),
	KUNIT_CASE(clients_test_large_readahead_passes_over),
	KUNIT_CASE(clients_test_large_readahead_expanded),
	KUNIT_CASE(clients_test_large_readahead_of_pieces),
#ifdef SWAP_TABLE_HAS_ZEROFLAG
	KUNIT_CASE(clients_test_swap_slots_flagged_in_part),
#endif
	{}
};

static struct kunit_suite clients_test_suite = {
	.name = "gcma-clients",
	.init = clients_init,
	.exit = clients_exit,
	.test_cases = clients_test_cases,
};

kunit_test_suite(clients_test_suite);
