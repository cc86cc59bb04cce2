/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong: an MPI error class and a sentence, and how callers of MPI learn of it. */
#ifndef TROUBLE_H
#define TROUBLE_H

#include <mpi.h>
#include <stdbool.h>

struct trouble {
	int class;     /* MPI_SUCCESS: there is none */
	bool said;     /* aloud already, or for another rank to say */
	char text[MPI_MAX_ERROR_STRING];
};

/* Keeps the first of them. */
void trouble_set(struct trouble *t, int class, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, from an errno. */
void trouble_errno(struct trouble *t, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Collective: if any rank has trouble, all have that of the lowest one. */
void trouble_agree(MPI_Comm comm, struct trouble *t);
/* The second half, where it is known already that rank `from` has some. */
void trouble_share(MPI_Comm comm, int from, struct trouble *t);

/* Calls the error handler; if that returns, so does this, with what the MPI call is to return. MPI_Error_string
 * has the sentence until this thread's next trouble. */
int trouble_tell_comm(MPI_Comm comm, const struct trouble *t);
int trouble_tell_win(MPI_Win win, const struct trouble *t);
int trouble_tell_file(MPI_File file, const struct trouble *t);

#endif
