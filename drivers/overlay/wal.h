/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the filter wal+ share: its handle. wal.c opens and closes logs, wal_apply.c
 * applies commits, and wal_handover.c hands stores over.
 */
#ifndef DRIVERS_OVERLAY_WAL_H
#define DRIVERS_OVERLAY_WAL_H

#include "background.h"

#define WAL_SUFFIX ".wal"
#define WAL_MUCH ((uint64_t)64 << 20) /* bytes of waiting blocks that are applied at once */

/* Whether wal.size leaves no room for the changes since the last sync. */
enum wal_full { WAL_FITS, WAL_FULL_UNREPORTED, WAL_FULL_REPORTED };

/* The handle that the store was handed over to: none, one with the same log, or another one. */
enum wal_handed { WAL_NOT_HANDED, WAL_HANDED_LOG, WAL_HANDED_STORE };

struct wal {
	struct overlay o;              /* the first member; file.h NULL: there is no log */
	struct background background;
	uint64_t size_limit;           /* bytes of the log; UINT64_MAX: none */
	_Atomic uint64_t home;         /* number of the commit that the store has */
	_Atomic bool committed;        /* by this handle */
	_Atomic uint8_t full;          /* enum wal_full */
	bool reported;                 /* whether a failure to apply commits was reported */
	enum wal_handed handed;
	char store[PATH_MAX];          /* argument of the command `ummap wal`; "": unknown */
};

/* For tests: replaces the computed bound of the log's length unless it is 0. */
extern uint64_t wal_fixed_bound;

/* ---- wal_apply.c ---- */

extern const struct background_calls wal_background_calls;
/* Applies commits, and waits for it. Returns whether commits were applied. */
bool wal_make_room(struct overlay *o);
/* The calls make_room and has_written of a policy. */
bool wal_make_room_for_write(struct overlay *o);
void wal_wait_at_bound(struct overlay *o);
/* Applies all commits, so that only the newest one may be opened. The thread must not run a pass
 * meanwhile. */
int wal_apply_all(struct overlay *o);

/* ---- wal.c ---- */

/* Removes the log, whose commits are in the store. */
int wal_remove_log(struct wal *w);

/* ---- wal_handover.c ---- */

int wal_hand_over(void *h, struct ummap_handover *to);
/* Ends a handle that was handed over. */
void wal_end_handed(struct wal *w);

#endif
