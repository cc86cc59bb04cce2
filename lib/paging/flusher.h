/* SPDX-License-Identifier: BSD-3-Clause */
/* The background thread: flush intervals, stragglers of write-behind, the place of the SIGSEGV handler. */
#ifndef FLUSHER_H
#define FLUSHER_H

/* Returns 0 or -errno with a sentence. */
int flusher_start(void);

#endif
