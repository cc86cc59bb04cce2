/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Codes are plain classes, which every MPI understands; the sentence is kept beside, for the thread's next
 * MPI_Error_string. (MPI_Add_error_code would be the way, but MPICH 4.0 mistakes codes that it added to a predefined
 * class for its own.) A handler that ends the program cannot ask for the sentence: stderr gets it.
 */
#include "pmpi/error.h"

#include "pmpi/pmpi.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct pmpi_feature errors;
static _Thread_local struct trouble last;

static void put(struct trouble *t, int class, const char *format, va_list args)
{
	if (t->class != MPI_SUCCESS)
		return;
	t->class = class;
	vsnprintf(t->text, sizeof(t->text), format, args);
}

void trouble_set(struct trouble *t, int class, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(t, class, format, args);
	va_end(args);
}

static int class_of(int error)
{
	switch (error) {
	case EINVAL:
	case EOPNOTSUPP:
	case ENODEV:
		return MPI_ERR_INFO_VALUE;
	case ENOENT:
	case ENOTDIR:
		return MPI_ERR_NO_SUCH_FILE;
	case EACCES:
	case EPERM:
		return MPI_ERR_ACCESS;
	case EROFS:
		return MPI_ERR_READ_ONLY;
	case ENOSPC:
		return MPI_ERR_NO_SPACE;
	case EDQUOT:
		return MPI_ERR_QUOTA;
	case ENOMEM:
		return MPI_ERR_NO_MEM;
	default:
		return MPI_ERR_IO;
	}
}

void trouble_errno(struct trouble *t, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(t, class_of(error), format, args);
	va_end(args);
}

static bool ends_program(MPI_Errhandler handler)
{
	bool fatal = handler == MPI_ERRORS_ARE_FATAL;

	if (!fatal && handler != MPI_ERRORS_RETURN && handler != MPI_ERRHANDLER_NULL)
		PMPI_Errhandler_free(&handler);
	return fatal;
}

static void say(const struct trouble *t)
{
	if (!t->said)
		fprintf(stderr, "libummap-mpi: %s\n", t->text);
}

static bool comm_ends_program(MPI_Comm comm)
{
	MPI_Errhandler handler;

	return PMPI_Comm_get_errhandler(comm, &handler) == MPI_SUCCESS && ends_program(handler);
}

void trouble_share(MPI_Comm comm, int from, struct trouble *t)
{
	char text[sizeof(t->text)];
	int rank;

	PMPI_Comm_rank(comm, &rank);
	if (rank == from) {
		snprintf(text, sizeof(text), "rank %d: %.*s", rank, (int)sizeof(text) - 20, t->text);
		memcpy(t->text, text, sizeof(text));
		/* Before the others know, for they end the program too. */
		if (comm_ends_program(comm))
			say(t);
		t->said = comm_ends_program(comm);
	}
	PMPI_Bcast(&t->class, 1, MPI_INT, from, comm);
	PMPI_Bcast(t->text, sizeof(t->text), MPI_CHAR, from, comm);
	t->said = t->said || rank != from;
}

void trouble_agree(MPI_Comm comm, struct trouble *t)
{
	int rank, size, mine, first;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	mine = t->class == MPI_SUCCESS ? size : rank;
	PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
	if (first < size)
		trouble_share(comm, first, t);
}

int trouble_tell_comm(MPI_Comm comm, const struct trouble *t)
{
	last = *t;
	if (comm_ends_program(comm))
		say(t);
	PMPI_Comm_call_errhandler(comm, t->class);
	return t->class;
}

int trouble_tell_win(MPI_Win win, const struct trouble *t)
{
	MPI_Errhandler handler;

	last = *t;
	if (PMPI_Win_get_errhandler(win, &handler) == MPI_SUCCESS && ends_program(handler))
		say(t);
	PMPI_Win_call_errhandler(win, t->class);
	return t->class;
}

int trouble_tell_file(MPI_File file, const struct trouble *t)
{
	MPI_Errhandler handler;

	last = *t;
	if (PMPI_File_get_errhandler(file, &handler) == MPI_SUCCESS && ends_program(handler))
		say(t);
	PMPI_File_call_errhandler(file, t->class);
	return t->class;
}

/* ---- The call ---- */

static int error_string(int code, char *string, int *len)
{
	if (last.class == MPI_SUCCESS || code != last.class)
		return errors.next.Error_string(code, string, len);
	memcpy(string, last.text, sizeof(last.text));
	*len = (int)strlen(string);
	return MPI_SUCCESS;
}

static struct pmpi_feature errors = { .place = PMPI_LAST, .take = { .Error_string = error_string } };
PMPI_FEATURE(errors)
