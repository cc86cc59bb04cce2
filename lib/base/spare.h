/* SPDX-License-Identifier: BSD-3-Clause */
/* Spare VMAs, for the time when the process has as many VMAs as it may have (vm.max_map_count). */
#ifndef SPARE_H
#define SPARE_H

#include <stdbool.h>

/* Takes VMAs up to the size of the reserve. If there are not enough, leaves some for other use. */
void spare_refill(void);
/* Frees the VMAs of the reserve. false: the reserve was empty. Safe in a signal handler. */
bool spare_release(void);
/* Whether the reserve was released since the last call. */
bool spare_was_needed(void);
/* In a forked child: releases the lock of a thread that the child does not have. */
void spare_forget(void);

#endif
