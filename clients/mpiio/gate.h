/* SPDX-License-Identifier: BSD-3-Clause */
/* Who calls MPI-IO: any number of threads for themselves, or one that holds it while ranks write together. */
#ifndef HOLD_H
#define HOLD_H

#include <stdbool.h>

/* From when this returns true until hold_end, nobody else calls MPI-IO. false: somebody has it already. */
bool hold_begin(void);
void hold_end(void);

/* Whether the caller may call MPI-IO, until hold_leave. */
bool hold_enter(void);
/* The same, when the hold is over. Returns 0, or -EBUSY: enough threads wait for that already. */
int hold_wait(void);
void hold_leave(void);

#endif
