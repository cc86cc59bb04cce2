/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library knows of an MPI window. */
#ifndef WINDOW_H
#define WINDOW_H

#include "window/region.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range;
struct shared;
struct versioned;
struct shm;

struct window {
	MPI_Win win;
	int flavor;            /* what MPI_WIN_CREATE_FLAVOR is to say */
	bool fencesync;        /* MPI_Win_fence makes it durable, at all ranks */
	bool discarded;        /* no rank has anything to make durable when it ends */
	bool alone;            /* no rank has a share of a file that all write together */
	MPI_Comm comm;         /* ours, for MPI_Win_free; MPI_COMM_NULL where that has nothing to agree on */
	struct region *region; /* made with the window; NULL: none */
	bool lent;             /* the window memory belongs to the caller of window_over */
	struct shared *shared; /* the same for MPI_Win_allocate_shared */
	struct range *ranges;  /* memory that was there before: created from, or attached */
	struct versioned *versioned; /* an object window's; NULL: it is none */
	struct shm *shm;       /* parts that are reached without MPI (rma/); NULL: none */
};

/* One of those that were asked for last. The key is 0 while the rest changes. */
struct recent {
	_Atomic uintptr_t key;
	struct window *_Atomic w;
};

#define WINDOW_PLACES 64
extern struct recent window_recent[WINDOW_PLACES] __attribute__((visibility("hidden")));

static inline struct recent *window_place(MPI_Win win)
{
	return &window_recent[((uintptr_t)win * 0x9E3779B97F4A7C15ull) >> 58];
}

/* For those that it has not. */
struct window *window_look_up(MPI_Win win);

/* NULL: a window that is none of ours. Every operation asks. */
static inline struct window *window_of(MPI_Win win)
{
	const struct recent *r = window_place(win);
	uintptr_t key = atomic_load_explicit(&r->key, memory_order_acquire);

	if (key && key == (uintptr_t)win) {
		struct window *w = atomic_load_explicit(&r->w, memory_order_acquire);

		/* Nobody has put another one there meanwhile. */
		if (atomic_load_explicit(&r->key, memory_order_relaxed) == key)
			return w;
	}
	return window_look_up(win);
}
/* Before a handle goes. */
void window_unlearn(MPI_Win win);
/* Frees w if it cannot be remembered. Returns an MPI code. */
int window_remember(MPI_Win win, struct window *w);
struct window *window_new(int flavor);
void window_forget(struct window *w);
/* The same for one that never was: files stay. */
void window_abandon(struct window *w);
/* The hints in use for what was made with it; NULL: that is nothing. */
const struct hints *window_hints(const struct window *w);
bool window_has_storage(const struct window *w);
/* Makes what is ours of it durable here. */
void window_sync(struct window *w, struct error *e);
/* Memory that windows are created from, or that is attached to them: noted if it is in storage. */
int window_add_range(struct window *w, const void *base, size_t size);
void window_remove_range(struct window *w, const void *base);

/* For calls that do without MPI: every so often, MPI gets its turn to serve others. */
void window_progress(const struct window *w);

/* A communicator of the same ranks, for the layer alone. */
int window_own_comm(MPI_Comm comm, MPI_Comm *own);

#endif
