/* SPDX-License-Identifier: BSD-3-Clause */
/* The error message of each thread, and agreement of all ranks on one message. */
#ifndef MAPREDUCE_ERROR_H
#define MAPREDUCE_ERROR_H

#include <mpi.h>
#include <stddef.h>

/* Largest transfer of one call of MPI, whose count is an int. */
#define MAX_MPI_CALL_BYTES ((size_t)1 << 30)

/* Sets errno and the message, in which %m describes the error. Returns -1. */
int set_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns 0 for MPI_SUCCESS. Otherwise sets the message to `failure` and MPI's text; returns -1. */
int check_mpi(int code, const char *failure);

/* Collective. Returns -1 at all ranks if result is -1 at any rank, with the message of the lowest
 * such rank. */
int agree_result(MPI_Comm comm, int result);

/* Sets errno and the message of the last error, which later calls may have changed. Returns -1. */
int restore_error(void);

#endif
