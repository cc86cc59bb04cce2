/* SPDX-License-Identifier: BSD-3-Clause */
/* Who calls MPI-IO: any number of threads for themselves, or one that has closed the gate while ranks write together. */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>

/* From when this returns true until gate_open, nobody else calls MPI-IO. false: somebody has it already. */
bool gate_close(void);
void gate_open(void);

/* Whether the caller may call MPI-IO, until gate_leave. */
bool gate_enter(void);
/* The same, when the gate is open again. Returns 0, or -EBUSY: enough threads wait for that already. */
int gate_wait(void);
void gate_leave(void);

#endif
