/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads for work that must not delay a fault: readahead, write-behind, calls of drivers that are not fault-safe. */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stdint.h>

typedef void worker_fn(void *arg, uint64_t a, uint64_t b);

/* Starts threads for jobs, or for calls, until there are n; returns 0 or -errno. */
int worker_start(unsigned n);
int worker_start_calls(unsigned n);
/* Queues fn(arg, a, b). May be called in a signal handler. false: the queue is full, nothing happened. */
bool worker_post(worker_fn *fn, void *arg, uint64_t a, uint64_t b);
/* Calls fn(arg), which may wait only for storage, on a thread for calls, and waits until it is done. A worker
 * calls fn itself. */
void worker_call(void (*fn)(void *arg), void *arg);
/* In a forked child: there are no threads and no jobs any more. */
void worker_forget(void);

#endif
