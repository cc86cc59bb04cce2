/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks of the ranges of a store that mappings may write, in this process and between processes. */
#ifndef LOCK_H
#define LOCK_H

#include "io/io.h"

struct lock;

/*
 * Locks a range of a store that a mapping, `owner`, is going to write. `shared` locks are
 * compatible with each other, and locks of one owner may overlap. Returns 0 (with *lock NULL if
 * locks are switched off), or -EBUSY or -ENOMEM with a message.
 */
int lock_take(const void *owner, struct store *store, uint64_t off, uint64_t len, bool shared,
	      struct lock **lock);
/* Unlocks a range, except bytes that other locks of the store cover. Must be called before the
 * store is closed. Does nothing if the lock is NULL. */
void lock_drop(struct lock *lock);
/* In a forked child: there are no locks. They belong to the parent. */
void lock_forget(void);

#endif
