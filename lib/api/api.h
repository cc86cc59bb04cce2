/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning and the end of every public call. */
#ifndef API_H
#define API_H

#include "base/sys.h"

/* Blocks signals, because the thread may hold locks of segments from now on; clears the last sentence. */
void api_enter(struct guard *g);
/* Returns 0, or -1 with errno, and ensures that there is a sentence. */
int api_leave(struct guard *g, int err);
/*
 * Before a call that has to write all changes: writes them in parts, between which the thread holds no lock or use of
 * the mapping at addr, so that signal handlers may run, use it, and even jump away. Writes the whole mapping, if it
 * begins there (len 0), or a range.
 */
void api_write(struct guard *g, const void *addr, size_t len);
/* -EINVAL, with a sentence that there is no mapping. */
int api_no_mapping(const void *addr);

#endif
