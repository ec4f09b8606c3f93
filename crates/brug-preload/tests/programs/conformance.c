// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The malloc family as programs know it from the C library: every corner that a
 * program may lean on. Prints one line per failure; exit status 1 if there was
 * any, 0 and "conformance: N checks" otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, failures;

#define CHECK(what)                                                          \
	do {                                                                 \
		__atomic_add_fetch(&checks, 1, __ATOMIC_RELAXED);            \
		if (!(what)) {                                               \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);  \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #what); \
		}                                                            \
	} while (0)

/* Hide a value from the compiler, which knows malloc and would fold calls away. */
#define OPAQUE(x) ({ __auto_type opaque = (x); __asm__ volatile("" : "+r"(opaque)); opaque; })

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static void fill(void *object, size_t size, unsigned char seed)
{
	unsigned char *bytes = object;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(seed + i * 7);
}

static int intact(const void *object, size_t size, unsigned char seed)
{
	const unsigned char *bytes = object;

	for (size_t i = 0; i < size; i++)
		if (bytes[i] != (unsigned char)(seed + i * 7))
			return 0;
	return 1;
}

static int zero(const void *object, size_t size)
{
	const unsigned char *bytes = object;

	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			return 0;
	return 1;
}

static int aligned(const void *object, size_t align)
{
	return (uintptr_t)object % align == 0;
}

/* What C asks for: any type that fits. The C library aligns the smallest to 16, too. */
static size_t natural(size_t size)
{
	return size < 16 ? 8 : 16;
}

static const size_t sizes[] = {
	0, 1, 2, 7, 8, 15, 16, 17, 24, 25, 100, 255, 256, 1000, 1024, 4095, 4096, 4097, 8192,
	65535, 65536, 131071, 131072, 131073, 200000, 262144, MIB - 1, MIB, 2 * MIB, 2 * MIB + 1,
	5 * MIB, 33 * MIB,
};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static void alignment_and_usable_size(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		size_t size = sizes[i];
		char *object = malloc(size);

		CHECK(object);
		CHECK(aligned(object, natural(size)));
		CHECK(malloc_usable_size(object) >= size);
		/* never the size of the address range set aside for growth */
		CHECK(malloc_usable_size(object) <= size + size / 4 + 2 * 4096);
		memset(object, 0xa5, malloc_usable_size(object));
		free(object);
	}
	CHECK(malloc_usable_size(NULL) == 0);
	CHECK(OPAQUE(malloc(0)) != OPAQUE(malloc(0)));
}

static void calloc_is_zero(void)
{
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < SIZES; i++) {
			char *dirty = malloc(sizes[i]);
			char *clean;

			memset(dirty, 0xff, malloc_usable_size(dirty));
			free(OPAQUE(dirty));
			clean = calloc(1, sizes[i]);
			/* Who asks how much there is may use it. */
			CHECK(clean && zero(clean, malloc_usable_size(clean)));
			fill(clean, sizes[i], 3);
			clean = realloc(clean, sizes[i] * 2 + 1);
			CHECK(clean && intact(clean, sizes[i], 3));
			free(clean);
		}
}

static void overflow_is_enomem(void)
{
	static const size_t absurd[] = { SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX };
	char *kept = malloc(100);

	fill(kept, 100, 9);
	for (size_t i = 0; i < 4; i++) {
		size_t size = OPAQUE(absurd[i]);
		void *out = kept;

		errno = 0;
		CHECK(!malloc(size) && errno == ENOMEM);
		errno = 0;
		CHECK(!realloc(OPAQUE(kept), size) && errno == ENOMEM);
		errno = 0;
		CHECK(!calloc(1, size) && errno == ENOMEM);
		errno = 0;
		CHECK(!memalign(64, size) && errno == ENOMEM);
		errno = 0;
		CHECK(!pvalloc(size) && errno == ENOMEM);
		CHECK(posix_memalign(&out, 64, size) == ENOMEM && out == kept);
	}
	errno = 0;
	CHECK(!calloc(OPAQUE(SIZE_MAX / 2), 3) && errno == ENOMEM);
	errno = 0;
	CHECK(!reallocarray(OPAQUE(kept), OPAQUE(SIZE_MAX / 2), 3) && errno == ENOMEM);
	CHECK(intact(kept, 100, 9));
	free(kept);
}

