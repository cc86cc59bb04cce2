/* SPDX-License-Identifier: BSD-3-Clause */
/* The hints: what an MPI_Info says about where memory is to be, checked; and back into an MPI_Info. */
#ifndef HINTS_H
#define HINTS_H

#include "pmpi/error.h"
#include "transport/engine.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* TYPE_OBJECT is read only: such a window is in storage, and `object` says in which. */
enum hints_type { TYPE_NONE, TYPE_MEMORY, TYPE_STORAGE, TYPE_OBJECT };

enum winsync { WINSYNC_DEFAULT, WINSYNC_MEMORY, WINSYNC_STORAGE };

#define HINT_TEXT (MPI_MAX_INFO_VAL + 1)
#define FACTOR_AUTO (-1.0)
#define SYNC_NEVER 0

struct hints {
	enum hints_type type;          /* alloc_type */
	enum engine engine;
	char filename[HINT_TEXT];      /* with %r replaced; of an object window, the same as object */
	char object[HINT_TEXT];        /* alloc_type "object": a container and a name; empty: a file */
	uint64_t object_chunk;         /* bytes, at most; 0: the default */
	char driver[HINT_TEXT];        /* as UMMAP_DRIVER: a URI without a path; empty: the default */
	char policy[HINT_TEXT];        /* empty: the default */
	char access_style[HINT_TEXT];
	char striping_factor[HINT_TEXT], striping_unit[HINT_TEXT];
	char passed[4 * HINT_TEXT];    /* with the driver mpiio: what MPI-IO is to have, "name=value;..." */
	uint64_t offset;               /* of the window's first byte in the file */
	uint64_t segsize;              /* 0: the default */
	uint64_t stripe;               /* of the file, by the driver mpiio; 0: none */
	int rank, ranks;               /* whose stripes */
	double factor;                 /* of the window that is in memory; FACTOR_AUTO */
	int syncfreq;                  /* seconds, SYNC_NEVER */
	mode_t perm;                   /* of a file that is created */
	bool storage_first, unlink, discard;
	bool fencesync;                /* MPI_Win_fence makes durable */
	bool writers;                  /* others write to the same bytes, too */
	bool consistent;               /* syncs are moments of all ranks */
	bool local;                    /* ranks of one machine reach each other's parts without MPI */
	enum winsync winsync;          /* what MPI_Win_sync does */
	int on_full;                   /* UMMAP_FULL_* */
	bool nameless;                 /* filename is a folder: a file that goes with the process */
};

/* The hints of a rank of comm without an MPI_Info. */
void hints_default(struct hints *h, MPI_Comm comm);

/* Takes what info has for a rank of comm (where `all`, UMMAP_MPI_ALL too). Unknown hints are ignored, and so are all others where
 * alloc_type is not "storage". */
void hints_read(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e);

/* Collective, in the place of hints_read: all have the error of one, as where some want an object, but not all. Returns whether any
 * rank wants storage. */
bool hints_agree(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e);

/* Adds those in use to info. */
void hints_write(const struct hints *h, MPI_Info info);

/* Whether the driver is mpiio, behind filters or not. */
bool hints_by_mpiio(const struct hints *h);

#endif
