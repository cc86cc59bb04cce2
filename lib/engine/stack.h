/* SPDX-License-Identifier: BSD-3-Clause */
/* Enough stack for the work of a signal handler. */
#ifndef STACK_H
#define STACK_H

#include <signal.h>

/* How much must be left where stack_call is called: on x86-64 half of it is used before the switch to the other stack,
 * and the rest serves to pass on faults that are not the library's. */
#define STACK_LEAST 512
/* An alternate stack with so much left is used as it is: faults take up to 7 KiB, measured with two filters. */
#define STACK_AMPLE ((size_t)16 << 10)

/* Calls fn(arg) on a sufficient stack: on this one, or, if this is the thread's alternate stack with little left (as
 * the signal's context says), on one of the library's. If not even STACK_LEAST is left, the process ends with a
 * sentence. */
void stack_call(const stack_t *alternate, void (*fn)(void *arg), void *arg);

#endif
