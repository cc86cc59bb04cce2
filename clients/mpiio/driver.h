/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver mpiio: handles of a store in a file of MPI-IO, and the gate in front of MPI-IO. */
#ifndef MPIIO_DRIVER_H
#define MPIIO_DRIVER_H

#include "mpiio/staging.h"
#include "mpiio/stripes.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <ummap-driver.h>

struct mpiio_handle {
	struct mpiio_handle *next;
	char *path;               /* name of the file */
	char *hints;              /* hints of MPI-IO, "name=value;..." */
	struct stripes stripes;   /* the bytes of the file that the store has */
	MPI_File file;            /* the file, opened by this process alone */
	int fd;                   /* the same file without MPI; -1: the kernel does not know it */
	pid_t pid;                /* process that has opened the handle */
	pthread_t opener;         /* thread that has opened the handle */
	uint64_t number;          /* number of the handle, in the order of opening */
	const char *base;         /* mapping of ummpi_open; NULL: none */
	size_t size;              /* bytes of this mapping */
	_Atomic bool is_unsynced; /* whether the file has data that no sync has made durable */
	_Atomic bool is_lost;     /* whether written data may be lost: the next flush reports it */
	pthread_mutex_t drain;    /* held while staged writes are written; taken before `lock` */
	pthread_mutex_t lock;     /* protects staging; no call of MPI is made with it */
	struct staging staging;   /* writes that are not in the file */
};

/* Returns the handle behind the mapping of ummpi_open that has this address, or NULL. */
struct mpiio_handle *mpiio_find(const void *addr);

/*
 * Closes the gate: waits until the threads that use MPI-IO have left it. Until mpiio_open_gate,
 * which the same thread must call, transfers of all handles make no call of MPI-IO. Returns false
 * if the gate is closed already, or if a handle cannot be read without MPI-IO.
 */
bool mpiio_close_gate(void);
void mpiio_open_gate(void);

/* Makes an info object from the hints of a handle. Returns an MPI error code. */
int mpiio_make_info(const char *hints, MPI_Info *info);

/* ---- collective.c ---- */

/*
 * Writes the changes of [base, base + len), a mapping of the handle h; NULL: this rank has nothing
 * to write. must_not: this rank has a mapping that cannot be written collectively. If the mappings
 * of all ranks are not the stripes of one file, no rank writes. An error may leave data in the
 * staging buffer or in a file that is not synced, so the caller must sync the mapping in any case.
 */
void write_collectively(MPI_Comm comm, struct mpiio_handle *h, bool must_not, char *base,
			size_t len, struct error *e);

#endif
