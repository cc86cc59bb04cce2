/* SPDX-License-Identifier: BSD-3-Clause */
/* What every public call does first and last. */
#ifndef API_H
#define API_H

#include "base/sys.h"

/* Blocks signals, because the thread may hold locks of segments from now on; forgets the last sentence. */
void api_enter(struct guard *g);
/* 0, or -1 with errno and at least some sentence. */
int api_leave(struct guard *g, int err);
/*
 * Before a call that has to write all changes: writes them by parts, between which the thread holds nothing of the
 * mapping that is at addr, so that handlers of signals may run, use it, and even jump away. Of all of the mapping, if it
 * begins there (len 0), or of a range.
 */
void api_write(struct guard *g, const void *addr, size_t len);
/* -EINVAL, with its sentence. */
int api_no_mapping(const void *addr);

#endif
