/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenMPI's Fortran calls PMPI inside, so each call of the layer is here again: mpi_x_ for mpif.h and the module mpi, and
 * ompi_x_f, which the module mpi_f08 goes through. (MPICH's Fortran calls MPI, and needs none of this.)
 */
#include "window/window.h"

#include <dlfcn.h>
#include <string.h>

/* gfortran's. */
#define FORTRAN_TRUE 1

/* mpi_x_ is ompi_x_f. */
#define ALSO(call, args) void mpi_##call##_ args __attribute__((alias("ompi_" #call "_f"))); void ompi_##call##_f args

/* What MPI itself would have done. Fortran has called, so its library is there. */
#define NEXT(call) ((__typeof__(&ompi_##call##_f))(uintptr_t)dlsym(RTLD_NEXT, "ompi_" #call "_f"))

ALSO(init, (MPI_Fint *error));
ALSO(init_thread, (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error));
ALSO(error_string, (MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, int room));
ALSO(alloc_mem, (MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error));
ALSO(alloc_mem_cptr, (MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error));
ALSO(free_mem, (void *base, MPI_Fint *error));
ALSO(win_allocate, (MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
		    MPI_Fint *error));
ALSO(win_allocate_cptr, (MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
			 MPI_Fint *error));
ALSO(win_allocate_shared, (MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
			   MPI_Fint *error));
ALSO(win_allocate_shared_cptr, (MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				MPI_Fint *win, MPI_Fint *error));
ALSO(win_shared_query, (MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base, MPI_Fint *error));
ALSO(win_shared_query_cptr, (MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base,
			     MPI_Fint *error));
ALSO(win_create, (void *base, MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win,
		  MPI_Fint *error));
ALSO(win_create_dynamic, (MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win, MPI_Fint *error));
ALSO(win_attach, (MPI_Fint *win, void *base, MPI_Aint *size, MPI_Fint *error));
ALSO(win_detach, (MPI_Fint *win, void *base, MPI_Fint *error));
ALSO(win_sync, (MPI_Fint *win, MPI_Fint *error));
ALSO(win_free, (MPI_Fint *win, MPI_Fint *error));
ALSO(win_get_attr, (MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error));
ALSO(win_get_info, (MPI_Fint *win, MPI_Fint *info, MPI_Fint *error));
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error);

/* ---- Program and memory ---- */

void ompi_init_f(MPI_Fint *error)
{
	*error = MPI_Init(NULL, NULL);
}

void ompi_init_thread_f(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error)
{
	*error = MPI_Init_thread(NULL, NULL, *required, provided);
}

/* Fortran's strings end with blanks. */
void ompi_error_string_f(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, int room)
{
	char text[MPI_MAX_ERROR_STRING];

	*error = MPI_Error_string(*code, text, len);
	if (*error != MPI_SUCCESS)
		return;
	*len = *len < room ? *len : room;
	memset(string, ' ', (size_t)room);
	memcpy(string, text, (size_t)*len);
}

void ompi_alloc_mem_f(MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error)
{
	*error = MPI_Alloc_mem(*size, MPI_Info_f2c(*info), base);
}

void ompi_alloc_mem_cptr_f(MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error)
{
	ompi_alloc_mem_f(size, info, base, error);
}

void ompi_free_mem_f(void *base, MPI_Fint *error)
{
	*error = MPI_Free_mem(base);
}

/* ---- Windows ---- */

static void put_window(MPI_Win made, int code, MPI_Fint *win, MPI_Fint *error)
{
	if (code == MPI_SUCCESS)
		*win = MPI_Win_c2f(made);
	*error = code;
}

void ompi_win_allocate_f(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
			 MPI_Fint *error)
{
	MPI_Win made;
	int code = MPI_Win_allocate(*size, *unit, MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), base, &made);

	put_window(made, code, win, error);
}

void ompi_win_allocate_cptr_f(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
			      MPI_Fint *win, MPI_Fint *error)
{
	ompi_win_allocate_f(size, unit, info, comm, base, win, error);
}

void ompi_win_allocate_shared_f(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win made;
	int code = MPI_Win_allocate_shared(*size, *unit, MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), base, &made);

	put_window(made, code, win, error);
}

void ompi_win_allocate_shared_cptr_f(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				     MPI_Fint *win, MPI_Fint *error)
{
	ompi_win_allocate_shared_f(size, unit, info, comm, base, win, error);
}

void ompi_win_shared_query_f(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base,
			     MPI_Fint *error)
{
	*error = MPI_Win_shared_query(MPI_Win_f2c(*win), *rank, size, unit, base);
}

void ompi_win_shared_query_cptr_f(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base,
				  MPI_Fint *error)
{
	ompi_win_shared_query_f(win, rank, size, unit, base, error);
}

/* By MPI's own, which knows Fortran's MPI_BOTTOM. */
void ompi_win_create_f(void *base, MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win,
		       MPI_Fint *error)
{
	NEXT(win_create)(base, size, unit, info, comm, win, error);
	if (*error == MPI_SUCCESS)
		*error = window_note(MPI_Win_f2c(*win), MPI_WIN_FLAVOR_CREATE, base, *size);
}

void ompi_win_create_dynamic_f(MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win made;
	int code = MPI_Win_create_dynamic(MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), &made);

	put_window(made, code, win, error);
}

void ompi_win_attach_f(MPI_Fint *win, void *base, MPI_Aint *size, MPI_Fint *error)
{
	*error = MPI_Win_attach(MPI_Win_f2c(*win), base, *size);
}

void ompi_win_detach_f(MPI_Fint *win, void *base, MPI_Fint *error)
{
	*error = MPI_Win_detach(MPI_Win_f2c(*win), base);
}

void ompi_win_sync_f(MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_sync(MPI_Win_f2c(*win));
}

void ompi_win_free_f(MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win freed = MPI_Win_f2c(*win);
	int code = MPI_Win_free(&freed);

	if (code == MPI_SUCCESS)
		*win = MPI_Win_c2f(freed);
	*error = code;
}

static bool get_flavor(MPI_Fint win, MPI_Fint key, MPI_Aint *value, MPI_Fint *found)
{
	struct window *w = key == MPI_WIN_CREATE_FLAVOR ? window_of(MPI_Win_f2c(win)) : NULL;

	if (!w)
		return false;
	*value = w->flavor;
	*found = FORTRAN_TRUE;
	return true;
}

void ompi_win_get_attr_f(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
{
	*error = MPI_SUCCESS;
	if (!get_flavor(*win, *key, value, found))
		NEXT(win_get_attr)(win, key, value, found, error);
}

/* This one does not go through ompi_win_get_attr_f; error may be left out. */
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
{
	MPI_Fint code;

	ompi_win_get_attr_f(win, key, value, found, error ? error : &code);
}

void ompi_win_get_info_f(MPI_Fint *win, MPI_Fint *info, MPI_Fint *error)
{
	MPI_Info used;
	int code = MPI_Win_get_info(MPI_Win_f2c(*win), &used);

	if (code == MPI_SUCCESS)
		*info = MPI_Info_c2f(used);
	*error = code;
}
