/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the engine uffd beside its table (table.h). */
#ifndef UFFD_H
#define UFFD_H

#include "engine/sigsegv.h"

#include <stdbool.h>

/* Starts `threads` that run `serve` for the reports of userfaultfd, unless they run already.
 * Returns 0, or -errno with a sentence. */
int uffd_start(unsigned threads, void *(*serve)(void *));
/* Forgets the threads, which a forked child does not have. */
void uffd_forget(void);

/* ---- Accesses by message: for the threads that serve them ---- */

/* Takes the next access that must be served; waits for one if `wait`. Returns false if there is
 * none at the moment, or another thread serves it. */
bool engine_next(struct fault *fault, bool wait);
/* A serving thread calls this before it may wait for long, so that another thread takes the next
 * access. Any thread may call it. */
void engine_hand_off(void);

#endif
