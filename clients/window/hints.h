/* SPDX-License-Identifier: BSD-3-Clause */
/* The hints of windows, read from an MPI_Info and written to one. */
#ifndef HINTS_H
#define HINTS_H

#include "pmpi/error.h"
#include "transport/engine.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* TYPE_OBJECT is only a value of the hint: the window then has TYPE_STORAGE and an `object`. */
enum hints_type { TYPE_NONE, TYPE_MEMORY, TYPE_STORAGE, TYPE_OBJECT };

enum winsync { WINSYNC_DEFAULT, WINSYNC_MEMORY, WINSYNC_STORAGE, WINSYNC_ASYNC };

#define HINT_TEXT (MPI_MAX_INFO_VAL + 1)
#define FACTOR_AUTO (-1.0)
#define SYNC_NEVER 0
/* Name of the driver of object windows in hints and messages. No URI can name it. */
#define OBJECT_DRIVER "versioned"

struct hints {
	enum hints_type type;          /* alloc_type */
	enum engine engine;
	char filename[HINT_TEXT];      /* file, with %r replaced; in an object window, the object */
	char object[HINT_TEXT]; /* container and name of an object; empty: the window has a file */
	uint64_t object_chunk;         /* maximum bytes of a chunk; 0: the default */
	char driver[HINT_TEXT];        /* URI without a path, as UMMAP_DRIVER; empty: the default */
	char policy[HINT_TEXT];        /* policy; empty: the default */
	char tiers[HINT_TEXT];         /* tiers for segments; empty: all */
	char access_style[HINT_TEXT];
	char striping_factor[HINT_TEXT], striping_unit[HINT_TEXT];
	char passed[4 * HINT_TEXT]; /* with the driver mpiio: hints for MPI-IO, "name=value;..." */
	uint64_t offset;               /* offset in the file of the window's first byte */
	uint64_t segsize;              /* bytes of a segment; 0: the default */
	uint64_t stripe;               /* with the driver mpiio: bytes of a stripe; 0: none */
	int rank, ranks;               /* rank and size of the communicator */
	double factor;                 /* fraction of the window that is in memory; FACTOR_AUTO */
	int syncfreq;                  /* flush interval in seconds; SYNC_NEVER */
	mode_t perm;                   /* permissions of a file that is created */
	bool storage_first, unlink, discard;
	bool fencesync;                /* MPI_Win_fence makes the window durable */
	bool writers;                  /* other mappings write to the same bytes, too */
	bool node_cache;               /* read-only: ranks share memory (UMMAP_NODE) */
	bool consistent;               /* syncs are moments of all ranks (moment.h) */
	bool local;                    /* ranks of one machine access memory without MPI */
	enum winsync winsync;          /* effect of MPI_Win_sync */
	int on_full;                   /* effect of stores when writes fail, UMMAP_FULL_* */
	bool nameless;                 /* filename is a folder, for a file without a name */
};

/* The hints of a rank of comm without an MPI_Info. */
void hints_default(struct hints *h, MPI_Comm comm);

/* Reads the hints of a rank of comm. all: UMMAP_MPI_ALL counts, too. Unknown hints are ignored, and
 * all hints are ignored unless alloc_type is "storage" or "object". */
void hints_read(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e);

/* Collective: reads the hints of all ranks, which get an error if any rank has one, or if only some
 * ranks request an object. Returns whether any rank requests storage. */
bool hints_agree(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e);

/* Adds the hints in use to info. */
void hints_write(const struct hints *h, MPI_Info info);

/* Whether the driver has this name, with or without filters. */
bool hints_by(const struct hints *h, const char *name);

/* ---- Misspelled names of hints and variables ---- */

/* Returns the name with the smallest distance to `name`, which *changes returns. The names are the
 * first fields of n rows. */
const char *spelling_find(const char *name, const void *rows, size_t row_size, size_t n,
			  size_t *changes);
/* Warns that a hint or variable (`what`) is unknown. meant: the name to suggest, or NULL. */
void spelling_warn(const char *what, const char *name, const char *meant);

#endif
