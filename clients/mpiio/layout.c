/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic only. */
#include "mpiio/layout.h"

uint64_t layout_place(const struct layout *l, uint64_t off, uint64_t *run)
{
	uint64_t within;

	if (!l->stripe) {
		*run = UINT64_MAX - off;
		return l->offset + off;
	}
	within = off % l->stripe;
	*run = l->stripe - within;
	return l->offset + (off / l->stripe * l->ranks + l->rank) * l->stripe + within;
}

uint64_t layout_size(const struct layout *l, uint64_t file)
{
	uint64_t rest, before;

	file = file > l->offset ? file - l->offset : 0;
	if (!l->stripe)
		return file;
	/* Of the round that is not complete, what lies behind the stripes of lower ranks. */
	rest = file % (l->stripe * l->ranks);
	before = l->stripe * l->rank;
	rest = rest > before ? rest - before : 0;
	return file / (l->stripe * l->ranks) * l->stripe + (rest < l->stripe ? rest : l->stripe);
}
