/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/error.h"

#include "mapreduce/wait.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ummap-mapreduce.h>
#include <ummap.h>

static _Thread_local struct {
	int code;
	char text[1024];
} last;

int set_error(int error, const char *format, ...)
{
	va_list args;

	errno = error;
	va_start(args, format);
	vsnprintf(last.text, sizeof(last.text), format, args);
	va_end(args);
	last.code = error;
	return restore_error();
}

int restore_error(void)
{
	return umseterror(last.code, "%s", last.text);
}

int check_mpi(int code, const char *failure)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length, class;

	if (code == MPI_SUCCESS)
		return 0;
	MPI_Error_class(code, &class);
	MPI_Error_string(code, text, &length);
	return set_error(
			 class == MPI_ERR_NO_SPACE ? ENOSPC :
			 class == MPI_ERR_NO_MEM ? ENOMEM : EIO,
			 "%s: %s", failure, text);
}

int agree_result(MPI_Comm comm, int result)
{
	int rank, ranks, failed, lowest;
	char text[sizeof(last.text)];
	MPI_Request request;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	failed = result >= 0 ? ranks : rank;
	MPI_Iallreduce(&failed, &lowest, 1, MPI_INT, MPI_MIN, comm, &request);
	wait_for_request(&request);
	if (lowest == ranks)
		return 0;
	MPI_Bcast(&last.code, 1, MPI_INT, lowest, comm);
	MPI_Bcast(last.text, sizeof(last.text), MPI_CHAR, lowest, comm);
	memcpy(text, last.text, sizeof(text));
	return set_error(last.code, "rank %d: %.*s", lowest, (int)sizeof(text) - 32, text);
}

const char *ummr_error(void)
{
	return umerrormsg();
}
