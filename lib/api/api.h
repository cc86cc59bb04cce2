/* SPDX-License-Identifier: BSD-3-Clause */
/* What every public call does first and last. */
#ifndef API_H
#define API_H

#include "base/sys.h"

/* Blocks signals, because the thread may hold locks of segments from now on; forgets the last sentence. */
void api_enter(struct guard *g);
/* 0, or -1 with errno and at least some sentence. */
int api_leave(struct guard *g, int err);
/* -EINVAL, with its sentence. */
int api_no_mapping(const void *addr);

#endif
