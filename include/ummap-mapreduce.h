/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-mapreduce.h - MapReduce over one-sided MPI; see ummap-mapreduce(7).
 *
 * A job has a map function, a reduce function, and input files. Each rank goes through the phases
 * Map, Reduce and Combine by itself, and reads finished data from the windows of other ranks.
 *
 * Calls return 0, or -1 with errno set; ummr_error() returns the message. Calls that are collective
 * over the job's communicator return the same error at all ranks. Errors of MPI itself go to MPI's
 * error handlers.
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

/* A key, or a value that the function must not change. Values begin at multiples of 8 bytes. */
struct ummr_bytes {
	const void *data; /* address of the bytes */
	size_t size;      /* number of bytes */
};

/* All values of a key, for reduce_all. */
typedef struct ummr_values ummr_values;

/* The value of a key that the reduce function changes in place. */
struct ummr_value {
	void *data;  /* address of the bytes */
	size_t size; /* number of bytes, which only ummr_resize changes */
};

/* Whole records of one file, one after the other. */
struct ummr_task {
	char *data;       /* a copy of the records, which the map function may change */
	size_t size;      /* bytes of the records */
	const char *path; /* name of the file */
	uint64_t offset;  /* offset of the records in the file */
};

/* The header of a pair in windows and in files of ummr_write. The key and the value follow, each
 * padded with zeros to a multiple of 8 bytes. */
struct ummr_header {
	uint64_t hash;       /* hash of the key */
	uint64_t key_size;   /* bytes of the key, without padding */
	uint64_t value_size; /* bytes of the value, without padding */
};

enum {
	UMMR_PHASE_MAP = 0,     /* unit of progress: a task of any rank */
	UMMR_PHASE_REDUCE = 1,  /* unit of progress: a rank whose pairs have arrived */
	UMMR_PHASE_COMBINE = 2, /* unit of progress: a level of the tree */
	UMMR_PHASE_DONE = 3
};

struct ummr_progress {
	int phase;          /* phase of this rank, UMMR_PHASE_* */
	uint64_t done, all; /* finished units of the phase, and their total number */
};

/* Places where records begin, in addition to the beginning of each file. */
enum {
	UMMR_SPLIT_LINES = 0, /* after each newline */
	UMMR_SPLIT_FIXED = 1, /* at multiples of record_size */
	UMMR_SPLIT_OWN = 2    /* where find_record finds one */
};

enum {
	UMMR_COMBINE_ON = 0, /* rank 0 gets the whole result */
	UMMR_COMBINE_OFF = 1 /* each rank keeps the keys that the hash assigns to it */
};

/* Orders of keys: by their bytes, as memcmp compares them. A key comes after its prefixes. */
enum {
	UMMR_ORDER_ASCENDING = 0,
	UMMR_ORDER_DESCENDING = 1
};

#define UMMR_SYNC_NEVER UINT32_MAX

/* The configuration of a job; see ummap-mapreduce-config(7). UMMR_CONFIG_INIT sets struct_size.
 * inputs, map, and reduce or reduce_all are required; 0 is the default of all other fields. */
