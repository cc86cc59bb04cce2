/* SPDX-License-Identifier: BSD-3-Clause */
/* Room for what a signal handler has to do. */
#ifndef STACK_H
#define STACK_H

#include <signal.h>

/* What there must be left where stack_call is called: half of it is used until the other stack is reached, on x86-64, and
 * faults of others are passed on with the rest. */
#define STACK_LEAST 512
/* An alternate stack with so much left will do by itself: faults take up to 7 KiB, as measured through two filters. */
#define STACK_AMPLE ((size_t)16 << 10)

/* Calls fn(arg) where there is room: here, or, if this is the thread's alternate stack with little left (as the context
 * of the signal has it), on a stack of ours. Where not even STACK_LEAST is left the process ends, with a sentence. */
void stack_call(const stack_t *alternate, void (*fn)(void *arg), void *arg);

#endif
