/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations and epochs of OpenMPI's Fortran, which calls PMPI inside (see fortran_openmpi.c). Puts and gets are
 * copies where they can be, as in C; all others go on to MPI's own Fortran, which knows MPI_BOTTOM and its like, and
 * are noted.
 */
#include "rma/transfer.h"

#include <dlfcn.h>

/* mpi_x_ is ompi_x_f. */
#define ALSO(call, args) void mpi_##call##_ args __attribute__((alias("ompi_" #call "_f"))); void ompi_##call##_f args

/* The same where MPI itself comes next. */
#define OVER(call, args) static _Atomic uintptr_t next_##call; ALSO(call, args)

/* What MPI itself would have done, looked for once. Fortran has called, so its library is there. */
#define NEXT(call) ((__typeof__(&ompi_##call##_f))find(&next_##call, "ompi_" #call "_f"))

static uintptr_t find(_Atomic uintptr_t *next, const char *name)
{
	if (!*next)
		*next = (uintptr_t)dlsym(RTLD_NEXT, name);
	return *next;
}

OVER(put, (void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
	   MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *error));
OVER(get, (void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
	   MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *error));
OVER(rput, (void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
	    MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *request, MPI_Fint *error));
OVER(rget, (void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
	    MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *request, MPI_Fint *error));
OVER(accumulate, (void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
		  MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *error));
OVER(raccumulate, (void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp,
		   MPI_Fint *target_count, MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *request,
		   MPI_Fint *error));
OVER(get_accumulate, (void *from, MPI_Fint *count, MPI_Fint *type, void *to, MPI_Fint *to_count, MPI_Fint *to_type,
		      MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count, MPI_Fint *target_type, MPI_Fint *op,
		      MPI_Fint *win, MPI_Fint *error));
OVER(rget_accumulate, (void *from, MPI_Fint *count, MPI_Fint *type, void *to, MPI_Fint *to_count, MPI_Fint *to_type,
		       MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count, MPI_Fint *target_type, MPI_Fint *op,
		       MPI_Fint *win, MPI_Fint *request, MPI_Fint *error));
OVER(fetch_and_op, (void *from, void *to, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *op, MPI_Fint *win,
		    MPI_Fint *error));
OVER(compare_and_swap, (void *from, void *compare, void *to, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp,
			MPI_Fint *win, MPI_Fint *error));
ALSO(win_lock, (MPI_Fint *type, MPI_Fint *rank, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error));
ALSO(win_lock_all, (MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error));
ALSO(win_unlock, (MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error));
ALSO(win_unlock_all, (MPI_Fint *win, MPI_Fint *error));
ALSO(win_flush, (MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error));
ALSO(win_flush_all, (MPI_Fint *win, MPI_Fint *error));
ALSO(win_flush_local, (MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error));
ALSO(win_flush_local_all, (MPI_Fint *win, MPI_Fint *error));
ALSO(win_fence, (MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error));
ALSO(win_start, (MPI_Fint *group, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error));

/* ---- Operations ---- */

static struct transfer transfer_of(const void *from, void *to, const MPI_Fint *count, const MPI_Fint *type,
				   const MPI_Fint *rank, const MPI_Aint *disp, const MPI_Fint *target_count,
				   const MPI_Fint *target_type)
{
	return (struct transfer){ from, to, *count, MPI_Type_f2c(*type), *rank, *disp, *target_count,
				  MPI_Type_f2c(*target_type) };
}

static void note(const MPI_Fint *rank, const MPI_Fint *win)
{
	transfer_noted(MPI_SUCCESS, *rank, MPI_Win_f2c(*win));
}

void ompi_put_f(void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
		MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *error)
{
	struct transfer t = transfer_of(from, NULL, count, type, rank, disp, target_count, target_type);

	*error = MPI_SUCCESS;
	if (transfer_put(&t, MPI_Win_f2c(*win), NULL))
		return;
	NEXT(put)(from, count, type, rank, disp, target_count, target_type, win, error);
	note(rank, win);
}

void ompi_get_f(void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
		MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *error)
{
	struct transfer t = transfer_of(NULL, to, count, type, rank, disp, target_count, target_type);

	*error = MPI_SUCCESS;
	if (transfer_get(&t, MPI_Win_f2c(*win), NULL))
		return;
	NEXT(get)(to, count, type, rank, disp, target_count, target_type, win, error);
	note(rank, win);
}

