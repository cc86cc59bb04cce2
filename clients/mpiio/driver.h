/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver mpiio: a share of a file that MPI-IO reads and writes, and what collective syncs do with its handles. */
#ifndef MPIIO_H
#define MPIIO_H

#include "mpiio/layout.h"
#include "mpiio/staging.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

struct mpiio {
	struct mpiio *next;
	char *path;
	char *hints;              /* "name=value;...", as in the URI */
	struct layout layout;
	MPI_File file;            /* this process's own */
	pid_t pid;                /* of the process that has opened it */
	const char *base;         /* what ummpi_open has mapped; NULL: not by that */
	size_t size;
	int fd;                   /* the same file without MPI; -1: it is not one of this machine's */
	_Atomic bool unsynced;    /* something was written to `file` since it was last synced */
	pthread_mutex_t lock;     /* around what follows, never across a call of MPI */
	int failed;               /* of a collective write or sync, for the next flush to tell */
	struct staging staging;
};

/* The handle behind the memory at addr, if ummpi_open has mapped it; NULL: none. */
struct mpiio *mpiio_find(const void *addr);

/* gate_close, if all handles can do without MPI-IO that long. */
bool mpiio_close_gate(void);

/* MPI_Info for hints as in the URI. Returns an MPI code. */
int mpiio_info(const char *hints, MPI_Info *info);

#endif
