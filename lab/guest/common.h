/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What all programs that run inside the guest share: the clock, a seeded
 * generator of random numbers, JSON lines, and the counters of the kernel.
 *
 * Include this file before any other: it selects the interfaces of libc.
 * Results go to stdout, one JSON object a line and one write() a line, so that
 * lines of several processes never mix. All other words go to stderr.
 */
#ifndef LAB_GUEST_COMMON_H
#define LAB_GUEST_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

/* for words inside buffers that the kernel filled */
typedef uint64_t __attribute__((may_alias)) word;

#define NSEC_PER_SEC	((u64)1000000000)
#define NSEC_PER_MSEC	((u64)1000000)
#define MIB		(1024u * 1024u)
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define GCMA_SYSFS	"/sys/kernel/mm/gcma"

/* ------------------------------------------------------------- failing */

static inline void vnote(const char *fmt, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
}

static inline void __attribute__((format(printf, 1, 2)))
note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vnote(fmt, ap);
	va_end(ap);
}

static inline void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vnote(fmt, ap);
	va_end(ap);
	exit(1);
}

/* Answer --help and unknown options: the names alone, the meaning is above. */
static inline void __attribute__((noreturn))
usage(const struct option *o)
{
	fprintf(stderr, "usage: %s", program_invocation_short_name);
	for (; o->name; o++)
		fprintf(stderr, " [--%s%s]", o->name, o->has_arg ? " X" : "");
	fprintf(stderr, "\n");
	exit(2);
}

static inline u64 parse_u64(const char *what, const char *s)
{
	char *end;
	u64 v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (errno || end == s || *end || *s == '-')
		die("--%s wants a number, not '%s'", what, s);
	return v;
}

static inline u32 parse_u32(const char *what, const char *s)
{
	u64 v = parse_u64(what, s);

	if (v > UINT32_MAX)
		die("--%s %s is too large", what, s);
	return (u32)v;
}

static inline void *xalloc(size_t size)
{
	void *p = calloc(1, size ? size : 1);

	if (!p)
		die("out of memory (%zu bytes wanted)", size);
	return p;
}

/* ---------------------------------------------------------------- time */

static inline u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static inline void sleep_ms(u64 ms)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ms / 1000),
		.tv_nsec = (long)((ms % 1000) * NSEC_PER_MSEC),
	};

	if (ms)
		nanosleep(&ts, NULL);
}

/* -------------------------------------------------------------- random */

static inline u64 mix64(u64 x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	x ^= x >> 31;
	return x;
}

struct rng {
	u64 state;
};

/* Generators of the same seed and different streams do not resemble. */
static inline struct rng rng_make(u64 seed, u64 stream)
{
	struct rng r = {
		.state = mix64(seed + 0x9e3779b97f4a7c15ULL * (stream + 1)),
	};

	return r;
}

static inline u64 rng_next(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15ULL;
	return mix64(r->state);
}

/* Uniform in [0, n); 0 for n == 0. */
static inline u32 rng_below(struct rng *r, u32 n)
{
	return (u32)(((rng_next(r) >> 32) * n) >> 32);
}

static inline bool rng_one_in(struct rng *r, u32 n)
{
	return rng_below(r, n) == 0;
}

/* ---------------------------------------------------------------- JSON */

struct json {
	char *buf;
	size_t len;
	size_t cap;
	bool comma;
};

static inline void json_put(struct json *j, const char *s, size_t n)
{
	if (j->len + n + 1 > j->cap) {
		j->cap = (j->len + n + 1) * 2 + 256;
		j->buf = realloc(j->buf, j->cap);
		if (!j->buf)
			die("out of memory for a line of output");
	}
	memcpy(j->buf + j->len, s, n);
	j->len += n;
	j->buf[j->len] = 0;
}

