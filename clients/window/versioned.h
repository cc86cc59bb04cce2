/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Object windows: each rank's part is a row of one object in a container of libummap-object, in
 * chunks of its own. A commit makes the changes of all ranks one new version (thesis, Section 7.1).
 */
#ifndef VERSIONED_H
#define VERSIONED_H

#include "pmpi/error.h"

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

struct region_store;
struct versioned;

/* Collective. object: a container and a name; chunk: maximum bytes of a chunk, or 0. NULL with an
 * error, at all ranks. */
struct versioned *versioned_open(const char *object, uint64_t chunk, size_t size, MPI_Comm comm,
				 struct error *e);
/* The store of this rank's part. Its handle remains valid until versioned_close. */
void versioned_store(struct versioned *v, struct region_store *store);
/*
 * Collective over ranks of which some, or none (NULL), have a part of such a window: if any of them
 * has written, one rank commits what all have written. A commit that fails can be tried again.
 */
void versioned_commit(MPI_Comm comm, struct versioned *v, struct error *e);
/* Changes that were not committed are lost. NULL: nothing happens. */
void versioned_close(struct versioned *v);

#endif
