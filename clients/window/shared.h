/* SPDX-License-Identifier: BSD-3-Clause */
/* A file that all ranks of a shared window have mapped, by the kernel. */
#ifndef SHARED_H
#define SHARED_H

#include "window/hints.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shared {
	char *first;           /* where the first part begins; NULL: no bytes */
	size_t len;            /* of all parts */
	char *base;            /* of this rank's part */
	size_t size;
	char *path;            /* to unlink in the end; NULL: nothing */
	int ranks;
	struct place *places;  /* of all parts */
	struct hints hints;    /* in use */
};

/* One rank's part of the window. */
struct place {
	uint64_t size, unit;
	uint64_t at;           /* from the first byte of rank 0 */
};

/* Collective. NULL with an error, the same at all ranks. `apart`: each part begins on a page. */
struct shared *shared_open(MPI_Aint size, MPI_Aint unit, const struct hints *h, bool apart, MPI_Comm comm,
			   struct error *e);
/* This rank's part. */
void shared_sync(const struct shared *s, struct error *e);
void shared_close(struct shared *s);

#endif
