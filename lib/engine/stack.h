/* SPDX-License-Identifier: BSD-3-Clause */
/* Sufficient stack for the work of a signal handler. */
#ifndef STACK_H
#define STACK_H

#include <signal.h>

/* Bytes that must be left where stack_call is called. On x86-64, half of them are used before the
 * switch to the other stack, and the rest serves to pass on faults that are not the library's. */
#define STACK_MIN_BYTES 512
/* An alternate stack with so many bytes left is used as it is. Faults take up to 7 KiB, measured
 * with two filters. */
#define STACK_AMPLE_BYTES ((size_t)16 << 10)

/* Calls fn(arg) on a sufficient stack: the current one; or, if this is the thread's alternate stack
 * (of the signal's context) with little left, one of the library's. If not even STACK_MIN_BYTES are
 * left, the process ends with a sentence. */
void stack_call(const stack_t *alternate, void (*fn)(void *arg), void *arg);

#endif
