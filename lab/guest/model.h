/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a file ought to contain, byte for byte, without storing its content.
 *
 * A file is a sorted list of extents. Each extent names a stream, an endless
 * sequence of bytes that is computed from the file's key and a tag, and the
 * place in the stream where it starts. Every write draws a fresh tag, so each
 * byte of a file tells which write put it there. Tag 0 is the stream of zeros.
 *
 *	offset in file   0        700         4096             9000 = size
 *	extent           | tag 3    | tag 0     | tag 7           |
 *	place in stream  | 0        | 700       | 8192            |
 *
 * Streams are made of 8-byte words that grow by a constant, which costs one
 * addition a word to write or to check. Place and offset are always congruent
 * modulo 8, so with a buffer aligned like the file all words are aligned.
 */
#ifndef LAB_GUEST_MODEL_H
#define LAB_GUEST_MODEL_H

#include "common.h"

/* beyond this many extents the owner of a file should start it anew */
#define MODEL_EXTENTS	1024
/* one operation adds at most this many */
#define MODEL_MARGIN	8

#define TAG_ZERO	0u
/* content that nobody can know, after a failed write */
#define TAG_UNKNOWN	UINT32_MAX

#define STREAM_STEP	0x9e3779b97f4a7c15ULL

struct extent {
	u32 off;
	u32 place;
	u32 tag;
};

struct model {
	u64 key;
	u32 size;
	u32 n;
	struct extent *ext;
};

static inline u64 stream_base(u64 key, u32 tag)
{
	return tag ? mix64(key ^ (u64)tag * 0xff51afd7ed558ccdULL) : 0;
}

static inline u64 stream_word(u64 key, u32 tag, u32 place)
{
	return tag ? stream_base(key, tag) + place / 8 * STREAM_STEP : 0;
}

static inline u8 stream_byte(u64 key, u32 tag, u32 place)
{
	u64 v = stream_word(key, tag, place);

	return ((const u8 *)&v)[place % 8];
}

/* Fill @p with @len bytes of a stream; @p and @place are congruent modulo 8. */
static inline void stream_fill(u8 *p, u32 len, u64 key, u32 tag, u32 place)
{
	u64 step = tag ? STREAM_STEP : 0, v;
	word *w;
	u32 n;

	for (; len && place % 8; len--)
		*p++ = stream_byte(key, tag, place++);
	w = (word *)p;
	v = stream_word(key, tag, place);
	for (n = len / 8; n; n--) {
		*w++ = v;
		v += step;
	}
	p += len & ~7u;
	place += len & ~7u;
	for (len %= 8; len; len--)
		*p++ = stream_byte(key, tag, place++);
}

/* Where @p first differs from the stream, or -1. */
static inline s64 stream_check(const u8 *p, u32 len, u64 key, u32 tag,
			       u32 place)
{
	u64 step = tag ? STREAM_STEP : 0, v, diff;
	const u8 *start = p;
	const word *w;
	u32 n, i;

	for (; len && place % 8; len--, p++)
		if (*p != stream_byte(key, tag, place++))
			return p - start;
	w = (const word *)p;
	v = stream_word(key, tag, place);
	for (n = len / 8; n; n -= i, w += i) {
		u64 at = v;

		diff = 0;
		for (i = 0; i < 32 && i < n; i++, v += step)
			diff |= w[i] ^ v;
		if (!diff)
			continue;
		for (i = 0; w[i] == at; i++)
			at += step;
		p = (const u8 *)(w + i);
		for (i = 0; p[i] == ((const u8 *)&at)[i]; i++)
			;
		return p + i - start;
	}
	p += len & ~7u;
	place += len & ~7u;
	for (len %= 8; len; len--, p++)
		if (*p != stream_byte(key, tag, place++))
			return p - start;
	return -1;
}

