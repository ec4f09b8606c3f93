// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/cma_bench: time and test the CMA interface
 *
 * Calls cma_alloc() and its relatives on the default area for a program that
 * may be root only, and times nothing but the call. Works the same whether the
 * area is plain CMA or a guaranteed one. An open file owns what it allocated,
 * and closing it releases that.
 */

#define pr_fmt(fmt) "cma_bench: " fmt

#include <linux/cma.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/gcma.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "../gcma/compat_test.h"
#include "bench_abi.h"

enum bench_kind {
	BENCH_PAGES,
	BENCH_FOLIO,
	BENCH_DMA,
};

struct bench_range {
	struct list_head list;
	unsigned long pfn;
	unsigned long pages;
	enum bench_kind kind;
	void *vaddr;		/* of BENCH_DMA */
	dma_addr_t dma;
};

static struct miscdevice bench_device;

struct bench_file {
	struct mutex lock;	/* serialises the requests of the file */
	struct list_head ranges;
};

static struct bench_range *bench_find(struct bench_file *bf, u64 pfn, u64 pages)
{
	struct bench_range *range;

	list_for_each_entry(range, &bf->ranges, list)
		if (range->pfn == pfn && (!pages || range->pages == pages))
			return range;
	return NULL;
}

static bool in_area(const struct cma *cma, unsigned long pfn)
{
	return pfn - PFN_DOWN(cma_get_base(cma)) < cma->count;
}

static struct page *bench_alloc_dma(struct bench_range *range)
{
	struct device *dev = bench_device.this_device;
	struct cma *cma = dev_get_cma_area(NULL);
	size_t size = range->pages * PAGE_SIZE;
	struct page *page;
	unsigned long pfn;

	range->vaddr = dma_alloc_coherent(dev, size, &range->dma,
					  GFP_KERNEL | __GFP_NOWARN);
	if (!range->vaddr)
		return NULL;
	page = is_vmalloc_addr(range->vaddr) ? vmalloc_to_page(range->vaddr) :
					       virt_to_page(range->vaddr);
	pfn = page_to_pfn(page);
	if (in_area(cma, pfn))
		return page;
	/* The area had nothing, the page allocator did: not what we test. */
	dma_free_coherent(dev, size, range->vaddr, range->dma);
	return NULL;
}

static u64 bench_not_zero(const struct bench_range *range)
{
	unsigned long page;
	unsigned int i;
	u64 bad = 0;

	for (page = 0; page < range->pages; page++) {
		void *map = NULL;
		const u64 *word;

		if (!range->vaddr)
			map = kmap_local_page(pfn_to_page(range->pfn + page));
		word = map ?: range->vaddr + page * PAGE_SIZE;
		for (i = 0; i < PAGE_SIZE / sizeof(*word); i++)
			bad += word[i] != 0;
		if (map)
			kunmap_local(map);
		cond_resched();
	}
	return bad;
}

static u64 bench_find_word(const struct cma *cma, u64 wanted)
{
	unsigned long pfn = PFN_DOWN(cma_get_base(cma)), end = pfn + cma->count;
	unsigned int i;
	u64 found = 0;

	for (; pfn < end; pfn++) {
		const u64 *word = kmap_local_page(pfn_to_page(pfn));

		for (i = 0; i < PAGE_SIZE / sizeof(*word); i++)
			/* Others may write: what is there for good is found. */
			found += data_race(READ_ONCE(word[i])) == wanted;
		kunmap_local(word);
		cond_resched();
	}
	return found;
}

static int bench_alloc(struct bench_file *bf, struct cma_bench_op *op,
		       enum bench_kind kind)
{
	struct cma *cma = dev_get_cma_area(NULL);
	struct bench_range *range;
	struct page *page = NULL;
	struct folio *folio;
	u64 start;

	if (kind == BENCH_FOLIO && (!is_power_of_2(op->pages) || op->pages < 2))
		return -EINVAL;
	/* Single pages never come from the area. */
	if (kind == BENCH_DMA && (op->pages < 2 || op->pages > cma->count))
		return -EINVAL;
	range = kzalloc(sizeof(*range), GFP_KERNEL);
	if (!range)
		return -ENOMEM;
	range->pages = op->pages;
	range->kind = kind;

	start = local_clock();
	switch (kind) {
	case BENCH_PAGES:
		page = cma_alloc(cma, op->pages, op->align, true);
		break;
	case BENCH_FOLIO:
		folio = cma_alloc_folio(cma, ilog2(op->pages), GFP_KERNEL |
					__GFP_COMP | __GFP_NOWARN);
		page = folio ? folio_page(folio, 0) : NULL;
		break;
	case BENCH_DMA:
		page = bench_alloc_dma(range);
		break;
	}
	op->ns = local_clock() - start;
	if (!page) {
		kfree(range);
		return -ENOMEM;
	}
	range->pfn = page_to_pfn(page);
	list_add(&range->list, &bf->ranges);
	op->pfn = range->pfn;
	if (kind == BENCH_DMA)
		op->bad = bench_not_zero(range);
	return 0;
}

