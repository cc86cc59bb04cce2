/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a shared window: a file that all ranks map by mmap(2). */
#ifndef SHARED_H
#define SHARED_H

#include "window/hints.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shared {
	char *first;           /* address of the first part; NULL: no bytes */
	size_t len;            /* bytes of all parts */
	char *base;            /* address of this rank's part */
	size_t size;           /* bytes of this rank's part */
	char *path;            /* path of a file to unlink at the end; NULL: none */
	int ranks;             /* number of parts */
	struct place *places;  /* places of all parts */
	struct hints hints;    /* hints in use */
};

/* One rank's part of the window. */
struct place {
	uint64_t size, unit;
	uint64_t at;           /* offset from the first byte of rank 0's part */
};

/* Collective. NULL with an error, the same at all ranks. `apart`: each part begins on a page. */
struct shared *shared_open(MPI_Aint size, MPI_Aint unit, const struct hints *h, bool apart,
			   MPI_Comm comm, struct error *e);
/* Makes this rank's part durable. */
void shared_sync(const struct shared *s, struct error *e);
void shared_close(struct shared *s);
/* The address of a part; NULL: it has no bytes. */
char *shared_part(const struct shared *s, const struct place *p);

#endif
