/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Error codes are plain classes, which every MPI understands. The message is kept beside, for the
 * thread's next MPI_Error_string. (MPI_Add_error_code would be the regular way, but MPICH 4.0
 * confuses codes that it added to a predefined class with its own.) An error handler that ends the
 * program cannot ask for the message, so the message goes to stderr before.
 */
#include "pmpi/error.h"

#include "pmpi/pmpi.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ummap.h>

static struct pmpi_feature errors;
static _Thread_local struct error last;

static void set_error(struct error *e, int class, const char *format, va_list args)
{
	if (e->class != MPI_SUCCESS)
		return;
	e->class = class;
	vsnprintf(e->text, sizeof(e->text), format, args);
}

void error_set(struct error *e, int class, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_error(e, class, format, args);
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

void error_errno(struct error *e, int error, const char *format, ...)
{
	va_list args;

	errno = error;
	va_start(args, format);
	set_error(e, class_of(error), format, args);
	va_end(args);
}

/* Prints the message, unless another rank has. */
static void print_message(const struct error *e)
{
	if (!e->said)
		fprintf(stderr, "libummap-mpi: %s\n", e->text);
}

/* Whether an error handler, which MPI_Xxx_get_errhandler has returned with `code`, is fatal. */
static bool is_fatal(int code, MPI_Errhandler *handler)
{
	bool fatal = code == MPI_SUCCESS && *handler == MPI_ERRORS_ARE_FATAL;

	if (code == MPI_SUCCESS && !fatal && *handler != MPI_ERRORS_RETURN &&
	    *handler != MPI_ERRHANDLER_NULL)
		PMPI_Errhandler_free(handler);
	return fatal;
}

static bool is_comm_fatal(MPI_Comm comm)
{
	MPI_Errhandler handler;

	return is_fatal(PMPI_Comm_get_errhandler(comm, &handler), &handler);
}

void error_share(MPI_Comm comm, int from, struct error *e)
{
	char text[sizeof(e->text)];
	bool fatal;
	int rank;

	PMPI_Comm_rank(comm, &rank);
	if (rank == from) {
		snprintf(text, sizeof(text), "rank %d: %.*s", rank,
			 (int)sizeof(text) - 20, e->text);
		memcpy(e->text, text, sizeof(text));
		/* The other ranks end the program, too, once they get the error. */
		fatal = is_comm_fatal(comm);
		if (fatal)
			print_message(e);
		e->said = fatal;
	}
	PMPI_Bcast(&e->class, 1, MPI_INT, from, comm);
	PMPI_Bcast(e->text, sizeof(e->text), MPI_CHAR, from, comm);
	e->said = e->said || rank != from;
}

int error_first(MPI_Comm comm, const struct error *e)
{
	int rank, size, mine, first;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	mine = e->class == MPI_SUCCESS ? size : rank;
	PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
	return first < size ? first : -1;
}

void error_agree(MPI_Comm comm, struct error *e)
{
	int first = error_first(comm, e);

	if (first >= 0)
		error_share(comm, first, e);
}

/* Keeps the error for MPI_Error_string, and prints it if the error handler is fatal. */
static void keep_error(const struct error *e, bool fatal)
{
	last = *e;
	umseterror(EIO, "%s", e->text);
	if (fatal)
		print_message(e);
}

int error_tell_comm(MPI_Comm comm, const struct error *e)
{
	keep_error(e, is_comm_fatal(comm));
	PMPI_Comm_call_errhandler(comm, e->class);
	return e->class;
}

int error_tell_win(MPI_Win win, const struct error *e)
{
	MPI_Errhandler handler;

	keep_error(e, is_fatal(PMPI_Win_get_errhandler(win, &handler), &handler));
	PMPI_Win_call_errhandler(win, e->class);
	return e->class;
}

int error_tell_file(MPI_File file, const struct error *e)
{
	MPI_Errhandler handler;

	keep_error(e, is_fatal(PMPI_File_get_errhandler(file, &handler), &handler));
	PMPI_File_call_errhandler(file, e->class);
	return e->class;
}

int error_tell_open(MPI_Comm comm, const struct error *e)
{
	MPI_Errhandler handler;
	bool fatal = is_fatal(PMPI_File_get_errhandler(MPI_FILE_NULL, &handler), &handler);

	keep_error(e, fatal);
	if (fatal)
		PMPI_Abort(comm, e->class);
	return e->class;
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

static struct pmpi_feature errors = {
	.place = PMPI_LAST,
	.take = { .Error_string = error_string },
};
PMPI_FEATURE(errors)