static inline void json_quote(struct json *j, const char *s)
{
	json_put(j, "\"", 1);
	for (; *s; s++) {
		char esc[8];

		if (*s == '"' || *s == '\\') {
			esc[0] = '\\';
			esc[1] = *s;
			json_put(j, esc, 2);
		} else if ((unsigned char)*s < 0x20) {
			snprintf(esc, sizeof(esc), "\\u%04x", *s);
			json_put(j, esc, 6);
		} else {
			json_put(j, s, 1);
		}
	}
	json_put(j, "\"", 1);
}

/* Start a value; @key is NULL inside arrays. */
static inline void json_key(struct json *j, const char *key)
{
	if (j->comma)
		json_put(j, ",", 1);
	j->comma = true;
	if (key) {
		json_quote(j, key);
		json_put(j, ":", 1);
	}
}

static inline void json_raw(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_put(j, value, strlen(value));
}

static inline void json_u64(struct json *j, const char *key, u64 v)
{
	char s[24];

	snprintf(s, sizeof(s), "%" PRIu64, v);
	json_raw(j, key, s);
}

static inline void json_s64(struct json *j, const char *key, s64 v)
{
	char s[24];

	snprintf(s, sizeof(s), "%" PRId64, v);
	json_raw(j, key, s);
}

/* 64-bit words as text: JSON readers round numbers beyond 2^53 */
static inline void json_hex(struct json *j, const char *key, u64 v)
{
	char s[24];

	snprintf(s, sizeof(s), "\"0x%016" PRIx64 "\"", v);
	json_raw(j, key, s);
}

static inline void json_milli(struct json *j, const char *key, u64 thousandths)
{
	char s[32];

	snprintf(s, sizeof(s), "%" PRIu64 ".%03u", thousandths / 1000,
		 (unsigned int)(thousandths % 1000));
	json_raw(j, key, s);
}

static inline void json_bool(struct json *j, const char *key, bool v)
{
	json_raw(j, key, v ? "true" : "false");
}

static inline void json_str(struct json *j, const char *key, const char *v)
{
	json_key(j, key);
	json_quote(j, v);
}

static inline void json_open(struct json *j, const char *key, const char *brace)
{
	json_key(j, key);
	json_put(j, brace, 1);
	j->comma = false;
}

static inline void json_close(struct json *j, const char *brace)
{
	json_put(j, brace, 1);
	j->comma = true;
}

static inline struct json json_line(const char *type)
{
	struct json j = { 0 };

	json_put(&j, "{", 1);
	json_str(&j, "type", type);
	return j;
}

static inline void json_end(struct json *j)
{
	size_t done = 0;

	json_put(j, "}\n", 2);
	while (done < j->len) {
		ssize_t n = write(STDOUT_FILENO, j->buf + done, j->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	free(j->buf);
	j->buf = NULL;
}

/* ------------------------------------------------- counters of the kernel */

#define FIELDS_MAX	512

struct fields {
	u32 n;
	struct {
		char name[128];
		u64 value;
	} f[FIELDS_MAX];
};

static inline void fields_add(struct fields *fs, const char *name, u64 value)
{
	if (fs->n == FIELDS_MAX)
		return;
	snprintf(fs->f[fs->n].name, sizeof(fs->f[0].name), "%s", name);
	fs->f[fs->n++].value = value;
}

static inline bool fields_get(const struct fields *fs, const char *name, u64 *v)
{
	u32 i;

	for (i = 0; i < fs->n; i++) {
		if (!strcmp(fs->f[i].name, name)) {
			*v = fs->f[i].value;
			return true;
		}
	}
	return false;
}

/* The sum of all fields whose name ends in @suffix. */
static inline u64 fields_sum(const struct fields *fs, const char *suffix)
{
	size_t want = strlen(suffix);
	u64 sum = 0;
	u32 i;

	for (i = 0; i < fs->n; i++) {
		size_t len = strlen(fs->f[i].name);

		if (len >= want && !strcmp(fs->f[i].name + len - want, suffix))
			sum += fs->f[i].value;
	}
	return sum;
}

static inline void fields_read_vmstat(struct fields *fs)
{
	FILE *f = fopen("/proc/vmstat", "r");
	char name[64];
	u64 value;

	fs->n = 0;
	if (!f)
		return;
	while (fscanf(f, "%63s %" SCNu64, name, &value) == 2)
		fields_add(fs, name, value);
	fclose(f);
}

/* A counter of /proc/vmstat. */
static inline u64 vmstat(const char *name)
{
	struct fields vm;
	u64 value;

	fields_read_vmstat(&vm);
	if (!fields_get(&vm, name, &value))
		die("no %s in /proc/vmstat", name);
	return value;
}

/* Write a word so often to a file, which may refuse it, as memory.reclaim does if there is not that much. */
static inline void tell(const char *path, const char *word, int times)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s: %s", path, strerror(errno));
	while (times--)
		(void)!write(fd, word, strlen(word));
	close(fd);
}

/* One line of a small file without its newline; false if it cannot be read. */
static inline bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return false;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = 0;
	return true;
}

