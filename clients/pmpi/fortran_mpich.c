/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPICH's Fortran calls MPI inside, which the layer's calls in C serve, but for those calls of the module mpi_f08 that take
 * no buffer, and for attributes: they are here again. The last argument of all is the error, which may be left out.
 */
#include "window/shared.h"
#include "window/window.h"

#include <dlfcn.h>
#include <string.h>

/* What Fortran calls MPI_WIN_CREATE_FLAVOR. */
#define FLAVOR_KEY (MPI_WIN_CREATE_FLAVOR + 1)

void mpi_init_f08_(MPI_Fint *error);
void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error);
void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room);
void mpi_alloc_mem_f08_(MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error);
void mpi_win_allocate_f08_(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
			   MPI_Fint *error);
void mpi_win_allocate_f08_large_(MPI_Aint *size, MPI_Aint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				 MPI_Fint *win, MPI_Fint *error);
void mpi_win_allocate_shared_f08_(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				  MPI_Fint *win, MPI_Fint *error);
void mpi_win_allocate_shared_f08_large_(MPI_Aint *size, MPI_Aint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
					MPI_Fint *win, MPI_Fint *error);
void mpi_win_shared_query_f08_(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base,
			       MPI_Fint *error);
void mpi_win_shared_query_f08_large_(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Aint *unit, void *base,
				     MPI_Fint *error);
void mpi_win_create_dynamic_f08_(MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win, MPI_Fint *error);
void mpi_win_sync_f08_(MPI_Fint *win, MPI_Fint *error);
void mpi_win_free_f08_(MPI_Fint *win, MPI_Fint *error);
void mpi_win_get_info_f08_(MPI_Fint *win, MPI_Fint *info, MPI_Fint *error);
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error);
void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error);

static void put_error(int code, MPI_Fint *error)
{
	if (error)
		*error = code;
}

/* ---- Program and memory ---- */

void mpi_init_f08_(MPI_Fint *error)
{
	put_error(MPI_Init(NULL, NULL), error);
}

void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error)
{
	put_error(MPI_Init_thread(NULL, NULL, *required, provided), error);
}

/* Fortran's strings end with blanks. */
void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room)
{
	char text[MPI_MAX_ERROR_STRING];
	int result = MPI_Error_string(*code, text, len);

	put_error(result, error);
	if (result != MPI_SUCCESS)
		return;
	*len = (size_t)*len < room ? *len : (MPI_Fint)room;
	memset(string, ' ', room);
	memcpy(string, text, (size_t)*len);
}

void mpi_alloc_mem_f08_(MPI_Aint *size, MPI_Fint *info, void *base, MPI_Fint *error)
{
	put_error(MPI_Alloc_mem(*size, MPI_Info_f2c(*info), base), error);
}

/* ---- Windows ---- */

static void put_window(MPI_Win made, int code, MPI_Fint *win, MPI_Fint *error)
{
	if (code == MPI_SUCCESS)
		*win = MPI_Win_c2f(made);
	put_error(code, error);
}

void mpi_win_allocate_f08_large_(MPI_Aint *size, MPI_Aint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				 MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win made;
	int code = allocate(*size, *unit, MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), base, &made);

	put_window(made, code, win, error);
}

void mpi_win_allocate_f08_(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base, MPI_Fint *win,
			   MPI_Fint *error)
{
	MPI_Aint wide = *unit;

	mpi_win_allocate_f08_large_(size, &wide, info, comm, base, win, error);
}

void mpi_win_allocate_shared_f08_large_(MPI_Aint *size, MPI_Aint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
					MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win made;
	int code = allocate_shared(*size, *unit, MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), base, &made);

	put_window(made, code, win, error);
}

void mpi_win_allocate_shared_f08_(MPI_Aint *size, MPI_Fint *unit, MPI_Fint *info, MPI_Fint *comm, void *base,
				  MPI_Fint *win, MPI_Fint *error)
{
	MPI_Aint wide = *unit;

	mpi_win_allocate_shared_f08_large_(size, &wide, info, comm, base, win, error);
}

void mpi_win_shared_query_f08_(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Fint *unit, void *base,
			       MPI_Fint *error)
{
	put_error(MPI_Win_shared_query(MPI_Win_f2c(*win), *rank, size, unit, base), error);
}

void mpi_win_shared_query_f08_large_(MPI_Fint *win, MPI_Fint *rank, MPI_Aint *size, MPI_Aint *unit, void *base,
				     MPI_Fint *error)
{
	put_error(MPI_Win_shared_query_c(MPI_Win_f2c(*win), *rank, size, unit, base), error);
}

void mpi_win_create_dynamic_f08_(MPI_Fint *info, MPI_Fint *comm, MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win made;
	int code = MPI_Win_create_dynamic(MPI_Info_f2c(*info), MPI_Comm_f2c(*comm), &made);

	put_window(made, code, win, error);
}

void mpi_win_sync_f08_(MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_sync(MPI_Win_f2c(*win)), error);
}

void mpi_win_free_f08_(MPI_Fint *win, MPI_Fint *error)
{
	MPI_Win freed = MPI_Win_f2c(*win);
	int code = MPI_Win_free(&freed);

	put_window(freed, code, win, error);
}

void mpi_win_get_info_f08_(MPI_Fint *win, MPI_Fint *info, MPI_Fint *error)
{
	MPI_Info used;
	int code = MPI_Win_get_info(MPI_Win_f2c(*win), &used);

	if (code == MPI_SUCCESS)
		*info = MPI_Info_c2f(used);
	put_error(code, error);
}

/* ---- Attributes ---- */

void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
{
	__typeof__(&mpi_win_get_attr_) next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "mpi_win_get_attr_");
	struct window *w = window_of(MPI_Win_f2c(*win));

	next(win, key, value, found, error);
	if (w && *key == FLAVOR_KEY)
		*value = w->flavor;
}

void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
{
	MPI_Fint code;

	mpi_win_get_attr_(win, key, value, found, error ? error : &code);
}
