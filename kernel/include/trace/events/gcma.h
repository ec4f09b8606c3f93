/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM gcma

#if !defined(_TRACE_GCMA_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_GCMA_H

#include <linux/cma.h>
#include <linux/fs.h>
#include <linux/tracepoint.h>

TRACE_EVENT(gcma_alloc,
	TP_PROTO(const char *name, unsigned long pfn, unsigned long count,
		 unsigned long copy_waits),
	TP_ARGS(name, pfn, count, copy_waits),
	TP_STRUCT__entry(
		__string(name, name)
		__field(unsigned long, pfn)
		__field(unsigned long, count)
		__field(unsigned long, copy_waits)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->pfn = pfn;
		__entry->count = count;
		__entry->copy_waits = copy_waits;
	),
	TP_printk("name=%s pfn=0x%lx count=%lu copy_waits=%lu",
		  __get_str(name), __entry->pfn, __entry->count,
		  __entry->copy_waits)
);

/* What an allocation has discarded is counted when its pages are free again. */
TRACE_EVENT(gcma_free,
	TP_PROTO(const char *name, unsigned long pfn, unsigned long count,
		 unsigned long discarded),
	TP_ARGS(name, pfn, count, discarded),
	TP_STRUCT__entry(
		__string(name, name)
		__field(unsigned long, pfn)
		__field(unsigned long, count)
		__field(unsigned long, discarded)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->pfn = pfn;
		__entry->count = count;
		__entry->discarded = discarded;
	),
	TP_printk("name=%s pfn=0x%lx count=%lu discarded=%lu",
		  __get_str(name), __entry->pfn, __entry->count,
		  __entry->discarded)
);

#define GCMA_PRINT(format, ...)						\
	TP_printk("client=%s dev=%d:%d ino=%llu index=%lu pages=%lu" format, \
		  __entry->dev ? "file" : "swap", MAJOR(__entry->dev),	\
		  MINOR(__entry->dev), __entry->ino, __entry->index,	\
		  __entry->pages, ##__VA_ARGS__)

DECLARE_EVENT_CLASS(gcma_data,
	TP_PROTO(struct address_space *mapping, pgoff_t index,
		 unsigned long pages, bool flag),
	TP_ARGS(mapping, index, pages, flag),
	TP_STRUCT__entry(
		__field(u64, ino)
		__field(pgoff_t, index)
		__field(unsigned long, pages)
		__field(dev_t, dev)
		__field(bool, flag)
	),
	TP_fast_assign(
		/* The swap cache has no inode. */
		__entry->ino = mapping->host ? mapping->host->i_ino : 0;
		__entry->dev = mapping->host ? mapping->host->i_sb->s_dev : 0;
		__entry->index = index;
		__entry->pages = pages;
		__entry->flag = flag;
	),
	GCMA_PRINT("")
);

#define GCMA_DATA_EVENT(name, yes, no)					\
DEFINE_EVENT_PRINT(gcma_data, name,					\
	TP_PROTO(struct address_space *mapping, pgoff_t index,		\
		 unsigned long pages, bool flag),			\
	TP_ARGS(mapping, index, pages, flag),				\
	GCMA_PRINT(" %s", __entry->flag ? yes : no))

DEFINE_EVENT(gcma_data, gcma_store,
	TP_PROTO(struct address_space *mapping, pgoff_t index,
		 unsigned long pages, bool flag),
	TP_ARGS(mapping, index, pages, flag));
GCMA_DATA_EVENT(gcma_load, "hit", "gone");
GCMA_DATA_EVENT(gcma_read, "direct", "buffered");

#endif /* _TRACE_GCMA_H */

#include <trace/define_trace.h>
