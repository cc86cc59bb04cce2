/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Status window: for each rank its phase, which of its tasks is next, how many it has done, and whether the job is to
 * stop. All of it is read and written by atomic operations only, by any rank at any time: the processor's where all ranks are
 * on one machine, for some MPIs need the target's attention for theirs, which a long map function does not give; else MPI's.
 */
#ifndef MAPREDUCE_STATUS_H
#define MAPREDUCE_STATUS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank has finished, in this order. */
enum phase {
	PHASE_MAP,    /* nothing: it maps */
	PHASE_MAPPED, /* Map: its buckets may be read */
	PHASE_SORTED  /* Combine, its part of it: its run may be read */
};

enum status_word { STATUS_PHASE, STATUS_NEXT, STATUS_DONE, STATUS_STOP, STATUS_WORDS };

struct status {
	MPI_Comm comm;
	MPI_Win win;
	int64_t *mine;    /* this rank's words */
	int64_t *shared;  /* the words of all ranks, on one machine; NULL: there are several */
	int rank, ranks;
	unsigned waits; /* since something happened */
};

/* Collective, both. */
int status_open(struct status *s, MPI_Comm comm);
void status_close(struct status *s);
/* Collective. All words are 0 again. */
void status_reset(struct status *s);

int64_t status_get(struct status *s, int rank, enum status_word word);
/* Returns what was there before. */
int64_t status_add(struct status *s, int rank, enum status_word word, int64_t n);

/* This rank has finished a phase: what it has stored before is there for those who see it. */
void status_advance(struct status *s, enum phase from, enum phase to);

/* An error somewhere: all ranks are to leave their phases. */
void status_stop(struct status *s);
bool status_stopped(struct status *s);

/* Lets MPI serve the operations of other ranks on this one's windows. */
void status_serve(struct status *s);
/* The same where there is nothing else to do: gives the processor away, too. */
void status_wait(struct status *s);

#endif
