// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function that allocates gives objects aligned to 16 bytes, of every size from 0 to 4096:
// so does the C library, and programs count on it. There are enough calls to go through what an
// allocator does only after some thousands.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <new>

static std::size_t size;

static void *aligned(const char *function, void *object)
{
	if (!object || reinterpret_cast<std::uintptr_t>(object) % 16) {
		std::fprintf(stderr, "alignment: %s, %zu bytes: %p\n", function, size, object);
		std::exit(1);
	}
	return object;
}

int main()
{
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
			::operator delete(aligned("new, nothrow", ::operator new(size, std::nothrow)));
			::operator delete(aligned("new, 8", ::operator new(size, std::align_val_t(8))),
					  std::align_val_t(8));
		}
	}
	std::puts("alignment: all checks passed");
	return 0;
}
