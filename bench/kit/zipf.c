/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/zipf.h"

#include <math.h>
#include <stdlib.h>

#include "kit/common.h"

#define SKEW 0.99

uint32_t *zipf_draws(uint32_t items, size_t n, uint64_t ranks, uint64_t seed)
{
	uint32_t *draws = malloc(n * sizeof(*draws)), *name = malloc(items * sizeof(*name));
	double *up_to = malloc(items * sizeof(*up_to)), sum = 0;

	if (!draws || !name || !up_to)
		die("no memory");
	for (uint32_t i = 0; i < items; i++)
		name[i] = i, up_to[i] = sum += pow(i + 1, -SKEW);
	shuffle(name, items, ranks);
	for (size_t k = 0; k < n; k++) {
		double at = (double)(next_random(&seed) >> 11) * 0x1p-53 * sum;
		uint32_t low = 0, high = items - 1;

		while (low < high) {
			uint32_t middle = (low + high) / 2;

			if (up_to[middle] < at)
				low = middle + 1;
			else
				high = middle;
		}
		draws[k] = name[low];
	}
	free(up_to);
	free(name);
	return draws;
}
