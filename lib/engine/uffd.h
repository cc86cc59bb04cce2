/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine uffd has besides its table (engine.h). */
#ifndef UFFD_H
#define UFFD_H

#include "engine/sigsegv.h"

#include <stdbool.h>

/* Starts `threads` that run `serve` for the reports of userfaultfd, unless they run already. Returns 0 or -errno with a
 * sentence. */
int uffd_start(unsigned threads, void *(*serve)(void *));
/* In a forked child: there are none. */
void uffd_forget(void);

/* ---- Accesses by message: for the threads that serve them ---- */

/* The next access that waits to be served; waits for one if `wait`. false: there is none at the moment, or another
 * thread serves it. */
bool engine_next(struct fault *fault, bool wait);
/* Called before a serving thread may wait for long, so that another one takes the next access. Any thread may
 * call it. */
void engine_hand_off(void);

#endif
