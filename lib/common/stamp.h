/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps of files as versions of their contents. A change that follows another one closely may
 * set the same time stamp. After a program has noted a time stamp, it must therefore wait before it
 * reads the contents that belong to the time stamp, or before other programs may change them.
 */
#ifndef COMMON_STAMP_H
#define COMMON_STAMP_H

#include <stdint.h>

/* The time, in ns, during which another change may set the same time stamp; at most 0: none can. */
int64_t stamp_doubt(int64_t seconds, int64_t nanoseconds);
/* Waits until no change sets this time stamp. */
void stamp_await(int64_t seconds, int64_t nanoseconds);

#endif
