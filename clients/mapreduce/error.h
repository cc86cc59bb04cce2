/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong: the thread's last sentence, and how all ranks come to have the same. */
#ifndef MAPREDUCE_ERROR_H
#define MAPREDUCE_ERROR_H

#include <mpi.h>
#include <stddef.h>

/* Bytes of one call of MPI, which has an int for them. */
#define MPI_CALL_MAX ((size_t)1 << 30)

/* Sets the sentence and errno; returns -1. */
int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a call of MPI that was to do this: 0, or MPI's sentence and -1. */
int check_mpi(int code, const char *what);

/* Collective: if result is -1 at any rank, it is at all, with the sentence of the lowest such one. */
int agree(MPI_Comm comm, int result);

/*
 * Collective, for those who go on together and agree later: 0 if result is 0 at all ranks; if not, what it is, and 1 where it
 * is 0. For agree, 1 is no error.
 */
int check_all(MPI_Comm comm, int result);

/* The last error once more, when what came after it may have changed errno: -1. */
int fail_again(void);

#endif
