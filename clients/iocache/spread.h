/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who has which bytes of a file: the first part * nodes bytes are in contiguous parts, a part a node; what is behind them, and
 * all where part is 0, the nodes have in turns of a stripe. So a file may grow, and the owner of a byte is arithmetic. Bytes of
 * a node are in one share: its part, and its stripes behind it.
 */
#ifndef FILE_SPREAD_H
#define FILE_SPREAD_H

#include <stdint.h>

struct spread {
	uint64_t part;           /* bytes of a contiguous part */
	uint64_t stripe;
	uint64_t room;           /* bytes of a share: its part, and whole stripes */
	uint32_t nodes;
	uint32_t unused;
};

/* The node that has byte off of the file; *at: where it is in the share, *run: how many bytes follow there in a row, itself
 * included. s->nodes: no share has room for these. */
static inline uint32_t spread_find(const struct spread *s, uint64_t off, uint64_t *at, uint64_t *run)
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

/* Where byte `at` of a share is in the file; *run as above. */
static inline uint64_t spread_place(const struct spread *s, uint32_t node, uint64_t at, uint64_t *run)
{
	uint64_t rest;

	if (at < s->part) {
		*run = s->part - at;
		return node * s->part + at;
	}
	rest = (at - s->part) % s->stripe;
	*run = s->stripe - rest;
	return s->part * s->nodes + ((at - s->part) / s->stripe * s->nodes + node) * s->stripe + rest;
}

/* How many bytes from the beginning of a share are in a file of so many. */
static inline uint64_t spread_size(const struct spread *s, uint32_t node, uint64_t file)
{
	uint64_t left = file > node * s->part ? file - node * s->part : 0, turns;

	if (left < s->part || file <= s->part * s->nodes)
		return left < s->part ? left : s->part;
	left = file - s->part * s->nodes;
	turns = left / s->stripe;
	left = turns % s->nodes == node ? left % s->stripe : turns % s->nodes > node ? s->stripe : 0;
	return s->part + turns / s->nodes * s->stripe + left;
}

#endif
