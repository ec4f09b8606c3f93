// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that replaces two of the allocation functions of C++, or four with their aligned forms
 * (ALIGNED): all others have to end in these, as they do in the C++ runtime.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "check.h"

/* which C++ has the runtime do */
#pragma GCC diagnostic ignored "-Wsized-deallocation"

static long objects;
static const std::size_t HEADER = 4096;

/* Something that free() does not know what to do with. */
static void *obtain(std::size_t size)
{
	if (size > PTRDIFF_MAX - 2 * HEADER)
		throw std::bad_alloc();
	char *start = static_cast<char *>(std::malloc(size + HEADER));

	if (!start)
		throw std::bad_alloc();
	objects++;
	return start + HEADER;
}

static void give_back(void *object)
{
	if (object) {
		objects--;
		std::free(static_cast<char *>(object) - HEADER);
	}
}

void *operator new(std::size_t size)
{
	return obtain(size);
}

void operator delete(void *object) noexcept
{
	give_back(object);
}

#ifdef ALIGNED
static std::size_t last;

void *operator new(std::size_t size, std::align_val_t align)
{
	auto start = reinterpret_cast<std::uintptr_t>(obtain(size + 2 * static_cast<std::size_t>(align)));
	auto object = (start + static_cast<std::size_t>(align)) & ~(static_cast<std::uintptr_t>(align) - 1);

	reinterpret_cast<void **>(object)[-1] = reinterpret_cast<void *>(start);
	last = static_cast<std::size_t>(align);
	return reinterpret_cast<void *>(object);
}

void operator delete(void *object, std::align_val_t align) noexcept
{
	CHECK(static_cast<std::size_t>(align) == last);
	if (object)
		give_back(static_cast<void **>(object)[-1]);
}
#endif

struct Base {
	long words[10];
	virtual ~Base() {}
};

struct alignas(128) Wide {
	char bytes[200];
	~Wide() {}
};

template <typename T> static T *opaque(T *object)
{
	__asm__ volatile("" : "+r"(object));
	return object;
}

static void forms(std::size_t size)
{
	long before = objects;
	char *object = opaque(static_cast<char *>(::operator new(size)));

	CHECK(objects == before + 1);
	::operator delete(object, size);
	object = opaque(static_cast<char *>(::operator new[](size)));
	CHECK(objects == before + 1);
	::operator delete[](object, size);
	object = opaque(static_cast<char *>(::operator new(size, std::nothrow)));
	CHECK(objects == before + 1);
	::operator delete(object, std::nothrow);
	object = opaque(static_cast<char *>(::operator new[](size, std::nothrow)));
	CHECK(objects == before + 1);
	::operator delete[](object, std::nothrow);
	CHECK(!opaque(::operator new(SIZE_MAX, std::nothrow)));
	CHECK(!opaque(::operator new[](SIZE_MAX, std::nothrow)));
	CHECK(objects == before);
}

int main()
{
	for (std::size_t size : { 1, 100, 5000, 200000, 3000000 })
		forms(size);
	delete opaque(new Base);
	delete[] opaque(new Base[1000]);
	delete[] opaque(new int[100000]);
	{
		std::string text(300000, 'x');
		std::vector<Base> many(5000);
	}
	long before = objects;
	Wide *wide = opaque(new Wide);

#ifdef ALIGNED
	CHECK(objects == before + 1);
#endif
	CHECK(reinterpret_cast<std::uintptr_t>(wide) % 128 == 0);
	delete wide;
	delete[] opaque(new Wide[1000]);
	wide = opaque(new (std::nothrow) Wide);
	::operator delete(wide, std::align_val_t(128), std::nothrow);
	::operator delete[](opaque(::operator new[](1000, std::align_val_t(128), std::nothrow)),
			    std::align_val_t(128), std::nothrow);
	CHECK(objects == before);
	if (failures)
		return 1;
	std::puts("replaced: all checks passed");
	return 0;
}
