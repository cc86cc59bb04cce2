/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of memory that this process may hold: frames, and page-cache mappings. */
#ifndef BUDGET_H
#define BUDGET_H

#include <stddef.h>

/* limit: bytes for all processes of the node together, or 0 for `share` of the memory that the process may use
 * (cgroups included). */
void budget_start(size_t limit, double share);
size_t budget_limit(void);

/* What this process may hold now, and the most that it ever could. */
size_t budget_bytes(void);
size_t budget_peak(void);
void budget_set(size_t bytes);

/* Bytes of page-cache mappings of this process: adds some, and returns the new sum; or subtracts
 * some. */
size_t budget_pagecache(void);
size_t budget_add_pagecache(size_t bytes);
void budget_subtract_pagecache(size_t bytes);
/* Bytes of frames that this process may hold: the budget without the page-cache mappings. */
size_t budget_frames(void);

/* The size of RAM. */
size_t budget_ram(void);
/* The memory that the process may use: RAM, or its cgroup's limit (v1, v2) where that is smaller. */
size_t budget_memory(void);

#endif
