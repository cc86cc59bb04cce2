/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds sequential runs of faults, reads ahead of them and drops what lies behind. */
#ifndef AHEAD_H
#define AHEAD_H

#include "paging/set.h"

/* Segment i is about to be brought in: reads ahead if that continues a run, and waits for the rest of its piece if that
 * should have been there; in a mapping that is read sequentially, what lies behind may go. */
void ahead_fault(struct set *set, size_t i);
/* What was read ahead has been asked for; or is let go of, and was not. */
void ahead_used(struct set *set);
void ahead_wasted(struct set *set);
/* There is too little memory beside what is read ahead: what was in use had to leave, and has come back from standby. */
void ahead_pressed(struct set *set);
/* Loads [first, last) in the background, as far as there is room. */
void ahead_want(struct set *set, size_t first, size_t last);

#endif
