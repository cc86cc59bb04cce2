/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Access to the memory of a window's ranks. reach_find_piece is the only function that decides how
 * bytes of another rank are accessed. It divides them into pieces:
 *
 * PIECE_ADDRESS  bytes that are mapped in this process: window memory of this rank, memory outside
 *                storage, and files that the kernel maps. Loads, stores and atomic instructions
 *                access them.
 * PIECE_OWNER    segments that their owner pages with the engine segv or sigbus. This process
 *                accesses segments that are in memory by umimport_* (umexport(3)). For other
 *                segments, it sends a request to the owner, whose pager loads them (rma/pager.h).
 *                The process holds no segment while it waits, so owners never wait for each other.
 * PIECE_KERNEL   segments that their owner pages with the engine uffd. The kernel copies them
 *                (rma/remote.h).
 * PIECE_NONE     bytes that only MPI can access.
 *
 * reach_copy_now and reach_copy copy bytes of all kinds; MPI_Put and MPI_Get use them. reach_hold
 * returns an address at which atomic operations change bytes in place: the address of the piece,
 * an address in a segment that is held for a short time, or a copy that reach_end writes back.
 * Operations on a copy need an exclusive lock; reach_has_words returns whether a target needs no
 * copies. Locks need no access to window memory, because they are in control memory
 * (rma/control.c), which all ranks map.
 *
 * The caller must check that the epoch allows the access (rma/epoch.h). In a window of this
 * library, no piece is PIECE_NONE, so an operation fails only if an owner has died or its storage
 * fails.
 */
#ifndef REACH_H
#define REACH_H

#include "rma/layout.h"
#include "rma/remote.h"
#include "rma/shm.h"

#include <string.h>
#include <ummap.h>

enum piece_kind { PIECE_NONE, PIECE_ADDRESS, PIECE_OWNER, PIECE_KERNEL };

struct piece {
	enum piece_kind kind;    /* way to access the bytes */
	uint64_t len;            /* number of bytes */
	char *address;           /* PIECE_ADDRESS: address in this process */
	uint64_t there;          /* PIECE_KERNEL: address in the owner; PIECE_OWNER: offset */
};

/* Returns the first piece of `len` bytes at an offset. */
static inline struct piece reach_find_piece(const struct target *t, uint64_t at, uint64_t len)
{
	struct piece piece = { .kind = PIECE_NONE, .len = len };

	if (at >= t->from && at < t->to) {
		piece.kind = PIECE_ADDRESS;
		piece.address = t->at + (at - t->from);
		piece.len = len < t->to - at ? len : t->to - at;
		return piece;
	}
	if (t->to && at < t->from && len > t->from - at)
		piece.len = t->from - at;
	if (at < t->paged_from)
		return piece;
	piece.there = t->remote + (at - t->paged_from);
	if (t->remote)
		piece.kind = PIECE_KERNEL;
	else if (t->import)
		piece.kind = PIECE_OWNER;
	return piece;
}

/* Whether atomic instructions can change words anywhere in the memory of the target. */
static inline bool reach_has_words(const struct target *t)
{
	return !t->remote;
}

/* Returns the target, and sets *at to the offset of a displacement. NULL: `bytes` bytes at this
 * displacement are not all in the window. */
static inline struct target *reach_find_target(struct shm *shm, int rank, MPI_Aint disp,
					       uint64_t bytes, uint64_t *at)
{
	struct target *t;
	int64_t from;

	if (rank < 0 || rank >= shm->ranks)
		return NULL;
	t = &shm->targets[rank];
	if (disp < 0 || __builtin_mul_overflow((int64_t)disp, t->unit, &from) || bytes > t->size ||
	    (uint64_t)from > t->size - bytes)
		return NULL;
	*at = (uint64_t)from;
	return t;
}

/* Copies the bytes of a piece of the kind PIECE_KERNEL. */
bool reach_copy_remote(const struct target *t, const struct piece *piece, void *here, bool put);

/*
 * Copies bytes between `here` and the target if they are one piece and in memory. false: the bytes
 * were not copied, or only some of them.
 */
static inline bool reach_copy_now(const struct target *t, uint64_t at, void *here, uint64_t len,
				  bool put)
{
	struct piece piece = reach_find_piece(t, at, len);

	if (piece.len != len)
		return false;
	switch (piece.kind) {
	case PIECE_ADDRESS:
		memmove(put ? piece.address : here, put ? here : piece.address, len);
		return true;
	case PIECE_OWNER:
		return (put ? umimport_put(t->import, here, len, piece.there) :
			      umimport_get(t->import, here, len, piece.there)) == len;
	case PIECE_KERNEL:
		return reach_copy_remote(t, &piece, here, put);
	default:
		return false;
	}
}

