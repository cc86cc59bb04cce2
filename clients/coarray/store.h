/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of one image. A mapped coarray has a range of a file of its own, or of the one file of
 * its image. The range ends with a trailer, which has the number of the job's sync. If a restart
 * must bring all images back to the same sync, the store is behind the filter wal+: contents and
 * trailer change together, and the last two syncs can be opened. The commit numbers of a log begin
 * anew with each log; the trailer tells the sync of each commit.
 */
#ifndef COARRAY_STORE_H
#define COARRAY_STORE_H

#include "coarray/config.h"
#include "window/manifest.h"
#include "window/moment.h"
#include "pmpi/error.h"

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct store {
	const struct config *config;
	int image;                /* number of the image, from 1 */
	struct names names;       /* names of its files */
	char driver[CONFIG_TEXT]; /* driver of the files, as UMMAP_DRIVER, without wal+ */
	int keep;                 /* commits that a log keeps */
	int lock;                 /* descriptor of the lock file */
};

/* Locks the files, so that other jobs cannot use them. */
void store_open(struct store *s, const struct config *config, int image, struct error *e);

/* Stores the path of a coarray's file in MANIFEST_PATH bytes. */
void store_path(const struct store *s, const struct entry *entry, char *path);
/* Finds the syncs that a file has. */
void store_look(const struct store *s, const struct entry *entry, struct holding *h,
		struct error *e);
/* Drops the contents that are newer than the sync `epoch`, the newest one of the image `behind`. */
void store_go_back(const struct store *s, const struct entry *entry, const struct holding *h,
		   uint64_t epoch, int behind, struct error *e);

/* Writes the log of a coarray that is not mapped to the file, and removes the log. */
void store_apply(const struct store *s, const struct entry *entry, struct error *e);

/* Reads the file into the memory of the coarray. Before the first sync of a run that has logs, this
 * restores the contents with which the run has begun. */
void store_read_back(const struct store *s, const struct entry *entry, char *base,
		     struct error *e);

/* Sets the hints with which MPI_Win_allocate maps the entry, for a window of entry_room() bytes. */
void store_hints(const struct store *s, const struct entry *entry, MPI_Info info);
/* Maps the entry without a window. Returns NULL after an error. */
char *store_map(const struct store *s, const struct entry *entry, struct error *e);
/* Changes the file of a mapping to that of the entry. The next sync writes the whole file. */
void store_move(const struct store *s, const struct entry *entry, char *base, struct error *e);
/* Returns whether the folder has files with contents that this image would overwrite. *name: the
 * first such file. */
bool store_has_files(const struct store *s, char name[NAME_MAX + 1]);
/* Removes the files of this image with this ID or a larger one, which a job has left that was
 * killed before a sync. */
void store_clear(const struct store *s, unsigned id);
/* Removes the file and the log of the entry. */
void store_remove(const struct store *s, const struct entry *entry);

#endif
