/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may write which bytes of a store: locks of ranges, between processes and within this one. */
#ifndef LOCK_H
#define LOCK_H

#include "io/io.h"

struct lock;

/*
 * A mapping, `owner`, is going to write a range of a store; those who share it say so, and go together. It takes nothing
 * from locks that the owner has already, of whatever range: those of one store may overlap. 0 (with *lock NULL, if there
 * are to be none), or -EBUSY or -ENOMEM with a sentence.
 */
int lock_take(const void *owner, struct store *store, uint64_t off, uint64_t len, bool shared, struct lock **lock);
/* Gives it back, but what other locks of the same store cover. Before the store is closed. NULL: nothing happens. */
void lock_drop(struct lock *lock);
/* In a forked child, whose parent has them: none is there. */
void lock_forget(void);

#endif
