/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of MPI-IO that take a buffer and a count of it, once for each type of counts: whoever includes this says which
 * (COUNT), and how the calls and those of the profiling interface are named for it (CALL, PCALL).
 */
#include "window/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- Transfers that end where they begin ---- */

#define INTO (PROT_READ | PROT_WRITE)
#define FROM PROT_READ

/* A call of MPI's: what is done with the buffer, and the arguments before it. Who could not pin transfers nothing, but
 * takes part, for others may wait for him. */
#define BLOCKING(name, constant, prot, params, ...)                                                    \
	int CALL(name)(params, constant void *buf, COUNT count, MPI_Datatype type, MPI_Status *status) \
	{                                                                                              \
		struct pin p;                                                                          \
		int failed = fileio_pin(file, buf, count, type, prot, &p);                             \
		int code = PCALL(name)(__VA_ARGS__, buf, failed ? 0 : count, type, status);            \
                                                                                                       \
		fileio_unpin(&p);                                                                      \
		return failed ? failed : code;                                                         \
	}

#define HERE MPI_File file
#define AT MPI_File file, MPI_Offset at

BLOCKING(read, , INTO, HERE, file)
BLOCKING(read_all, , INTO, HERE, file)
BLOCKING(read_shared, , INTO, HERE, file)
BLOCKING(read_ordered, , INTO, HERE, file)
BLOCKING(write, const, FROM, HERE, file)
BLOCKING(write_all, const, FROM, HERE, file)
BLOCKING(write_shared, const, FROM, HERE, file)
BLOCKING(write_ordered, const, FROM, HERE, file)
BLOCKING(read_at, , INTO, AT, file, at)
BLOCKING(read_at_all, , INTO, AT, file, at)
BLOCKING(write_at, const, FROM, AT, file, at)
BLOCKING(write_at_all, const, FROM, AT, file, at)

/* ---- Those of one rank alone that may end later: they have ended when they return ---- */

#define AT_ONCE(name, blocking, constant, params, ...)                                                 \
	int CALL(name)(params, constant void *buf, COUNT count, MPI_Datatype type, MPI_Request *request) \
	{                                                                                              \
		struct pin p = fileio_reach(buf, count, type);                                         \
		MPI_Status *done;                                                                      \
		int code;                                                                              \
                                                                                                       \
		if (!p.len)                                                                            \
			return PCALL(name)(__VA_ARGS__, buf, count, type, request);                    \
		done = calloc(1, sizeof(*done));                                                       \
		if (!done)                                                                             \
			return MPI_ERR_NO_MEM;                                                         \
		code = CALL(blocking)(__VA_ARGS__, buf, count, type, done);                            \
		if (code == MPI_SUCCESS)                                                               \
			return fileio_complete(done, request);                                         \
		free(done);                                                                            \
		return code;                                                                           \
	}

AT_ONCE(iread, read, , HERE, file)
AT_ONCE(iread_shared, read_shared, , HERE, file)
AT_ONCE(iwrite, write, const, HERE, file)
AT_ONCE(iwrite_shared, write_shared, const, HERE, file)
AT_ONCE(iread_at, read_at, , AT, file, at)
AT_ONCE(iwrite_at, write_at, const, AT, file, at)

/* ---- Those of all ranks that may end later ---- */

#define SPLIT(name, constant, prot, params, ...)                                                       \
	int CALL(name##_begin)(params, constant void *buf, COUNT count, MPI_Datatype type)             \
	{                                                                                              \
		int failed;                                                                            \
		struct kept *k = fileio_keep(file, buf, count, type, prot, &failed);                   \
		int code = PCALL(name##_begin)(__VA_ARGS__, buf, failed ? 0 : count, type);            \
                                                                                                       \
		if (code != MPI_SUCCESS)                                                               \
			fileio_drop(k);                                                                \
		else                                                                                   \
			fileio_keep_until(k, MPI_REQUEST_NULL);                                        \
		return failed ? failed : code;                                                         \
	}

SPLIT(read_all, , INTO, HERE, file)
SPLIT(read_ordered, , INTO, HERE, file)
SPLIT(write_all, const, FROM, HERE, file)
SPLIT(write_ordered, const, FROM, HERE, file)
SPLIT(read_at_all, , INTO, AT, file, at)
SPLIT(write_at_all, const, FROM, AT, file, at)

#define LATER(name, constant, prot, params, ...)                                                       \
	int CALL(name)(params, constant void *buf, COUNT count, MPI_Datatype type, MPI_Request *request) \
	{                                                                                              \
		int failed;                                                                            \
		struct kept *k = fileio_keep(file, buf, count, type, prot, &failed);                   \
		int code = PCALL(name)(__VA_ARGS__, buf, failed ? 0 : count, type, request);           \
                                                                                                       \
		if (code != MPI_SUCCESS)                                                               \
			fileio_drop(k);                                                                \
		else                                                                                   \
			fileio_keep_until(k, *request);                                                \
		return failed ? failed : code;                                                         \
	}

LATER(iread_all, , INTO, HERE, file)
LATER(iwrite_all, const, FROM, HERE, file)
LATER(iread_at_all, , INTO, AT, file, at)
LATER(iwrite_at_all, const, FROM, AT, file, at)
