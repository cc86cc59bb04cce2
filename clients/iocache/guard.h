/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies to and from memory that storage may fail. */
#ifndef FILE_GUARD_H
#define FILE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Before the first copy. */
void guard_begin(void);
/* false: storage has failed a load or a store at [mapped, mapped + len), which is `to` or `from`. */
bool guard_copy(void *to, const void *from, const char *mapped, size_t len);

#endif
