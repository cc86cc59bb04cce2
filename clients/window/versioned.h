/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Object windows: each rank's part is a row of one object in a container of libummap-object, in chunks of its own, and what all ranks
 * have changed becomes its next version at once (thesis, Section 7.1).
 */
#ifndef VERSIONED_H
#define VERSIONED_H

#include "pmpi/error.h"

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* The driver that has the newest version of it as a store; it needs no path. */
#define VERSIONED_DRIVER "versioned"

struct versioned;

/* Collective: object is a container and a name, chunk the bytes of chunks, at most, or 0. The mapping that this thread makes next by the
 * driver is of that. NULL with an error, at all ranks. */
struct versioned *versioned_open(const char *object, uint64_t chunk, size_t size, MPI_Comm comm, struct error *e);

/* Collective over ranks of which some, or none (NULL), have a part of such a window: one of them commits what all have written, if any
 * has. What cannot be committed can be tried again. */
void versioned_commit(MPI_Comm comm, struct versioned *v, struct error *e);

/* What was not committed is lost. NULL: nothing. */
void versioned_close(struct versioned *v);

#endif
