// SPDX-License-Identifier: MIT OR Apache-2.0
// operator new and delete in all their forms, and what happens when there is no memory. With
// -DPLUGIN it is a shared object for plugin.c, whose process has no C++ runtime of its own.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

static const std::size_t absurd = PTRDIFF_MAX;
static volatile std::size_t hidden = absurd;
static volatile std::size_t odd[] = {0, 3, 24};
static int handled;

static void handler()
{
	// The third call in a row gives up, as a handler without a plan must.
	if (++handled == 3)
		std::set_new_handler(nullptr);
}

template <typename Function> static bool throws(Function allocate)
{
	try {
		allocate();
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

// Calls by name, which no compiler may leave out.
static void forms()
{
	const std::align_val_t wide{256};

	for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
		void *object = ::operator new(size);
		CHECK(object);
		::operator delete(object);
		object = ::operator new[](size);
		CHECK(object);
		::operator delete[](object);
		object = ::operator new(size, std::nothrow);
		CHECK(object);
		::operator delete(object, std::nothrow);
		object = ::operator new[](size, std::nothrow);
		CHECK(object);
		::operator delete[](object, std::nothrow);
		object = ::operator new(size);
		::operator delete(object, size);
		object = ::operator new[](size);
		::operator delete[](object, size);
		object = ::operator new(size, wide);
		CHECK(object && reinterpret_cast<std::uintptr_t>(object) % 256 == 0);
		::operator delete(object, wide);
		object = ::operator new[](size, wide);
		CHECK(object && reinterpret_cast<std::uintptr_t>(object) % 256 == 0);
		::operator delete[](object, size, wide);
		object = ::operator new(size, wide);
		::operator delete(object, size, wide);
		object = ::operator new[](size, wide);
		::operator delete[](object, wide);
		object = ::operator new(size, wide, std::nothrow);
		CHECK(object && reinterpret_cast<std::uintptr_t>(object) % 256 == 0);
		::operator delete(object, wide, std::nothrow);
		object = ::operator new[](size, wide, std::nothrow);
		::operator delete[](object, wide, std::nothrow);
	}
}

static void no_memory()
{
	const std::align_val_t wide{256};

	CHECK(throws([] { ::operator delete(::operator new(hidden)); }));
	CHECK(throws([] { ::operator delete[](::operator new[](hidden)); }));
	CHECK(throws([=] { ::operator delete(::operator new(hidden, wide), wide); }));
	CHECK(throws([=] { ::operator delete[](::operator new[](hidden, wide), wide); }));
	CHECK(!::operator new(hidden, std::nothrow));
	CHECK(!::operator new[](hidden, std::nothrow));
	CHECK(!::operator new(hidden, wide, std::nothrow));
	CHECK(!::operator new[](hidden, wide, std::nothrow));

	for (std::size_t align : odd) {
		const std::align_val_t wrong{align};

		CHECK(throws([=] { ::operator delete(::operator new(100, wrong), wrong); }));
		CHECK(throws([=] { ::operator delete[](::operator new[](100, wrong), wrong); }));
		CHECK(!::operator new(100, wrong, std::nothrow));
		CHECK(!::operator new[](100, wrong, std::nothrow));
	}

	std::set_new_handler(handler);
	CHECK(throws([] { ::operator delete(::operator new(hidden)); }));
	CHECK(handled == 3);
	handled = 0;
	std::set_new_handler(handler);
	CHECK(!::operator new(hidden, std::nothrow));
	CHECK(handled == 3);
}

struct Early {
	std::vector<std::string> words;
	Early()
	{
		for (int i = 0; i < 20000; i++)
			words.push_back("word " + std::to_string(i));
	}
	~Early() { words.resize(3); }
} early;

thread_local std::vector<int> local;

static void containers()
{
	std::vector<std::thread> threads;

	CHECK(early.words.size() == 20000 && early.words[19999] == "word 19999");
	for (int t = 0; t < 4; t++)
		threads.emplace_back([t] {
			for (int i = 0; i < 200000; i++)
				local.push_back(i * t);
			CHECK(local.back() == 199999 * t);
		});
	for (auto &thread : threads)
		thread.join();
}

extern "C" int run()
{
	forms();
	no_memory();
	containers();
	std::puts(failures ? "cxx: failed" : "cxx: all checks passed");
	return failures != 0;
}

#ifndef PLUGIN
int main()
{
	return run();
}
#endif
