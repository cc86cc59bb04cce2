/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine uffd, as far as it is more than its table (engine.h). */
#ifndef UFFD_H
#define UFFD_H

#include <stdbool.h>

/* `threads` that run `serve` are there for what comes by userfaultfd, unless there are some. Returns 0 or -errno with a
 * sentence. */
int uffd_start(unsigned threads, void *(*serve)(void *));
/* In a forked child: there are none. */
void uffd_forget(void);

#endif
