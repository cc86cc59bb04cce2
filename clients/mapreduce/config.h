/* SPDX-License-Identifier: BSD-3-Clause */
/* What a job was asked for: whether it can be, its defaults, and whether all ranks ask for the same. */
#ifndef MAPREDUCE_CONFIG_H
#define MAPREDUCE_CONFIG_H

#include <mpi.h>

#include <ummap-mapreduce.h>

/* A checked copy with the defaults in place. */
int config_take(struct ummr_config *to, const struct ummr_config *from);

/* Collective. */
int config_compare(const struct ummr_config *c, MPI_Comm comm);

#endif
