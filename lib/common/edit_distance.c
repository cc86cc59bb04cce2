/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/edit_distance.h"

#include "common/minmax.h"

#include <string.h>

#define MAX_LETTERS 63

/* Computes one row of the table after the other. */
size_t edit_distance(const char *name, size_t len, const char *known)
{
	size_t row[MAX_LETTERS + 1], last = strlen(known);

	if (last > MAX_LETTERS)
		return SIZE_MAX;
	for (size_t j = 0; j <= last; j++)
		row[j] = j;
	for (size_t i = 0; i < len; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < last; j++) {
			size_t change = diagonal + (name[i] != known[j]);

			diagonal = row[j + 1];
			row[j + 1] = min_size(change, 1 + min_size(row[j], row[j + 1]));
		}
	}
	return row[last];
}
