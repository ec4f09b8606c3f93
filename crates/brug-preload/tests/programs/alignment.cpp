// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function that allocates gives objects aligned to 16 bytes, of every size from 0 to 4096:
// so does the C library, and programs count on it. Those that take an alignment give that one, with every
// function that resizes or frees such an object. There are enough calls to go through what an allocator
// does only after some thousands.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

// What the library has beside the C library's, and the C++ runtime's of this standard.
extern "C" {
#define OTHERS(name, ...) name(__VA_ARGS__) __attribute__((weak))
void *OTHERS(mallocx, std::size_t, int);
void *OTHERS(rallocx, void *, std::size_t, int);
std::size_t OTHERS(xallocx, void *, std::size_t, std::size_t, int);
std::size_t OTHERS(sallocx, const void *, int);
void OTHERS(dallocx, void *, int);
void OTHERS(sdallocx, void *, std::size_t, int);
std::size_t OTHERS(nallocx, std::size_t, int);
void *OTHERS(reallocf, void *, std::size_t);
void OTHERS(free_sized, void *, std::size_t);
void OTHERS(free_aligned_sized, void *, std::size_t, std::size_t);
void OTHERS(cfree, void *);
}

static std::size_t size;

static void *aligned(const char *function, void *object)
{
	if (!object || reinterpret_cast<std::uintptr_t>(object) % 16) {
		std::fprintf(stderr, "alignment: %s, %zu bytes: %p\n", function, size, object);
		std::exit(1);
	}
	return object;
}

static void *aligned_to(std::size_t align, const char *function, void *object)
{
	if (!object || reinterpret_cast<std::uintptr_t>(object) % align) {
		std::fprintf(stderr, "alignment: %s, %zu bytes, %zu: %p\n", function, size, align, object);
		std::exit(1);
	}
	*static_cast<char *>(object) = 1;
	return object;
}

static void *from_posix(std::size_t align)
{
	void *object = nullptr;

	return posix_memalign(&object, align, size) ? nullptr : object;
}

// What jemalloc calls its own, and what some libraries have beside the standard's.
static void others(std::size_t align, int log)
{
	void *object;

	if (!mallocx)
		return;
	for (int zero = 0; zero <= 0x40; zero += 0x40) {
		object = aligned_to(align, "mallocx", mallocx(size + 1, log | zero));
		if (sallocx(object, log) < size + 1 || nallocx(size + 1, log) < size + 1 ||
		    xallocx(object, size + 1, 0, log) < size + 1)
			aligned_to(align, "what sallocx, nallocx or xallocx say", nullptr);
		object = aligned_to(align, "rallocx, larger", rallocx(object, 2 * size + 1, log | zero));
		object = aligned_to(align, "rallocx, smaller", rallocx(object, size / 3 + 1, log));
		if (zero)
			dallocx(object, log);
		else
			sdallocx(object, size / 3 + 1, log);
	}
	free_aligned_sized(aligned_to(align, "aligned_alloc", std::aligned_alloc(align, size)), align,
			   size);
	cfree(aligned_to(align, "memalign", memalign(align, size)));
	object = aligned("mallocx, no flags", mallocx(size + 1, 0));
	object = aligned("rallocx, no flags", rallocx(object, size % 24 + 1, 0));
	object = aligned("reallocf", reallocf(object, size + 1));
	free_sized(object, size + 1);
}

