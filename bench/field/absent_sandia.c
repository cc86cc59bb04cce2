/* SPDX-License-Identifier: BSD-3-Clause */
/* Where there is no MapReduce-MPI. */
#include "mapreduce.h"

const struct way way_sandia = { .name = "sandia", .what = "Sandia's MapReduce-MPI" };
