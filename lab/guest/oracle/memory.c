// SPDX-License-Identifier: MIT OR Apache-2.0
/* Anonymous memory, private and shared, and the hog, which makes memory short. */
#include "oracle.h"

#include <sys/wait.h>

/* words of a page that a compressor cannot shrink; it can shrink the rest */
#define DENSE_WORDS	96u
#define PAGE_WORDS	(PAGE / 8)

struct space {
	const char *name;
	u8 *map;
	u32 pages;
	u64 key;
	u32 *version;		/* of each page; 0 is the page of zeros */
	bool is_shared;
};

static u64 anon_base(const struct space *s, u32 page, u32 version)
{
	return mix64(s->key ^ (u64)page * 0xff51afd7ed558ccdULL ^
		     (u64)version * 0xc4ceb9fe1a85ec53ULL);
}

/* The step between the first words, and the content of the others. */
static u64 anon_shape(u64 *base, u32 version, u64 *rest)
{
	switch (version ? *base >> 61 : 0) {
	case 0:
		*base = 0;
		*rest = 0;
		return 0;
	case 1:		/* one word all over, as swap likes it */
		*rest = *base;
		return 0;
	default:
		*rest = ~*base;
		return STREAM_STEP;
	}
}

static void anon_fill(const struct space *s, u32 page, u32 version)
{
	u64 base = anon_base(s, page, version), rest, step, v;
	word *w = (word *)(s->map + (size_t)page * PAGE);
	u32 i;

	step = anon_shape(&base, version, &rest);
	for (v = base, i = 0; i < DENSE_WORDS; i++, v += step)
		w[i] = v;
	for (; i < PAGE_WORDS; i++)
		w[i] = rest;
}

/* Returns the first wrong word of a page, or -1. */
static int anon_compare(const struct space *s, u32 page, u64 *expected,
			u64 *got)
{
	u32 version = s->version[page], i;
	u64 base = anon_base(s, page, version), rest, step, v;
	const word *w = (const word *)(s->map + (size_t)page * PAGE);

	step = anon_shape(&base, version, &rest);
	for (v = base, i = 0; i < PAGE_WORDS; i++, v += step) {
		u64 want = i < DENSE_WORDS ? v : rest, is = w[i];

		if (is == want)
			continue;
		*expected = want;
		*got = is;
		return (int)i;
	}
	return -1;
}

static void anon_wrong(const struct space *s, u32 page, int at, u64 expected,
		       u64 got, const char *who)
{
	struct json j = json_line("wrong");
	char text[96] = "unknown";
	u32 p, back;

	if (!got)
		snprintf(text, sizeof(text), "zeros");
	for (p = 0; got && p < s->pages; p++) {
		for (back = 0; back < 64 && back < s->version[p]; back++) {
			u32 version = s->version[p] - back;
			u64 base = anon_base(s, p, version), rest, step;

			step = anon_shape(&base, version, &rest);
			if (got == ((u32)at < DENSE_WORDS ?
				    base + (u64)at * step : rest))
				snprintf(text, sizeof(text),
					 "page %u version %u", p, version);
		}
	}
	json_str(&j, "where", s->name);
	json_str(&j, "who", who);
	json_u64(&j, "page", page);
	json_u64(&j, "version", s->version[page]);
	json_s64(&j, "word", at);
	json_hex(&j, "expected", expected);
	json_hex(&j, "got", got);
	json_str(&j, "got_is", text);
	json_end(&j);
	fail(&shared->anon_wrong);
}

static void anon_verify(const struct space *s, u32 first, u32 n,
			const char *who)
{
	u32 p;

	for (p = first; p < first + n; p++) {
		u64 expected, got;
		int at = anon_compare(s, p, &expected, &got);

		if (at >= 0)
			anon_wrong(s, p, at, expected, got, who);
	}
	count(&shared->bytes_verified, (u64)n * PAGE);
}

/* A child sees its parent's memory as it was at the fork. */
static pid_t anon_fork(const struct space *s, struct rng *rng)
{
	pid_t pid = fork();
	u32 i, k, round;

	if (pid) {
		if (pid > 0)
			count(&shared->forks, 1);
		return pid;
	}
	for (round = 0; round < 16; round++) {
		u32 n = 1 + rng_below(rng, min_u32(32, s->pages));
		u32 first = rng_below(rng, s->pages - n + 1);

		anon_verify(s, first, n, "child");
		for (i = 0; i < n; i += 4) {
			k = ++s->version[first + i];
			anon_fill(s, first + i, k);
		}
		if (rng_one_in(rng, 2))
			madvise(s->map + (size_t)first * PAGE,
				(size_t)n * PAGE, MADV_PAGEOUT);
		anon_verify(s, first, n, "child");
	}
	_exit(0);
}

static void anon_reap(pid_t *child, int flags)
{
	int status;

	if (*child > 0 && waitpid(*child, &status, flags) == *child) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			die("a child died of signal %d", WTERMSIG(status));
		*child = 0;
	}
}

