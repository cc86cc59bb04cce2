/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI-IO of OpenMPI's Fortran, which calls PMPI inside (see fortran_openmpi.c), from and to windows: buffers that have to be
 * held in memory meanwhile take the layer's calls in C, all others go on to MPI's own Fortran. Those of all ranks that
 * may end later (mpi_file_iread_all and its like) are not here: Fortran's calls that wait for them are MPI's alone.
 */
#include "window/buffers.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

/* mpi_x_ is ompi_x_f, and MPI's own comes next, looked for once. Fortran has called, so its library is there. */
#define OVER(call, params)                                                                                     \
	static _Atomic uintptr_t next_##call;                                                                  \
	void mpi_##call##_ params __attribute__((alias("ompi_" #call "_f")));                                  \
	void ompi_##call##_f params;                                                                           \
	void ompi_##call##_f params

#define NEXT(call) ((__typeof__(&ompi_##call##_f))find(&next_##call, "ompi_" #call "_f"))

static uintptr_t find(_Atomic uintptr_t *next, const char *name)
{
	if (!*next)
		*next = (uintptr_t)dlsym(RTLD_NEXT, name);
	return *next;
}

static bool holds(const void *buf, const MPI_Fint *count, const MPI_Fint *type)
{
	return fileio_reach(buf, *count, MPI_Type_f2c(*type)).len > 0;
}

static void put_status(int code, const MPI_Status *from, MPI_Fint *to)
{
	if (code == MPI_SUCCESS && to != MPI_F_STATUS_IGNORE)
		PMPI_Status_c2f(from, to);
}

/* What comes before the buffer, and the same for C. */
#define HERE MPI_Fint *file
#define C_HERE MPI_File_f2c(*file)
#define AT MPI_Fint *file, MPI_Offset *at
#define C_AT MPI_File_f2c(*file), *at

#define BLOCKING(name, params, c, ...)                                                                         \
	OVER(file_##name, (params, void *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *status, MPI_Fint *error)) \
	{                                                                                                      \
		MPI_Status done;                                                                               \
                                                                                                               \
		if (!holds(buf, count, type)) {                                                                \
			NEXT(file_##name)(__VA_ARGS__, buf, count, type, status, error);                       \
			return;                                                                                \
		}                                                                                              \
		*error = MPI_File_##name(c, buf, *count, MPI_Type_f2c(*type), &done);                          \
		put_status(*error, &done, status);                                                             \
	}

BLOCKING(read, HERE, C_HERE, file)
BLOCKING(read_all, HERE, C_HERE, file)
BLOCKING(read_shared, HERE, C_HERE, file)
BLOCKING(read_ordered, HERE, C_HERE, file)
BLOCKING(write, HERE, C_HERE, file)
BLOCKING(write_all, HERE, C_HERE, file)
BLOCKING(write_shared, HERE, C_HERE, file)
BLOCKING(write_ordered, HERE, C_HERE, file)
BLOCKING(read_at, AT, C_AT, file, at)
BLOCKING(read_at_all, AT, C_AT, file, at)
BLOCKING(write_at, AT, C_AT, file, at)
BLOCKING(write_at_all, AT, C_AT, file, at)

/* What C is given here has ended when it returns, so nobody has to see the request again. */
#define AT_ONCE(name, params, c, ...)                                                                          \
	OVER(file_##name, (params, void *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *request, MPI_Fint *error)) \
	{                                                                                                      \
		MPI_Request made;                                                                              \
                                                                                                               \
		if (!holds(buf, count, type)) {                                                                \
			NEXT(file_##name)(__VA_ARGS__, buf, count, type, request, error);                      \
			return;                                                                                \
		}                                                                                              \
		*error = MPI_File_##name(c, buf, *count, MPI_Type_f2c(*type), &made);                          \
		if (*error == MPI_SUCCESS)                                                                     \
			*request = MPI_Request_c2f(made);                                                      \
	}

AT_ONCE(iread, HERE, C_HERE, file)
AT_ONCE(iread_shared, HERE, C_HERE, file)
AT_ONCE(iwrite, HERE, C_HERE, file)
AT_ONCE(iwrite_shared, HERE, C_HERE, file)
AT_ONCE(iread_at, AT, C_AT, file, at)
AT_ONCE(iwrite_at, AT, C_AT, file, at)

/* The end unpins what the beginning has pinned, if anything. */
#define SPLIT(name, params, c, ...)                                                                            \
	OVER(file_##name##_begin, (params, void *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *error))       \
	{                                                                                                      \
		if (holds(buf, count, type))                                                                   \
			*error = MPI_File_##name##_begin(c, buf, *count, MPI_Type_f2c(*type));                 \
		else                                                                                           \
			NEXT(file_##name##_begin)(__VA_ARGS__, buf, count, type, error);                       \
	}                                                                                                      \
	OVER(file_##name##_end, (MPI_Fint *file, void *buf, MPI_Fint *status, MPI_Fint *error))                \
	{                                                                                                      \
		MPI_File f = MPI_File_f2c(*file);                                                              \
                                                                                                               \
		NEXT(file_##name##_end)(file, buf, status, error);                                             \
		fileio_split_ended(f);                                                                         \
	}

SPLIT(read_all, HERE, C_HERE, file)
SPLIT(read_ordered, HERE, C_HERE, file)
SPLIT(write_all, HERE, C_HERE, file)
SPLIT(write_ordered, HERE, C_HERE, file)
SPLIT(read_at_all, AT, C_AT, file, at)
SPLIT(write_at_all, AT, C_AT, file, at)
