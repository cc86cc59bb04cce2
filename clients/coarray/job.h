/* SPDX-License-Identifier: BSD-3-Clause */
/* The coarrays of this job that are kept in storage, and what is done with all of them at once. */
#ifndef COARRAY_JOB_H
#define COARRAY_JOB_H

#include "coarray/config.h"
#include "window/manifest.h"
#include "coarray/store.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Coarrays of at most so many bytes are memory, which is copied. */
#define JOB_SMALL (64 << 10)

struct coarray {
	struct coarray *next;
	MPI_Win win;
	char *base;
	size_t size;
	unsigned order;
	bool kept;           /* the manifest has it */
	bool small;          /* memory, of which the pool has a copy */
	bool pending;        /* it was there in an earlier run: initialisers have to be undone */
	bool whole;          /* and this image's part of it, too */
	struct entry former; /* what it was before it was dropped: its files are mapped still; ID 0: nothing */
};

struct job {
	struct config config;
	MPI_Comm comm;            /* libcaf's, of all images; MPI_COMM_NULL: no coarray was there yet */
	MPI_Comm stopped;         /* the same images: those that have come to a `stop` */
	int image, images;        /* from 1 on */
	uint64_t epoch;           /* the last sync that reached storage at all images */
	uint64_t restart;         /* the one that this run began with; 0: it has begun anew */
	struct store store;
	struct manifest manifest;
	bool changed;             /* the manifest, since it was written */
	struct coarray *coarrays;
	char *pool;               /* mapped while any are kept; NULL: it is not there */
	uint64_t pool_epoch;      /* of the pool's contents when the job began; 0: none */
	double synced;            /* when the last sync with storage was, in milliseconds */
};

extern struct job job __attribute__((visibility("hidden")));

/* Collective, and so are all of these but job_find. Errors end the program. */
void job_begin(MPI_Comm comm);
/* Ends the program if any image has an error: the first of them says so. */
void job_check(MPI_Comm comm, const struct error *e);
/* The same for what MPI returns to all. */
void job_check_code(int code);

void job_lacks_memory(struct error *e);
/* Replaces one file of the manifest's text; NULL is an error, too. */
void job_replace_manifest(const char *path, const char *text, struct error *e);
/* Makes the manifest, and this image's copy of it, durable. The caller checks the error at all
 * images. */
void job_write_manifest(struct error *e);

/* The entry for a coarray of that size, for now: that of an earlier run, or a new one. `earlier`: the former. */
struct entry *job_enter(unsigned order, size_t size, bool *earlier);
/* It is not to be kept. */
void job_drop(struct coarray *c);
/* Its files are in that folder from now on. */
void job_move(struct coarray *c, const char *path);
struct coarray *job_find(MPI_Win win);
/* Puts back what initialisers have stored over. */
void job_bring_back(void);
/* Makes the coarrays of all images durable, as of now. */
void job_sync(void);
/* Whether PCAF_SYNCFREQ allows the next one, as far as this image knows. */
bool job_is_due(void);
/* The same for this image alone, where a restart need not bring back one moment. */
void job_sync_alone(void);
/* A coarray is no more, `deallocated` or at the end of the program. */
void job_leave(struct coarray *c, bool deallocated);

#endif
