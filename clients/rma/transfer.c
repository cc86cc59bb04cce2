/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Put and MPI_Get, as copies where the target's memory is reached (rma/shm.h): of bytes without gaps, and in windows
 * that are ours, of any datatype that is understood. What is left to MPI is noted, so that flushes know.
 */
#include "pmpi/pmpi.h"
#include "pmpi/request.h"
#include "rma/local.h"
#include "rma/shm.h"
#include "window/window.h"

#include <string.h>

static struct pmpi_feature operations;

/* The owner waits for no longer than copying so much takes. */
#define HOLD_MOST ((size_t)256 << 10)
/* No code of MPI's. */
#define LEFT (-1)

/* The arguments of a put (from) or get (to). */
struct transfer {
	const void *from;
	void *to;
	int64_t count;
	MPI_Datatype type;
	int rank;
	MPI_Aint disp;
	int64_t target_count;
	MPI_Datatype target_type;
};

/* ---- Copies ---- */

bool shm_request(const struct window *w, MPI_Request *request)
{
	window_progress(w);
	return request_complete(NULL, request) == MPI_SUCCESS;
}

/* Bytes that both sides have alike; 0: only MPI can tell. */
static inline uint64_t bytes_of(const struct transfer *t)
{
	uint64_t bytes = type_bytes(t->type, t->count);

	if (t->type == t->target_type)
		return t->count == t->target_count ? bytes : 0;
	return bytes == type_bytes(t->target_type, t->target_count) ? bytes : 0;
}

static inline struct stretch stretch_of(const struct transfer *t, const MPI_Request *request)
{
	/* Requests are for epochs of locks. */
	return (struct stretch){ .rank = t->rank, .disp = t->disp, .bytes = bytes_of(t), .fences = !request };
}

/* A transfer in pieces, each of which is one block of the target. */
struct pieces {
	const struct peer *peer;
	char *local;              /* the next one's bytes */
	bool put;
	size_t held;              /* bytes since the owner was last free to go on */
	struct reach reach;
	struct remote remote;
};

static inline void move_bytes(struct pieces *s, char *theirs, size_t len)
{
	if (s->put)
		memmove(theirs, s->local, len);
	else
		memmove(s->local, theirs, len);
	s->local += len;
}

/* A hold is short. */
static bool move_piece(struct pieces *s, uint64_t at, size_t bytes)
{
	for (size_t done = 0, len; done < bytes; done += len) {
		char *theirs;

		len = bytes - done < HOLD_MOST ? bytes - done : HOLD_MOST;
		theirs = reach_at(&s->reach, at + done, &len);
		if (!theirs)
			return false;
		move_bytes(s, theirs, len);
		s->held += len;
		if (s->held >= HOLD_MOST) {
			reach_end(&s->reach);
			s->held = 0;
		}
	}
	return true;
}

/* The same by the kernel, but for what is mapped here. */
static bool list_piece(struct pieces *s, uint64_t at, size_t bytes)
{
	const struct peer *p = s->peer;
	uint64_t there;

	for (size_t done = 0, len; done < bytes; done += len) {
		len = bytes - done;
		if (reach_is_remote(p, at + done)) {
			len = reach_remote(p, at + done, len, &there);
			if (!remote_copy(&s->remote, s->local, there, len))
				return false;
			s->local += len;
		} else {
			len = len < p->to - at - done ? len : p->to - at - done;
			move_bytes(s, p->at + (at + done - p->from), len);
		}
	}
	return true;
}

static inline bool is_here(const struct peer *p, uint64_t at, size_t bytes)
{
	return at >= p->from && at < p->to && bytes <= p->to - at;
}

static bool copy_piece(struct pieces *s, uint64_t at, size_t bytes)
{
	if (is_here(s->peer, at, bytes)) {
		move_bytes(s, s->peer->at + (at - s->peer->from), bytes);
		return true;
	}
	return s->peer->remote ? list_piece(s, at, bytes) : move_piece(s, at, bytes);
}

