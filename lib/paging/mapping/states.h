/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a segment as bits of its header: the table of STATES.md, for the check that debug builds make. */
#ifndef STATES_H
#define STATES_H

#include "cache/header.h"

/* Bits that a segment in this state has, and those that it may have besides. Two bits of `may` that exclude each other
 * make two states. */
struct state {
	const char *name;
	uint64_t must, may;
	bool pins;               /* it may be pinned */
	bool in_place;           /* it is of mappings in place, which have no other (inplace.c) */
};

#define SEG_POISON (SEG_POISONED | SEG_POISON_OLD)

static const struct state states[] = {
	{ "absent", 0, SEG_STORED | SEG_EXPOSED | SEG_POISON, false, false },
	{ "page cache", SEG_PAGECACHE, SEG_STORED | SEG_EXPOSED, false, false },
	{ "read ahead", SEG_VALID | SEG_INACTIVE | SEG_AHEAD, SEG_STORED | SEG_EXPOSED | SEG_POISON, false, false },
	{ "inactive", SEG_VALID | SEG_INACTIVE, SEG_STORED | SEG_EXPOSED | SEG_POISON, false, false },
	{ "dirty inactive", SEG_VALID | SEG_INACTIVE | SEG_DIRTY, SEG_STORED | SEG_EXPOSED | SEG_POISON, false, false },
	{ "resident", SEG_VALID, SEG_STORED | SEG_EXPOSED | SEG_DEVICE, true, false },
	{ "dirty", SEG_VALID | SEG_DIRTY, SEG_STORED | SEG_EXPOSED | SEG_DEVICE, true, false },
	{ "writable", SEG_VALID | SEG_DIRTY | SEG_WRITABLE | SEG_EXPOSED, SEG_STORED | SEG_DEVICE, true, false },
	{ "pinned in place", 0, SEG_DEVICE, true, true },
};

/* The bits that tell states apart; the rest of a header are numbers. */
#define SEG_BITS (SEG_VALID | SEG_INACTIVE | SEG_DIRTY | SEG_WRITABLE | SEG_STORED | SEG_AHEAD | SEG_DEVICE | SEG_POISON | \
		  SEG_PAGECACHE | SEG_EXPOSED)

/* The name of the state that a header is in; NULL: there is no such state. */
static inline const char *state_of(uint64_t head, bool in_place)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		const struct state *s = &states[i];

		if (s->in_place == in_place && (head & s->must) == s->must && !(head & SEG_BITS & ~(s->must | s->may)) &&
		    (s->pins || !(head >> SEG_PINS_SHIFT & SEG_PINS_MAX)))
			return s->name;
	}
	return NULL;
}

#endif
