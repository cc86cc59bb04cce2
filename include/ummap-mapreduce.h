/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-mapreduce.h - MapReduce over one-sided MPI; see ummap-mapreduce(7).
 *
 * A job is a map and a reduce function and their input. Its ranks go through the phases Map, Reduce and Combine each by
 * itself: they read from each other's windows what is finished there, and wait for nobody in between.
 *
 * Calls return 0, or -1 with errno set; ummr_error() has the sentence. Those that are collective over the job's communicator
 * give the same error at all ranks. MPI's own errors go to MPI's error handlers.
 */
#ifndef UMMAP_MAPREDUCE_H
#define UMMAP_MAPREDUCE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ummr_job ummr_job;

/* A key, or a value that is only read. Values begin at multiples of 8. */
struct ummr_bytes {
	const void *data;
	size_t size;
};

/* All values of a key, for reduce_all. */
typedef struct ummr_values ummr_values;

/* What has been reduced so far of a key: to be changed in place. */
struct ummr_value {
	void *data;
	size_t size; /* changed by ummr_resize only */
};

/* Whole records of one file, one behind the other. The bytes are the job's own copy: map may change them. */
struct ummr_task {
	char *data;
	size_t size;
	const char *path;
	uint64_t offset; /* of data in the file */
};

/* One pair on its way through the phases, in windows and in what ummr_write writes: this, then the key, then the value,
 * each filled up with zeros to a multiple of 8 bytes. */
struct ummr_header {
	uint64_t hash;
	uint64_t key_size;
	uint64_t value_size;
};

enum {
	UMMR_PHASE_MAP = 0,     /* counted in tasks of all ranks */
	UMMR_PHASE_REDUCE = 1,  /* counted in ranks whose pairs for this one are in */
	UMMR_PHASE_COMBINE = 2, /* counted in levels */
	UMMR_PHASE_DONE = 3
};

struct ummr_progress {
	int phase; /* UMMR_PHASE_*, of this rank */
	uint64_t done, all;
};

/* Where records begin. */
enum {
	UMMR_SPLIT_LINES = 0, /* behind each '\n' */
	UMMR_SPLIT_FIXED = 1, /* at multiples of record_size */
	UMMR_SPLIT_OWN = 2    /* where find_record finds one */
};

enum {
	UMMR_COMBINE_ON = 0, /* rank 0 has all of the result */
	UMMR_COMBINE_OFF = 1 /* each rank keeps its part: the keys whose hash led to it */
};

/* By the keys' bytes, as memcmp orders them; a key comes after its beginnings. */
enum {
	UMMR_ORDER_ASCENDING = 0,
	UMMR_ORDER_DESCENDING = 1
};

enum {
	UMMR_METHOD_1S = 0, /* one-sided: ranks wait for nobody */
	UMMR_METHOD_2S = 1  /* two-sided and collective: for comparison */
};

/* How files are read. */
enum {
	UMMR_INPUT_POSIX = 0,       /* read(2); the system reads what is next in the meantime */
	UMMR_INPUT_MPIIO = 1,       /* MPI-IO */
	UMMR_INPUT_MPIIO_AHEAD = 2, /* non-blocking MPI-IO, while map works on what was read before */
	UMMR_INPUT_UMMAP = 3        /* a mapping of ummap(7)'s */
};

#define UMMR_SYNC_NEVER UINT32_MAX

