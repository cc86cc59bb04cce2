/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline: events of the phases of each rank, with their time and the rank's memory. Each rank
 * collects its events during the run, and rank 0 writes them to a CSV file afterwards. Without a
 * file, no events are collected.
 */
#ifndef MAPREDUCE_TIMELINE_H
#define MAPREDUCE_TIMELINE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum event_kind {
	EVENT_BEGIN, /* the phase begins */
	EVENT_STEP,  /* a task, the pairs of a rank, or a level is done */
	EVENT_SYNC,  /* the pairs of the phase are durable */
	EVENT_END    /* the phase ends */
};

struct event;

struct timeline {
	bool is_on;             /* whether events are collected; the same at all ranks */
	FILE *out;              /* the file at rank 0; NULL at other ranks */
	char *path;             /* name of the file at rank 0 */
	int statm;              /* descriptor of /proc/self/statm, or -1 */
	uint64_t run;           /* number of the run, from 1 */
	double start;           /* clock_seconds() when all ranks have begun the run */
	struct event *events;   /* events of the run */
	size_t count, capacity; /* number of events, and of those that fit into memory */
	bool has_lost_events;   /* whether there was no memory for an event */
};

/* Returns seconds since an arbitrary moment, which differs between machines. */
static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Collective. The path of rank 0 counts; NULL: no timeline. */
int timeline_open(struct timeline *t, MPI_Comm comm, const char *path);
/* Begins a run; collective. */
void timeline_start(struct timeline *t, MPI_Comm comm);
/* Writes the events of the run; collective. */
int timeline_write(struct timeline *t, MPI_Comm comm);
void timeline_close(struct timeline *t);

/* Adds an event at the current time. phase: UMMR_PHASE_*. */
void timeline_add(struct timeline *t, int phase, enum event_kind kind);

#endif
