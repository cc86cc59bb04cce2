/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a window that this process can load from and store to itself, its own and those of ranks on its machine. */
#ifndef SHM_H
#define SHM_H

#include "rma/layout.h"
#include "rma/nodelock.h"
#include "rma/remote.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ummap.h>

struct pager;
struct pager_door;
struct shm;
struct window;

/* ---- Epochs of access, as the calls that begin and end them tell (epoch.c). ---- */

enum access {
	ACCESS_NONE,   /* no lock */
	ACCESS_ASKED,  /* the program has been given it, but it may not be there yet */
	ACCESS_OPEN    /* it is there */
};

struct shm {
	int ranks;
	_Atomic bool fenced;   /* in an epoch of fences which all ranks have begun */
	bool ours;             /* all ranks reach all parts: locks and atomics are ours, at all of them */
	bool threads;          /* several of this process may be here at once */
	bool all;              /* ... and the lock is one of all ranks */
	struct nodelocks locks;
	void *control;         /* what ranks share beside their parts (control.c); NULL: nothing */
	size_t control_len;
	struct pager *pager;   /* by which others ask for segments of this rank's part; NULL: they need not */
	struct peer *peers;
};

struct peer {
	char *at;                 /* where bytes [from, to) of its part are mapped here */
	uint64_t from, to;
	struct umimport *paged;     /* by what those from paged_from on are reached, if they are in memory; NULL: they are not */
	uint64_t remote;          /* ... or where these are in its process, to which the kernel copies; 0: nowhere */
	int pid;                  /* ... of that process */
	uint64_t paged_from;
	uint64_t size;            /* of its part */
	int64_t unit;             /* bytes of a displacement */
	struct pager_door *door;  /* where to ask for segments; NULL: they are all there */
	uint64_t key;             /* ... of what */
	struct pager_answer *answers; /* the rank's, to each that asks */
	struct nodelock *lock;    /* what the program locks */
	struct nodelock *atomics; /* operations by processor instructions share it, others have it alone */
	_Atomic bool held;        /* this rank has the first */
	bool exclusive;           /* ... alone */
	_Atomic bool stored;      /* something was put that a flush has to order before what comes later */
	_Atomic bool passed;      /* MPI has been given a lock of its own, for what was left to it */
	_Atomic bool busy;        /* a thread of this process has the second */
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

/* Collective over w->comm, once the window memory is there: ranks open each other's memory. Without
 * the hint for that, w->shm stays NULL. Returns an MPI code, the same at all ranks. */
int shm_open_window(struct window *w, MPI_Aint unit);
/* Copies it there, or from there. false: only MPI can. */
bool shm_put(struct window *w, const struct stretch *s, const void *from);
bool shm_get(struct window *w, const struct stretch *s, void *to);
/* Takes and gives back what the program locks. */
void shm_take(struct shm *shm, struct peer *p, bool exclusive);
void shm_drop(struct shm *shm, struct peer *p);
/* Whether operations on a rank's part may be made at the moment, of epochs of fences too. Brings a lock that was asked for. */
bool shm_may_access(struct window *w, int rank, bool fences);
/* What it says where nothing has to be brought. */
static inline bool shm_is_open(const struct peer *p)
{
	return atomic_load_explicit(&p->access, memory_order_acquire) == ACCESS_OPEN;
}
/* Before MPI gets an operation on a rank's part, and when it has it. */
void shm_pass(struct window *w, int rank);
void shm_note(struct window *w, int rank);

/* A request for what is complete already; false: there is none to be had. */
bool shm_request(const struct window *w, MPI_Request *request);
/* A rank's part could not be reached, for the reason that errno says: tells the program. Returns an MPI code. */
int shm_failed(const struct window *w, int rank);

/* ---- What ranks share beside their parts ---- */

/* How others find it: plain bytes. */
struct control_offer {
	uint64_t dev, ino;
	int32_t pid, fd;         /* fd -1: there is none */
};

/* Makes it, at one rank; closes the descriptor when all have it. */
bool control_make(struct shm *shm, struct control_offer *offer);
void control_hide(const struct control_offer *offer);
/* Maps it, at the others. */
bool control_find(struct shm *shm, const struct control_offer *offer);
void control_close(struct shm *shm);

/* ---- Bytes of a rank's part, in place ---- */

/* For windows that are ours. One for each thread at a time; what is reached last may be held of its owner, or be a copy, which
 * replaces what it is of in the end. */
#define REACH_COPY ((size_t)16 << 10)
struct reach {
	struct shm *shm;
	struct peer *peer;
	bool store;
	struct umhold hold;
	uint64_t from, to;       /* what is held, or copied; to 0: nothing */
	char copy[REACH_COPY];
};

/* What an operation is on: items of a type in a rank's part. */
struct target {
	int rank;
	struct peer *peer;
	struct layout_cursor at;
	uint64_t bytes;          /* of all items */
};

/* false: only MPI can tell. It may be accessed, and lies within the part. */
bool reach_find(struct window *w, struct target *t, MPI_Aint disp, int64_t count, MPI_Datatype type, bool fences);
static inline void reach_begin(struct reach *r, struct shm *shm, int rank, bool store)
{
	r->shm = shm;
	r->peer = &shm->peers[rank];
	r->store = store;
	r->from = r->to = 0;
}

/* Where the bytes from `at` on are; *len becomes as many as are in one piece. Waits until they are in memory. NULL: they
 * cannot be had, and errno says why. */
char *reach_at(struct reach *r, uint64_t at, size_t *len);
/* false: what was stored could not be brought there, and errno says why. */
bool reach_finish(struct reach *r);
static inline bool reach_end(struct reach *r)
{
	return !r->to || reach_finish(r);
}

/* Whether the kernel has to copy the bytes from `at` on. */
static inline bool reach_is_remote(const struct peer *p, uint64_t at)
{
	return p->remote && at >= p->paged_from && !(at >= p->from && at < p->to);
}

/* Those of them that are in one piece, len at most, and the address of the first in their process. */
static inline size_t reach_remote(const struct peer *p, uint64_t at, size_t len, uint64_t *there)
{
	*there = p->remote + (at - p->paged_from);
	return p->to > p->from && at < p->from && len > p->from - at ? p->from - at : len;
}

/* Whether memory may be touched between these. */
bool reach_allows(const struct peer *p, const void *buf, size_t len);

#endif
