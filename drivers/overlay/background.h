/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of a filter with an overlay. It runs passes, each of which moves contents from the
 * overlay to the store: if nothing was committed for a second, if much has gathered, or if a writer
 * has found no free slot. Contents that change again in the meantime are moved once.
 */
#ifndef DRIVERS_OVERLAY_BACKGROUND_H
#define DRIVERS_OVERLAY_BACKGROUND_H

#include <pthread.h>

#include "overlay.h"

/* The functions of the filter, which are called by the thread only. */
struct background_calls {
	/* Runs a pass. Returns whether it has moved anything, or a negative errno value. */
	int (*pass)(struct overlay *o);
	uint64_t (*count_waiting)(struct overlay *o);  /* bytes that a pass would move */
	void (*notify)(struct overlay *o);             /* reports what writers have noted */
};

struct background {
	const struct background_calls *calls;
	struct overlay *o;
	uint64_t much;                 /* waiting bytes that begin a pass at once */
	pthread_t thread;
	bool is_running;
	_Atomic uint32_t news;         /* changes when the thread must look for work */
	_Atomic bool stop;
	_Atomic uint64_t asked;        /* requests for free slots */
	_Atomic uint32_t passes;       /* passes that have ended */
	_Atomic uint64_t moves;        /* passes that have moved something */
	_Atomic uint32_t passing;      /* lock, held during a pass; a holder stops all passes */
	_Atomic uint64_t failed_at;    /* time when the last pass failed, in seconds; 0: it did not */
};

/* Starts the thread. The caller has set calls, o and much. All errors have a message. */
int background_start(struct background *b, struct ummap_geom *geom);
/* Ends the thread. No pass begins after this call has begun. */
void background_stop(struct background *b);
/* Has the thread look for work; may be called in a signal handler. */
void background_wake(struct background *b);
/* Has the thread run a pass, and waits for it. Returns whether a pass has moved something. */
bool background_make_room(struct background *b);

#endif
