/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Win_allocate, and the calls on such a window until MPI_Win_free. If one rank requests
 * storage, all ranks make a window of window memory. If one rank fails, all ranks fail with the
 * same error, and nothing is left behind.
 */
#include "window/window.h"

#include "pmpi/pmpi.h"
#include "transport/engine.h"
#include "window/consistent.h"
#include "window/shared.h"
#include "window/versioned.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct pmpi_feature windows;

/* A rank's part of the window, as all ranks know it. */
struct part {
	struct extent extent; /* bytes of the file */
	int rank;
	int class;            /* class of the rank's error */
	bool keeps;           /* MPI_Win_free makes the part durable */
	bool mpiio;           /* the part is mapped by the driver mpiio */
};

/* ---- Agreement ---- */

static int by_extent(const void *a, const void *b)
{
	const struct part *p = a, *q = b;
	int order = memcmp(&p->extent, &q->extent, offsetof(struct extent, from));

	if (order)
		return order;
	return p->extent.from < q->extent.from ? -1 : p->extent.from > q->extent.from;
}

/* All ranks have the same parts, so all find the same overlap. */
static void check_overlaps(MPI_Comm comm, struct part *parts, int ranks,
			   const struct region *region, struct error *e)
{
	int i = 1;

	qsort(parts, (size_t)ranks, sizeof(*parts), by_extent);
	while (i < ranks && !extent_overlaps(&parts[i - 1].extent, &parts[i].extent))
		i++;
	if (i == ranks)
		return;
	error_set(e, MPI_ERR_INFO_VALUE,
		  "cannot use '%.60s': rank %d has some of the same bytes. Try %%r in "
		  "storage_alloc_filename, or another storage_alloc_offset at each rank",
		  region ? region->hints.filename : "", parts[i].rank);
	error_share(comm, parts[i - 1].rank, e);
}

static void gather_parts(MPI_Comm comm, const struct region *region, int class, struct part *parts)
{
	struct part mine = { .class = class };

	PMPI_Comm_rank(comm, &mine.rank);
	if (region) {
		mine.extent = region->extent;
		mine.keeps = region->stored_len && !region->hints.discard;
		mine.mpiio = hints_by(&region->hints, "mpiio");
	}
	PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, parts, sizeof(mine), MPI_BYTE, comm);
}

/* Sets an error at all ranks if any rank has one, or if two parts have a byte in common. */
static void agree_on_parts(MPI_Comm comm, struct window *w, struct part *parts, struct error *e)
{
	const struct region *region = w ? w->region : NULL;
	int ranks, failed = 0;

	PMPI_Comm_size(comm, &ranks);
	gather_parts(comm, region, e->class, parts);
	for (int i = 0; w && i < ranks; i++) {
		w->discarded = w->discarded && !parts[i].keeps;
		w->alone = w->alone && !parts[i].mpiio;
	}
	while (failed < ranks && parts[failed].class == MPI_SUCCESS)
		failed++;
	if (failed < ranks)
		error_share(comm, failed, e);
	else
		check_overlaps(comm, parts, ranks, region, e);
}

static struct part *new_parts(MPI_Comm comm, struct error *e)
{
	struct part *parts;
	int ranks;

	PMPI_Comm_size(comm, &ranks);
	parts = malloc((size_t)ranks * sizeof(*parts));
	if (!parts)
		error_errno(e, ENOMEM, "cannot list the parts of a window: %m");
	return parts;
}

/* ---- MPI_Win_allocate ---- */

static struct window *new_window(struct error *e)
{
	struct window *w = window_new(MPI_WIN_FLAVOR_ALLOCATE);

	if (w)
		w->discarded = w->alone = true;
	else
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	return w;
}

/* Collective. */
static void open_object(struct window *w, size_t size, const struct hints *h, MPI_Comm comm,
			struct error *e)
{
	struct region_store store;

	w->versioned = versioned_open(h->object, h->object_chunk, size, comm, e);
	if (!w->versioned)
		return;
	versioned_store(w->versioned, &store);
	w->region = region_open(size, h, size ? &store : NULL, e);
	if (w->region)
		w->region->versioned = w->versioned;
}

/* The file has a trailer behind the part. */
static void open_consistent(struct window *w, struct consistent *c, const struct hints *h,
			    struct error *e)
{
	w->region = region_open(consistent_room(c), h, NULL, e);
	if (w->region)
		w->region->consistent = c;
	else
		free(c);
}

static struct window *open_window(MPI_Aint size, struct hints *h, MPI_Comm comm,
				  struct part *parts, struct error *e)
{
	struct window *w = new_window(e);
	struct consistent *c = NULL;

