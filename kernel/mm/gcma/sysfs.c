// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/mm/gcma/: what the guaranteed areas are doing, and what they are
 * to do
 */

#define pr_fmt(fmt) "gcma: " fmt

#include <linux/bitmap.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "gcma.h"

struct gcma_dir {
	struct kobject kobj;
	struct gcma *gcma;
};

static struct gcma *kobj_gcma(struct kobject *kobj)
{
	return container_of(kobj, struct gcma_dir, kobj)->gcma;
}

#define GCMA_ATTR(_name)						\
static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

#define GCMA_ATTR_LONG(_name, _value)					\
static ssize_t _name##_show(struct kobject *kobj,			\
			    struct kobj_attribute *attr, char *buf)	\
{									\
	struct gcma *gcma = kobj_gcma(kobj);				\
									\
	return sysfs_emit(buf, "%lu\n", (unsigned long)(_value));	\
}									\
GCMA_ATTR(_name)

GCMA_ATTR_LONG(frames, gcma->cma->count);
GCMA_ATTR_LONG(owned, READ_ONCE(gcma->owned));
GCMA_ATTR_LONG(quarantined, READ_ONCE(gcma->quarantined));
GCMA_ATTR_LONG(poisoned, READ_ONCE(gcma->poisoned));
GCMA_ATTR_LONG(allocs, atomic_long_read(&gcma->allocs));
GCMA_ATTR_LONG(alloc_fails, atomic_long_read(&gcma->fails));
GCMA_ATTR_LONG(bad_releases, atomic_long_read(&gcma->bad_releases));
GCMA_ATTR_LONG(copy_waits, atomic_long_read(&gcma->spins));

static ssize_t clients_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	struct cma *cma = kobj_gcma(kobj)->cma;

	return sysfs_emit(buf, "%s\n",
			  gcma_clients_name(READ_ONCE(cma->gcma_clients)));
}

static ssize_t clients_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	unsigned int clients;
	int err;

	err = gcma_parse_clients(buf, strcspn(buf, "\n"), &clients);
	if (!err)
		err = gcma_set_clients(kobj_gcma(kobj), clients);
	return err ?: count;
}

static struct kobj_attribute clients_attr = __ATTR_RW(clients);

static ssize_t prepare_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	struct gcma *gcma = kobj_gcma(kobj);
	unsigned long nr;
	long ret;

	ret = kstrtoul(buf, 0, &nr);
	if (!ret && (!nr || nr > gcma->cma->count))
		ret = -EINVAL;
	if (!ret)
		ret = gcma_prepare(gcma, nr);
	return ret < 0 ? ret : count;
}

static struct kobj_attribute prepare_attr = __ATTR_WO(prepare);

/* One line a bin that is not empty: upper bound in ns, number. */
static ssize_t alloc_latency_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	struct gcma *gcma = kobj_gcma(kobj);
	int i, len = 0;

	for (i = 0; i < GCMA_LATENCY_BINS; i++) {
		long nr = atomic_long_read(&gcma->latency[i]);

		if (!nr)
			continue;
		if (i < GCMA_LATENCY_BINS - 1)
			len += sysfs_emit_at(buf, len, "%llu %ld\n",
					     1024ULL << i, nr);
		else
			len += sysfs_emit_at(buf, len, "inf %ld\n", nr);
	}
	return len;
}
GCMA_ATTR(alloc_latency);

static ssize_t alloc_latency_max_ns_show(struct kobject *kobj,
					 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n",
			  (s64)atomic64_read(&kobj_gcma(kobj)->latency_max));
}
GCMA_ATTR(alloc_latency_max_ns);

static struct attribute *gcma_attrs[] = {
	&clients_attr.attr,
	&prepare_attr.attr,
	&frames_attr.attr,
	&owned_attr.attr,
	&quarantined_attr.attr,
	&poisoned_attr.attr,
	&allocs_attr.attr,
	&alloc_fails_attr.attr,
	&bad_releases_attr.attr,
	&copy_waits_attr.attr,
	&alloc_latency_attr.attr,
	&alloc_latency_max_ns_attr.attr,
	NULL,
};