static void aligned_kinds(void)
{
	for (size_t align = 8; align <= 4 * MIB; align *= 2)
		for (size_t i = 0; i < SIZES; i += 3) {
			void *object = NULL;

			errno = EDOM;
			CHECK(posix_memalign(&object, align, sizes[i]) == 0 && errno == EDOM);
			CHECK(object && aligned(object, align));
			CHECK(malloc_usable_size(object) >= sizes[i]);
			fill(object, sizes[i], 1);
			object = realloc(object, sizes[i] + 100000);
			CHECK(object && intact(object, sizes[i], 1));
			free(object);
			object = aligned_alloc(align, sizes[i]);
			CHECK(object && aligned(object, align));
			free(object);
			object = memalign(align, sizes[i]);
			CHECK(object && aligned(object, align));
			free(object);
		}

	static const size_t wrong[] = { 0, 1, 2, 4, 3, 12, 24, 4097 };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		void *object = &object;

		errno = EDOM;
		CHECK(posix_memalign(&object, OPAQUE(wrong[i]), 8) == EINVAL);
		CHECK(object == &object && errno == EDOM);
	}
	/* refused since 2.38, rounded up before */
	int refuses = strverscmp(gnu_get_libc_version(), "2.38") >= 0;

	for (size_t i = 4; i < sizeof(wrong) / sizeof(*wrong); i++) {
		errno = 0;
		void *object = aligned_alloc(OPAQUE(wrong[i]), 300000);

		CHECK(refuses ? !object && errno == EINVAL : !!object);
		free(object);
	}
	void *rounded = memalign(OPAQUE((size_t)24), 10);

	CHECK(rounded && aligned(rounded, 32));
	free(rounded);
	errno = 0;
	CHECK(!memalign(OPAQUE(SIZE_MAX), 8) && errno == EINVAL);

	long page = sysconf(_SC_PAGESIZE);
	void *object = valloc(10);

	CHECK(object && aligned(object, page));
	free(object);
	object = pvalloc(page + 1);
	CHECK(object && aligned(object, page) && malloc_usable_size(object) >= 2 * (size_t)page);
	free(object);
}

static void realloc_corners(void)
{
	void *object = realloc(OPAQUE((void *)NULL), 50);

	CHECK(object && malloc_usable_size(object) >= 50);
	CHECK(!realloc(OPAQUE(object), OPAQUE((size_t)0)));
	object = realloc(OPAQUE((void *)NULL), OPAQUE((size_t)0));
	CHECK(object);
	free(object);
	free(NULL);
	object = malloc(MIB);
	CHECK(!realloc(OPAQUE(object), OPAQUE((size_t)0)));
	object = reallocarray(NULL, 10, 10);
	CHECK(object && malloc_usable_size(object) >= 100);
	free(object);
}

static void contents_survive_growth_and_shrinking(void)
{
	static const size_t path[] = { 1, 20, 500, 5000, 70000, 130000, 140000, 900000, 8 * MIB,
		40 * MIB, 3 * MIB, 131072, 131071, 4096, 30, 1, 64, 6 * MIB, 16 };
	unsigned char *object = NULL;
	size_t size = 0;

	for (int round = 0; round < 5; round++)
		for (size_t i = 0; i < sizeof(path) / sizeof(*path); i++) {
			size_t kept = path[i] < size ? path[i] : size;

			object = realloc(object, path[i]);
			CHECK(object && aligned(object, natural(path[i])));
			CHECK(intact(object, kept, 5));
			fill(object, path[i], 5);
			size = path[i];
		}
	free(object);

	/* one page at a time, and many objects turn by turn */
	unsigned char *many[16] = { 0 };

	for (size_t step = 1; step <= 256; step++)
		for (size_t i = 0; i < 16; i++) {
			many[i] = realloc(many[i], step * 1500);
			CHECK(many[i] && (step == 1 || intact(many[i], (step - 1) * 1500, (unsigned char)i)));
			fill(many[i], step * 1500, (unsigned char)i);
		}
	for (size_t i = 0; i < 16; i++)
		free(many[i]);
}

/* No promise of any standard, but getdelim's callers tell its end from its failure by it. */
static void success_is_not_enomem(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		void *object;

		errno = 0;
		object = malloc(sizes[i]);
		CHECK(errno != ENOMEM);
		object = realloc(object, sizes[i] + 200000);
		CHECK(errno != ENOMEM);
		free(object);
		object = calloc(1, sizes[i]);
		CHECK(errno != ENOMEM);
		free(object);
	}
}

static void *success_is_not_enomem_in_a_thread(void *arg)
{
	success_is_not_enomem();
	return arg;
}

static void free_keeps_errno(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		void *object = malloc(sizes[i]);

		errno = EXDEV;
		free(OPAQUE(object));
		CHECK(errno == EXDEV);
	}
}

static void beyond_two_gib(void)
{
	static const size_t big[] = { 2 * GIB - 1, 2 * GIB + 5, 5 * GIB };
	unsigned char *object = malloc(10);

	fill(object, 10, 1);
	for (size_t i = 0; i < 3; i++) {
		unsigned char *grown = realloc(object, big[i]);

		if (!grown) { /* a machine may be too small; then nothing is lost */
			CHECK(intact(object, 10, 1));
			continue;
		}
		object = grown;
		CHECK(malloc_usable_size(object) >= big[i]);
		CHECK(intact(object, 10, 1));
		object[big[i] - 1] = 77;
		object[big[i] / 2] = 78;
	}
	object = realloc(object, 10);
	CHECK(object && intact(object, 10, 1));
	free(object);
}

