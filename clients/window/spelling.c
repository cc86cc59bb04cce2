/* SPDX-License-Identifier: BSD-3-Clause */
/* Levenshtein's distance, one row of its table at a time. Takes no lock. */
#include "window/spelling.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME 63

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t spelling_distance(const char *a, const char *b)
{
	size_t row[MAX_NAME + 1], n = strlen(b);

	if (n > MAX_NAME || strlen(a) > MAX_NAME)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = least(change, least(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

void spelling_warn(const char *what, const char *name, const char *meant)
{
	fprintf(stderr, "libummap-mpi: unknown %s '%.63s'%s%s%s\n", what, name, meant ? "; did you mean '" : "",
		meant ? meant : "", meant ? "'?" : "");
}
