/* SPDX-License-Identifier: BSD-3-Clause */
/* The background thread: flush intervals, the budget, and the periodic checks of lib/paging. */
#ifndef FLUSHER_H
#define FLUSHER_H

/* Starts the thread. Returns 0, or -errno with a message. */
int flusher_start(void);

#endif
