/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration of a job: checks, defaults, and the comparison between ranks. */
#ifndef MAPREDUCE_CONFIG_H
#define MAPREDUCE_CONFIG_H

#include <mpi.h>

#include <ummap-mapreduce.h>

/* Copies the configuration, with defaults in place of zeros. */
int config_copy(struct ummr_config *to, const struct ummr_config *from);

/* Fails if the configurations of ranks differ; collective. */
int config_compare(const struct ummr_config *c, MPI_Comm comm);

/*
 * Returns the most bytes that one operation fetches from another rank, and of the buffer of a
 * stream that is merged. Up to 64 streams are merged at once, so these buffers take at most a
 * quarter of table_size, unless the table is smaller than 128 KiB.
 */
size_t config_transfer_size(const struct ummr_config *c);

#endif
