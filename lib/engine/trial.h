/* SPDX-License-Identifier: BSD-3-Clause */
/* Tries what faults will need from the system, while a call can still return an error. */
#ifndef TRIAL_H
#define TRIAL_H

#include "engine/range.h"

/* 0: memory can be mapped and unmapped by the engine; or -errno with a sentence. */
int trial_moves(const struct engine *e);
/* For a new mapping: memory can be mapped and unmapped by the engine, and there are VMAs for a few more segments. 0, or
 * -errno with a sentence. */
int trial(const struct engine *e);

#endif
