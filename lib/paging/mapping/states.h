/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a segment as bits of its header: the table of STATES.md, for the check of debug
 * builds. */
#ifndef STATES_H
#define STATES_H

#include "cache/header.h"

/* A state. Bits that exclude each other are never in `may` together. */
struct state {
	const char *name;
	uint64_t must, may;      /* bits that the segment has, and bits that it may have */
	bool pins;               /* whether the segment may have pins */
	bool in_place;           /* whether the state is the one of mappings in place (inplace.c) */
};

#define SEG_POISON (SEG_POISONED | SEG_POISON_OLD)
/* Bits that most states may have. */
#define SEG_ANY (SEG_STORED | SEG_EXPOSED | SEG_POISON)

static const struct state states[] = {
	{ "absent", 0, SEG_ANY, false, false },
	{ "page cache", SEG_PAGECACHE, SEG_STORED | SEG_EXPOSED, false, false },
	{ "read ahead", SEG_VALID | SEG_INACTIVE | SEG_AHEAD, SEG_ANY, false, false },
	{ "inactive", SEG_VALID | SEG_INACTIVE, SEG_ANY, false, false },
	{ "dirty inactive", SEG_VALID | SEG_INACTIVE | SEG_DIRTY, SEG_ANY | SEG_COMMIT, false,
	  false },
	{ "resident", SEG_VALID, SEG_STORED | SEG_EXPOSED | SEG_DEVICE, true, false },
	{ "dirty", SEG_VALID | SEG_DIRTY, SEG_STORED | SEG_EXPOSED | SEG_DEVICE | SEG_COMMIT, true,
	  false },
	{ "writable", SEG_VALID | SEG_DIRTY | SEG_WRITABLE | SEG_EXPOSED,
	  SEG_STORED | SEG_DEVICE | SEG_COMMIT, true, false },
	{ "pinned in place", 0, SEG_DEVICE, true, true },
};

/* The bits of a header that are not parts of numbers. */
#define SEG_BITS (SEG_VALID | SEG_INACTIVE | SEG_DIRTY | SEG_WRITABLE | SEG_STORED | SEG_AHEAD | \
		  SEG_DEVICE | SEG_POISON | SEG_PAGECACHE | SEG_EXPOSED | SEG_COMMIT)

/* The name of the state of a header; NULL: there is no such state. */
static inline const char *state_of(uint64_t head, bool in_place)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		const struct state *s = &states[i];

		if (s->in_place == in_place && (head & s->must) == s->must &&
		    !(head & SEG_BITS & ~(s->must | s->may)) &&
		    (s->pins || !(head >> SEG_PINS_SHIFT & SEG_PINS_MAX)))
			return s->name;
	}
	return NULL;
}

#endif
