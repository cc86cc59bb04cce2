/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI windows that the library knows. */
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
	int flavor;            /* value of MPI_WIN_CREATE_FLAVOR */
	bool fencesync;        /* MPI_Win_fence makes the window durable at all ranks */
	bool discarded;        /* MPI_Win_free makes nothing durable at any rank */
	bool alone; /* no rank uses the driver mpiio, by which all ranks write together */
	MPI_Comm comm;         /* communicator of the library; MPI_COMM_NULL: none */
	struct region *region; /* window memory; NULL: none */
	bool lent;             /* the window memory belongs to the caller of window_over */
	struct shared *shared; /* memory of MPI_Win_allocate_shared; NULL: none */
	struct range *ranges;  /* memory that existed before the window */
	struct versioned *versioned; /* object of an object window; NULL: none */
	struct shm *shm;       /* access to memory without MPI (rma/shm.h); NULL: none */
};

/* Entry of the table of recent windows. The key is 0 while the entry changes. */
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

/* Looks up a window that is not in the table. */
struct window *window_look_up(MPI_Win win);

/* The structure of a window; NULL: the window is not the library's. */
static inline struct window *window_of(MPI_Win win)
{
	const struct recent *r = window_place(win);
	uintptr_t key = atomic_load_explicit(&r->key, memory_order_acquire);

	if (key && key == (uintptr_t)win) {
		struct window *w = atomic_load_explicit(&r->w, memory_order_acquire);

		/* The entry has not changed in the meantime. */
		if (atomic_load_explicit(&r->key, memory_order_relaxed) == key)
			return w;
	}
	return window_look_up(win);
}
/* Removes a handle from the table before MPI frees it. */
void window_unlearn(MPI_Win win);
/* Sets the attribute. Returns an MPI code; after an error, w has been freed. */
int window_remember(MPI_Win win, struct window *w);
struct window *window_new(int flavor);
void window_forget(struct window *w);
/* Frees the structure of a window that was never used: its files stay. */
void window_abandon(struct window *w);
/* The hints in use for the window's memory; NULL: it has no memory of the library. */
const struct hints *window_hints(const struct window *w);
bool window_has_storage(const struct window *w);
/* Makes this rank's memory in storage durable. */
void window_sync(struct window *w, struct error *e);
/* Adds memory from which the window is created, or which is attached, if it is in storage. Returns
 * an MPI code. */
int window_add_range(struct window *w, const void *base, size_t size);
void window_remove_range(struct window *w, const void *base);

/* Lets MPI serve other ranks now and then, for calls that are made without MPI. */
void window_progress(const struct window *w);

/* Makes a communicator of the same ranks for the library. Returns an MPI code. */
int window_own_comm(MPI_Comm comm, MPI_Comm *own);

/* ---- allocate.c ---- */

/*
 * Collective: makes a window of memory that each rank has opened, or has failed to open (NULL, with
 * an error). The memory still belongs to the caller, who closes it after MPI_Win_free, or after an
 * error. Returns NULL with an error at all ranks if any rank has one.
 */
struct window *window_over(struct region *region, MPI_Aint unit, MPI_Comm comm, struct error *e);

#endif
