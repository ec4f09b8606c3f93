// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that calls the allocator through the addresses of its functions. */
#include <stdlib.h>

#define ADDRESS(function) ({ __typeof__(&function) at; __asm__("" : "=r"(at) : "0"(&function)); at; })

int main(void)
{
	void *object = ADDRESS(malloc)(200000);

	object = ADDRESS(realloc)(object, 3000000);
	ADDRESS(free)(ADDRESS(malloc)(100));
	return object == NULL; /* still there when the program ends */
}