/* Items of a datatype in the memory of a target. */
struct items {
	struct target *target;   /* the target */
	struct layout_cursor at; /* position of the first item */
	uint64_t bytes;          /* size of all items */
};

/* Finds `count` items of a datatype at a displacement. false: the items are not all in the window,
 * or the layout of the datatype is unknown. */
bool reach_find_items(struct shm *shm, struct items *items, int rank, MPI_Aint disp, int64_t count,
		      MPI_Datatype type);

/* Buffers for accesses to memory with pieces of the kind PIECE_KERNEL. */
#define REACH_COPY_SIZE ((size_t)16 << 10)
struct reach_buffers {
	struct remote_list list; /* copies that the kernel has not made yet */
	char copy[REACH_COPY_SIZE]; /* copy of bytes of the target */
};

/* Accesses of one thread to one target. */
struct reach {
	struct shm *shm;         /* the window */
	struct target *target;   /* the target */
	bool store;              /* whether bytes are changed in place */
	bool held;               /* whether `hold` is in use */
	bool copied;             /* whether buffers->copy is in use */
	uint64_t from, to;       /* bytes that are held or copied */
	size_t held_bytes;       /* bytes copied since the last reach_end */
	struct umhold hold;      /* segment that is held */
	struct reach_buffers *buffers; /* buffers; NULL: reach_has_words is true */
};

static inline void reach_begin(struct reach *r, struct reach_buffers *buffers, struct shm *shm,
			       int rank, bool store)
{
	r->buffers = buffers;
	r->shm = shm;
	r->target = &shm->targets[rank];
	r->store = store;
	r->held = r->copied = false;
	r->held_bytes = 0;
	if (buffers)
		remote_begin(&buffers->list, r->target->pid);
}

/* Number of copied bytes after which a held segment is released, because its owner may wait. */
#define MAX_HELD_BYTES ((size_t)256 << 10)

/* Copies bytes as reach_copy does, piece by piece. */
bool reach_copy_pieces(struct reach *r, uint64_t at, char *here, uint64_t len, bool put);

/*
 * Copies bytes between `here` and the target, and waits for segments that are not in memory.
 * reach_allows must be true for `here`. The copy is complete after reach_end. false: the copy has
 * failed, and errno is set.
 */
static inline bool reach_copy(struct reach *r, uint64_t at, char *here, uint64_t len, bool put)
{
	struct piece piece = reach_find_piece(r->target, at, len);
	char *theirs = piece.address;

	if (r->held && at >= r->from && at < r->to && len <= r->to - at &&
	    r->held_bytes < MAX_HELD_BYTES) {
		theirs = r->hold.addr + (at - r->from);
		r->held_bytes += len;
	} else if (piece.kind != PIECE_ADDRESS || piece.len != len) {
		return reach_copy_pieces(r, at, here, len, put);
	}
	memmove(put ? theirs : here, put ? here : theirs, len);
	return true;
}

/*
 * Returns an address at which bytes may be changed until reach_end or the next call. Sets *len to
 * the number of bytes at this address, at most the value that the caller gave. Waits until the
 * bytes are in memory. NULL: the bytes cannot be accessed, and errno is set.
 */
char *reach_hold(struct reach *r, uint64_t at, size_t *len);

/* Holds the segment of an offset without waiting. NULL: the segment is not in memory. The caller
 * must hold no other segment. */
static inline char *reach_try_hold(struct reach *r, uint64_t at)
{
	uint64_t offset = at - r->target->paged_from;

	if (umimport_hold(r->target->import, offset, r->store, &r->hold) < 0)
		return NULL;
	r->held = true;
	r->from = at;
	r->to = at + r->hold.len;
	return r->hold.addr;
}

/* Completes all copies. false: a copy has failed, and errno is set. */
bool reach_complete(struct reach *r);
/* Releases the held segment, and completes all copies. */
static inline bool reach_end(struct reach *r)
{
	if (r->held)
		umimport_release(&r->hold);
	r->held = false;
	r->held_bytes = 0;
	return !r->buffers || reach_complete(r);
}

/* Whether a buffer may be accessed while bytes of the target are held, or while the kernel copies
 * them. */
bool reach_allows(const struct target *t, const void *buf, size_t len);

#endif
