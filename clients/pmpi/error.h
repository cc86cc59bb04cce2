/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors: an MPI error class and a message, and how programs get them. */
#ifndef ERROR_H
#define ERROR_H

#include <mpi.h>
#include <stdbool.h>

struct error {
	int class;     /* error class; MPI_SUCCESS: no error */
	bool said;     /* the message has been printed, or another rank prints it */
	char text[MPI_MAX_ERROR_STRING]; /* message */
};

/* Sets an error, unless there is one already. */
void error_set(struct error *e, int class, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Sets an error of the class that corresponds to an errno value, which %m describes. */
void error_errno(struct error *e, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Collective: the lowest rank that has an error; -1: none has. */
int error_first(MPI_Comm comm, const struct error *e);
/* Collective: if ranks have errors, all ranks get the error of the lowest of them. */
void error_agree(MPI_Comm comm, struct error *e);
/* Collective: all ranks get the error of rank `from`. */
void error_share(MPI_Comm comm, int from, struct error *e);

/*
 * Calls the error handler. Returns the code that the MPI call must return. MPI_Error_string returns
 * the message until this thread's next error.
 */
int error_tell_comm(MPI_Comm comm, const struct error *e);
int error_tell_win(MPI_Win win, const struct error *e);
int error_tell_file(MPI_File file, const struct error *e);
/*
 * For files that cannot be opened. Not every MPI calls the handler of MPI_FILE_NULL, so this ends
 * the program if that handler is fatal.
 */
int error_tell_open(MPI_Comm comm, const struct error *e);

#endif
