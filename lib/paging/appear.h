/* SPDX-License-Identifier: BSD-3-Clause */
/* How a segment appears in the view, and with which rights. */
#ifndef APPEAR_H
#define APPEAR_H

#include "paging/set.h"

/* All of these are for a segment that the caller has locked; they return 0, or -errno and have changed nothing. */

/* Its frame is at home, filled, and it is in no list: it becomes resident, and can be stored to if `write`. */
int appear(struct set *set, size_t i, struct seg *s, bool write);
/* The same for the first of a piece of n that were read ahead; the others appear beside it, unasked. */
int appear_together(struct set *set, size_t i, struct seg **list, unsigned n);
/* Segment i, which stands in buf, is going to be stored to: it has a twin (twin.h) from now on, if it needs one. */
int appear_twin(struct set *set, size_t i, const char *buf);
/* It is resident, but somebody could not load or store (`write`). */
int appear_upgrade(struct set *set, size_t i, struct seg *s, bool write);

#endif
