/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank has acknowledged, in storage: how far its buckets go, which tasks are in them, and its run once it has reduced.
 *
 * A record of that is written when what it speaks of has been made durable. It has a number and a checksum, and takes the place
 * of the last but one, in the other of two files: of a record that was cut short the one before it is left. What windows hold
 * beyond what is acknowledged is never read: the next job writes over it. So each task is in the buckets as a whole or not at all.
 *
 * Buckets are not needed any more when all ranks have reduced, nor is the result of the run before that: its file is the next
 * run's. A rank says that it has come to the next run before it writes there.
 */
#ifndef MAPREDUCE_STATE_H
#define MAPREDUCE_STATE_H

#include "mapreduce/stream.h"

#include <stdbool.h>
#include <stdint.h>

/* To what a state belongs: numbers, which state.c has names for. */
enum { STATE_FACTS = 13 };

struct state {
	/* In each record. */
	uint64_t facts[STATE_FACTS];
	uint64_t id;                   /* of the job, drawn when it began */
	uint64_t run;                  /* that has begun, counted from 1; 0: none has */
	bool reduced;                  /* and this rank's part of it is complete */
	unsigned streams;              /* buckets */
	struct saved_stream *buckets;
	struct saved_stream runs[2];   /* of the run, when it is reduced, and of the last one: by their numbers, modulo 2 */
	uint64_t task_bytes;
	unsigned char *tasks;          /* a bit for each that is in the buckets */

	uint64_t number;               /* of the newest record; 0: there is none */
	bool writes;                   /* there is storage, and it is to be synced */
	const char *folder;            /* NULL: in memory. Of these: */
	char *pairs, *results[2];      /* files of windows; results by run, modulo 2 */
	char *paths[2];                /* of records */
	int files[2];
	int folder_fd;
};

/* A state in memory, in which nothing has begun. The facts are taken from there. */
int state_open(struct state *s, const uint64_t facts[STATE_FACTS], unsigned streams, uint64_t tasks);

/* What is left in the folder has to belong to the same facts; and a job that does not sync cannot go on with it: errors. */
int state_compare(const struct state *s, const char *folder, const uint64_t facts[STATE_FACTS]);
int state_refuse(const char *folder);

/*
 * In storage: the newest record of this rank that is there, which has to belong to the same facts. The folder's name has to
 * stay, and the folder has to be this job's.
 */
int state_find(struct state *s, const char *folder, int rank, bool writes);

/* As if nothing had been found. */
void state_forget(struct state *s);

void state_begin_run(struct state *s, uint64_t run);

static inline bool state_has_task(const unsigned char *tasks, int64_t task)
{
	return tasks[task / 8] >> task % 8 & 1;
}

static inline void state_add_task(struct state *s, int64_t task)
{
	s->tasks[task / 8] |= (unsigned char)(1 << task % 8);
}

/* The state as it is, durable when this returns. Nothing without storage. */
int state_write(struct state *s);

/* remove: the windows' files and the records, too. */
void state_close(struct state *s, bool remove);

#endif
