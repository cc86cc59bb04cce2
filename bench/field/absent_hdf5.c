/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces outputs_hdf5.c without a parallel HDF5 for the MPI. */
#include <stddef.h>

#include "outputs.h"

const struct output_method *const outputs_hdf5[] = { NULL };
