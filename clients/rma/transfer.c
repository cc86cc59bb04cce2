/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Put and MPI_Get, as copies where the target's memory is reached (rma/shm.h) and both sides are bytes without gaps;
 * and all operations that are left to MPI, which are noted, so that flushes know.
 */
#include "pmpi/pmpi.h"
#include "rma/shm.h"
#include "window/window.h"

#include <string.h>

static struct pmpi_feature operations;

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

/* A request for what is complete already. */
static bool make_request(const struct window *w, MPI_Request *request)
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

/* Whether the copy could be made; if not, nothing was done. request: where one for it goes, complete; NULL: none. What was
 * copied and gets no request, MPI copies again. */
static bool put_here(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->shm)
		return false;
	s = stretch_of(t, request);
	return shm_put(w, &s, t->from) && (!request || make_request(w, request));
}

static bool get_here(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->shm)
		return false;
	s = stretch_of(t, request);
	return shm_get(w, &s, t->to) && (!request || make_request(w, request));
}

/* MPI has taken an operation: passes on its code. */
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

	if (put_here(&t, win, NULL))
		return MPI_SUCCESS;
	return noted(operations.next.Put(from, n, type, rank, disp, target_n, target_type, win), rank, win);
}

static int rput(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { from, NULL, n, type, rank, disp, target_n, target_type };

	if (put_here(&t, win, request))
		return MPI_SUCCESS;
	return noted(operations.next.Rput(from, n, type, rank, disp, target_n, target_type, win, request), rank, win);
}

static int get(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { NULL, to, n, type, rank, disp, target_n, target_type };

	if (get_here(&t, win, NULL))
		return MPI_SUCCESS;
	return noted(operations.next.Get(to, n, type, rank, disp, target_n, target_type, win), rank, win);
}

static int rget(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { NULL, to, n, type, rank, disp, target_n, target_type };

	if (get_here(&t, win, request))
		return MPI_SUCCESS;
	return noted(operations.next.Rget(to, n, type, rank, disp, target_n, target_type, win, request), rank, win);
}

static int accumulate(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		      MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
	return noted(operations.next.Accumulate(from, n, type, rank, disp, target_n, target_type, op, win), rank,
		     win);
}

static int raccumulate(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		       MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	return noted(operations.next.Raccumulate(from, n, type, rank, disp, target_n, target_type, op, win, request),
		     rank, win);
}

static int get_accumulate(const void *from, MPI_Count n, MPI_Datatype type, void *to, MPI_Count to_n,
			  MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_n, MPI_Datatype target_type,
			  MPI_Op op, MPI_Win win)
{
	return noted(operations.next.Get_accumulate(from, n, type, to, to_n, to_type, rank, disp, target_n,
						    target_type, op, win), rank, win);
}

static int rget_accumulate(const void *from, MPI_Count n, MPI_Datatype type, void *to, MPI_Count to_n,
			   MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_n,
			   MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	return noted(operations.next.Rget_accumulate(from, n, type, to, to_n, to_type, rank, disp, target_n,
						     target_type, op, win, request), rank, win);
}

static int fetch_and_op(const void *from, void *to, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Op op,
			MPI_Win win)
{
	return noted(operations.next.Fetch_and_op(from, to, type, rank, disp, op, win), rank, win);
}

static int compare_and_swap(const void *from, const void *compare, void *to, MPI_Datatype type, int rank,
			    MPI_Aint disp, MPI_Win win)
{
	return noted(operations.next.Compare_and_swap(from, compare, to, type, rank, disp, win), rank, win);
}

static struct pmpi_feature operations = {
	.place = PMPI_RMA,
	.take = {
		.Put = put,
		.Get = get,
		.Rput = rput,
		.Rget = rget,
		.Accumulate = accumulate,
		.Raccumulate = raccumulate,
		.Get_accumulate = get_accumulate,
		.Rget_accumulate = rget_accumulate,
		.Fetch_and_op = fetch_and_op,
		.Compare_and_swap = compare_and_swap,
	},
};
PMPI_FEATURE(operations)
