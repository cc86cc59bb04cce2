/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job: the coarrays of all images that are kept in files, and their syncs, which are numbered by
 * epochs of the job.
 *
 * A sync begins when all images have come to a barrier, and ends when all have made all of their
 * coarrays durable with its number in the trailers; no image continues before. After a crash, each
 * coarray is therefore of the last sync that all images have completed, or of the next one, and a
 * restart goes back to the former.
 *
 * A sync first writes a changed manifest: image 1 writes the manifest, and each image writes its
 * copy before its own part of the sync. If a write fails, so does the sync. No file of a coarray is
 * created before the first manifest and its copies are durable, so files without a manifest mean
 * that the manifest was lost. Files are removed, or used again, only after a sync without them.
 *
 * With PCAF_ASYNC, a sync first ends the sync before, and no image continues before all have begun
 * the commits of this one, so a moment is still one of all images, and all have at least the moment
 * before. A sync with a changed manifest does not return before its end, because files may be
 * removed, or used again, after it.
 *
 * Small coarrays are memory. Each image copies the changed ones to the pool, a mapping, at each
 * sync. Locks and atomic operations are thus as fast as without the library, and a sync makes one
 * commit for all small coarrays.
 */
#ifndef COARRAY_JOB_H
#define COARRAY_JOB_H

#include "coarray/config.h"
#include "coarray/store.h"
#include "pmpi/error.h"
#include "window/manifest.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest coarray that is memory. */
#define MAX_SMALL_BYTES (64 << 10)

struct coarray {
	struct coarray *next;
	MPI_Win win;         /* window that libcaf has made for it */
	char *base;          /* this image's part */
	size_t size;         /* bytes of the part */
	unsigned order;      /* place in the order of coarrays, from 1 */
	bool is_kept;        /* whether the manifest has it */
	bool is_small;       /* whether it is memory, which is copied to the pool */
	bool must_restore;   /* whether initial values may have replaced the stored contents */
	bool is_whole;       /* whether a sync has stored this image's part */
	struct entry former; /* entry whose files are mapped, although it was dropped; id 0: none */
};

struct job {
	struct config config;
	MPI_Comm comm;            /* of all images; MPI_COMM_NULL before the first coarray */
	MPI_Comm stopped;         /* the same images, for those that execute `stop` */
	int image, images;        /* number of this image, from 1, and of all images */
	uint64_t epoch;           /* number of the last complete sync */
	uint64_t restart;         /* number of the sync that this run began with; 0: none */
	struct store store;       /* files of this image */
	struct manifest manifest; /* coarrays that are kept */
	bool is_changed;          /* whether the manifest has changed since it was written */
	struct coarray *coarrays; /* list of all coarrays */
	char *pool;               /* mapping for small coarrays; NULL: none */
	struct umsync_handle *pool_commit; /* commit in flight of that mapping; NULL: none */
	bool in_flight;           /* whether a sync has begun and has not ended */
	uint64_t pool_epoch;      /* sync of the pool's contents at the beginning; 0: none */
	double last_sync_ms;      /* time of the last sync */
};

extern struct job job __attribute__((visibility("hidden")));

/* All functions are collective, except job_find and job_is_due. Errors end the program. */
void job_begin(MPI_Comm comm);
/* Ends the program if an image has an error, which the first such image prints. */
void job_check(MPI_Comm comm, const struct error *e);
/* Ends the program if `code`, which MPI has returned at all images, is an error. */
void job_check_code(int code);

void job_set_no_memory(struct error *e);
/* Replaces a file with a manifest's text. It is an error if the text is NULL. */
void job_replace_manifest(const char *path, const char *text, struct error *e);
/* Makes the manifest, and this image's copy of it, durable. The caller checks the error at all
 * images. */
void job_write_manifest(struct error *e);

/* Returns the entry for a coarray, which is valid until the next call. *is_former: whether an
 * earlier run has left it. */
struct entry *job_enter(unsigned order, size_t size, bool *is_former);
/* Stops keeping a coarray. */
void job_drop(struct coarray *c);
/* Moves the files of a coarray to a folder. */
void job_move(struct coarray *c, const char *path);
struct coarray *job_find(MPI_Win win);
/* Restores stored contents that initial values have replaced. */
void job_restore_contents(void);
/* Makes the coarrays of all images durable. With PCAF_ASYNC, only begins that, unless `wait`. */
void job_sync(bool wait);
/* Ends the sync in flight, if there is one. */
void job_end_sync(void);
/* Returns whether PCAF_SYNCFREQ allows another sync, by the clock of this image. */
bool job_is_due(void);
/* Makes the coarrays of this image durable, if a restart need not go back to a common sync. */
void job_sync_alone(void);
/* Removes a coarray that is deallocated, or freed at the end of the program. */
void job_leave(struct coarray *c, bool is_deallocated);

/* ---- coarray.c ---- */

/* Returns whether MPI is initialized, and coarrays are kept. */
bool coarray_is_active(void);
/* Does a `sync all` whose changes are durable at the end. */
void coarray_sync(void);

/* ---- restart.c: the beginning of a job, which continues the earlier run ---- */

/* Fills in job.manifest, job.epoch and job.restart; collective over job.comm. An error ends the
 * program. */
void restart_begin(void);

/* ---- program.c: the identity of the running program, which the manifest records ---- */

#define PROGRAM_TEXT 100

void program_find(struct program *p);
/* Compares the names, and the build IDs where both programs have one, otherwise the sizes where
 * both are known. */
bool program_is_same(const struct program *a, const struct program *b);
/* Formats the name, size and build ID for a message, shortened. */
void program_describe(char text[PROGRAM_TEXT], const struct program *p);

#endif
