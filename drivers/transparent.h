/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of the filters that leave all bytes as they are. A call with the prefix pass_ goes to
 * the next driver unchanged; the handle must begin with a struct behind.
 */
#ifndef DRIVERS_TRANSPARENT_H
#define DRIVERS_TRANSPARENT_H

#include "behind.h"

static inline int pass_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	return behind_lock(h, off, len, how, why);
}

static inline int pass_commits(void *h, uint64_t *oldest, uint64_t *newest)
{
	return behind_commits(h, oldest, newest);
}

static inline void pass_set_notice(void *h, ummap_notice *notice, void *arg)
{
	behind_set_notice(h, notice, arg);
}

static inline int pass_hand_over(void *h, struct ummap_handover *to)
{
	return behind_hand_over(h, to);
}

/* The rows of these calls in a driver's table. */
#define PASSED_CALLS                                                                               \
	.lock = pass_lock, .commits = pass_commits, .set_notice = pass_set_notice,                 \
	.hand_over = pass_hand_over

/* Appends a decimal number and a character, without stdio, which a signal handler must not call. */
static inline char *put_number(char *out, uint64_t value, char end)
{
	char digits[20];
	int n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	while (n > 0)
		*out++ = digits[--n];
	*out++ = end;
	return out;
}

#endif
