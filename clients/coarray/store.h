/* SPDX-License-Identifier: BSD-3-Clause */
/* An image's files: their names, what is in them, and which job has them. */
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
	int image;
	struct names names;
	char driver[CONFIG_TEXT];    /* without wal+ */
	int keep;                    /* how many syncs a log keeps */
	int lock;                    /* a descriptor */
};

/* Keeps other jobs out. */
void store_open(struct store *s, const struct config *config, int image, struct error *e);

/* The file of a coarray at this image. */
void store_path(const struct store *s, const struct entry *entry, char *path);
void store_look(const struct store *s, const struct entry *entry, struct holding *h, struct error *e);
/* Drops what is newer than `epoch`, which is all that the image `behind` has. */
void store_go_back(const struct store *s, const struct entry *entry, const struct holding *h, uint64_t epoch, int behind,
		   struct error *e);

/* Leaves no log of one that is not mapped. */
void store_apply(const struct store *s, const struct entry *entry, struct error *e);

/* Puts what the file has into its memory. With logs, and before the first sync of a run, that is what the run began with. */
void store_read_back(const struct store *s, const struct entry *entry, char *base, struct error *e);

/* The hints with which MPI_Win_allocate makes a window of entry_room() bytes of it. */
void store_hints(const struct store *s, const struct entry *entry, MPI_Info info);
/* Maps it without a window. NULL with an error. */
char *store_map(const struct store *s, const struct entry *entry, struct error *e);
/* From now on that is another one, as the entry says: what is mapped stays, and the next sync makes the file complete. */
void store_move(const struct store *s, const struct entry *entry, char *base, struct error *e);
/* Whether the folder has files with contents that this image would overwrite. *name: the first such
 * file. */
bool store_has_files(const struct store *s, char name[NAME_MAX + 1]);
/* Removes this image's files with that ID and later ones: of a job that was killed before any sync had them. */
void store_clear(const struct store *s, unsigned id);
/* Before a new one is made there: whatever an earlier job has left. */
void store_remove(const struct store *s, const struct entry *entry);

#endif
