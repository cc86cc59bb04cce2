/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses to what is absent. */
#ifndef FAULT_H
#define FAULT_H

#include "paging/mapping.h"

/* For the engine: an access that the calling thread has made; and what a thread runs, for ever, that serves messages. */
enum fault_answer fault_by_signal(const struct fault *fault);
void *fault_by_message(void *unused);
/* The application's handler of failed loads. */
void fault_onerror(void (*fn)(void *addr, int error));
/* Failed loads that nobody has asked about for a while, or now, may be tried again: system calls do not ask. Called once a
 * second. */
void fault_unpoison(struct mapping *map, bool now);

#endif
