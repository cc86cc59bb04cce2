/* SPDX-License-Identifier: BSD-3-Clause */
/* Which mapping a segment header belongs to: a sorted table of the arrays that headers lie in. The caller locks. */
#ifndef OWNER_H
#define OWNER_H

#include <stdbool.h>
#include <stddef.h>

/* What lies in [from, from + len) is the owner's. false: no memory for it. */
bool owner_add(const void *from, size_t len, void *owner);
/* Nothing is the owner's any more. */
void owner_drop(const void *owner);
/* Whose p is; it is somebody's. */
void *owner_of(const void *p);
/* In a forked child: nothing is anybody's. */
void owner_forget(void);

#endif
