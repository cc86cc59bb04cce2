/* SPDX-License-Identifier: BSD-3-Clause */
/* object_window.h - an object window of the object "field", and the versions of this object. */
#ifndef TESTS_MPI_OBJECT_WINDOW_H
#define TESTS_MPI_OBJECT_WINDOW_H

#include "common.h"

#include <ummap-object.h>

static char box[400], object[420];

static inline void name_box(const char *in)
{
	snprintf(box, sizeof(box), "%s/box", in);
	snprintf(object, sizeof(object), "%s/field", box);
}

static inline MPI_Info object_hints(const char *chunk, const char *segment)
{
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "object");
	MPI_Info_set(info, "storage_alloc_object", object);
	MPI_Info_set(info, "storage_alloc_object_chunk", chunk);
	MPI_Info_set(info, "storage_alloc_segsize", segment);
	return info;
}

/* Creates a window that returns errors, and frees the info. */
static inline void *object_window(size_t size, MPI_Info info, MPI_Win *win)
{
	void *base;

	check(MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
	return base;
}

/* Returns the number of the newest complete version, which rank 0 looks up; 0 if there is none. */
static inline uint64_t newest_version(void)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_container *c;
	umobject_version *v;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		check(umobject_open(box, NULL, &c) == 0, "%s", umobject_errormsg());
		if (umobject_hold(c, "field", 0, &v) == 0) {
			check(umobject_stat(v, &st) == 0 && umobject_check(v, NULL, NULL) == 0,
			      "%s", umobject_errormsg());
			umobject_release(v);
		}
		umobject_close(c);
	}
	MPI_Bcast(&st.version, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	return st.version;
}

#endif
