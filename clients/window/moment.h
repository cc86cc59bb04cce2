/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A moment is a numbered sync of all ranks of a job; the manuals call it a checkpoint. Each rank's
 * store is opened through wal+, and ends with a trailer that has the number. After a crash, every
 * rank opens the newest moment that all ranks have.
 */
#ifndef WINDOW_MOMENT_H
#define WINDOW_MOMENT_H

#include "pmpi/error.h"
#include "window/manifest.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Commits that a log keeps: the commit of the common moment, and that of the next moment, which
 * other ranks may lack. */
#define MOMENT_KEEP 2
#define MOMENT_KEY 40

/* The newest moment of one store, and the commits that its log can go back to. */
struct holding {
	bool file;                   /* the store has a file */
	bool synced;                 /* a sync has reached the store */
	uint64_t epoch;              /* number of the moment */
	uint64_t oldest, newest;     /* commit numbers of the log, which begin anew with each log */
};

/* The moments that ranks have in common. */
struct agreement {
	uint64_t common;             /* newest moment that all ranks have */
	uint64_t newest;             /* newest moment that any rank has */
	int behind;                  /* lowest rank that has no newer one than the common moment */
};

/* Maps an entry with its trailer in small segments. NULL with an error. */
char *moment_map(const char *uri, const struct entry *entry, int prot, struct error *e);
/* Reads the trailer and, if the store is opened through wal+ (`logged`), the commit numbers. */
void moment_look(const char *uri, const struct entry *entry, bool logged, struct holding *h,
		 struct error *e);
/* Collective. mine: the moment that this rank can offer; UINT64_MAX: this rank has no store.
 * newest: the newest moment of any of this rank's stores. */
void moment_agree(MPI_Comm comm, uint64_t mine, uint64_t newest, struct agreement *a);
/* The key "wal.commit=N" by which a store opens at a moment; false: its log does not go back so
 * far.
 */
bool moment_key(const struct holding *h, uint64_t epoch, char key[MOMENT_KEY]);

#endif
