/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses to absent segments. */
#ifndef FAULT_H
#define FAULT_H

#include "paging/mapping/mapping.h"

/* For the engine: serves an access that the calling thread has made; and the loop of threads that serve messages. */
enum fault_answer fault_by_signal(struct fault *fault);
void *fault_by_message(void *unused);
/* Sets the application's function for failed loads. */
void fault_onerror(void (*fn)(void *addr, int error));
/* Lets failed loads be tried again whose error was not fetched for a while (or, if `now`, all of them): system calls do
 * not fetch it. Called once a second. */
void fault_unpoison(struct mapping *map, bool now);

#endif
