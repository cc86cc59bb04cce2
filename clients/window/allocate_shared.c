/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Win_allocate_shared in storage, and queries of such windows. */
#include "pmpi/pmpi.h"
#include "window/shared.h"
#include "window/window.h"

#include <string.h>

static struct pmpi_feature shared_windows;

static bool is_apart(MPI_Info info)
{
	char value[HINT_TEXT] = "";
	int found = 0;

	if (info != MPI_INFO_NULL)
		PMPI_Info_get(info, "alloc_shared_noncontig", MPI_MAX_INFO_VAL, value, &found);
	return found && strcmp(value, "true") == 0;
}

static int make_window(struct shared *s, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
		       MPI_Win *win)
{
	struct window *w = window_new(MPI_WIN_FLAVOR_SHARED);
	int code = w ? window_own_comm(comm, &w->comm) : MPI_ERR_NO_MEM;

	if (code == MPI_SUCCESS)
		code = shared_windows.next.Win_create(s->base, size, unit, info, comm, win);
	if (code != MPI_SUCCESS) {
		if (w)
			window_forget(w);
		return code;
	}
	w->shared = s;
	w->fencesync = s->hints.fencesync;
	return window_remember(*win, w);
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
			   MPI_Win *win)
{
	struct error e = { 0 };
	struct shared *s = NULL;
	struct hints h;
	bool storage = hints_agree(&h, info, comm, false, &e);
	int code;

	if (storage && e.class == MPI_SUCCESS)
		s = shared_open(size, unit, &h, is_apart(info), comm, &e);
	if (e.class != MPI_SUCCESS)
		return error_tell_comm(comm, &e);
	if (!storage)
		return shared_windows.next.Win_allocate_shared(size, unit, info, comm, base, win);
	code = make_window(s, size, unit, info, comm, win);
	if (code == MPI_SUCCESS)
		*(void **)base = s->base;
	return code;
}

/* The part of a rank; MPI_PROC_NULL: the first part that has bytes. */
static const struct place *find_place(const struct shared *s, int rank)
{
	if (rank != MPI_PROC_NULL)
		return rank >= 0 && rank < s->ranks ? &s->places[rank] : NULL;
	for (rank = 0; rank + 1 < s->ranks && s->places[rank].size == 0; rank++)
		;
	return &s->places[rank];
}

static int query(MPI_Win win, int rank, MPI_Aint *size, MPI_Aint *unit, void *base)
{
	struct window *w = window_of(win);
	const struct place *p = w && w->shared ? find_place(w->shared, rank) : NULL;

	if (!p)
		return shared_windows.next.Win_shared_query(win, rank, size, unit, base);
	*size = (MPI_Aint)p->size;
	*unit = (MPI_Aint)p->unit;
	*(void **)base = shared_part(w->shared, p);
	return MPI_SUCCESS;
}

static struct pmpi_feature shared_windows = {
	.place = PMPI_WINDOWS,
	.take = { .Win_allocate_shared = allocate_shared, .Win_shared_query = query },
};
PMPI_FEATURE(shared_windows)
