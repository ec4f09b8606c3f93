// SPDX-License-Identifier: MIT OR Apache-2.0
/* Prints how often in a millisecond the time-stamp counter of this machine ticks. */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	double ns, ticks;
};

/* Both clocks at once: the closest of many looks, in which nobody took the processor away. */
static struct moment look(void)
{
	unsigned long long before, after, closest = ~0ULL;
	struct moment at = {};
	struct timespec ts;
	int i;

	for (i = 0; i < 10000; i++) {
		before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
		after = __rdtsc();
		if (after - before >= closest)
			continue;
		closest = after - before;
		at.ns = ts.tv_sec * 1e9 + ts.tv_nsec;
		at.ticks = (before + after) / 2.0;
	}
	return at;
}

int main(void)
{
	struct timespec tenth = { .tv_nsec = 100000000 };
	struct moment from = look(), to;

	nanosleep(&tenth, NULL);
	to = look();
	printf("%.0f\n", (to.ticks - from.ticks) / (to.ns - from.ns) * 1e6);
	return 0;
}