static inline bool text_is_u64(const char *text, u64 *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end;
}

/*
 * Call @fn for every regular file below @dir, at most @depth directories
 * further down, in alphabetical order. Absent directories are empty ones.
 */
static inline void for_each_file(const char *dir, const char *rel, int depth,
				 void (*fn)(void *arg, const char *rel,
					    const char *text),
				 void *arg)
{
	struct dirent **names;
	int i, n = scandir(dir, &names, NULL, alphasort);

	for (i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		char path[512], sub[128], text[4096];
		struct stat st;

		if (name[0] != '.' &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) <
		    sizeof(path) &&
		    (size_t)snprintf(sub, sizeof(sub), "%s%s%s", rel,
				     *rel ? "/" : "", name) < sizeof(sub) &&
		    !lstat(path, &st)) {
			if (S_ISDIR(st.st_mode) && depth > 0)
				for_each_file(path, sub, depth - 1, fn, arg);
			else if (S_ISREG(st.st_mode) &&
				 read_text(path, text, sizeof(text)))
				fn(arg, sub, text);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

static inline void fields_add_text(void *arg, const char *rel, const char *text)
{
	u64 value;

	if (text_is_u64(text, &value))
		fields_add(arg, rel, value);
}

/* Names are <area>/<file>, <area>/file/<file> and <area>/swap/<file>. */
static inline void fields_read_gcma(struct fields *fs)
{
	fs->n = 0;
	for_each_file(GCMA_SYSFS, "", 2, fields_add_text, fs);
}

static inline bool gcma_present(void)
{
	return !access(GCMA_SYSFS, F_OK);
}

static inline bool has_prefix(const char *name, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (!strncmp(name, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

/* An object with a member for each field that existed before and after. */
static inline void json_deltas(struct json *j, const char *key,
			       const struct fields *before,
			       const struct fields *after,
			       const char *const *prefixes)
{
	u32 i;

	json_open(j, key, "{");
	for (i = 0; i < after->n; i++) {
		const char *name = after->f[i].name;
		u64 v;

		if (prefixes && !has_prefix(name, prefixes))
			continue;
		if (fields_get(before, name, &v))
			json_s64(j, name, (s64)(after->f[i].value - v));
	}
	json_close(j, "}");
}

static inline void json_fields(struct json *j, const char *key,
			       const struct fields *fs)
{
	u32 i;

	json_open(j, key, "{");
	for (i = 0; i < fs->n; i++)
		json_u64(j, fs->f[i].name, fs->f[i].value);
	json_close(j, "}");
}

/* What pressure and its relief look like in /proc/vmstat. */
static const char *const pressure_fields[] __attribute__((unused)) = {
	"workingset_refault", "workingset_activate", "pgmajfault", "pswp",
	"pgscan", "pgsteal", "allocstall", "oom_kill", "gcma_", "cma_", NULL,
};

#endif /* LAB_GUEST_COMMON_H */
