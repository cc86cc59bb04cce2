/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of a filter that applies commits to the store: if nothing was committed for a second,
 * if many blocks wait, or if a writer has found no free slot. A block that changes again in the
 * meantime is applied once.
 */
#ifndef DRIVERS_OVERLAY_BACKGROUND_H
#define DRIVERS_OVERLAY_BACKGROUND_H

#include <pthread.h>

#include "overlay.h"

/* Whether the limit leaves no room for the changes since the oldest commit that is kept. */
enum overlay_full { OVERLAY_FITS, OVERLAY_FULL_UNREPORTED, OVERLAY_FULL_REPORTED };

struct background {
	uint64_t size_limit;           /* bytes of the file; UINT64_MAX: none */
	pthread_t thread;
	bool is_running;
	bool reported;                 /* whether a failure to apply commits was reported */
	_Atomic bool stop;
	_Atomic uint32_t news;         /* changes when the thread must look for work */
	_Atomic uint64_t asked;        /* requests for free slots */
	_Atomic uint32_t passes;       /* passes that have ended */
	_Atomic uint64_t successes;    /* passes that have applied commits */
	_Atomic uint32_t passing;      /* lock, held during a pass; a holder stops all passes */
	_Atomic uint64_t failed_at;    /* seconds when the last pass failed; 0: it did not */
	_Atomic uint64_t home;         /* number of the commit that the store has */
	_Atomic uint8_t full;          /* enum overlay_full */
};

/* The handle of a filter with such a thread begins with these members. */
struct background_handle {
	struct overlay o;
	struct background background;
};

/* For tests: replaces the computed bound of the file's length unless it is 0. */
extern uint64_t background_fixed_bound;

/* Starts the thread of a loaded overlay, whose file may have so many bytes. All errors have a
 * message. */
int background_start(struct overlay *o, uint64_t size_limit, struct ummap_geom *geom);
/* Ends the thread. No pass begins after this call has begun. */
void background_stop(struct overlay *o);
/* Has the thread look for work; may be called in a signal handler. */
void background_wake(struct overlay *o);
/* Has the thread apply commits, and waits for it. Returns whether it has applied any. */
bool background_make_room(struct overlay *o);
/* Applies all commits, so that only the newest one may be opened. The caller holds `passing`, or
 * has stopped the thread. */
int background_apply_all(struct overlay *o);

/* The calls make_room and has_written of a policy: writes that find no slot, or that bring the file
 * to its bound, wait for a pass. */
bool background_make_room_for_write(struct overlay *o);
void background_wait_at_bound(struct overlay *o);

#endif