#define GCMA_CLIENT_ATTR(_dir, _client, _name)				\
static ssize_t _dir##_##_name##_show(struct kobject *kobj,		\
				     struct kobj_attribute *attr,	\
				     char *buf)				\
{									\
	struct dmem_area *dmem = gcma_lent(kobj_gcma(kobj));		\
	struct dmem_stats sum = {};					\
									\
	if (dmem)							\
		dmem_sum_stats(dmem, &sum);				\
	return sysfs_emit(buf, "%lu\n", sum._name[_client]);		\
}									\
static struct kobj_attribute _dir##_##_name##_attr =			\
	__ATTR(_name, 0444, _dir##_##_name##_show, NULL)

#define GCMA_CLIENT_DIR(_dir, _client)					\
GCMA_CLIENT_ATTR(_dir, _client, stored);				\
GCMA_CLIENT_ATTR(_dir, _client, loaded);				\
GCMA_CLIENT_ATTR(_dir, _client, served);				\
GCMA_CLIENT_ATTR(_dir, _client, missed);				\
GCMA_CLIENT_ATTR(_dir, _client, discarded);				\
GCMA_CLIENT_ATTR(_dir, _client, evicted);				\
GCMA_CLIENT_ATTR(_dir, _client, refused);				\
GCMA_CLIENT_ATTR(_dir, _client, declined);				\
static ssize_t _dir##_cached_show(struct kobject *kobj,			\
				  struct kobj_attribute *attr,		\
				  char *buf)				\
{									\
	struct dmem_area *dmem = gcma_lent(kobj_gcma(kobj));		\
									\
	return sysfs_emit(buf, "%lu\n",					\
			  dmem ? dmem_cached(dmem, _client) : 0);	\
}									\
static struct kobj_attribute _dir##_cached_attr =			\
	__ATTR(cached, 0444, _dir##_cached_show, NULL);			\
static struct attribute *_dir##_attrs[] = {				\
	&_dir##_cached_attr.attr,					\
	&_dir##_stored_attr.attr,					\
	&_dir##_loaded_attr.attr,					\
	&_dir##_served_attr.attr,					\
	&_dir##_missed_attr.attr,					\
	&_dir##_discarded_attr.attr,					\
	&_dir##_evicted_attr.attr,					\
	&_dir##_refused_attr.attr,					\
	&_dir##_declined_attr.attr,					\
	NULL,								\
};									\
static const struct attribute_group _dir##_group = {			\
	.name = #_dir,							\
	.attrs = _dir##_attrs,						\
}

GCMA_CLIENT_DIR(file, GCMA_CLIENT_FILE);
GCMA_CLIENT_DIR(swap, GCMA_CLIENT_SWAP);

static const struct attribute_group gcma_group = {
	.attrs = gcma_attrs,
};

static const struct attribute_group *gcma_groups[] = {
	&gcma_group,
	&file_group,
	&swap_group,
	NULL,
};

static const char * const admit_names[] = {
	[GCMA_ADMIT_ADAPTIVE] = "adaptive",
	[GCMA_ADMIT_ALL] = "all",
	[GCMA_ADMIT_WORKINGSET] = "workingset",
};

static ssize_t admit_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%s\n", admit_names[READ_ONCE(gcma_admit)]);
}

static ssize_t admit_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t count)
{
	int admit = sysfs_match_string(admit_names, buf);

	if (admit < 0)
		return admit;
	gcma_set_admit(admit);
	return count;
}

static struct kobj_attribute admit_attr = __ATTR_RW(admit);

/* Areas live as long as the kernel. */
static void gcma_dir_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct gcma_dir, kobj));
}

static const struct kobj_type gcma_dir_type = {
	.release	= gcma_dir_release,
	.sysfs_ops	= &kobj_sysfs_ops,
	.default_groups	= gcma_groups,
};

/**
 * gcma_sysfs_init() - publish the counters of all areas
 *
 * Return: 0 or -ENOMEM; the areas work without.
 */
int __init gcma_sysfs_init(void)
{
	struct kobject *root = NULL;
	unsigned int i;

	for (i = 0; i < cma_area_count; i++) {
		struct gcma *gcma = gcma_area(i);
		struct gcma_dir *dir;
		int err;

		if (!gcma)
			continue;
		if (!root) {
			root = kobject_create_and_add("gcma", mm_kobj);
			if (root && sysfs_create_file(root, &admit_attr.attr))
				goto no_memory;
		}
		dir = root ? kzalloc(sizeof(*dir), GFP_KERNEL) : NULL;
		if (!dir)
			goto no_memory;
		dir->gcma = gcma;
		err = kobject_init_and_add(&dir->kobj, &gcma_dir_type, root,
					   "%.*s",
					   (int)strcspn(gcma->cma->name, "\n"),
					   gcma->cma->name);
		if (err) {
			kobject_put(&dir->kobj);
			goto no_memory;
		}
	}
	return 0;

no_memory:
	pr_err("no memory for sysfs, counters are not shown\n");
	return -ENOMEM;
}
