/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A segment is written as a whole, so two mappings that store to one segment would undo each
 * other's stores. Therefore no byte may be writable in two mappings, unless both have
 * UMMAP_WRITERS. Between processes, and between machines if the file system supports it, locks of
 * the driver ensure this. Within this process a list of locked ranges does, because a driver may
 * have no locks, or only those of a descriptor that was duplicated. If a store has no locks, the
 * mapping works without them, and a warning is logged once. Never on the fault path. Lock: `lock`,
 * for the list.
 */
#include "paging/mapping/lock.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct lock {
	const void *owner;       /* the mapping */
	struct store *store;
	uint64_t from, to;       /* bytes of the store */
	bool shared;
	struct lock *next;
};

static struct lock *locks;
static _Atomic uint32_t lock;

static int refuse(const struct lock *wanted, const char *holder)
{
	return fail(EBUSY, "cannot map bytes %" PRIu64 " to %" PRIu64 " of the store for writing: "
		    "%s holds a lock on some of them. Try a read-only mapping, end the other "
		    "mapping, or map both with UMMAP_WRITERS", wanted->from, wanted->to - 1,
		    holder);
}

/* Under the lock: whether another mapping of this process has a lock that conflicts. */
static bool is_taken_here(const struct lock *wanted)
{
	for (const struct lock *l = locks; l; l = l->next) {
		if (l->owner != wanted->owner && io_same(l->store, wanted->store) &&
		    l->from < wanted->to && wanted->from < l->to &&
		    !(l->shared && wanted->shared))
			return true;
	}
	return false;
}

/* Under the lock. */
static int take_from_driver(const struct lock *wanted)
{
	static _Atomic bool warned;
	char holder[160] = "";
	int err = io_lock(wanted->store, wanted->from, wanted->to - wanted->from,
			  wanted->shared ? UMMAP_LOCK_SHARED : UMMAP_LOCK_EXCLUSIVE, holder);

	if (err == -EBUSY)
		return refuse(wanted, *holder ? holder : "another process");
	if (err && !atomic_exchange(&warned, true))
		log_line(LOG_WARN, "lock", "cannot lock a range of the store: %s. The library "
			 "cannot tell whether another process writes the same bytes. Try "
			 "UMMAP_LOCK=no if none does", strerror(-err));
	return 0;
}

int lock_take(const void *owner, struct store *store, uint64_t off, uint64_t len, bool shared,
	      struct lock **taken)
{
	struct lock *l;
	int err;

	*taken = NULL;
	if (!config.lock)
		return 0;
	l = malloc(sizeof(*l));
	if (!l)
		return fail(ENOMEM, "cannot lock a range of the store: no memory");
	*l = (struct lock){ .owner = owner, .store = store, .from = off, .to = off + len,
			    .shared = shared };
	futex_lock(&lock);
	err = is_taken_here(l) ? refuse(l, "another mapping of this process") : take_from_driver(l);
	if (!err) {
		l->next = locks;
		locks = l;
	}
	futex_unlock(&lock);
	if (err)
		free(l);
	else
		*taken = l;
	return err;
}

/* Under the lock: the first lock of the store that overlaps [from, to); NULL: none. */
static const struct lock *find_lock(const struct store *store, uint64_t from, uint64_t to)
{
	const struct lock *first = NULL;

	for (const struct lock *l = locks; l; l = l->next) {
		if (l->store == store && l->from < to && from < l->to &&
		    (!first || l->from < first->from))
			first = l;
	}
	return first;
}

/* Under the lock: unlocks the parts of a range that no other lock of the store covers. */
static void unlock_uncovered(struct store *store, uint64_t from, uint64_t to)
{
	char unused[160];

	while (from < to) {
		const struct lock *l = find_lock(store, from, to);
		uint64_t end = l ? l->from : to;

		if (from < end)
			io_lock(store, from, end - from, UMMAP_LOCK_NONE, unused);
		from = l ? l->to : to;
	}
}

void lock_drop(struct lock *l)
{
	struct lock **at = &locks;

	if (!l)
		return;
	futex_lock(&lock);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	unlock_uncovered(l->store, l->from, l->to);
	futex_unlock(&lock);
	free(l);
}

/* The driver is not called: the child has the handles of its parent, and closes them. */
void lock_forget(void)
{
	for (struct lock *next; locks; locks = next) {
		next = locks->next;
		free(locks);
	}
	lock = 0;
}