static void with_alignment(std::size_t align, int log)
{
	const std::align_val_t to{ align };

	std::free(aligned_to(align, "memalign", memalign(align, size)));
	std::free(aligned_to(align, "aligned_alloc", std::aligned_alloc(align, size)));
	std::free(aligned("realloc of posix_memalign's",
			  std::realloc(aligned_to(align, "posix_memalign", from_posix(align)), size + 1)));
	std::free(aligned_to(4096, "valloc", valloc(size)));
	std::free(aligned_to(4096, "pvalloc", pvalloc(size)));
	::operator delete(aligned_to(align, "new", ::operator new(size, to)), to);
	::operator delete(aligned_to(align, "new", ::operator new(size, to)), size, to);
	::operator delete(aligned_to(align, "new, nothrow", ::operator new(size, to, std::nothrow)), to,
			  std::nothrow);
	::operator delete[](aligned_to(align, "new[]", ::operator new[](size, to)), to);
	::operator delete[](aligned_to(align, "new[]", ::operator new[](size, to)), size, to);
	::operator delete[](aligned_to(align, "new[], nothrow", ::operator new[](size, to, std::nothrow)),
			    to, std::nothrow);
	others(align, log);
}

// Bytes that the process may write to.
static std::size_t writable()
{
	std::FILE *file = std::fopen("/proc/self/status", "r");
	std::size_t kib = 0;
	char line[256];

	while (file && std::fgets(line, sizeof(line), file))
		if (!std::strncmp(line, "VmData:", 7))
			kib = std::strtoul(line + 7, nullptr, 10);
	if (file)
		std::fclose(file);
	return kib << 10;
}

// An allocator that has nothing so large or so aligned needs no more memory for it, however often it is asked.
static void one_after_another()
{
	std::size_t most = writable() + (std::size_t(16) << 30);

	for (int i = 0; i < 20; i++) {
		size = std::size_t(3) << 30;
		std::free(std::malloc(size));
		size = 64;
		for (int log = 16; log <= 22; log++)
			std::free(aligned_to(std::size_t(1) << log, "memalign",
					     memalign(std::size_t(1) << log, size)));
	}
	size = writable();
	if (size > most)
		aligned("writable after all was freed", nullptr);
}

int main()
{
	one_after_another();
	for (int round = 0; round < 2; round++) {
		for (size = 0; size <= 4096; size++) {
			void *many[] = {
				aligned("malloc", std::malloc(size)),
				aligned("calloc", std::calloc(1, size)),
				aligned("realloc from null", std::realloc(nullptr, size)),
				aligned("reallocarray from null", reallocarray(nullptr, 1, size)),
				aligned("memalign", memalign(8, size)),
				aligned("aligned_alloc", std::aligned_alloc(16, size)),
				aligned("valloc", valloc(size)),
				aligned("pvalloc", pvalloc(size)),
				nullptr,
			};

			if (posix_memalign(&many[8], 8, size))
				many[8] = nullptr;
			aligned("posix_memalign", many[8]);
			for (void *&object : many) {
				std::size_t to = size % 24 + 1;

				if (size % 2)
					object = realloc(object, to);
				else
					object = reallocarray(object, to, 1);
				std::free(aligned("smaller", object));
			}
			void *small = aligned("small", std::malloc(size % 24 + 1));

			if (size)
				small = aligned("larger", std::realloc(small, size));
			std::free(small);
			::operator delete(aligned("new", ::operator new(size)));
			::operator delete[](aligned("new[]", ::operator new[](size)));
			::operator delete(aligned("new", ::operator new(size)), size);
			::operator delete[](aligned("new[]", ::operator new[](size)), size);
			::operator delete(aligned("new, nothrow", ::operator new(size, std::nothrow)),
					  std::nothrow);
			::operator delete[](
				aligned("new[], nothrow", ::operator new[](size, std::nothrow)),
				std::nothrow);
			::operator delete(aligned("new, 8", ::operator new(size, std::align_val_t(8))),
					  std::align_val_t(8));
		}
	}
	for (int log = 3; log <= 21; log++) {
		for (size = 1; size <= 4096; size = size * 3 / 2 + 1)
			with_alignment(std::size_t(1) << log, log);
		for (size = 100000; size <= 3000000; size *= 5)
			with_alignment(std::size_t(1) << log, log);
	}
	std::puts("alignment: all checks passed");
	return 0;
}