#define ROUNDS 400

static void *produced[ROUNDS];

static void *producer(void *arg)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		size_t size = sizes[i % 26];
		void *object = malloc(size);

		fill(object, size, 11);
		__atomic_store_n(&produced[i], object, __ATOMIC_RELEASE);
	}
	return arg;
}

static void objects_cross_threads(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, producer, NULL));
	for (size_t i = 0; i < ROUNDS; i++) {
		void *object;

		while (!(object = __atomic_load_n(&produced[i], __ATOMIC_ACQUIRE)))
			usleep(10);
		CHECK(intact(object, sizes[i % 26], 11));
		if (i % 2) {
			object = realloc(object, sizes[i % 26] + 50000);
			CHECK(object && intact(object, sizes[i % 26], 11));
		}
		free(object);
	}
	pthread_join(thread, NULL);
}

static int stop;

static void *churn(void *arg)
{
	size_t size = 100;
	unsigned char *object = NULL;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		object = realloc(object, size);
		CHECK(object);
		object[0] = object[size - 1] = 1;
		size = size > MIB ? 100 : size * 3;
		if (size == 100) {
			free(object);
			object = NULL;
		}
	}
	free(object);
	return arg;
}

/* Threads that come and go, and with them what an allocator keeps for each. */
static void *brief(void *arg)
{
	void *objects[64];

	for (size_t i = 0; i < 64; i++)
		CHECK(objects[i] = malloc(i * 100 % 2000 + 1));
	for (size_t i = 0; i < 64; i++)
		free(objects[i]);
	return arg;
}

static void *come_and_go(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, brief, NULL));
		pthread_join(thread, NULL);
	}
	return arg;
}

#define INHERITED 200

/* A child forked at any moment of its siblings' work must be able to allocate, and to do as it
 * likes with what it inherits.
 */
static void fork_among_threads(void)
{
	static unsigned char *inherited[INHERITED];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, i ? churn : come_and_go, NULL));
	for (int i = 0; i < 60; i++) {
		int status = 0;

		for (size_t j = 0; j < INHERITED; j++) {
			CHECK(inherited[j] = malloc(j * 37 + 1));
			fill(inherited[j], j * 37 + 1, 3);
		}
		pid_t child = fork();

		if (child == 0) {
			alarm(120);
			unsigned char *object = NULL;

			for (size_t j = 0; j < INHERITED; j++) {
				if (j % 3 == 0) {
					inherited[j] = realloc(inherited[j], j * 90 + 1);
					if (!inherited[j])
						_exit(2);
				}
				if (malloc_usable_size(inherited[j]) < j * 37 + 1 ||
				    !intact(inherited[j], j * 37 + 1, 3))
					_exit(3);
				free(inherited[j]);
			}
			for (size_t size = 10; size < 3 * MIB; size *= 2) {
				object = realloc(object, size);
				if (!object)
					_exit(2);
				memset(object, 1, size);
			}
			free(object);
			if (i % 2)
				_exit(0);
			exit(0);
		}
		for (size_t j = 0; j < INHERITED; j++)
			free(inherited[j]);
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(status == 0);
	}
	/* and one that only stays until it has started another program */
	for (int i = 0; i < 10; i++) {
		int status = 0;
		pid_t child = vfork();

		if (child == 0) {
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static pthread_key_t key;
static int late;

static void allocate_late(void *arg)
{
	unsigned char *object = realloc(arg, 300000);

	if (object && intact(object, 200000, 4))
		__atomic_add_fetch(&late, 1, __ATOMIC_RELAXED);
	free(object);
	free(OPAQUE(malloc(64)));
}

static void *leave_an_object(void *arg)
{
	void *object = malloc(200000);

	fill(object, 200000, 4);
	pthread_setspecific(key, object);
	return arg;
}

static void thread_exit(void)
{
	pthread_t fresh;

	CHECK(!pthread_create(&fresh, NULL, success_is_not_enomem_in_a_thread, NULL));
	pthread_join(fresh, NULL);
	CHECK(!pthread_key_create(&key, allocate_late));
	for (int i = 0; i < 50; i++) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, leave_an_object, NULL));
		pthread_join(thread, NULL);
	}
	CHECK(late == 50);
}

static void heap_questions(void)
{
	void *object = malloc(40 * MIB);
	struct mallinfo2 info = mallinfo2();

	CHECK(info.hblkhd + info.uordblks > 0);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	(void)mallinfo();
	CHECK(mallopt(M_ARENA_MAX, 4) == 1);
	free(OPAQUE(object));
	CHECK((malloc_trim(0) & ~1) == 0);
}

