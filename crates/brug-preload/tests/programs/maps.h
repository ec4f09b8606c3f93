/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel says of a program's mappings. */
#ifndef MAPS_H
#define MAPS_H

#include <stdio.h>
#include <string.h>

/* Bytes of private writable memory from p on, in mappings side by side. */
static unsigned long writable(const char *p)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to, end = (unsigned long)p;
	char rights[8], line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 &&
		    from <= end && to > end && !strcmp(rights, "rw-p"))
			end = to;
	if (maps)
		fclose(maps);
	return end - (unsigned long)p;
}

#endif