/* Items without gaps are one piece. */
static bool copy_pieces(struct pieces *s, const struct target *t)
{
	const struct layout *l = t->at.layout;
	int64_t base = t->at.base;
	bool good = true;

	if (l->n == 1 && l->blocks->len == (uint64_t)l->extent)
		return copy_piece(s, (uint64_t)(base + l->blocks->at), t->bytes);
	for (int64_t item = 0; item < t->at.items; item++, base += l->extent) {
		for (size_t k = 0; k < l->n && good; k++)
			good = copy_piece(s, (uint64_t)(base + l->blocks[k].at), l->blocks[k].len);
	}
	return good;
}

/* Copies to or from the target, whose bytes are in order at `local`. */
static bool copy(struct window *w, struct target *t, char *local, bool put)
{
	struct pieces s;
	bool good;

	s.peer = t->peer;
	s.local = local;
	s.put = put;
	s.held = 0;
	reach_begin(&s.reach, w->shm, t->rank, put);
	remote_begin(&s.remote, t->peer->pid, put);
	good = copy_pieces(&s, t) && remote_end(&s.remote);
	reach_end(&s.reach);
	if (put)
		atomic_store_explicit(&t->peer->stored, true, memory_order_relaxed);
	return good;
}

/* LEFT: it is for MPI. Else its code. */
static int transfer(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	bool put = t->from, good;
	const void *buf = put ? t->from : t->to;
	struct target target = { .rank = t->rank };
	struct local local;

	if (!w || !w->shm || !w->shm->ours || !reach_find(w, &target, t->disp, t->target_count, t->target_type, !request) ||
	    local_size(t->type, t->count) != target.bytes ||
	    !local_take(&local, buf, t->type, t->count, reach_allows(target.peer, buf, target.bytes), put))
		return LEFT;
	good = copy(w, &target, local.at, put);
	if (good && !put)
		local_return(&local, t->to, t->type, t->count);
	local_drop(&local);
	if (!good)
		return shm_failed(w, t->rank);
	return !request || shm_request(w, request) ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* The same, by one copy where that is all. */
static inline int put_here(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->shm)
		return LEFT;
	s = stretch_of(t, request);
	if (s.bytes && shm_put(w, &s, t->from) && (!request || shm_request(w, request)))
		return MPI_SUCCESS;
	return transfer(t, win, request);
}

static inline int get_here(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->shm)
		return LEFT;
	s = stretch_of(t, request);
	if (s.bytes && shm_get(w, &s, t->to) && (!request || shm_request(w, request)))
		return MPI_SUCCESS;
	return transfer(t, win, request);
}

/* MPI is about to take an operation; it has taken one: passes on its code. */
static void pass(int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm)
		shm_pass(w, rank);
}

static int noted(int code, int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm)
		shm_note(w, rank);
	return code;
}

/* ---- The calls ---- */

static int put(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { from, NULL, n, type, rank, disp, target_n, target_type };
	int code = put_here(&t, win, NULL);

	if (code != LEFT)
		return code;
	pass(rank, win);
	return noted(operations.next.Put(from, n, type, rank, disp, target_n, target_type, win), rank, win);
}

static int rput(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { from, NULL, n, type, rank, disp, target_n, target_type };
	int code = put_here(&t, win, request);

	if (code != LEFT)
		return code;
	pass(rank, win);
	return noted(operations.next.Rput(from, n, type, rank, disp, target_n, target_type, win, request), rank, win);
}

static int get(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { NULL, to, n, type, rank, disp, target_n, target_type };
	int code = get_here(&t, win, NULL);

	if (code != LEFT)
		return code;
	pass(rank, win);
	return noted(operations.next.Get(to, n, type, rank, disp, target_n, target_type, win), rank, win);
}

static int rget(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { NULL, to, n, type, rank, disp, target_n, target_type };
	int code = get_here(&t, win, request);

	if (code != LEFT)
		return code;
	pass(rank, win);
	return noted(operations.next.Rget(to, n, type, rank, disp, target_n, target_type, win, request), rank, win);
}

static struct pmpi_feature operations = {
	.place = PMPI_RMA,
	.take = {
		.Put = put,
		.Get = get,
		.Rput = rput,
		.Rget = rget,
	},
};
PMPI_FEATURE(operations)
