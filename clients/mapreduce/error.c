/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/error.h"

#include "mapreduce/wait.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ummap-mapreduce.h>

static _Thread_local struct {
	int code;
	char text[1024];
} last;

int fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last.text, sizeof(last.text), format, args);
	va_end(args);
	last.code = errno = error;
	return -1;
}

int fail_again(void)
{
	errno = last.code;
	return -1;
}

int check_mpi(int code, const char *what)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length, class;

	if (code == MPI_SUCCESS)
		return 0;
	MPI_Error_class(code, &class);
	MPI_Error_string(code, text, &length);
	return fail(class == MPI_ERR_NO_SPACE ? ENOSPC : class == MPI_ERR_NO_MEM ? ENOMEM : EIO, "%s: %s", what, text);
}

int agree(MPI_Comm comm, int result)
{
	int rank, ranks, mine, first;
	char text[sizeof(last.text)];
	MPI_Request request;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	mine = result >= 0 ? ranks : rank;
	MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm, &request);
	wait_for(&request);
	if (first == ranks)
		return 0;
	MPI_Bcast(&last.code, 1, MPI_INT, first, comm);
	MPI_Bcast(last.text, sizeof(last.text), MPI_CHAR, first, comm);
	memcpy(text, last.text, sizeof(text));
	return fail(last.code, "rank %d: %.*s", first, (int)sizeof(text) - 32, text);
}

int check_all(MPI_Comm comm, int result)
{
	int mine = result != 0, any;

	MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, comm);
	return result == 0 ? any : result;
}

const char *ummr_error(void)
{
	return last.text;
}
