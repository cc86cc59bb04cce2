/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs without MPI: no kinds of memory that need it. */
#include "alloc.h"

const struct alloc_kind *const alloc_mpi_kinds[] = { NULL };
