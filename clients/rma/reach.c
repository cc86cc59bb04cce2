/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a rank's bytes are in this process. What is mapped here is simply there. What its owner pages is held for a moment
 * (umimport_hold(3)); if it is not in memory, the owner's thread is asked for it (rma/pager.h), until it is: it may have to go
 * again before this process has come to it. Nothing is held while waiting, so the owner never waits for who waits for it.
 * With the engine uffd it is copied to here, and back (rma/remote.h): that is for those who have it alone meanwhile.
 */
#include "common/futex.h"
#include "rma/pager.h"
#include "rma/shm.h"
#include "window/window.h"

#include <errno.h>

/* Whether all bytes of the items lie within the part, from `base` on. */
static bool is_within(const struct peer *p, const struct layout *l, int64_t base, int64_t count)
{
	int64_t span, low, high;

	if (__builtin_mul_overflow(count - 1, l->extent, &span))
		return false;
	if (__builtin_add_overflow(base, l->low + (span < 0 ? span : 0), &low) ||
	    __builtin_add_overflow(base, l->high + (span > 0 ? span : 0), &high))
		return false;
	return low >= 0 && (uint64_t)high <= p->size;
}

bool reach_find(struct window *w, struct target *t, MPI_Aint disp, int64_t count, MPI_Datatype type, bool fences)
{
	const struct layout *l;
	int64_t base;

	if (t->rank < 0 || t->rank >= w->shm->ranks || count <= 0 || !shm_may_access(w, t->rank, fences))
		return false;
	t->peer = &w->shm->peers[t->rank];
	l = layout_of(type);
	if (!l || __builtin_mul_overflow((int64_t)disp, t->peer->unit, &base) || !is_within(t->peer, l, base, count))
		return false;
	t->at = layout_cursor_begin(l, base, count);
	return !__builtin_mul_overflow(l->size, (uint64_t)count, &t->bytes);
}

bool reach_allows(const struct peer *p, const void *buf, size_t len)
{
	return (!p->paged && !p->remote) || !ummapped(buf, len);
}

/* Looks at the answer a few times: most segments come from the owner's memory. */
#define SPINS 2000
/* Sleeps of a millisecond, before its process is looked for. */
#define SLEEPS 10

/* 0, or an errno. Several threads of this process may ask the same owner: each takes any answer for its own, and looks. */
static int ask_owner(const struct reach *r, uint64_t at)
{
	struct shm *shm = r->shm;
	const struct peer *p = r->peer;
	struct pager_answer *a = &p->answers[shm->locks.me];
	uint32_t count = atomic_load(&a->count);

	if (!p->door || !pager_ask(p->door, p->key, at - p->paged_from, r->store, shm->locks.me))
		return EOWNERDEAD;
	for (unsigned n = 1; atomic_load(&a->count) == count; n++) {
		if (n < SPINS)
			continue;
		shm->locks.idle(shm->locks.arg);
		futex_wait_shared(&a->count, count, 1);
		if (n % SLEEPS == 0 && !is_alive(shm->locks.processes[p - shm->peers]))
			return EOWNERDEAD;
	}
	return atomic_load(&a->error);
}

static char *hold(struct reach *r, uint64_t at, size_t *len)
{
	uint64_t from = at - r->peer->paged_from;

	while (umimport_hold(r->peer->paged, from, r->store, &r->hold) < 0) {
		int err = ask_owner(r, at);

		if (err) {
			errno = err;
			return NULL;
		}
	}
	r->from = at;
	r->to = at + r->hold.len;
	*len = *len < r->hold.len ? *len : r->hold.len;
	return r->hold.addr;
}

/* The same bytes to here, or back. */
static bool exchange(struct reach *r, bool back)
{
	struct remote list;
	uint64_t there;

	reach_remote(r->peer, r->from, r->to - r->from, &there);
	remote_begin(&list, r->peer->pid, back);
	return remote_copy(&list, r->copy, there, r->to - r->from) && remote_end(&list);
}

static char *copy(struct reach *r, uint64_t at, size_t *len)
{
	uint64_t there;

	*len = reach_remote(r->peer, at, *len < REACH_COPY ? *len : REACH_COPY, &there);
	r->from = at;
	r->to = at + *len;
	if (exchange(r, false))
		return r->copy;
	r->to = 0;
	return NULL;
}

bool reach_finish(struct reach *r)
{
	bool good = true;

	if (!reach_is_remote(r->peer, r->from))
		umimport_release(&r->hold);
	else if (r->store)
		good = exchange(r, true);
	r->to = 0;
	return good;
}

char *reach_at(struct reach *r, uint64_t at, size_t *len)
{
	const struct peer *p = r->peer;

	if (at >= p->from && at < p->to) {
		*len = *len < p->to - at ? *len : p->to - at;
		return p->at + (at - p->from);
	}
	if (at >= r->from && at < r->to) {
		*len = *len < r->to - at ? *len : r->to - at;
		return (reach_is_remote(p, at) ? r->copy : r->hold.addr) + (at - r->from);
	}
	if (!reach_end(r))
		return NULL;
	return reach_is_remote(p, at) ? copy(r, at, len) : hold(r, at, len);
}
