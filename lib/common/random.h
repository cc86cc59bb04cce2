/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers that identify a file, a job or a process, and that no other one has. */
#ifndef COMMON_RANDOM_H
#define COMMON_RANDOM_H

#include <stdint.h>

/*
 * Returns a random number that is not 0. It never waits, and may be called in a signal handler.
 * While the kernel has no random numbers yet, early in the boot of a machine, the clock, the
 * process ID and a counter take their place. The number is no secret.
 */
uint64_t random_id(void);

#endif
