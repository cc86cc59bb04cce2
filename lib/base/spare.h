/* SPDX-License-Identifier: BSD-3-Clause */
/* Spare VMAs, for the case that the process has used up all that it may have (vm.max_map_count). */
#ifndef SPARE_H
#define SPARE_H

#include <stdbool.h>

/* Reserves VMAs again, up to the maximum, but leaves some that are needed at once. */
void spare_keep(void);
/* Gives up the reserve, so that VMAs are available. false: there was none. Safe in a signal handler. */
bool spare_give(void);
/* Whether the reserve was given up since the last call. */
bool spare_was_needed(void);
/* In a forked child. */
void spare_forget(void);

#endif
