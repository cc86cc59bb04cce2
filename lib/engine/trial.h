/* SPDX-License-Identifier: BSD-3-Clause */
/* Tries the system calls that faults will need, while a call can still return an error. */
#ifndef TRIAL_H
#define TRIAL_H

#include "engine/range.h"

/* Returns 0 if the engine can map and unmap memory, or -errno with a sentence. */
int trial_moves(const struct engine *e);
/* For a new mapping: returns 0 if the engine can map and unmap memory, and there are VMAs for a few
 * more segments; or -errno with a sentence. */
int trial(const struct engine *e);

#endif
