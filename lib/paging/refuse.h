/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads that have failed for somebody who waits in the kernel and can be told by a signal, or by EFAULT, only. */
#ifndef REFUSE_H
#define REFUSE_H

#include "paging/set.h"

/* Segment i could not be loaded (err): from now on its place cannot be accessed, and whoever waits tries it and finds
 * out. */
void refuse(struct set *set, size_t i, int err);
/* Somebody has found out, by SIGSEGV: takes the error, so that the next one tries again. 0: there is none. */
int refuse_taken(struct set *set, size_t i);
/* The same for those that nobody has asked about for a while, or now: system calls do not. Called once a second. */
void refuse_forgive(struct set *set, bool now);
/* Segment i, which the caller has locked, is going to appear. 0 or -errno. */
int refuse_lift(struct set *set, size_t i, struct seg *s);

#endif
