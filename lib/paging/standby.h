/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of a segment out of the view: its frame goes home, and it stands by. */
#ifndef STANDBY_H
#define STANDBY_H

#include "paging/set.h"

/* All of these are for resident segments that the caller has locked and that are in no list. */

/* The frames of n neighbours go home, which follow one another there; more than one are all as they were loaded
 * (seg_as_loaded). Returns 0 or -errno, and then nothing has changed. */
int standby_retract(struct set *set, size_t i, struct seg **list, unsigned n);
/* It goes to standby. Returns 0, or -errno and has put it back. */
int standby_enter(struct set *set, size_t i, struct seg *s);
/* The same for n neighbours as above; on failure nothing has changed. */
int standby_enter_together(struct set *set, size_t i, struct seg **list, unsigned n);
/* It is resident again, in the policy's list, as one that just came. */
void standby_put_back(struct set *set, struct seg *s);

#endif
