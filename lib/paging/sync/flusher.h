/* SPDX-License-Identifier: BSD-3-Clause */
/* The background thread: flush intervals, dirty inactive segments that no job has written, the check of the SIGSEGV
 * handler. */
#ifndef FLUSHER_H
#define FLUSHER_H

/* Returns 0 or -errno with a sentence. */
int flusher_start(void);

#endif
