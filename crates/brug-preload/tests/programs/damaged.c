// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that frees an object twice and then ends. What becomes of it is not
 * defined, but it must come to an end.
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	void *objects[100];

	for (int i = 0; i < 100; i++)
		objects[i] = malloc(64);
	/* More than the C library looks at. */
	for (int i = 10; i < 30; i++)
		free(objects[i]);
	free(objects[50]);
	free(objects[50]);
	puts("damaged: the end");
	return 0;
}