void ompi_rput_f(void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
		 MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *request, MPI_Fint *error)
{
	struct transfer t = transfer_of(from, NULL, count, type, rank, disp, target_count, target_type);
	MPI_Request made;

	*error = MPI_SUCCESS;
	if (transfer_put(&t, MPI_Win_f2c(*win), &made)) {
		*request = MPI_Request_c2f(made);
		return;
	}
	NEXT(rput)(from, count, type, rank, disp, target_count, target_type, win, request, error);
	note(rank, win);
}

void ompi_rget_f(void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
		 MPI_Fint *target_type, MPI_Fint *win, MPI_Fint *request, MPI_Fint *error)
{
	struct transfer t = transfer_of(NULL, to, count, type, rank, disp, target_count, target_type);
	MPI_Request made;

	*error = MPI_SUCCESS;
	if (transfer_get(&t, MPI_Win_f2c(*win), &made)) {
		*request = MPI_Request_c2f(made);
		return;
	}
	NEXT(rget)(to, count, type, rank, disp, target_count, target_type, win, request, error);
	note(rank, win);
}

void ompi_accumulate_f(void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp,
		       MPI_Fint *target_count, MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *error)
{
	NEXT(accumulate)(from, count, type, rank, disp, target_count, target_type, op, win, error);
	note(rank, win);
}

void ompi_raccumulate_f(void *from, MPI_Fint *count, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp,
			MPI_Fint *target_count, MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *request,
			MPI_Fint *error)
{
	NEXT(raccumulate)(from, count, type, rank, disp, target_count, target_type, op, win, request, error);
	note(rank, win);
}

void ompi_get_accumulate_f(void *from, MPI_Fint *count, MPI_Fint *type, void *to, MPI_Fint *to_count,
			   MPI_Fint *to_type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
			   MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *error)
{
	NEXT(get_accumulate)(from, count, type, to, to_count, to_type, rank, disp, target_count, target_type, op, win,
		      error);
	note(rank, win);
}

void ompi_rget_accumulate_f(void *from, MPI_Fint *count, MPI_Fint *type, void *to, MPI_Fint *to_count,
			    MPI_Fint *to_type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *target_count,
			    MPI_Fint *target_type, MPI_Fint *op, MPI_Fint *win, MPI_Fint *request, MPI_Fint *error)
{
	NEXT(rget_accumulate)(from, count, type, to, to_count, to_type, rank, disp, target_count, target_type, op,
		       win, request, error);
	note(rank, win);
}

void ompi_fetch_and_op_f(void *from, void *to, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp, MPI_Fint *op,
			 MPI_Fint *win, MPI_Fint *error)
{
	NEXT(fetch_and_op)(from, to, type, rank, disp, op, win, error);
	note(rank, win);
}

void ompi_compare_and_swap_f(void *from, void *compare, void *to, MPI_Fint *type, MPI_Fint *rank, MPI_Aint *disp,
			     MPI_Fint *win, MPI_Fint *error)
{
	NEXT(compare_and_swap)(from, compare, to, type, rank, disp, win, error);
	note(rank, win);
}

/* ---- Epochs ---- */

void ompi_win_lock_f(MPI_Fint *type, MPI_Fint *rank, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_lock(*type, *rank, *assert, MPI_Win_f2c(*win));
}

void ompi_win_lock_all_f(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_lock_all(*assert, MPI_Win_f2c(*win));
}

void ompi_win_unlock_f(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_unlock(*rank, MPI_Win_f2c(*win));
}

void ompi_win_unlock_all_f(MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_unlock_all(MPI_Win_f2c(*win));
}

void ompi_win_flush_f(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_flush(*rank, MPI_Win_f2c(*win));
}

void ompi_win_flush_all_f(MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_flush_all(MPI_Win_f2c(*win));
}

void ompi_win_flush_local_f(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_flush_local(*rank, MPI_Win_f2c(*win));
}

void ompi_win_flush_local_all_f(MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_flush_local_all(MPI_Win_f2c(*win));
}

void ompi_win_fence_f(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_fence(*assert, MPI_Win_f2c(*win));
}

void ompi_win_start_f(MPI_Fint *group, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	*error = MPI_Win_start(MPI_Group_f2c(*group), *assert, MPI_Win_f2c(*win));
}
