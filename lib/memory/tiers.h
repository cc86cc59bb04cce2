/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tiers: kinds of memory that loads and stores reach, in order from fast to slow (thesis, Section
 * 7.2: primary targets). Each is a place (base/place.h): a set of NUMA nodes, or a DAX file.
 * paging/residency/tiering.h moves segments between tiers. ummap-tiers(7) has the words.
 */
#ifndef TIERS_H
#define TIERS_H

#include "base/place.h"

#include <ummap.h>

#define TIER_NAME_LEN 32

struct tier {
	char name[TIER_NAME_LEN]; /* name in attributes and counters */
	struct place place;       /* its memory */
};

extern unsigned tier_count;   /* 0: the process has no tiers */
extern struct tier tiers[UMMAP_MAX_TIERS];

/* Makes the tiers of a value of UMMAP_TIERS; NULL: none. Returns 0, or -EINVAL with a message. */
int tiers_start(const char *text);
/* In a forked child: there are no tiers. */
void tiers_forget(void);
/* The tiers that are files, a bit for each. */
unsigned tiers_with_files(void);
/* Sets *set to the tiers that a list of names has, a bit for each; NULL: all. Returns 0, or -EINVAL
 * with a message. */
int tiers_find(const char *names, unsigned *set);

#endif
