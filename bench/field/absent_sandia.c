/* SPDX-License-Identifier: BSD-3-Clause */
/* The way `sandia` in a build without MapReduce-MPI. */
#include "mapreduce.h"

const struct way way_sandia = { .name = "sandia", .description = "Sandia's MapReduce-MPI" };
