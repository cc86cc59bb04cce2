/* SPDX-License-Identifier: BSD-3-Clause */
/* Epochs: when this process may access a target, and operations that are left to MPI. */
#ifndef EPOCH_H
#define EPOCH_H

#include "pmpi/pmpi.h"
#include "pmpi/request.h"
#include "rma/shm.h"
#include "window/window.h"

/* The result of an operation that MPI must make: no code of MPI's. */
#define LEFT_TO_MPI (-1)

/* Opens an epoch whose lock is not there yet, if it can. */
bool epoch_bring(struct window *w, int rank);

/* Whether an operation may access a target now. Operations with a request need a lock. */
static inline bool epoch_allows(struct window *w, const struct pmpi_operation *o)
{
	const struct shm *shm = w->shm;
	int epoch;

	if (o->rank < 0 || o->rank >= shm->ranks)
		return false;
	epoch = atomic_load_explicit(&shm->targets[o->rank].epoch, memory_order_acquire);
	if (epoch == EPOCH_NONE)
		return !o->request && atomic_load_explicit(&shm->fenced, memory_order_acquire);
	return epoch == EPOCH_OPEN || epoch_bring(w, o->rank);
}

/* Whether the target of an operation is read-only: a store would end the target's process. */
static inline bool epoch_refuses(const struct window *w, const struct pmpi_operation *o)
{
	const struct shm *shm = w ? w->shm : NULL;
	const struct hints *hints;

	if (shm)
		return o->rank >= 0 && o->rank < shm->ranks && shm->targets[o->rank].readonly;
	hints = w ? window_hints(w) : NULL;
	return hints && hints->node_cache && o->rank != MPI_PROC_NULL;
}
/* Reports such an operation to the window's error handler. Returns an MPI code. */
int epoch_refuse(const struct pmpi_operation *o);

/* Makes an operation by MPI, and remembers that a flush must complete it. */
int epoch_leave(const struct pmpi_operation *o, int (*next)(const struct pmpi_operation *));

/* Ends an operation that is complete. Returns an MPI code. */
static inline int epoch_finish(const struct window *w, const struct pmpi_operation *o)
{
	if (!o->request)
		return MPI_SUCCESS;
	window_progress(w);
	return request_complete(NULL, o->request) == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

#endif
