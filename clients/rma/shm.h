/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of whose memory this process accesses parts without MPI: its own, and its neighbors'. */
#ifndef SHM_H
#define SHM_H

#include "rma/nodelock.h"
#include "rma/pager.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct umimport;
struct window;

/* State of the epoch in which this process accesses a target. */
enum epoch {
	EPOCH_NONE,   /* no lock */
	EPOCH_ASKED,  /* the program has locked the target, but the lock may not be there yet */
	EPOCH_OPEN    /* the lock is there */
};

/* A rank of the window as the target of operations. Offsets count bytes from its window memory. */
struct target {
	char *at;                 /* address of bytes [from, to), which are mapped here */
	uint64_t from, to;        /* to 0: no bytes are mapped */
	struct umimport *import;  /* import of the bytes from paged_from on; NULL: none */
	uint64_t remote;          /* address of these bytes in the rank's process; 0: unknown */
	int pid;                  /* that process */
	uint64_t paged_from;      /* offset of the first byte that is imported or remote */
	uint64_t size;            /* size of the window memory */
	int64_t unit;             /* displacement unit */
	struct pager_pipe *pipe;  /* pipe for requests to load segments; NULL: none */
	uint64_t key;             /* key of the mapping in these requests */
	struct pager_answer *answers; /* the rank's answers, one for each rank that asks */
	struct nodelock *lock;    /* the lock of MPI_Win_lock */
	struct nodelock *atomics; /* the lock of atomic operations (rma/atomic.c) */
	_Atomic bool held;        /* this rank holds `lock` */
	bool exclusive;           /* this rank holds `lock` exclusively */
	_Atomic bool stored;      /* bytes were put that the next flush must order */
	_Atomic bool passed;      /* MPI holds a lock of its own for operations left to it */
	_Atomic bool busy;        /* a thread of this process holds `atomics` */
	_Atomic int epoch;        /* enum epoch */
	bool readonly;            /* the rank's memory is that of a node copy */
	_Atomic bool pending;     /* MPI may have operations that are not complete */
	_Atomic bool flushing;    /* MPI is completing such operations */
	void *map;                /* mapping to unmap in the end; NULL: none */
	size_t map_len;           /* its length */
};

struct shm {
	int ranks;             /* number of ranks */
	_Atomic bool fenced;   /* all ranks have begun an epoch of fences */
	bool ours;             /* all ranks access all memory: MPI has no locks and atomics */
	bool threads;          /* MPI_THREAD_MULTIPLE */
	bool all;              /* the lock is one of MPI_Win_lock_all */
	struct nodelocks locks; /* parameters of all locks */
	void *control;         /* memory that all ranks share (control.c); NULL: none */
	size_t control_len;    /* its length */
	struct pager *pager;   /* loads segments of this rank for others; NULL: none */
	struct target *targets; /* one for each rank */
};

/*
 * Collective over w->comm, once the window memory is there: ranks open each other's memory. Without
 * the hint for that, w->shm stays NULL. Returns an MPI code, the same at all ranks.
 */
int shm_open_window(struct window *w, MPI_Aint unit);

/* Reports that the memory of a rank cannot be accessed, as errno says. Returns an MPI code. */
int shm_fail(const struct window *w, int rank);

/* ---- Shared control memory ---- */

/* Creates it at one rank, and maps it at the others. The creator closes d->fd when all have it. */
bool control_make(struct shm *shm, struct descriptor *d);
bool control_find(struct shm *shm, const struct descriptor *d);
void control_close(struct shm *shm);

#endif
