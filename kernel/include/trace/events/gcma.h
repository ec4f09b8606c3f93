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
		 unsigned int align, unsigned long discarded,
		 unsigned long spins, u64 ns),

	TP_ARGS(name, pfn, count, align, discarded, spins, ns),

	TP_STRUCT__entry(
		__array(char, name, CMA_MAX_NAME)
		__field(unsigned long, pfn)
		__field(unsigned long, count)
		__field(unsigned long, discarded)
		__field(unsigned long, spins)
		__field(u64, ns)
		__field(unsigned int, align)
	),

	TP_fast_assign(
		strscpy(__entry->name, name, CMA_MAX_NAME);
		__entry->pfn = pfn;
		__entry->count = count;
		__entry->discarded = discarded;
		__entry->spins = spins;
		__entry->ns = ns;
		__entry->align = align;
	),

	TP_printk("name=%s pfn=0x%lx count=%lu align=%u discarded=%lu spins=%lu ns=%llu",
		  __entry->name, __entry->pfn, __entry->count, __entry->align,
		  __entry->discarded, __entry->spins, __entry->ns)
);

TRACE_EVENT(gcma_release,

	TP_PROTO(const char *name, unsigned long pfn, unsigned long count,
		 unsigned long quarantined),

	TP_ARGS(name, pfn, count, quarantined),

	TP_STRUCT__entry(
		__array(char, name, CMA_MAX_NAME)
		__field(unsigned long, pfn)
		__field(unsigned long, count)
		__field(unsigned long, quarantined)
	),

	TP_fast_assign(
		strscpy(__entry->name, name, CMA_MAX_NAME);
		__entry->pfn = pfn;
		__entry->count = count;
		__entry->quarantined = quarantined;
	),

	TP_printk("name=%s pfn=0x%lx count=%lu quarantined=%lu",
		  __entry->name, __entry->pfn, __entry->count,
		  __entry->quarantined)
);

TRACE_EVENT(gcma_store,

	TP_PROTO(struct address_space *mapping, pgoff_t index,
		 unsigned long pages, bool swap),

	TP_ARGS(mapping, index, pages, swap),

	TP_STRUCT__entry(
		__field(unsigned long, ino)
		__field(pgoff_t, index)
		__field(unsigned long, pages)
		__field(dev_t, dev)
		__field(bool, swap)
	),

	TP_fast_assign(
		__entry->ino = swap ? 0 : mapping->host->i_ino;
		__entry->dev = swap ? 0 : mapping->host->i_sb->s_dev;
		__entry->index = index;
		__entry->pages = pages;
		__entry->swap = swap;
	),

	TP_printk("client=%s dev=%d:%d ino=%lu index=%lu pages=%lu",
		  __entry->swap ? "swap" : "file", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->ino, __entry->index,
		  __entry->pages)
);

TRACE_EVENT(gcma_load,

	TP_PROTO(struct address_space *mapping, pgoff_t index,
		 unsigned long pages, bool swap, bool hit),

	TP_ARGS(mapping, index, pages, swap, hit),

	TP_STRUCT__entry(
		__field(unsigned long, ino)
		__field(pgoff_t, index)
		__field(unsigned long, pages)
		__field(dev_t, dev)
		__field(bool, swap)
		__field(bool, hit)
	),

	TP_fast_assign(
		__entry->ino = swap ? 0 : mapping->host->i_ino;
		__entry->dev = swap ? 0 : mapping->host->i_sb->s_dev;
		__entry->index = index;
		__entry->pages = pages;
		__entry->swap = swap;
		__entry->hit = hit;
	),

	TP_printk("client=%s dev=%d:%d ino=%lu index=%lu pages=%lu %s",
		  __entry->swap ? "swap" : "file", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->ino, __entry->index,
		  __entry->pages, __entry->hit ? "hit" : "gone")
);

TRACE_EVENT(gcma_read,

	TP_PROTO(struct address_space *mapping, pgoff_t index, size_t bytes,
		 bool direct),

	TP_ARGS(mapping, index, bytes, direct),

	TP_STRUCT__entry(
		__field(unsigned long, ino)
		__field(pgoff_t, index)
		__field(size_t, bytes)
		__field(dev_t, dev)
		__field(bool, direct)
	),

	TP_fast_assign(
		__entry->ino = mapping->host->i_ino;
		__entry->dev = mapping->host->i_sb->s_dev;
		__entry->index = index;
		__entry->bytes = bytes;
		__entry->direct = direct;
	),

	TP_printk("dev=%d:%d ino=%lu index=%lu bytes=%zu%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino,
		  __entry->index, __entry->bytes,
		  __entry->direct ? "" : " buffered")
);

#endif /* _TRACE_GCMA_H */

#include <trace/define_trace.h>
