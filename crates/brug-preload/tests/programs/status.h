/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How much memory of a kind the process has, as the kernel says. */
#ifndef STATUS_H
#define STATUS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field with its colon, such as "VmHWM:"; 0 if there is none. */
static size_t status_kib(const char *field)
{
	char line[256];
	size_t kib = 0;
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, field, strlen(field)))
			kib = strtoul(line + strlen(field), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

#endif