extern void cfree(void *) __attribute__((weak));
extern void *reallocf(void *, size_t) __attribute__((weak));
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
extern void *mallocx(size_t, int) __attribute__((weak));
extern void *rallocx(void *, size_t, int) __attribute__((weak));
extern size_t xallocx(void *, size_t, size_t, int) __attribute__((weak));
extern size_t sallocx(const void *, int) __attribute__((weak));
extern size_t nallocx(size_t, int) __attribute__((weak));
extern void dallocx(void *, int) __attribute__((weak));
extern void sdallocx(void *, size_t, int) __attribute__((weak));

/* What the C library does not have: only there when the library is. */
static void beyond_the_c_library(void)
{
	enum { ALIGN_4K = 12, ZEROED = 0x40 };

	if (!mallocx)
		return;
	cfree(malloc(10));
	free_sized(malloc(10), 10);
	free_aligned_sized(aligned_alloc(64, 128), 64, 128);

	unsigned char *object = malloc(100);

	CHECK(!reallocf(object, OPAQUE(SIZE_MAX))); /* frees it */
	object = reallocf(malloc(100), 1000);
	CHECK(object && malloc_usable_size(object) >= 1000);
	free(object);

	for (size_t i = 1; i < SIZES; i++) {
		size_t size = sizes[i];

		object = mallocx(size, ZEROED | ALIGN_4K);
		CHECK(object && aligned(object, 4096) && zero(object, size));
		CHECK(sallocx(object, 0) == malloc_usable_size(object));
		fill(object, size, 2);
		size_t before = sallocx(object, 0);

		object = rallocx(object, size + 300000, ZEROED | ALIGN_4K);
		CHECK(object && aligned(object, 4096) && intact(object, size, 2));
		CHECK(size + 300000 <= before || zero(object + before, size + 300000 - before));
		CHECK(xallocx(object, size + 400000, 0, ALIGN_4K) == malloc_usable_size(object));
		sdallocx(object, size + 300000, ALIGN_4K);
		dallocx(mallocx(size, 0), 0);
		/* All that it says may be used, of a new object and of one that has grown. */
		for (int flags = 0; flags <= ALIGN_4K; flags += 6) {
			size_t real = nallocx(size, flags);

			object = mallocx(size, flags);
			CHECK(real >= size && object && sallocx(object, flags) >= real);
			fill(object, real, 3);
			real = nallocx(size + 70000, flags);
			object = rallocx(object, size + 70000, flags);
			CHECK(real >= size + 70000 && object && sallocx(object, flags) >= real);
			fill(object, real, 4);
			real = nallocx(size, flags);
			object = rallocx(object, size, flags);
			CHECK(object && sallocx(object, flags) >= real && intact(object, size, 4));
			fill(object, real, 5);
			dallocx(object, flags);
		}
	}
	CHECK(nallocx(100, 6) == 104 && nallocx(204800, 0) == 204800);
	CHECK(nallocx(1, 63) == 0 && !mallocx(1, 63));
	CHECK(nallocx(OPAQUE(SIZE_MAX), 0) == 0);
	CHECK(!mallocx(OPAQUE(SIZE_MAX), 0));
}

/* Before any constructor, the C library's own included. */
static void *first;
static int first_errno;

static void before_all(int argc, char **argv, char **envp)
{
	(void)argc, (void)argv, (void)envp;
	errno = 0;
	first = malloc(200000);
	first_errno = errno;
	if (first)
		fill(first, 200000, 8);
	free(OPAQUE(malloc(10)));
}

__attribute__((section(".preinit_array"), used))
static void (*preinit)(int, char **, char **) = before_all;

static void memory_from_before_main(void)
{
	CHECK(first && intact(first, 200000, 8));
	CHECK(first_errno != ENOMEM);
	first = realloc(first, 2000000);
	CHECK(first && intact(first, 200000, 8));
	free(first);
}

__attribute__((destructor)) static void after_main(void)
{
	void *object = realloc(malloc(10), 500000);

	free(OPAQUE(object));
}

int main(void)
{
	memory_from_before_main();
	alignment_and_usable_size();
	calloc_is_zero();
	overflow_is_enomem();
	aligned_kinds();
	realloc_corners();
	contents_survive_growth_and_shrinking();
	free_keeps_errno();
	success_is_not_enomem();
	beyond_two_gib();
	objects_cross_threads();
	fork_among_threads();
	thread_exit();
	heap_questions();
	beyond_the_c_library();
	if (failures) {
		printf("conformance: %d of %d checks failed\n", failures, checks);
		return 1;
	}
	printf("conformance: %s\n", checks > 1000 ? "all checks passed" : "too few checks");
	return checks <= 1000;
}
