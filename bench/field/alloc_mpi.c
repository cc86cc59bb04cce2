/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of memory with MPI: window memory, which MPI allocates, or which hints place in storage;
 * and windows over all kinds of memory, which are locked for all ranks (MPI_Win_lock_all). */
#include "job.h"

#include <limits.h>

#include "kit/common.h"

static void allocate(struct memory *m, MPI_Info info)
{
	MPI_Win *win = malloc(sizeof(*win));

	MPI_Win_allocate((MPI_Aint)m->size, 1, info, MPI_COMM_WORLD, &m->base, win);
	MPI_Win_lock_all(0, *win);
	m->own = win;
}

static void window_open(struct memory *m)
{
	allocate(m, MPI_INFO_NULL);
	memset(m->base, 0, m->size);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void window_close(struct memory *m)
{
	MPI_Win_unlock_all(*(MPI_Win *)m->own);
	MPI_Win_free(m->own);
	free(m->own);
}

/* ---- On storage ---- */

static void add_hints(const struct memory *m, MPI_Info info)
{
	static unsigned windows;
	char text[PATH_MAX];

	MPI_Info_set(info, "alloc_type", "storage");
	snprintf(text, sizeof(text), "%s/ummap-%s-%u.%%r", m->dir, getenv("UMMAP_GROUP"),
		 windows++);
	MPI_Info_set(info, "storage_alloc_filename", text);
	MPI_Info_set(info, "storage_alloc_unlink", "true");
	MPI_Info_set(info, "storage_alloc_discard", "true");
	if (m->alloc->seg) {
		snprintf(text, sizeof(text), "%zu", m->alloc->seg);
		MPI_Info_set(info, "storage_alloc_segsize", text);
	}
	if (m->alloc->policy)
		MPI_Info_set(info, "storage_alloc_policy", m->alloc->policy);
	if (m->alloc->factor)
		MPI_Info_set(info, "storage_alloc_factor", m->alloc->factor);
	if (m->alloc->engine)
		MPI_Info_set(info, "storage_alloc_engine", m->alloc->engine);
}

/* An MPI that does not know of storage ignores the hints. */
static void check_hints(const struct memory *m)
{
	char type[MPI_MAX_INFO_VAL + 1] = "";
	int found = 0;
	MPI_Info info;

	MPI_Win_get_info(*(MPI_Win *)m->own, &info);
	MPI_Info_get(info, "alloc_type", MPI_MAX_INFO_VAL, type, &found);
	MPI_Info_free(&info);
	if (!found || strcmp(type, "storage"))
		die("mpi-storage-window: this program has been linked without the library for MPI "
		    "windows");
}

static void storage_open(struct memory *m)
{
	MPI_Info info;

	MPI_Info_create(&info);
	add_hints(m, info);
	allocate(m, info);
	MPI_Info_free(&info);
	check_hints(m);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void storage_sync(struct memory *m)
{
	MPI_Win_sync(*(MPI_Win *)m->own);
}

static const struct alloc_kind window = { .name = "mpi-window",
					  .open = window_open,
					  .close = window_close };
/* Window memory cannot be evicted by the program. */
static const struct alloc_kind storage = {
	.name = "mpi-storage-window", .open = storage_open, .sync = storage_sync,
	.chill = storage_sync, .close = window_close,
};

const struct alloc_kind *const alloc_mpi_kinds[] = { &window, &storage, NULL };

/* ---- Windows over memory ---- */

static bool has_window(const struct memory *m)
{
	return m->alloc->kind == &window || m->alloc->kind == &storage;
}

MPI_Win job_window(struct memory *m)
{
	MPI_Win win;

	if (has_window(m))
		return *(MPI_Win *)m->own;
	MPI_Win_create(m->base, (MPI_Aint)m->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock_all(0, win);
	return win;
}

void job_window_free(struct memory *m, MPI_Win win)
{
	if (has_window(m))
		return;
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
}
