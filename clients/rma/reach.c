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
 * this process may ask the same owner: each takes any answer for its own, and tries again. Only
 * windows that are ours have answers, so reach_hold is for these.
 */
static int ask_owner(const struct reach *r, uint64_t at)
{
	struct shm *shm = r->shm;
	const struct target *t = r->target;
	struct pager_answer *a = &t->answers[shm->locks.me];
	uint32_t count = atomic_load(&a->count);

	if (!t->pipe || !pager_ask(t->pipe, t->key, at - t->paged_from, r->store, shm->locks.me))
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

bool reach_copy_remote(const struct target *t, const struct piece *piece, void *here, bool put)
{
	struct remote_list list;

	remote_begin(&list, t->pid);
	return remote_copy(&list, put, here, piece->there, piece->len) && remote_end(&list);
}

bool reach_copy_pieces(struct reach *r, uint64_t at, char *here, uint64_t len, bool put)
{
	for (size_t n; len > 0; at += n, here += n, len -= n) {
		struct piece piece = reach_find_piece(r->target, at, len);
		char *theirs;

		n = piece.len;
		if (piece.kind == PIECE_KERNEL) {
			if (r->copied && !reach_end(r))
				return false;
			if (!remote_copy(&r->buffers->list, put, here, piece.there, n))
				return false;
			continue;
		}
		n = min_size(n, MAX_HELD_BYTES);
		theirs = reach_hold(r, at, &n);
		if (!theirs)
			return false;
		memmove(put ? theirs : here, put ? here : theirs, n);
		r->held_bytes += n;
		if (r->held_bytes >= MAX_HELD_BYTES && !reach_end(r))
			return false;
	}
	return true;
}

/* Copies the bytes of `copy` from the target, or back. */
static bool exchange_copy(struct reach *r, bool back)
{
	struct piece piece = reach_find_piece(r->target, r->from, r->to - r->from);

	return remote_copy(&r->buffers->list, back, r->buffers->copy, piece.there, piece.len) &&
	       remote_end(&r->buffers->list);
}

bool reach_complete(struct reach *r)
{
	bool good = remote_end(&r->buffers->list);

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
		return (r->held ? r->hold.addr : r->buffers->copy) + (at - r->from);
	}
	if (!reach_end(r))
		return NULL;
	if (piece.kind == PIECE_KERNEL) {
		*len = min_size(*len, REACH_COPY_SIZE);
		r->from = at;
		r->to = at + *len;
		r->copied = exchange_copy(r, false);
		return r->copied ? r->buffers->copy : NULL;
	}
	while (!(address = reach_try_hold(r, at))) {
		err = ask_owner(r, at);
		if (err) {
			errno = err;
			return NULL;
		}
	}
	*len = min_size(*len, r->hold.len);
	return address;
}
