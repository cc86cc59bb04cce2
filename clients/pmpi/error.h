/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong: an MPI error class and a sentence, and how callers of MPI learn of it. */
#ifndef ERROR_H
#define ERROR_H

#include <mpi.h>
#include <stdbool.h>

struct error {
	int class;     /* MPI_SUCCESS: there is none */
	bool said;     /* aloud already, or for another rank to say */
	char text[MPI_MAX_ERROR_STRING];
};

/* Keeps the first of them. */
void error_set(struct error *e, int class, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, from an errno. */
void error_errno(struct error *e, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Collective: if any rank has an error, all have that of the lowest one. */
void error_agree(MPI_Comm comm, struct error *e);
/* The second half, where it is known already that rank `from` has some. */
void error_share(MPI_Comm comm, int from, struct error *e);

/* Calls the error handler; if that returns, so does this, with what the MPI call is to return. MPI_Error_string
 * has the sentence until this thread's next error. */
int error_tell_comm(MPI_Comm comm, const struct error *e);
int error_tell_win(MPI_Win win, const struct error *e);
int error_tell_file(MPI_File file, const struct error *e);
/* Of a file that is not there. Not every MPI calls the handler of MPI_FILE_NULL, so that ends the program or does nothing. */
int error_tell_open(MPI_Comm comm, const struct error *e);

#endif
