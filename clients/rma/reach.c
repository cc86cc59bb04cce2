/* SPDX-License-Identifier: BSD-3-Clause */
/* Access to the memory of a window's ranks: the header describes the kinds of pieces. No lock. */
#include "rma/reach.h"

#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>

/* Number of looks at an answer before the thread sleeps: most segments come from memory. */
#define MAX_SPINS 2000
/* Number of sleeps of a millisecond after which the owner's process is looked for. */
#define SLEEPS_PER_CHECK 10

/* Whether all bytes of the items are in the window. */
static bool are_within(const struct target *t, const struct layout *l, int64_t base, int64_t count)
{
	int64_t span, low, high;

	if (__builtin_mul_overflow(count - 1, l->extent, &span))
		return false;
	if (__builtin_add_overflow(base, l->low + (span < 0 ? span : 0), &low) ||
	    __builtin_add_overflow(base, l->high + (span > 0 ? span : 0), &high))
		return false;
	return low >= 0 && (uint64_t)high <= t->size;
}

bool reach_find_items(struct shm *shm, struct items *items, int rank, MPI_Aint disp, int64_t count,
		      MPI_Datatype type)
{
	const struct layout *l;
	int64_t base;

	if (rank < 0 || rank >= shm->ranks || count <= 0)
		return false;
	items->target = &shm->targets[rank];
	l = layout_of(type);
	if (!l || __builtin_mul_overflow((int64_t)disp, items->target->unit, &base) ||
	    !are_within(items->target, l, base, count))
		return false;
	items->at = layout_cursor_begin(l, base, count);
	return !__builtin_mul_overflow(l->size, (uint64_t)count, &items->bytes);
}

bool reach_allows(const struct target *t, const void *buf, size_t len)
{
	return (!t->import && !t->remote) || !ummapped(buf, len);
}

/*
 * Asks the owner to load the segment of an offset. Returns 0 or an errno value. Several threads of
 * this process may ask the same owner: each takes any answer for its own, and tries again.
 */
static int ask_owner(const struct reach *r, uint64_t at, bool store)
{
	struct shm *shm = r->shm;
	const struct target *t = r->target;
	struct pager_answer *a = &t->answers[shm->locks.me];
	uint32_t count;

	/* In other windows, MPI makes what fails here. */
	if (!shm->ours)
		return EAGAIN;
	count = atomic_load(&a->count);
	if (!t->pipe || !pager_ask(t->pipe, t->key, at - t->paged_from, store, shm->locks.me))
		return EOWNERDEAD;
	for (unsigned n = 1; atomic_load(&a->count) == count; n++) {
		if (n < MAX_SPINS)
			continue;
		shm->locks.idle(shm->locks.arg);
		futex_wait_shared(&a->count, count, 1);
		if (n % SLEEPS_PER_CHECK == 0 &&
		    !is_alive(shm->locks.processes[t - shm->targets]))
			return EOWNERDEAD;
	}
	return atomic_load(&a->error);
}

/* Copies bytes of segments that are in memory; if there are none, asks for the first. */
static uint64_t copy_owned(struct reach *r, const struct piece *piece, uint64_t at, char *here,
			   bool put)
{
	struct umimport *import = r->target->import;
	uint64_t n = put ? umimport_put(import, here, piece->len, piece->there) :
			   umimport_get(import, here, piece->len, piece->there);
	int err = n ? 0 : ask_owner(r, at, put);

	if (err)
		errno = err;
	return err ? UINT64_MAX : n;
}

bool reach_copy_pieces(struct reach *r, uint64_t at, char *here, uint64_t len, bool put)
{
	/* A thread that holds a segment must not access others or wait. */
	if (!reach_end(r))
		return false;
	for (uint64_t n; len > 0; at += n, here += n, len -= n) {
		struct piece piece = reach_find_piece(r->target, at, len);

		n = piece.len;
		if (piece.kind == PIECE_ADDRESS) {
			memmove(put ? piece.address : here, put ? here : piece.address, n);
		} else if (piece.kind == PIECE_KERNEL) {
			if (!remote_copy(&r->list, put, here, piece.there, n))
				return false;
		} else if (piece.kind == PIECE_OWNER) {
			n = copy_owned(r, &piece, at, here, put);
			if (n == UINT64_MAX)
				return false;
		} else {
			errno = EFAULT;
			return false;
		}
	}
	return true;
}

/* Copies the bytes of `copy` from the target, or back. */
static bool exchange_copy(struct reach *r, bool back)
{
	struct piece piece = reach_find_piece(r->target, r->from, r->to - r->from);

	return remote_copy(&r->list, back, r->copy, piece.there, piece.len) &&
	       remote_end(&r->list);
}

bool reach_complete(struct reach *r)
{
	bool good = remote_end(&r->list);

	if (r->copied && r->store)
		good = exchange_copy(r, true) && good;
	r->copied = false;
	return good;
}

char *reach_hold(struct reach *r, uint64_t at, size_t *len)
{
	struct piece piece = reach_find_piece(r->target, at, *len);
	char *address;
	int err;

	*len = piece.len;
	if (piece.kind == PIECE_ADDRESS)
		return piece.address;
	if ((r->held || r->copied) && at >= r->from && at < r->to) {
		*len = min_size(*len, r->to - at);
		return (r->held ? r->hold.addr : r->copy) + (at - r->from);
	}
	if (!reach_end(r))
		return NULL;
	if (piece.kind == PIECE_KERNEL) {
		*len = min_size(*len, REACH_COPY_SIZE);
		r->from = at;
		r->to = at + *len;
		r->copied = exchange_copy(r, false);
		return r->copied ? r->copy : NULL;
	}
	while (!(address = reach_try_hold(r, at))) {
		err = ask_owner(r, at, r->store);
		if (err) {
			errno = err;
			return NULL;
		}
	}
	*len = min_size(*len, r->hold.len);
	return address;
}
