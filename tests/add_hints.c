/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload before that of MPI storage windows. Gives the windows of any program the
 * hints of ADD_HINTS, "name=value name=value". With ADD_FOLDER, shared windows, which UMMAP_MPI_ALL
 * does not change, are in a file in that folder. mpi-suite builds it.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static MPI_Info with_hints(MPI_Info info)
{
	char *hints = strdup(getenv("ADD_HINTS") ? getenv("ADD_HINTS") : ""), *rest = NULL;
	MPI_Info more;

	if (info == MPI_INFO_NULL)
		MPI_Info_create(&more);
	else
		MPI_Info_dup(info, &more);
	for (char *hint = strtok_r(hints, " ", &rest); hint; hint = strtok_r(NULL, " ", &rest)) {
		char *value = strchr(hint, '=');

		*value++ = '\0';
		MPI_Info_set(more, hint, value);
	}
	free(hints);
	return more;
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
		     MPI_Win *win)
{
	MPI_Info more = with_hints(info);
	int code = NEXT(MPI_Win_allocate)(size, unit, more, comm, base, win);

	MPI_Info_free(&more);
	return code;
}

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
	MPI_Info more = with_hints(info);
	int code = NEXT(MPI_Alloc_mem)(size, more, base);

	MPI_Info_free(&more);
	return code;
}

/* All ranks use the same file name, which is new for each window. */
int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
			    MPI_Win *win)
{
	static int made;
	const char *folder = getenv("ADD_FOLDER");
	MPI_Info more;
	char name[400];
	int code;

	if (!folder)
		return NEXT(MPI_Win_allocate_shared)(size, unit, info, comm, base, win);
	more = with_hints(info);
	snprintf(name, sizeof(name), "%s/shared.%d.%d", folder, (int)getpid(), made++);
	PMPI_Bcast(name, sizeof(name), MPI_CHAR, 0, comm);
	MPI_Info_set(more, "alloc_type", "storage");
	MPI_Info_set(more, "storage_alloc_filename", name);
	MPI_Info_set(more, "storage_alloc_unlink", "true");
	MPI_Info_set(more, "storage_alloc_discard", "true");
	code = NEXT(MPI_Win_allocate_shared)(size, unit, more, comm, base, win);
	MPI_Info_free(&more);
	return code;
}