static int bench_release(struct bench_range *range, u64 *ns)
{
	struct cma *cma = dev_get_cma_area(NULL);
	struct page *page = pfn_to_page(range->pfn);
	u64 start = local_clock();
	bool done = true;

	switch (range->kind) {
	case BENCH_PAGES:
		done = cma_release(cma, page, range->pages);
		break;
	case BENCH_FOLIO:
		done = cma_free_folio(cma, page_folio(page));
		break;
	case BENCH_DMA:
		dma_free_coherent(bench_device.this_device,
				  range->pages * PAGE_SIZE, range->vaddr,
				  range->dma);
		break;
	}
	if (ns)
		*ns = local_clock() - start;
	list_del(&range->list);
	kfree(range);
	return done ? 0 : -EINVAL;
}

static u64 bench_word(u64 seed, u64 page, unsigned int i)
{
	return (seed + page * 512 + i) * 0x9e3779b97f4a7c15ULL;
}

static void bench_pattern(struct bench_range *range, struct cma_bench_op *op,
			  bool check)
{
	unsigned long page;
	unsigned int i;

	op->bad = 0;
	for (page = 0; page < range->pages; page++) {
		void *map = NULL;
		u64 *word;

		if (!range->vaddr)
			map = kmap_local_page(pfn_to_page(range->pfn + page));
		word = map ?: range->vaddr + page * PAGE_SIZE;

		for (i = 0; i < PAGE_SIZE / sizeof(*word); i++) {
			if (!check)
				word[i] = bench_word(op->seed, page, i);
			else if (word[i] != bench_word(op->seed, page, i))
				op->bad++;
		}
		if (map)
			kunmap_local(map);
		cond_resched();
	}
}

static int bench_pin(struct cma_bench_op *op, bool pin)
{
	struct cma *cma = dev_get_cma_area(NULL);
	struct page *page;

	if (!in_area(cma, op->pfn))
		return -EINVAL;
	page = pfn_to_page(op->pfn);
	if (pin)
		return get_page_unless_zero(page) ? 0 : -EINVAL;
	put_page(page);
	return 0;
}

static enum bench_kind bench_kind(unsigned int cmd)
{
	switch (cmd) {
	case CMA_BENCH_ALLOC_FOLIO:
	case CMA_BENCH_FREE_FOLIO:
		return BENCH_FOLIO;
	case CMA_BENCH_ALLOC_DMA:
	case CMA_BENCH_FREE_DMA:
		return BENCH_DMA;
	default:
		return BENCH_PAGES;
	}
}

static int bench_op(struct bench_file *bf, unsigned int cmd,
		    struct cma_bench_op *op)
{
	struct bench_range *range;

	switch (cmd) {
	case CMA_BENCH_ALLOC:
	case CMA_BENCH_ALLOC_FOLIO:
	case CMA_BENCH_ALLOC_DMA:
		if (op->pages > ULONG_MAX || op->align >= BITS_PER_LONG)
			return -EINVAL;
		return bench_alloc(bf, op, bench_kind(cmd));
	case CMA_BENCH_RELEASE:
	case CMA_BENCH_FREE_FOLIO:
	case CMA_BENCH_FREE_DMA:
		range = bench_find(bf, op->pfn, op->pages);
		if (!range || range->kind != bench_kind(cmd))
			return -EINVAL;
		return bench_release(range, &op->ns);
	case CMA_BENCH_FILL:
	case CMA_BENCH_CHECK:
		range = bench_find(bf, op->pfn, 0);
		if (!range)
			return -EINVAL;
		bench_pattern(range, op, cmd == CMA_BENCH_CHECK);
		return 0;
	case CMA_BENCH_LOOK:
		range = bench_find(bf, op->pfn, 0);
		if (!range)
			return -EINVAL;
		op->bad = bench_not_zero(range);
		return 0;
	case CMA_BENCH_FIND:
		op->bad = bench_find_word(dev_get_cma_area(NULL), op->seed);
		return 0;
	case CMA_BENCH_PIN:
	case CMA_BENCH_UNPIN:
		return bench_pin(op, cmd == CMA_BENCH_PIN);
	case CMA_BENCH_RELEASE_RAW:
		if (!pfn_valid(op->pfn))
			return -EINVAL;
		return cma_release(dev_get_cma_area(NULL),
				   pfn_to_page(op->pfn), op->pages) ? 0 : -EINVAL;
	default:
		return -ENOTTY;
	}
}

