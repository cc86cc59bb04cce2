/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and writes of a share by MPI-IO. */
#ifndef SHAREIO_H
#define SHAREIO_H

#include "mpiio/layout.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Of one call: MPI counts in ints. */
#define SHAREIO_MAX ((size_t)1 << 30)

/* Memory in n pieces, from off on in the share. Returns 0 or a negative errno; what lies behind the end reads as zeros. */
int shareio(MPI_File file, const struct layout *l, const struct iovec *iov, int n, uint64_t off, bool writing);

/* 0 or a negative errno, for what MPI-IO returns on the thread that has just called it. */
int shareio_errno(int code);
/* Whether MPI can be called. */
bool shareio_runs(void);

#endif