	if (h->type == TYPE_NONE)
		h->type = TYPE_MEMORY;
	if (w)
		w->fencesync = h->fencesync;
	if (w && size < 0)
		error_set(e, MPI_ERR_SIZE,
			  "cannot allocate a window of %ld bytes: the size is negative",
			  (long)size);
	else if (w && *h->object)
		open_object(w, (size_t)size, h, comm, e);
	if (h->consistent)
		c = consistent_open(h, (size_t)size, comm, e);
	/* All ranks have that error already. */
	if (h->consistent && !c) {
		if (w)
			window_abandon(w);
		return NULL;
	}
	if (c)
		open_consistent(w, c, h, e);
	else if (e->class == MPI_SUCCESS && !*h->object)
		w->region = region_open((size_t)size, h, NULL, e);
	if (e->class == MPI_SUCCESS)
		transport_check(w->region->hints.engine, e);
	agree_on_parts(comm, w, parts, e);
	if (e->class == MPI_SUCCESS)
		return w;
	if (w)
		window_abandon(w);
	return NULL;
}

/* Makes the MPI window. After an error, w does not exist any more. */
static int make_window(struct window *w, MPI_Aint size, MPI_Aint unit, MPI_Info info,
		       MPI_Comm comm, MPI_Win *win)
{
	int code = window_own_comm(comm, &w->comm);

	if (code == MPI_SUCCESS)
		code = windows.next.Win_create(w->region->base, size, unit, info, comm, win);
	if (code == MPI_SUCCESS)
		return window_remember(*win, w);
	window_abandon(w);
	return code;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
		    MPI_Win *win)
{
	struct error e = { 0 };
	struct part *parts = new_parts(comm, &e);
	struct window *w = NULL;
	struct hints h;
	void *at;
	int code;
	bool storage = hints_agree(&h, info, comm, true, &e);

	if (storage && e.class == MPI_SUCCESS)
		w = open_window(size, &h, comm, parts, &e);
	free(parts);
	if (e.class != MPI_SUCCESS)
		return error_tell_comm(comm, &e);
	if (!storage)
		return windows.next.Win_allocate(size, unit, info, comm, base, win);
	at = w->region->base;
	code = make_window(w, size, unit, info, comm, win);
	if (code == MPI_SUCCESS)
		*(void **)base = at;
	return code;
}

struct window *window_over(struct region *region, MPI_Aint unit, MPI_Comm comm, struct error *e)
{
	struct part *parts = new_parts(comm, e);
	struct window *w = new_window(e);
	int code, class;
	MPI_Win win;

	if (region && e->class == MPI_SUCCESS)
		transport_check(region->hints.engine, e);
	error_agree(comm, e);
	if (e->class == MPI_SUCCESS) {
		w->region = region;
		w->lent = true;
		agree_on_parts(comm, w, parts, e);
	}
	free(parts);
	if (e->class != MPI_SUCCESS) {
		if (w)
			window_abandon(w);
		return NULL;
	}
	code = make_window(w, (MPI_Aint)region->size, unit, MPI_INFO_NULL, comm, &win);
	if (code == MPI_SUCCESS)
		return w;
	PMPI_Error_class(code, &class);
	error_set(e, class, "cannot make a window of %zu bytes: MPI_Win_create failed",
		  region->size);
	return NULL;
}

/* ---- Windows that exist ---- */

/* MPI_Win_sync of windows in storage. It does what PMPI_Win_sync would do, but does not call it:
 * MPICH requires an epoch of locks, and windows with active targets have to be made durable as
 * well. Programs call it in a loop while they wait for a word to change. */
static int sync_window(MPI_Win win)
{
	struct window *w = window_of(win);
	struct error e = { 0 };

	if (!w || !window_has_storage(w))
		return windows.next.Win_sync(win);
	atomic_thread_fence(memory_order_seq_cst);
	if (window_hints(w) && window_hints(w)->winsync == WINSYNC_MEMORY) {
		window_progress(w);
		return MPI_SUCCESS;
	}
	window_sync(w, &e);
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_win(win, &e);
}

/* The window is durable already (mpiio/together.c). */
static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	int code;

	/* MPI may give the handle to another window from now on. */
	window_unlearn(*win);
	code = windows.next.Win_free(win);
	if (code == MPI_SUCCESS && w)
		window_forget(w);
	return code;
}

static int get_attr(MPI_Win win, int key, void *value, int *found)
{
	struct window *w = key == MPI_WIN_CREATE_FLAVOR ? window_of(win) : NULL;

	if (!w)
		return windows.next.Win_get_attr(win, key, value, found);
	*(void **)value = &w->flavor;
	*found = 1;
	return MPI_SUCCESS;
}

static int get_info(MPI_Win win, MPI_Info *info)
{
	struct window *w = window_of(win);
	int code = windows.next.Win_get_info(win, info);

	if (code == MPI_SUCCESS && w && window_hints(w))
		hints_write(window_hints(w), *info);
	return code;
}

static struct pmpi_feature windows = {
	.place = PMPI_WINDOWS,
	.take = {
		.Win_allocate = allocate,
		.Win_sync = sync_window,
		.Win_free = free_window,
		.Win_get_attr = get_attr,
		.Win_get_info = get_info,
	},
};
PMPI_FEATURE(windows)
