/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine uffd has besides its table (engine.h). */
#ifndef UFFD_H
#define UFFD_H

#include <stdbool.h>

/* Starts `threads` that run `serve` for the reports of userfaultfd, unless they run already. Returns 0 or -errno with a
 * sentence. */
int uffd_start(unsigned threads, void *(*serve)(void *));
/* In a forked child: there are none. */
void uffd_forget(void);

#endif