struct ummr_config {
	size_t struct_size;        /* sizeof(struct ummr_config) */
	const char *const *inputs; /* files and folders; NULL after the last; rank 0 decides */
	int split;                 /* UMMR_SPLIT_* */
	size_t record_size;        /* bytes of a record, for UMMR_SPLIT_FIXED */
	/* Finds a record in bytes of a file, for UMMR_SPLIT_OWN. Returns the offset of the first
	 * record that begins after data[0], from 1 to size. Returns 0 if no record begins there, or
	 * if the function needs more bytes to decide: the library then calls it again with the same
	 * first byte and more bytes, until the end of the file. If a result is not 0, the function
	 * must return the same result when it gets more bytes. */
	size_t (*find_record)(const char *data, size_t size, void *arg);
	/* Calls ummr_emit for each pair of a task. If the function does not return 0, it is called
	 * again; after the third time, the job ends with an error. */
	int (*map)(ummr_job *job, const struct ummr_task *task, void *arg);
	/* Merges `other` into `value`. Values of a key are merged in any order. If the function
	 * does not return 0, the job ends with an error. */
	int (*reduce)(const struct ummr_bytes *key, struct ummr_value *value,
		      const struct ummr_bytes *other, void *arg);
	/* Replaces reduce: called once for each key, with all of its values in any order. Calls
	 * ummr_put for each pair of the result. If it does not return 0, the job ends with an
	 * error. */
	int (*reduce_all)(ummr_job *job, const struct ummr_bytes *key, ummr_values *values,
			  void *arg);
	/* Reports the progress of this rank. NULL: no reports. Ranks may differ. */
	void (*progress)(const struct ummr_progress *progress, void *arg);
	void *arg;                 /* argument of all functions */
	size_t task_size;          /* bytes of input in a task; 0: 1/16 of a rank's part of the
				    * input, but 1 to 64 MiB */
	size_t bucket_size;        /* bytes of the first window per target rank; 0: 16 MiB */
	size_t table_size;         /* bytes of pairs in a rank's hash table; 0: 256 MiB */
	int combine;               /* UMMR_COMBINE_* */
	int order;                 /* UMMR_ORDER_* */
	const MPI_Info *info;      /* hints for the windows with pairs; NULL: none */
	const char *storage;       /* folder for files of these windows; NULL: memory */
	/* With storage: number of tasks of a rank between two syncs. 0: as many as needed so that
	 * syncs take a 25th of the time. UMMR_SYNC_NEVER: no syncs. */
	uint32_t sync_tasks;
	uint64_t tag;              /* with storage: version of the functions and of arg */
	const char *timeline;      /* CSV file of events; NULL: none; rank 0 decides */
};

#define UMMR_CONFIG_INIT { sizeof(struct ummr_config), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, \
			   NULL, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL }

/* Makes a job; collective over comm. Finds the input, and makes the windows, or opens the work that
 * an interrupted job of the same input and configuration has left in storage. The program may free
 * the objects that config points to afterwards, except arg. */
int ummr_create(MPI_Comm comm, const struct ummr_config *config, ummr_job **job);

/* Runs the job, or the rest of an interrupted run; collective. A job that has run may run again,
 * which drops the result of the previous run. */
int ummr_run(ummr_job *job);

/* Returns the number of complete runs, including those before an interruption. The result is that
 * of the last complete run. */
uint64_t ummr_runs(const ummr_job *job);

/* Emits a pair from a map function; the pair is copied. An error also ends the job. */
int ummr_emit(ummr_job *job, const void *key, size_t key_size, const void *value,
	      size_t value_size);

/* Changes the size of a value in a reduce function. Keeps its bytes, as realloc does. */
int ummr_resize(struct ummr_value *value, size_t size);

/* Reads the next value of a key in reduce_all. Returns 1, or 0 after the last value. The value is
 * valid until the next call. */
int ummr_next_value(ummr_values *values, struct ummr_bytes *value);

/* Adds a pair with the current key to the result in reduce_all; the value is copied. An error also
 * ends the job. */
int ummr_put(ummr_job *job, const void *value, size_t size);

/* Reads the next pair of this rank's part of the result, in order of keys. Returns 1, or 0 after
 * the last pair. Key and value are valid until the next call. */
int ummr_next(ummr_job *job, struct ummr_bytes *key, struct ummr_bytes *value);

/* Makes ummr_next begin at the first pair again. */
int ummr_rewind(ummr_job *job);

/*
 * Writes the result to a file, rank after rank; collective. An existing file is replaced when the
 * new one is complete. print writes one pair, and returns 0 on success; NULL: each pair is written
 * as a struct ummr_header, its key and its value. path NULL: the standard output of each rank.
 */
int ummr_write(ummr_job *job, const char *path,
	       int (*print)(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
			    void *arg));

/*
 * Ends the job and its windows; collective. Files in storage remain if the job has not finished, or
 * if the last ummr_write has failed, so that another job can continue.
 */
int ummr_end(ummr_job *job);

/* The same as umerrormsg() of ummap.h: the message about this thread's last failed call. */
const char *ummr_error(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
