/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows with the hint storage_alloc_consistent: each sync makes a moment of all ranks (see
 * moment.h), and a restart opens the newest moment that all ranks have. Beside each rank's file is
 * a manifest with the number of ranks and the size of this rank's part.
 */
#ifndef WINDOW_CONSISTENT_H
#define WINDOW_CONSISTENT_H

#include "pmpi/error.h"
#include "window/hints.h"
#include "window/manifest.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region;
struct ummpi_commit;

/* This rank's part of such a window. */
struct consistent {
	struct entry entry;    /* the part, whose trailer follows it in the file */
	uint64_t epoch;        /* number of the last moment; 0: none */
	uint64_t id;           /* identifier of the window, the same at all ranks */
	int ranks;
	struct ummpi_commit *commit; /* checkpoint in flight; NULL: none */
	bool broken; /* ranks may differ in their newest commit, so none may make another one */
};

/* Collective, before the file is mapped: takes all ranks back to the newest moment that all of them
 * have. If any rank has an error, even one that is set before the call, all ranks get an error, and
 * the result is NULL. */
struct consistent *consistent_open(const struct hints *h, size_t size, MPI_Comm comm,
				   struct error *e);
/* Bytes of the file. */
size_t consistent_room(const struct consistent *c);
/* Collective: whether comm has exactly the ranks of one such window. c: this rank's part, or NULL.
 * Sets an error if only some ranks have a part of the window. */
bool consistent_is_whole(MPI_Comm comm, const struct consistent *c, struct error *e);
/* Before this rank's part of a moment becomes durable: stamps the part. After that, at all ranks: e
 * has the error of the ranks, if any. */
void consistent_stamp(struct region *region, struct error *e);
void consistent_end(struct consistent *c, const struct error *e);
/* Collective over the window's ranks: makes a moment. After an error, all ranks still have the last
 * moment. */
void consistent_sync(MPI_Comm comm, struct region *region, struct error *e);

#endif
