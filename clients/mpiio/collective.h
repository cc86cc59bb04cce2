/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective writes: all ranks write what has changed in their stripes of one file. */
#ifndef MPIIO_COLLECTIVE_H
#define MPIIO_COLLECTIVE_H

#include "mpiio/driver.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Writes the changes of [base, base + len), a mapping of the handle h; NULL: this rank has nothing
 * to write. must_not: this rank has a mapping that cannot be written collectively. If the mappings
 * of all ranks are not the stripes of one file, no rank writes. An error may leave data in the
 * staging buffer or in a file that is not synced, so the caller must sync the mapping in any case.
 */
void write_collectively(MPI_Comm comm, struct mpiio_handle *h, bool must_not, char *base,
			size_t len, struct error *e);

#endif
