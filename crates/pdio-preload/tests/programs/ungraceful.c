// SPDX-License-Identifier: MIT OR Apache-2.0
/* A library that is wrong in the very end: every process ends with a status of its own. */
#include <unistd.h>

__attribute__((destructor)) static void leave(void)
{
	_exit(1);
}
