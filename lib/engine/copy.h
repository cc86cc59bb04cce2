/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that return an error where an access of a mapping would raise SIGBUS. */
#ifndef COPY_H
#define COPY_H

#include <stdbool.h>
#include <stddef.h>

/* Copies len bytes as memcpy(3) does. Returns 0 or a negative errno value. */
int copy_bytes(void *dst, const void *src, size_t len);

/* ---- For the handler of faults ---- */

/* Whether this thread is in copy_bytes, and addr is in one of its ranges. */
bool copy_covers(const void *addr);
/* Ends that copy with an error: leaves the handler, whose third argument is `context`. */
void copy_abort(const void *context, int error) __attribute__((noreturn));

#endif
