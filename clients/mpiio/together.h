/* SPDX-License-Identifier: BSD-3-Clause */
/* Syncs of all ranks' parts together. */
#ifndef COLLECTIVE_H
#define COLLECTIVE_H

#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

struct window;

/* Collective: makes the mappings of all ranks durable, or [base, base + len) of each. base NULL: this rank has none; len 0:
 * all of one that begins at base; skip: not this one. All have the trouble of one. */
void collective_sync(MPI_Comm comm, char *base, size_t len, bool skip, struct trouble *t);
/* The same for the parts of a window. */
void collective_sync_window(struct window *w, bool skip, struct trouble *t);
/* Behind a fence, for windows that want it then. Returns an MPI code. */
int collective_fence(MPI_Win win);

#endif
