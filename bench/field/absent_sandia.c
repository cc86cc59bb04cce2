/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces mapreduce_sandia.cc without MapReduce-MPI. */
#include "mapreduce.h"

const struct way way_sandia = { .name = "sandia", .description = "Sandia's MapReduce-MPI" };