/* Zero is the default of all fields but the first, the input, map, and reduce or reduce_all; UMMR_CONFIG_INIT sets the first. */
struct ummr_config {
	size_t struct_size;        /* sizeof(struct ummr_config) */
	const char *const *inputs; /* files, and folders of which all files are taken; NULL behind the last. Rank 0's count */
	int split;                 /* UMMR_SPLIT_* */
	size_t record_size;        /* for UMMR_SPLIT_FIXED */
	/* For UMMR_SPLIT_OWN: where in these bytes of a file the first record begins behind the first byte: from 1 to size;
	 * 0: in none, or more of them are needed to know. What is found must not change when more bytes follow. */
	size_t (*find_record)(const char *data, size_t size, void *arg);
	/* Calls ummr_emit for each pair. Not 0: it is called again; the third time, the job ends with an error. */
	int (*map)(ummr_job *job, const struct ummr_task *task, void *arg);
	/* Merges another value of the key into `value`. Which values meet, and in which order, is open. Not 0: the job ends. */
	int (*reduce)(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg);
	void (*progress)(const struct ummr_progress *progress, void *arg); /* NULL: none; ranks may differ */
	void *arg;                 /* for all of these functions */
	size_t task_size;          /* bytes of input; 0: a 16th of a rank's part, but 1 to 64 MiB */
	size_t bucket_size;        /* of the first window for pairs from a rank to a rank; 0: 16 MiB */
	size_t transfer_limit;     /* bytes that one one-sided operation fetches at most; 0: 1 MiB */
	size_t table_size;         /* bytes of pairs that Local Reduce keeps before they go to the buckets; 0: 256 MiB */
	int combine;               /* UMMR_COMBINE_* */
	int order;                 /* UMMR_ORDER_* */
	uint64_t seed;             /* of the hash that leads keys to ranks */
	const MPI_Info *info;      /* hints for the windows with pairs; NULL: none */
	const char *storage;       /* a folder in which these windows are files; NULL: they are in memory */
	uint32_t sync_tasks;       /* with storage: made durable after so many tasks of a rank; 0: as often as takes a 25th of the
				    * time; UMMR_SYNC_NEVER */
	/* Instead of reduce: is called once for each key, with all of its values, in an order that is open. Calls ummr_put for
	 * each pair of the result that the key has: none, one or more. Not 0: the job ends. */
	int (*reduce_all)(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg);
	uint64_t tag;              /* of functions and arg, with storage: a job goes on with what one of its tag has left only */
	int method;                /* UMMR_METHOD_* */
	int input;                 /* UMMR_INPUT_*, for UMMR_METHOD_1S */
	size_t stripe_count;       /* of files that MPI-IO opens or makes; 0: the file system's */
	size_t stripe_size;        /* the same, in bytes */
	const char *timeline;      /* a CSV file for the events of the phases; NULL: none. Rank 0's counts */
};

#define UMMR_CONFIG_INIT { sizeof(struct ummr_config), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, \
			   NULL, 0, 0, 0, 0, 0, NULL }

/* Collective over comm. Looks for the input, and makes the windows or finds those in storage that a job of the same input
 * and config has left. What config points to may go afterwards, but for arg. */
int ummr_create(MPI_Comm comm, const struct ummr_config *config, ummr_job **job);

/* Collective. All phases, of a run that was interrupted: what is left of them. A job may run again when it has run: the
 * result of the last run is gone then. */
int ummr_run(ummr_job *job);

/* How many runs of the job are complete, those before it was interrupted included: the result is that of the last one. */
uint64_t ummr_runs(const ummr_job *job);

/* For map: a pair, which is copied. -1 also ends the job with this error. */
int ummr_emit(ummr_job *job, const void *key, size_t key_size, const void *value, size_t value_size);

/* For reduce: gives the value another size; its bytes stay, as realloc does. */
int ummr_resize(struct ummr_value *value, size_t size);

/* For reduce_all: the next value of the key: 1, or 0 behind the last. Good until the next call. */
int ummr_next_value(ummr_values *values, struct ummr_bytes *value);

/* For reduce_all: a pair of the result, of this key, which is copied. -1 also ends the job with this error. */
int ummr_put(ummr_job *job, const void *value, size_t size);

/* The next pair of this rank's part of the result, in order: 1, or 0 behind the last. Good until the next call. */
int ummr_next(ummr_job *job, struct ummr_bytes *key, struct ummr_bytes *value);

/* ummr_next begins at the first pair again. */
int ummr_rewind(ummr_job *job);

/*
 * Collective. Writes the result to a file, rank after rank, which takes the place of one that is there when it is complete.
 * print writes one pair, and returns not 0 if it cannot; NULL: pairs are written as they are, behind a ummr_header. Without
 * a path: to standard output.
 */
int ummr_write(ummr_job *job, const char *path,
	       int (*print)(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg));

/*
 * Collective. Ends the job and its windows. Files in storage stay if it has not run to its end, or if the last ummr_write has
 * failed: another job can go on.
 */
int ummr_end(ummr_job *job);

/* What was wrong with this thread's last call that returned -1. */
const char *ummr_error(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
