/* SPDX-License-Identifier: BSD-3-Clause */
/* Between begin and end, an allocation by this thread ends the check. */
#ifndef WATCH_MALLOC_H
#define WATCH_MALLOC_H

void watch_begin(void);
void watch_end(void);

#endif