/* The extent that holds byte @off, which is below the size. */
static inline u32 model_find(const struct model *m, u32 off)
{
	u32 lo = 0, hi = m->n;

	while (hi - lo > 1) {
		u32 mid = lo + (hi - lo) / 2;

		if (m->ext[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static inline u32 model_end(const struct model *m, u32 i)
{
	return i + 1 < m->n ? m->ext[i + 1].off : m->size;
}

/* Join neighbours that are one stretch of one stream. */
static inline void model_compact(struct model *m)
{
	u32 i, out = 0;

	for (i = 1; i < m->n; i++) {
		const struct extent *a = &m->ext[out], *b = &m->ext[i];

		if (a->tag == b->tag &&
		    (a->tag == TAG_ZERO || a->tag == TAG_UNKNOWN ||
		     b->place - a->place == b->off - a->off))
			continue;
		m->ext[++out] = *b;
	}
	if (m->n)
		m->n = out + 1;
}

static inline bool model_is_full(struct model *m)
{
	if (m->n + MODEL_MARGIN > MODEL_EXTENTS)
		model_compact(m);
	return m->n + MODEL_MARGIN > MODEL_EXTENTS;
}

/* Make an extent start at @off; the number of that extent. */
static inline u32 model_split(struct model *m, u32 off)
{
	struct extent *e;
	u32 i;

	if (off >= m->size)
		return m->n;
	i = model_find(m, off);
	e = &m->ext[i];
	if (e->off == off)
		return i;
	memmove(e + 2, e + 1, (m->n - i - 1) * sizeof(*e));
	m->n++;
	e[1].off = off;
	e[1].place = e->place + (off - e->off);
	e[1].tag = e->tag;
	return i + 1;
}

static inline void model_resize(struct model *m, u32 size)
{
	if (size < m->size) {
		m->n = model_split(m, size);
	} else if (size > m->size) {
		struct extent *e = &m->ext[m->n++];

		e->off = m->size;
		e->place = m->size;
		e->tag = TAG_ZERO;
	}
	m->size = size;
}

/* The range now holds the stream @tag from place @off on. */
static inline void model_write(struct model *m, u32 off, u32 len, u32 tag)
{
	u32 first, last;

	if (!len)
		return;
	if (off + len > m->size)
		model_resize(m, off + len);
	first = model_split(m, off);
	last = model_split(m, off + len);
	m->ext[first].place = off;
	m->ext[first].tag = tag;
	memmove(&m->ext[first + 1], &m->ext[last],
		(m->n - last) * sizeof(*m->ext));
	m->n -= last - first - 1;
}

/* Zeros, but the file does not grow. */
static inline void model_punch(struct model *m, u32 off, u32 len)
{
	if (off >= m->size)
		return;
	model_write(m, off, len < m->size - off ? len : m->size - off,
		    TAG_ZERO);
}

static inline void model_collapse(struct model *m, u32 off, u32 len)
{
	u32 first = model_split(m, off), last = model_split(m, off + len), i;

	memmove(&m->ext[first], &m->ext[last],
		(m->n - last) * sizeof(*m->ext));
	m->n -= last - first;
	for (i = first; i < m->n; i++)
		m->ext[i].off -= len;
	m->size -= len;
}

static inline void model_insert(struct model *m, u32 off, u32 len)
{
	u32 first = model_split(m, off), i;

	memmove(&m->ext[first + 1], &m->ext[first],
		(m->n - first) * sizeof(*m->ext));
	m->n++;
	for (i = first + 1; i < m->n; i++)
		m->ext[i].off += len;
	m->ext[first].off = off;
	m->ext[first].place = off;
	m->ext[first].tag = TAG_ZERO;
	m->size += len;
}

/*
 * The offset of the first byte in which @buf, read at @off, is wrong, or -1.
 * @buf and @off are congruent modulo 8, and off + len is within the size.
 */
static inline s64 model_check(const struct model *m, const u8 *buf, u32 off,
			      u32 len)
{
	u32 i, end = off + len;

	for (i = len ? model_find(m, off) : 0; off < end; i++) {
		u32 stop = model_end(m, i) < end ? model_end(m, i) : end;
		const struct extent *e = &m->ext[i];

		if (e->tag != TAG_UNKNOWN) {
			s64 bad = stream_check(buf, stop - off, m->key, e->tag,
					       e->place + (off - e->off));

			if (bad >= 0)
				return off + bad;
		}
		buf += stop - off;
		off = stop;
	}
	return -1;
}

#endif /* LAB_GUEST_MODEL_H */
