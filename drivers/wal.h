/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the filter wal+ share: its handle. wal.c has the calls, wal_home.c the thread that brings home. */
#ifndef DRIVERS_WAL_H
#define DRIVERS_WAL_H

#include <limits.h>
#include <pthread.h>

#include "behind.h"
#include "blockmap.h"
#include "held.h"
#include "notice.h"
#include "wal_log.h"

#define WAL_FLIGHTS 4          /* requests to the store that are under way at a time, while committed blocks are brought home */
#define WAL_RUN (WAL_BLOCKS_MAX * WAL_BLOCK)
#define WAL_BUFFER ((WAL_FLIGHTS + 1) * WAL_RUN)

enum wal_full { WAL_FITS, WAL_FULL_UNTOLD, WAL_FULL_TOLD };

/* Whether the store was handed over: it was not; to a handle that uses the same log; to a handle
 * that does not use this log. */
enum wal_handed { WAL_NOT_HANDED, WAL_HANDED_LOG, WAL_HANDED_STORE };

struct wal {
	struct behind home;            /* the store */
	struct wal_log log;            /* file.h NULL: read-only, and there is none */
	struct blockmap index;         /* places of blocks that are not at home, or may not be */
	bool writable, grows, async;
	unsigned keep;
	char store[PATH_MAX];          /* as `ummap wal` takes it; "": it has no path */
	_Atomic uint64_t size;         /* of the store, what is in the log included */
	_Atomic bool committed;        /* by this handle */
	_Atomic uint32_t odd;          /* around writes of parts of blocks; outside the log's lock */
	char *block;                   /* one, under `odd` */
	/* Readers of the log: each counts in the one of two numbers that is in use. */
	_Atomic unsigned counting;
	_Atomic uint64_t readers[2];
	/* The thread. */
	pthread_t thread;
	bool has_thread;
	char *buffer;                  /* its own; WAL_BUFFER bytes */
	_Atomic uint32_t word;         /* goes up when there is something to see */
	_Atomic bool stop;
	_Atomic uint64_t asked;        /* for room, so many times */
	_Atomic uint32_t served;       /* so many passes have ended */
	_Atomic uint64_t freed;        /* passes that have given back room */
	_Atomic uint32_t passing; /* a lock: held for a pass of the thread, and while the store is
				     handed over */
	enum wal_handed handed;
	struct notice notice;
	_Atomic uint8_t full;          /* enum wal_full: whether wal.size was too small */
	bool told;                     /* the thread's: that bringing home fails */
	_Atomic uint64_t failed_at;    /* when it has failed last, in seconds from 1; 0: the last time it has not */
	struct held held[HELD_MAX];
};

/* Reading the log: what the index says stays true from enter to leave. */
unsigned wal_enter(struct wal *w);
void wal_leave(struct wal *w, unsigned ticket);

int wal_start_thread(struct wal *w, struct ummap_geom *geom);
void wal_stop_thread(struct wal *w);
/* There is a new commit. */
void wal_tell(struct wal *w);
/* Has the thread bring home what it may, and waits for it; whether that has made room. */
bool wal_make_room(struct wal *w);
/* wal.size leaves no room for what is not committed: the thread tells it, once. */
void wal_tell_full(struct wal *w);
/* Bytes up to which the log's file may grow while committed records can make way: 4 times the store
 * or 256 MiB, whichever is more, but at most wal.size. */
uint64_t wal_bound(const struct wal *w);
/* For tests: replaces the computed bound unless it is 0. */
extern uint64_t wal_fixed_bound;
/* Brings home what may be; by one thread at a time. */
int wal_bring_home(struct wal *w);

/* The driver's call hand_over, and the end of a handle that was handed over. */
int wal_hand_over(void *h, struct ummap_handover *to);
void wal_end_handed(struct wal *w);

#endif
