/* SPDX-License-Identifier: BSD-3-Clause */
/* What faults will need of the system, tried while there is somebody to tell. */
#ifndef TRIAL_H
#define TRIAL_H

#include "engine/engine.h"

/* For a new mapping: memory comes and goes as the engine has it, and there is room for a few places more. 0, or -errno
 * with a sentence. */
int trial(const struct engine *e);

#endif
