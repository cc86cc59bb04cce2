/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The acknowledged work of a rank: the length of its buckets, the tasks in them, and its run when
 * it has reduced. With storage, it is written to a record, so that another job can continue from
 * it.
 *
 * A record is written after the streams that it describes are durable. It has a number and a
 * checksum. Records alternate between two files, so that an incomplete record leaves the previous
 * one intact. Bytes of the windows behind the acknowledged length are never read, and the next job
 * overwrites them. Each task is thus in the buckets entirely or not at all.
 *
 * Two things become obsolete when a run begins: the buckets of the previous run, and the result of
 * the run before that, whose file the new run uses. A rank writes a record of the new run before
 * it writes to these files.
 */
#ifndef MAPREDUCE_RECORD_H
#define MAPREDUCE_RECORD_H

#include "mapreduce/stream.h"

#include <stdbool.h>
#include <stdint.h>

/* Number of facts: properties of the job that must be the same when another job continues it.
 * record.c has their names. */
enum { RECORD_FACTS = 12 };

/* The beginning of a record. The extents of buckets and runs follow (blocks, used, and the offsets
 * of these blocks), and then the tasks. */
struct record_header {
	char magic[8];       /* version of the format */
	uint64_t checksum;   /* hash of the rest of the record */
	uint64_t size;       /* bytes of the record */
	uint64_t number;     /* number of the newest record; 0: there is none */
	uint64_t id;         /* random number of the job */
	uint64_t facts[RECORD_FACTS];
	uint64_t run;        /* number of the run that has begun, from 1; 0: none */
	uint64_t is_reduced; /* whether this rank's run is complete */
};

struct record {
	/* Contents of a record. */
	struct record_header header;
	unsigned streams;             /* number of buckets */
	struct saved_stream *buckets; /* extent of each bucket */
	struct saved_stream *runs;    /* extent of the current and the previous run, by run % 2;
				       * in the memory of buckets, behind them */
	uint64_t task_bytes;          /* bytes of tasks */
	unsigned char *tasks;         /* a bit for each task that is in the buckets */

	bool is_durable;              /* whether there is storage, and the job syncs */
	const char *folder;           /* the storage folder; NULL: memory */
	char *pairs;                  /* file of the window with buckets */
	char *results[2];             /* files of the window with runs, by run % 2 */
	char *paths[2];               /* files of records */
	int files[2];                 /* descriptors of the files of records, or -1 */
	int folder_fd;                /* descriptor of the folder, or -1 */
};

/* Makes a record without acknowledged work, in memory. */
int record_open(struct record *r, const uint64_t facts[RECORD_FACTS], unsigned streams,
		uint64_t tasks);

/* Reads the newest record of this rank in the folder. It is an error if its facts differ, or
 * if this job does not sync. The caller must have locked the folder, and the name must remain
 * valid. */
int record_find(struct record *r, const char *folder, int rank, bool is_durable);

/* Drops what record_find has read. */
void record_clear(struct record *r);

void record_begin_run(struct record *r, uint64_t run);

static inline bool record_has_task(const unsigned char *tasks, int64_t task)
{
	return tasks[task / 8] >> task % 8 & 1;
}

static inline void record_add_task(struct record *r, int64_t task)
{
	r->tasks[task / 8] |= (unsigned char)(1 << task % 8);
}

/* Writes the record and makes it durable; does nothing without storage or syncs. */
int record_write(struct record *r);

/* removes_files: the records and the files of windows are removed. */
void record_close(struct record *r, bool removes_files);

/*
 * Removes the files in the folder that belong to ranks beyond those of this job, and that no record
 * describes. One rank calls this, with its own record. It is an error if such a rank has
 * acknowledged work, or if another job uses its files: the ranks of this job open only files with
 * their own numbers, and would not notice.
 */
int record_remove_stale(const struct record *r, const char *folder, int ranks);

#endif
