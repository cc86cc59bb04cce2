/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces alloc_mpi.c in programs without MPI. */
#include "alloc.h"

const struct alloc_kind *const alloc_mpi_kinds[] = { NULL };