static void space_make(struct space *s, const char *name, u32 mib, u32 id,
		       bool is_shared)
{
	s->name = name;
	s->pages = (u32)((u64)mib * MIB / opt.anon_workers / PAGE);
	s->key = mix64(opt.seed ^ ((u64)id << 40) ^ is_shared ^ 0x616e6f6e);
	s->is_shared = is_shared;
	if (!s->pages)
		return;
	s->version = locked_alloc(s->pages * sizeof(*s->version));
	s->map = mmap(NULL, (size_t)s->pages * PAGE, PROT_READ | PROT_WRITE,
		      (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS,
		      -1, 0);
	if (s->map == MAP_FAILED)
		die("cannot map %u MiB", mib);
	if (opt.thp && !is_shared)
		madvise(s->map, (size_t)s->pages / 2 * PAGE, MADV_HUGEPAGE);
}

void anon_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 5000 + id);
	struct space spaces[2] = { { 0 } };
	pid_t child = 0;
	u32 i;

	space_make(&spaces[0], "anon", opt.anon_mib, id, false);
	space_make(&spaces[1], "shmem", opt.shmem_mib, id, true);
	if (!spaces[0].pages && !spaces[1].pages)
		return;

	while (!stopping()) {
		struct space *s = &spaces[rng_below(&rng, 4) == 0];
		u32 what = rng_below(&rng, 100), len, first;
		size_t bytes;
		u8 *at;

		if (!s->pages)
			s = &spaces[!s->is_shared];
		len = 1 + rng_below(&rng, 1u << rng_below(&rng, 8));
		len = min_u32(len, s->pages);
		first = rng_below(&rng, s->pages - len + 1);
		at = s->map + (size_t)first * PAGE;
		bytes = (size_t)len * PAGE;

		if (what < 35) {
			anon_verify(s, first, len, "owner");
		} else if (what < 60) {
			if (rng_one_in(&rng, 2))
				anon_verify(s, first, len, "owner");
			for (i = first; i < first + len; i++)
				anon_fill(s, i, ++s->version[i]);
		} else if (what < 65) {
			/* shared memory loses its content only when removed */
			if (s->is_shared && rng_one_in(&rng, 2)) {
				madvise(at, bytes, MADV_DONTNEED);
			} else if (!madvise(at, bytes, s->is_shared ?
					    MADV_REMOVE : MADV_DONTNEED)) {
				memset(&s->version[first], 0,
				       len * sizeof(*s->version));
			}
			anon_verify(s, first, len, "owner");
		} else if (what < 88) {
			madvise(at, bytes, MADV_PAGEOUT);
			if (rng_one_in(&rng, 2))
				anon_verify(s, first, len, "owner");
			else if (rng_one_in(&rng, 2))
				for (i = first; i < first + len; i += 2)
					anon_fill(s, i, ++s->version[i]);
		} else if (what < 92) {
			madvise(at, bytes, MADV_WILLNEED);
		} else if (what < 94 && spaces[0].pages) {
			anon_reap(&child, WNOHANG);
			if (!child)
				child = anon_fork(&spaces[0], &rng);
		} else {
			anon_verify(s, first, len, "owner");
		}
		count(&shared->anon_ops, 1);
	}
	anon_reap(&child, 0);
	for (i = 0; i < 2; i++)
		if (spaces[i].pages)
			anon_verify(&spaces[i], 0, spaces[i].pages, "final");
}

/* Allocates memory, uses it and gives it back, again and again. */
void hog_worker(u32 id)
{
	struct rng rng = rng_make(opt.seed, 6000 + id);
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "1000", 4);
		close(fd);
	}
	while (!stopping()) {
		u32 pages = (u32)((u64)opt.hog_mib * MIB / PAGE *
				  (50 + rng_below(&rng, 51)) / 100), i;
		u64 tag = rng_next(&rng);
		/* with more than is free, the OOM killer ends it */
		u8 *p = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			die("cannot map %u MiB for the hog", opt.hog_mib);
		for (i = 0; i < pages && (i % 256 || !stopping()); i++)
			*(word *)(p + (size_t)i * PAGE) = tag + i;
		pages = i;
		for (i = 0; i < 50 && !stopping(); i++)
			sleep_ms(rng_below(&rng, 10));
		for (i = 0; i < pages && (i % 256 || !stopping()); i++) {
			u64 got = *(word *)(p + (size_t)i * PAGE);

			if (got != tag + i) {
				struct json j = json_line("wrong");

				json_str(&j, "where", "hog");
				json_u64(&j, "page", i);
				json_hex(&j, "expected", tag + i);
				json_hex(&j, "got", got);
				json_end(&j);
				fail(&shared->anon_wrong);
			}
		}
		munmap(p, (size_t)pages * PAGE);
		count(&shared->hog_waves, 1);
		for (i = 0; i < 50 && !stopping(); i++)
			sleep_ms(rng_below(&rng, 20));
	}
}
