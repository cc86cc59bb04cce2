/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alloc_mem in storage, and the windows that such memory can become part of: those that are
 * created from it, and dynamic windows. Only the calls that MPI defines as collective are.
 */
#include "pmpi/pmpi.h"
#include "transport/engine.h"
#include "window/window.h"

#include <stddef.h>

static struct pmpi_feature memory;

/* Communicator for errors that belong to no window. */
#if MPI_VERSION >= 4
#define ALONE MPI_COMM_SELF
#else
#define ALONE MPI_COMM_WORLD
#endif

static int alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
	struct error e = { 0 };
	struct region *region = NULL;
	struct hints h;

	hints_read(&h, info, MPI_COMM_WORLD, true, &e);
	if (*h.object)
		error_set(&e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=object here: it is for MPI_Win_allocate only");
	if (h.type == TYPE_STORAGE && h.consistent)
		error_set(&e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_consistent here: it is for MPI_Win_allocate "
			  "only");
	if (e.class == MPI_SUCCESS && (h.type != TYPE_STORAGE || size <= 0))
		return memory.next.Alloc_mem(size, info, base);
	/* The window that the memory may become part of is not known. */
	h.local = false;
	if (e.class == MPI_SUCCESS)
		region = region_open((size_t)size, &h, NULL, &e);
	if (region)
		transport_check(region->hints.engine, &e);
	if (e.class == MPI_SUCCESS) {
		region_close_object(region);
		*(void **)base = region->base;
		return MPI_SUCCESS;
	}
	if (region)
		region_abandon(region);
	return error_tell_comm(ALONE, &e);
}

static int free_mem(void *base)
{
	struct region *region = region_find(base);
	struct error e = { 0 };

	if (!region || region->base != base)
		return memory.next.Free_mem(base);
	if (!region->hints.discard)
		region_sync(region, region->base, region->size, &e);
	if (e.class != MPI_SUCCESS)
		return error_tell_comm(ALONE, &e);
	region_close(region);
	return MPI_SUCCESS;
}

/* Makes the structure of a window that MPI has made. Returns an MPI code. */
static int note_window(MPI_Win win, int flavor, const void *base, MPI_Aint size)
{
	struct window *w = window_new(flavor);
	int code = w ? window_remember(win, w) : MPI_ERR_NO_MEM;

	if (code == MPI_SUCCESS)
		code = window_add_range(w, base, (size_t)size);
	return code;
}

static int create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
		  MPI_Win *win)
{
	struct error e = { 0 };
	int code;

	transport_check_mapped(size > 0 ? base : NULL, comm, &e);
	if (e.class != MPI_SUCCESS)
		return error_tell_comm(comm, &e);
	code = memory.next.Win_create(base, size, unit, info, comm, win);
	return code == MPI_SUCCESS ? note_window(*win, MPI_WIN_FLAVOR_CREATE, base, size) : code;
}

static int create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	int code = memory.next.Win_create_dynamic(info, comm, win);

	return code == MPI_SUCCESS ? note_window(*win, MPI_WIN_FLAVOR_DYNAMIC, NULL, 0) : code;
}

static int attach(MPI_Win win, void *base, MPI_Aint size)
{
	struct error e = { 0 };
	int code;

	transport_check_mapped(base, MPI_COMM_NULL, &e);
	if (e.class != MPI_SUCCESS)
		return error_tell_win(win, &e);
	code = memory.next.Win_attach(win, base, size);
	return code == MPI_SUCCESS ? window_add_range(window_of(win), base, (size_t)size) : code;
}

static int detach(MPI_Win win, const void *base)
{
	struct window *w = window_of(win);
	int code = memory.next.Win_detach(win, base);

	if (code == MPI_SUCCESS && w)
		window_remove_range(w, base);
	return code;
}

static struct pmpi_feature memory = {
	.place = PMPI_WINDOWS,
	.take = {
		.Alloc_mem = alloc_mem,
		.Free_mem = free_mem,
		.Win_create = create,
		.Win_create_dynamic = create_dynamic,
		.Win_attach = attach,
		.Win_detach = detach,
	},
};
PMPI_FEATURE(memory)
