/* SPDX-License-Identifier: BSD-3-Clause */
/* The segments that came last: an instruction may touch several, and they must not make room for each other. */
#ifndef RECENT_H
#define RECENT_H

#include "cache/segment.h"
#include "cache/share.h"

/* All of this is the cache's, under its lock. */

/* s, which is charged to share, was asked for just now. */
void recent_add(const struct seg *s, const struct share *share);
/* How many ever were: a clock. */
uint64_t recent_clock(void);
/* Whether s is one of the last of `there` segments, all in share unless that is NULL; the oldest of them never is. */
bool recent_has(const struct seg *s, const struct share *share, size_t there);
/* In a forked child: none came. */
void recent_forget(void);

#endif
