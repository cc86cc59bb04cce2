/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Put and MPI_Get, as copies where the target's memory is reached (local.h) and both sides are bytes without gaps;
 * and all operations that are left to MPI, which are noted, so that flushes know.
 */
#include "rma/transfer.h"

#include "rma/shm.h"
#include "window/window.h"

#include <string.h>

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
	local_progress(w);
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

/* What was copied and gets no request, MPI copies again. */
bool transfer_put(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->local)
		return false;
	s = stretch_of(t, request);
	return local_put(w, &s, t->from) && (!request || make_request(w, request));
}

bool transfer_get(const struct transfer *t, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	struct stretch s;

	if (!w || !w->local)
		return false;
	s = stretch_of(t, request);
	return local_get(w, &s, t->to) && (!request || make_request(w, request));
}

int transfer_noted(int code, int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->local)
		local_note(w, rank);
	return code;
}

/* ---- The calls ---- */

int MPI_Put(const void *from, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count,
	    MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { from, NULL, count, type, rank, disp, target_count, target_type };

	if (transfer_put(&t, win, NULL))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Put(from, count, type, rank, disp, target_count, target_type, win), rank, win);
}

int MPI_Get(void *to, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count, MPI_Datatype target_type,
	    MPI_Win win)
{
	struct transfer t = { NULL, to, count, type, rank, disp, target_count, target_type };

	if (transfer_get(&t, win, NULL))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Get(to, count, type, rank, disp, target_count, target_type, win), rank, win);
}

int MPI_Rput(const void *from, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count,
	     MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { from, NULL, count, type, rank, disp, target_count, target_type };

	if (transfer_put(&t, win, request))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Rput(from, count, type, rank, disp, target_count, target_type, win, request), rank,
			      win);
}

int MPI_Rget(void *to, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count, MPI_Datatype target_type,
	     MPI_Win win, MPI_Request *request)
{
	struct transfer t = { NULL, to, count, type, rank, disp, target_count, target_type };

	if (transfer_get(&t, win, request))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Rget(to, count, type, rank, disp, target_count, target_type, win, request), rank,
			      win);
}

int MPI_Accumulate(const void *from, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count,
		   MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
	return transfer_noted(PMPI_Accumulate(from, count, type, rank, disp, target_count, target_type, op, win), rank,
			      win);
}

int MPI_Raccumulate(const void *from, int count, MPI_Datatype type, int rank, MPI_Aint disp, int target_count,
		    MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	return transfer_noted(PMPI_Raccumulate(from, count, type, rank, disp, target_count, target_type, op, win,
					       request), rank, win);
}

int MPI_Get_accumulate(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
		       int rank, MPI_Aint disp, int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
	return transfer_noted(PMPI_Get_accumulate(from, count, type, to, to_count, to_type, rank, disp, target_count,
						  target_type, op, win), rank, win);
}

int MPI_Rget_accumulate(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
			int rank, MPI_Aint disp, int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
			MPI_Request *request)
{
	return transfer_noted(PMPI_Rget_accumulate(from, count, type, to, to_count, to_type, rank, disp, target_count,
						   target_type, op, win, request), rank, win);
}

int MPI_Fetch_and_op(const void *from, void *to, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Op op, MPI_Win win)
{
	return transfer_noted(PMPI_Fetch_and_op(from, to, type, rank, disp, op, win), rank, win);
}

int MPI_Compare_and_swap(const void *from, const void *compare, void *to, MPI_Datatype type, int rank, MPI_Aint disp,
			 MPI_Win win)
{
	return transfer_noted(PMPI_Compare_and_swap(from, compare, to, type, rank, disp, win), rank, win);
}
