/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a window that this process can load from and store to itself, its own and those of ranks on its machine. */
#ifndef SHM_H
#define SHM_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shm;
struct umpeer;
struct window;

/* ---- Epochs of access, as the calls that begin and end them tell (epoch.c). ---- */

enum access {
	ACCESS_NONE,   /* no lock */
	ACCESS_ASKED,  /* MPI has been asked for a lock, and may not have it yet */
	ACCESS_OPEN    /* it has it */
};

struct shm {
	int ranks;
	_Atomic bool fenced;   /* in an epoch of fences which all ranks have begun */
	struct peer *peers;
};

struct peer {
	char *at;                 /* where bytes [from, to) of its part are mapped here */
	uint64_t from, to;
	struct umpeer *paged;     /* by what those from paged_from on are reached, if they are in memory; NULL: they are not */
	uint64_t paged_from;
	int64_t unit;             /* bytes of a displacement */
	void *map;                /* ours to unmap; NULL: somebody else's */
	size_t map_len;
	_Atomic int access;       /* enum access */
	_Atomic bool pending;     /* MPI has operations on it that may not be complete */
	_Atomic bool flushing;    /* ... and is completing them now */
};

/* A stretch of a rank's part. */
struct stretch {
	int rank;
	MPI_Aint disp;
	uint64_t bytes;
	bool fences;              /* epochs of fences count */
};

/* Copies it there, or from there. false: only MPI can. */
bool shm_put(struct window *w, const struct stretch *s, const void *from);
bool shm_get(struct window *w, const struct stretch *s, void *to);
/* MPI has got an operation on a rank's part. */
void shm_note(struct window *w, int rank);

/* Bytes of `count` items of type, one behind the other without gaps; 0: none, or only MPI can tell (types.c). */
uint64_t type_bytes(MPI_Datatype type, int64_t count);

#endif
