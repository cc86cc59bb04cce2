/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Status window. It has a few words for each rank, which any rank reads and writes at any
 * time, by atomic operations only. If all ranks are on one machine, these are operations of the
 * processor: some MPIs need the attention of the target for theirs, and a long map function does
 * not give it. Otherwise they are operations of MPI.
 */
#ifndef MAPREDUCE_STATUS_H
#define MAPREDUCE_STATUS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* The phases that a rank has finished, in this order. */
enum phase {
	PHASE_MAP,    /* none: the rank maps */
	PHASE_MAPPED, /* Map: its buckets may be read */
	PHASE_SORTED  /* its part of Combine: its run may be read */
};

enum status_word {
	STATUS_PHASE, /* enum phase */
	STATUS_NEXT,  /* number of tasks of this rank's part that ranks have taken */
	STATUS_DONE,  /* number of tasks that this rank has finished */
	STATUS_STOP,  /* not 0: the job has failed, and the rank must leave its phase */
	STATUS_WORDS
};

struct status {
	MPI_Comm comm;   /* the job's communicator */
	MPI_Win win;     /* the window, or MPI_WIN_NULL */
	int64_t *mine;   /* words of this rank */
	int64_t *shared; /* words of all ranks; NULL: ranks are on several machines */
	int rank, ranks; /* number of this rank, number of ranks */
	unsigned waits;  /* waits since this rank has last found work */
	uint32_t pairs;  /* pairs since the beginning, for status_serve_sometimes */
};

/* Collective. */
int status_open(struct status *s, MPI_Comm comm);
void status_close(struct status *s);
/* Sets all words to 0; collective. */
void status_reset(struct status *s);

int64_t status_get(struct status *s, int rank, enum status_word word);
/* Returns the value before the addition. */
int64_t status_add(struct status *s, int rank, enum status_word word, int64_t n);

/* Publishes that this rank has finished a phase. Ranks that see this also see its earlier
 * stores. */
void status_advance(struct status *s, enum phase from, enum phase to);

/* Makes all ranks leave their phases, because of an error. */
void status_stop(struct status *s);
bool status_is_stopped(struct status *s);

/* Lets MPI complete the operations of other ranks on windows of this rank. */
void status_serve(struct status *s);

/* Lets MPI do so about every millisecond, if it is called for each pair. */
static inline void status_serve_sometimes(struct status *s)
{
	if ((++s->pairs & 0x7fff) == 0)
		status_serve(s);
}

/* Serves other ranks and gives the processor away, if this rank has nothing to do. */
void status_wait(struct status *s);

#endif