/*
 * Store and load pages of a mapping that exists only here, the way reclaim and
 * the page cache do, but for the xarray.
 */
static int bench_dmem(struct file *file, struct cma_bench_dmem *op)
{
	struct address_space *mapping;
	struct page *from, *to;
	void **shadow;
	struct inode *inode;
	unsigned long i;
	int err = -ENOMEM;
	u64 start;

	if (!op->pages || op->pages > dev_get_cma_area(NULL)->count)
		return -EINVAL;
	inode = kzalloc(sizeof(*inode), GFP_KERNEL);
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	shadow = kvcalloc(op->pages, sizeof(*shadow), GFP_KERNEL);
	from = alloc_page(GFP_KERNEL);
	to = alloc_page(GFP_KERNEL);
	if (!inode || !mapping || !shadow || !from || !to)
		goto out;
	/* The trace events want to name a device. */
	inode->i_sb = file_inode(file)->i_sb;
	mapping->host = inode;
	mapping_set_gcma(mapping, true);
	SetPageUptodate(from);
	get_page(from);

	start = local_clock();
	for (i = 0; i < op->pages; i++) {
		struct folio *folio = page_folio(from);

		folio->index = i;
		shadow[i] = xa_mk_value(0);
		if (gcma_store(mapping, folio))
			shadow[i] = gcma_publish(true, mapping, folio, shadow[i]);
	}
	op->store_ns = local_clock() - start;

	op->loaded = 0;
	start = local_clock();
	for (i = 0; i < op->pages; i++) {
		if (gcma_flagged(shadow[i]))
			gcma_load(mapping, i, page_folio(to));
		op->loaded += PageUptodate(to);
		ClearPageUptodate(to);
	}
	op->load_ns = local_clock() - start;

	start = local_clock();
	for (i = 0; i < op->pages; i++)
		copy_highpage(to, from);
	op->copy_ns = local_clock() - start;

	ClearPageUptodate(from);
	put_page(from);
	page_folio(from)->index = 0;
	err = op->loaded ? 0 : -ENODATA;
out:
	if (to)
		__free_page(to);
	if (from)
		__free_page(from);
	kvfree(shadow);
	kfree(mapping);
	kfree(inode);
	return err;
}

static long bench_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct bench_file *bf = file->private_data;
	void __user *user = (void __user *)arg;
	struct cma *cma = dev_get_cma_area(NULL);
	struct cma_bench_op op;
	int err;

	if (!cma)
		return -ENODEV;
	if (cmd == CMA_BENCH_INFO) {
		struct cma_bench_info info = {
			.base_pfn = PFN_DOWN(cma_get_base(cma)),
			.pages = cma->count,
		};

		strscpy(info.name, cma_get_name(cma), sizeof(info.name));
		return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
	}
	if (cmd == CMA_BENCH_DMEM) {
		struct cma_bench_dmem dmem;

		if (copy_from_user(&dmem, user, sizeof(dmem)))
			return -EFAULT;
		err = bench_dmem(file, &dmem);
		return copy_to_user(user, &dmem, sizeof(dmem)) ? -EFAULT : err;
	}
	if (copy_from_user(&op, user, sizeof(op)))
		return -EFAULT;
	mutex_lock(&bf->lock);
	err = bench_op(bf, cmd, &op);
	mutex_unlock(&bf->lock);
	if (copy_to_user(user, &op, sizeof(op)))
		return -EFAULT;
	return err;
}

static int bench_open(struct inode *inode, struct file *file)
{
	struct bench_file *bf = kzalloc(sizeof(*bf), GFP_KERNEL);

	if (!bf)
		return -ENOMEM;
	mutex_init(&bf->lock);
	INIT_LIST_HEAD(&bf->ranges);
	file->private_data = bf;
	return 0;
}

static int bench_close(struct inode *inode, struct file *file)
{
	struct bench_file *bf = file->private_data;
	struct bench_range *range, *next;

	list_for_each_entry_safe(range, next, &bf->ranges, list)
		bench_release(range, NULL);
	kfree(bf);
	return 0;
}

static const struct file_operations bench_fops = {
	.owner		= THIS_MODULE,
	.open		= bench_open,
	.release	= bench_close,
	.unlocked_ioctl	= bench_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static struct miscdevice bench_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "cma_bench",
	.mode	= 0600,
	.fops	= &bench_fops,
};

static int __init bench_init(void)
{
	int err = misc_register(&bench_device);

	if (err)
		return err;
	return dma_coerce_mask_and_coherent(bench_device.this_device,
					    DMA_BIT_MASK(64));
}
device_initcall(bench_init);
