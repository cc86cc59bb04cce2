/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of a file's bytes. The first part * nodes bytes are in contiguous ranges, one for each
 * node. The bytes behind them, or all bytes if part is 0, are in stripes that the nodes take in
 * turn, so that the file can grow. A node's part has its contiguous range and then its stripes.
 */
#ifndef IOCACHE_SPREAD_H
#define IOCACHE_SPREAD_H

#include <stdint.h>

struct spread {
	uint64_t part;           /* bytes of a contiguous range */
	uint64_t stripe;         /* bytes of a stripe */
	uint64_t room;           /* bytes of a part: its contiguous range and whole stripes */
	uint32_t nodes;
	uint32_t unused;
};

/* The node that has byte `off` of the file; s->nodes: no part has it. *at: result, the offset in
 * the part; *run: result, the number of contiguous bytes from there on. */
static inline uint32_t spread_find(const struct spread *s, uint64_t off, uint64_t *at,
				   uint64_t *run)
{
	uint64_t turn, rest;

	if (off < s->part * s->nodes) {
		*at = off % s->part;
		*run = s->part - *at;
		return (uint32_t)(off / s->part);
	}
	turn = (off - s->part * s->nodes) / s->stripe;
	rest = (off - s->part * s->nodes) % s->stripe;
	*at = s->part + turn / s->nodes * s->stripe + rest;
	*run = s->stripe - rest;
	return *at < s->room ? (uint32_t)(turn % s->nodes) : s->nodes;
}

/* The offset in the file of byte `at` of a node's part. *run: as in spread_find. */
static inline uint64_t spread_place(const struct spread *s, uint32_t node, uint64_t at,
				    uint64_t *run)
{
	uint64_t rest;

	if (at < s->part) {
		*run = s->part - at;
		return node * s->part + at;
	}
	rest = (at - s->part) % s->stripe;
	*run = s->stripe - rest;
	return s->part * s->nodes + ((at - s->part) / s->stripe * s->nodes + node) * s->stripe +
	       rest;
}

/* The bytes of a node's part, from its beginning, that a file of this size has. */
static inline uint64_t spread_size(const struct spread *s, uint32_t node, uint64_t file)
{
	uint64_t left = file > node * s->part ? file - node * s->part : 0, turns, rest;

	if (left < s->part || file <= s->part * s->nodes)
		return left < s->part ? left : s->part;
	left = file - s->part * s->nodes;
	turns = left / s->stripe;
	rest = turns % s->nodes > node ? s->stripe : 0;
	left = turns % s->nodes == node ? left % s->stripe : rest;
	return s->part + turns / s->nodes * s->stripe + left;
}

#endif
