/* SPDX-License-Identifier: BSD-3-Clause */
/* Serves accesses to absent segments. */
#ifndef FAULT_H
#define FAULT_H

#include "paging/mapping/mapping.h"

/* Serves an access of the calling thread, which a signal has reported. */
enum fault_answer fault_by_signal(struct fault *fault);
/* The loop of a thread that serves accesses reported by messages. */
void *fault_by_message(void *unused);
/* Sets the program's function for failed loads. */
void fault_onerror(void (*fn)(void *addr, int error));
/* Sets the program's function for stores to read-only mappings. */
void fault_onstore(int (*fn)(void *addr));
/* Returns whether there is such a function. */
bool fault_has_onstore(void);
/* Allows another access to segments whose load has failed, if no thread has taken the error for a
 * while, or at once if `now`. System calls do not take it. Called once a second. */
void fault_unpoison(struct mapping *map, bool now);

#endif
