// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Growth when the system says no: faults KIND. Every object keeps its bytes, a
 * refusal is null and ENOMEM, and afterwards there is memory again. Exit status
 * 0 and "faults: KIND holds", 1 and the reason, or 77 when the system does not
 * permit to set the fault up.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "status.h"

#define MIB ((size_t)1 << 20)
#define OBJECTS 8

static void fail(const char *why)
{
	dprintf(2, "faults: %s\n", why);
	_exit(1);
}

static void cannot(const char *why)
{
	printf("faults: cannot set up: %s\n", why);
	exit(77);
}

static unsigned char pattern(size_t at, size_t which)
{
	return (unsigned char)(at * 131 + (at >> 12) + which);
}

static void fill(unsigned char *object, size_t from, size_t to, size_t which)
{
	for (size_t at = from; at < to; at += 509)
		object[at - at % 509] = pattern(at - at % 509, which);
}

static void verify(const unsigned char *object, size_t size, size_t which)
{
	for (size_t at = 0; at < size; at += 509)
		if (object[at] != pattern(at, which))
			fail("contents changed");
}

/* Grow several objects until each was refused or is as large as asked. */
static int grow(size_t most)
{
	unsigned char *objects[OBJECTS] = { 0 };
	size_t sizes[OBJECTS] = { 0 };
	int refused = 0, open = OBJECTS;
	int done[OBJECTS] = { 0 };

	while (open) {
		for (size_t i = 0; i < OBJECTS; i++) {
			size_t size = sizes[i] ? sizes[i] + sizes[i] / 2 : 509 * (50 + i);
			unsigned char *grown;

			if (done[i])
				continue;
			size -= size % 509;
			errno = 0;
			grown = size > most ? NULL : realloc(objects[i], size);
			if (!grown) {
				if (size <= most) {
					refused++;
					if (errno != ENOMEM)
						fail("refusal without ENOMEM");
				}
				done[i] = 1;
				open--;
				continue;
			}
			objects[i] = grown;
			fill(grown, sizes[i], size, i);
			sizes[i] = size;
		}
	}
	for (size_t i = 0; i < OBJECTS; i++) {
		if (!sizes[i])
			continue;
		verify(objects[i], sizes[i], i);
		objects[i] = realloc(objects[i], 5090);
		if (!objects[i])
			fail("cannot shrink");
		verify(objects[i], 5090, i);
		free(objects[i]);
	}
	return refused;
}

static void some_memory_up_to(size_t most)
{
	for (size_t size = 16; size <= most; size *= 2) {
		unsigned char *object = calloc(1, size);

		if (!object)
			fail("no memory although all was freed");
		for (size_t i = 0; i < size; i += 64)
			if (object[i])
				fail("calloc is not zero");
		memset(object, 1, size);
		free(object);
	}
}

static void some_memory(void)
{
	some_memory_up_to(MIB);
}

static void limit(int which, size_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	if (setrlimit(which, &limit))
		cannot("setrlimit");
}

/*
 * No more address space from now on. What the library has reserved is still
 * there, so that it may never be refused anything.
 */
static void address_space(void)
{
	free(realloc(malloc(10), 300000));
	limit(RLIMIT_AS, status_kib("VmSize:") * 1024 + 64 * MIB);
	grow(256 * MIB);
	some_memory();
}

/*
 * A limit below what the library has reserved. The kernel refuses to move an object's pages, but
 * only after it has unmapped the place where they were to go.
 */
static void no_move(void)
{
	enum { MANY = 400, TRIES = 12 };
	unsigned char *object, *others[TRIES];

	/* what the C library has of a heap stays */
	free(malloc(100));
	/* so many large objects that the next begin in the smallest places */
	for (int i = 0; i < MANY; i++) {
		object = malloc(200000);
		if (!object)
			fail("refused without a limit");
		*object = 1;
	}
	/* once one as large has been freed, memory is kept without a closer look */
	object = realloc(malloc(200000), 30 * MIB);
	if (!object)
		fail("refused without a limit");
	fill(object, 0, 30 * MIB, 0);
	free(object);
	for (size_t i = 0; i < TRIES; i++) {
		others[i] = realloc(malloc(200000), 5 * MIB);
		if (!others[i])
			fail("refused without a limit");
		fill(others[i], 0, 5 * MIB, i);
	}
	limit(RLIMIT_AS, (size_t)4 << 30);
	for (size_t i = 0; i < TRIES; i++) {
		errno = 0;
		object = realloc(others[i], 70 * MIB);
		if (!object && errno != ENOMEM)
			fail("refusal without ENOMEM");
		if (object)
			others[i] = object;
		verify(others[i], 5 * MIB, i);
		/* as large as what was asked for in vain */
		object = malloc(70 * MIB);
		if (object)
			fill(object, 0, 6 * MIB, i);
	}
	for (size_t i = 0; i < TRIES; i++)
		verify(others[i], 5 * MIB, i);
	some_memory_up_to(MIB / 16);
}

/* The same, from before the library's first instruction: see the test. */
static void small_from_the_start(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		fail("no limit on the address space");
	if (!grow(limit.rlim_cur))
		fail("the limit was never met");
	some_memory();
}

static void data_limit(void)
{
	limit(RLIMIT_DATA, status_kib("VmData:") * 1024 + 64 * MIB);
	if (!grow(256 * MIB))
		fail("the limit was never met");
	some_memory();
}

