/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alloc_mem in storage, and the windows that such memory comes into: those that are created from it, and dynamic
 * ones. Nothing here is collective but what MPI says is.
 */
#include "transport/engine.h"
#include "window/window.h"

#include <errno.h>
#include <stddef.h>

/* To whom errors go that belong to no window. */
#if MPI_VERSION >= 4
#define ALONE MPI_COMM_SELF
#else
#define ALONE MPI_COMM_WORLD
#endif

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
	struct trouble t = { 0 };
	struct area *area = NULL;
	struct hints h;

	hints_read(&h, info, MPI_COMM_WORLD, true, &t);
	if (t.class == MPI_SUCCESS && (h.type != TYPE_STORAGE || size <= 0))
		return PMPI_Alloc_mem(size, info, base);
	/* Which window it will be in, if any, nobody knows. */
	h.local = false;
	if (t.class == MPI_SUCCESS)
		area = area_open((size_t)size, &h, &t);
	if (area)
		transport_check(area->hints.engine, &t);
	if (t.class == MPI_SUCCESS) {
		area_close_object(area);
		*(void **)base = area->base;
		return MPI_SUCCESS;
	}
	if (area)
		area_abandon(area);
	return trouble_tell_comm(ALONE, &t);
}

int MPI_Free_mem(void *base)
{
	struct area *area = area_find(base);
	struct trouble t = { 0 };

	if (!area || area->base != base)
		return PMPI_Free_mem(base);
	if (!area->hints.discard)
		area_sync(area, area->base, area->size, &t);
	if (t.class != MPI_SUCCESS)
		return trouble_tell_comm(ALONE, &t);
	area_close(area);
	return MPI_SUCCESS;
}

int window_note(MPI_Win win, int flavor, const void *base, MPI_Aint size)
{
	struct window *w = window_new(flavor);
	int code = w ? window_remember(win, w) : MPI_ERR_NO_MEM;

	if (code == MPI_SUCCESS)
		code = window_add_range(w, base, (size_t)size);
	return code;
}

int create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	int code = window_create(base, size, unit, info, comm, win);

	return code == MPI_SUCCESS ? window_note(*win, MPI_WIN_FLAVOR_CREATE, base, size) : code;
}

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	return create(base, size, unit, info, comm, win);
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	int code = PMPI_Win_create_dynamic(info, comm, win);

	return code == MPI_SUCCESS ? window_note(*win, MPI_WIN_FLAVOR_DYNAMIC, NULL, 0) : code;
}

int MPI_Win_attach(MPI_Win win, void *base, MPI_Aint size)
{
	int code = PMPI_Win_attach(win, base, size);

	return code == MPI_SUCCESS ? window_add_range(window_of(win), base, (size_t)size) : code;
}

int MPI_Win_detach(MPI_Win win, const void *base)
{
	struct window *w = window_of(win);
	int code = PMPI_Win_detach(win, base);

	if (code == MPI_SUCCESS && w)
		window_remove_range(w, base);
	return code;
}
