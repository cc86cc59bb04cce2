/* SPDX-License-Identifier: BSD-3-Clause */
/* Sufficient stack for the work of a signal handler. */
#ifndef STACK_H
#define STACK_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that must be left where stack_call is called. On x86-64, half of them are used before the
 * switch to the other stack, and the rest serves to pass on faults that are not the library's. */
#define STACK_MIN_BYTES 512
/* An alternate stack with so many bytes left is used as it is. Faults take up to 7 KiB, measured
 * with two filters. */
#define STACK_AMPLE_BYTES ((size_t)16 << 10)

/* Returns how many bytes the current stack has left, if it is this alternate stack (of the signal's
 * context); or more bytes than an alternate stack has. */
static inline size_t stack_left(const stack_t *alternate)
{
	uintptr_t low = (uintptr_t)alternate->ss_sp, here = (uintptr_t)__builtin_frame_address(0);
	/* The calls up to this point may have gone a little beyond the end. */
	size_t left = here + STACK_MIN_BYTES < low ? SIZE_MAX : here < low ? 0 : here - low;

	return left < alternate->ss_size ? left : SIZE_MAX;
}
/* Calls fn(arg) on a stack of the library. If not even STACK_MIN_BYTES are left here, the process
 * ends with a sentence. */
void stack_switch_call(const stack_t *alternate, void (*fn)(void *arg), void *arg);
/* Calls fn(arg) on a sufficient stack: the current one; or, if this is the thread's alternate stack
 * with little left, one of the library's. */
static inline void stack_call(const stack_t *alternate, void (*fn)(void *arg), void *arg)
{
	if (stack_left(alternate) >= STACK_AMPLE_BYTES)
		fn(arg);
	else
		stack_switch_call(alternate, fn, arg);
}

#endif
