/* SPDX-License-Identifier: BSD-3-Clause */
/* The signals by which the library learns of accesses. */
#ifndef UMRUN_SIGNALS_H
#define UMRUN_SIGNALS_H

#include <signal.h>

/* From now on accesses are signals: what this thread has blocked of them is not. */
void signals_begin(void);
/* What the program wants blocked, as it may be: the set itself, or what is in room. NULL stays so. */
const sigset_t *signals_mask(const sigset_t *set, sigset_t *room);

#endif
