/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading by all ranks together, for MapReduce-2S: of files that several tasks share, each rank reads what its task has, by
 * collective MPI-IO. A file that one task has alone is read by the rank of that task.
 */
#ifndef MAPREDUCE_TOGETHER_H
#define MAPREDUCE_TOGETHER_H

#include "mapreduce/infile.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct input;

struct together {
	bool open;
	MPI_File file;
	uint64_t number;    /* of that file */
	/* What was read for the task: of the file that it begins in and of the one that it ends in. */
	struct {
		uint64_t number;
		struct piece piece; /* size 0: nothing */
	} read[2];
};

/*
 * Collective. For this rank's task, or none (-1), where the tasks of all ranks lie in the files first to last. An error may be
 * at one rank only; then this may be 1 at others.
 */
int together_read(struct input *in, MPI_Comm comm, int64_t task, uint64_t first, uint64_t last);

/* What was read of the file from exactly there on changes places with *piece. false: nothing was. */
bool together_take(struct together *t, uint64_t number, uint64_t from, struct piece *piece);

/* Collective if anything was read. */
void together_close(struct together *t);

#endif
