/* SPDX-License-Identifier: BSD-3-Clause */
/* Which mapping may write which bytes of a store: locks of ranges, between processes and within this one. */
#ifndef LOCK_H
#define LOCK_H

#include "io/io.h"

struct lock;

/*
 * A mapping, `owner`, is going to write a range of a store; `shared` locks are compatible with each other. Locks that
 * the owner has already are unaffected: locks of one owner may overlap. 0 (with *lock NULL, if locks are switched off),
 * or -EBUSY or -ENOMEM with a sentence.
 */
int lock_take(const void *owner, struct store *store, uint64_t off, uint64_t len, bool shared, struct lock **lock);
/* Unlocks a range, except what other locks of the owner cover. Must be called before the store is closed. NULL: nothing
 * happens. */
void lock_drop(struct lock *lock);
/* In a forked child: there are no locks; they belong to the parent. */
void lock_forget(void);

#endif
