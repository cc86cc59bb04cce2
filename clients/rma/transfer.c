/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Put and MPI_Get, as copies where the target's memory is reached (rma/shm.h): of bytes without gaps, and in windows
 * that are ours, of any datatype that is understood. What is left to MPI is noted, so that flushes know.
 */
#include "pmpi/pmpi.h"
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

static int query(void *extra, MPI_Status *status)
{
	(void)extra;
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return MPI_SUCCESS;
}

static int release(void *extra)
{
	(void)extra;
	return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
	(void)extra, (void)complete;
	return MPI_SUCCESS;
}

bool shm_request(const struct window *w, MPI_Request *request)
{
	window_progress(w);
	if (PMPI_Grequest_start(query, release, cancel, NULL, request) != MPI_SUCCESS)
		return false;
	PMPI_Grequest_complete(*request);
	return true;
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

/* Where the next bytes of the target are, and as many of them as are left. */
static inline uint64_t next_piece(const struct target *t, uint64_t done, size_t *len)
{
	uint64_t at = (uint64_t)cursor_at(&t->at, len);

	*len = *len < t->bytes - done ? *len : t->bytes - done;
	return at;
}

/* Copies to or from the target, whose bytes are in order at `local`. A hold is short. */
static bool copy(struct window *w, struct target *t, char *local, bool put)
{
	size_t len, held = 0;
	char *theirs = local;
	struct reach r;

	reach_begin(&r, w->shm, t->rank, put);
	for (uint64_t done = 0; done < t->bytes && theirs; done += len) {
		uint64_t at = next_piece(t, done, &len);

		len = len < HOLD_MOST ? len : HOLD_MOST;
		theirs = reach_at(&r, at, &len);
		if (theirs)
			memmove(put ? theirs : local + done, put ? local + done : theirs, len);
		cursor_go(&t->at, len);
		held += len;
		if (held >= HOLD_MOST) {
			reach_end(&r);
			held = 0;
		}
	}
	reach_end(&r);
	return theirs;
}

/* The same by the kernel, as many pieces at a time as it takes, but for those that are mapped here. */
static bool copy_remote(struct window *w, struct target *t, char *local, bool put)
{
	const struct peer *p = t->peer;
	struct remote list;
	bool good = true;
	size_t len;

	remote_begin(&list, w->shm->locks.who[t->rank].pid, put);
	for (uint64_t done = 0; done < t->bytes && good; done += len) {
		uint64_t at = next_piece(t, done, &len), there;

		if (reach_is_remote(p, at)) {
			len = reach_remote(p, at, len, &there);
			good = remote_copy(&list, local + done, there, len);
		} else {
			char *theirs = p->at + (at - p->from);

			len = len < p->to - at ? len : p->to - at;
			memmove(put ? theirs : local + done, put ? local + done : theirs, len);
		}
		cursor_go(&t->at, len);
	}
	return good && remote_end(&list);
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
	good = (target.peer->remote ? copy_remote : copy)(w, &target, local.at, put);
	if (put)
		atomic_store_explicit(&target.peer->stored, true, memory_order_relaxed);
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