/* Every mapping the process may have is taken, but for a few. */
static void mappings(void)
{
	size_t taken = 0, pages = 140000, page = (size_t)sysconf(_SC_PAGESIZE);
	char *hole, *area = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		cannot("mmap");
	while (taken < pages && !mprotect(area + taken * page, page, PROT_READ))
		taken += 2;
	if (taken >= pages)
		cannot("vm.max_map_count is very large");
	grow(64 * MIB);
	/* The C library alone is refused from 256 KiB on: a longer heap counts as a mapping. */
	some_memory_up_to(MIB / 16);
	/* with room for a few splits and then none */
	munmap(area, 40 * page);
	/* Whoever maps something next may get that place, as this does. */
	hole = mmap(area, page, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (hole != MAP_FAILED)
		*hole = 'h';
	grow(64 * MIB);
	munmap(area + 40 * page, (pages - 40) * page);
	if (grow(64 * MIB))
		fail("refused although mappings are free again");
	if (hole != MAP_FAILED && *hole != 'h')
		fail("somebody wrote to the program's own mapping");
	some_memory();
}

/* Locked memory is memory in use: nothing may be locked that is not committed. */
static void locked(void)
{
	free(realloc(malloc(10), 300000));
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		cannot("mlockall");
	if (status_kib("VmRSS:") > 600 * 1024)
		fail("mlockall made memory resident that nobody asked for");
	if (grow(16 * MIB))
		fail("refused");
	some_memory();
}

static void no_huge_pages(void)
{
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		cannot("PR_SET_THP_DISABLE");
	if (grow(64 * MIB))
		fail("refused");
	if (status_kib("VmRSS:") > 800 * 1024)
		fail("more resident than there should be");
	some_memory();
}

/* Overcommit is off. That is the whole machine's to choose, so it is only met, not set up. */
static void overcommit(void)
{
	char mode = '0';
	int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY);

	if (file < 0 || read(file, &mode, 1) != 1 || mode != '2')
		cannot("vm.overcommit_memory is not 2");
	close(file);
	if (!grow((size_t)8 << 30))
		fail("strict overcommit never refused");
	some_memory();
}

/*
 * The machine gives a process few mappings (vm.max_map_count). Large objects must not use them
 * up: most of all, the program needs some itself, for stacks and libraries.
 */
static void few_mappings(void)
{
	enum { LARGE = 3000, OWN = 40 };
	static char *large[LARGE];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), most = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	void *own[OWN];

	if (!file || fscanf(file, "%zu", &most) != 1 || most > 4000)
		cannot("vm.max_map_count is not low");
	fclose(file);
	for (size_t i = 0; i < LARGE; i++) {
		large[i] = malloc(100000);
		if (!large[i] || !(large[i] = realloc(large[i], 200000)))
			fail("large objects used up the mappings");
		large[i][199999] = (char)i;
	}
	for (size_t i = 0; i < OWN; i++) {
		own[i] = mmap(NULL, page, i % 2 ? PROT_READ : PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (own[i] == MAP_FAILED)
			fail("no mapping is left to the program");
	}
	for (size_t i = 0; i < LARGE; i++) {
		if (large[i][199999] != (char)i)
			fail("contents changed");
		free(large[i]);
	}
	if (grow(16 * MIB))
		fail("refused");
	some_memory();
}

/* The limit of this process's control group, or 0. */
static size_t group_limit(void)
{
	char line[400], name[500];
	size_t bytes = 0;
	FILE *file = fopen("/proc/self/cgroup", "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "0::", 3)) {
			line[strcspn(line, "\n")] = 0;
			snprintf(name, sizeof(name), "/sys/fs/cgroup%s/memory.max", line + 3);
			fclose(file);
			file = fopen(name, "r");
			if (!file || fscanf(file, "%zu", &bytes) != 1)
				bytes = 0;
			break;
		}
	if (file)
		fclose(file);
	return bytes;
}

/*
 * What is kept of freed memory counts against the control group, and the kernel ends the
 * process when there is too much: freed memory must not take the place of used memory.
 */
static void memory_cgroup(void)
{
	size_t most = group_limit(), size = 400000, n;
	char *large[200];

	if (!most || most > 400 * MIB)
		cannot("no control group with a small limit of memory");
	for (int round = 0; round < 3; round++) {
		n = most / 10 * 6 / size;
		for (size_t i = 0; i < n && i < 200; i++) {
			large[i] = malloc(size);
			if (!large[i])
				fail("refused");
			memset(large[i], 1, size);
		}
		for (size_t i = 0; i < n && i < 200; i++)
			free(large[i]);
	}
	/* Not in turn with the above: what the base allocator keeps is its own business. */
	n = most / 10 * 7 / 4096;
	for (size_t i = 0; i < n; i++) {
		char *small = malloc(4000);

		if (!small)
			fail("refused");
		memset(small, 2, 4000);
	}
}

/* What the program opens in place of stderr is not ours to write to. */
static void closed_stderr(void)
{
	char bytes[64];
	const char *name = getenv("FAULTS_FILE");
	int file;

	close(2);
	file = name ? open(name, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
	if (file != 2 || write(file, "data", 4) != 4)
		cannot("file in place of stderr");
	if (grow(4 * MIB))
		_exit(1);
	if (pread(file, bytes, sizeof(bytes), 0) != 4 || memcmp(bytes, "data", 4))
		_exit(1);
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = {
	{ "address-space", address_space },
	{ "no-move", no_move },
	{ "small-from-the-start", small_from_the_start },
	{ "data-limit", data_limit },
	{ "mappings", mappings },
	{ "locked", locked },
	{ "no-huge-pages", no_huge_pages },
	{ "overcommit", overcommit },
	{ "few-mappings", few_mappings },
	{ "memory-cgroup", memory_cgroup },
	{ "closed-stderr", closed_stderr },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].run();
			printf("faults: %s holds\n", argv[1]);
			return 0;
		}
	fprintf(stderr, "faults: no such kind\n");
	return 2;
}
