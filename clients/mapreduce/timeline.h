/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happened when in the phases of each rank, and how much memory the rank had then: kept by each rank while it runs, and
 * written by rank 0 as CSV afterwards. Without a file to write, nothing is kept.
 */
#ifndef MAPREDUCE_TIMELINE_H
#define MAPREDUCE_TIMELINE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum event_kind {
	EVENT_BEGIN, /* of the phase */
	EVENT_STEP,  /* a task, a rank whose pairs are in, a level: through */
	EVENT_SYNC,  /* what there is of the phase was made durable */
	EVENT_END
};

struct event;

struct timeline {
	bool on;               /* at all ranks alike */
	FILE *out;             /* rank 0's; NULL at others */
	char *path;            /* rank 0's */
	int statm;             /* /proc/self/statm */
	uint64_t run;          /* from 1 */
	double start;          /* of it, when all ranks began */
	struct event *events;
	size_t count, room;
	bool lost;             /* there was no memory for an event */
};

/* Collective, all. Rank 0's path counts; NULL: there is no timeline. */
int timeline_open(struct timeline *t, MPI_Comm comm, const char *path);
void timeline_start(struct timeline *t, MPI_Comm comm);
int timeline_write(struct timeline *t, MPI_Comm comm);
/* Not collective. */
void timeline_close(struct timeline *t);

/* phase: UMMR_PHASE_*. */
void timeline_add(struct timeline *t, int phase, enum event_kind kind);

#endif
