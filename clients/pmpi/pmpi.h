/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI calls on their way from the program to MPI. A feature takes some of them: it has a function
 * for each, which gets the program's arguments with counts of any size, and calls the same function
 * of `next` to pass the call on. Several features may take one call. To take another call, add a
 * line to pmpi/calls. To add a feature, add a file with a struct pmpi_feature, and a place below.
 *
 * The library makes its own MPI calls by PMPI_, so that no feature and no tool sees them.
 */
#ifndef PMPI_H
#define PMPI_H

#include "pmpi/calls.h"

#include <stddef.h>

/* The order from the program to MPI. Two features of one place have no call in common. */
enum pmpi_place {
	PMPI_COARRAY,   /* coarrays */
	PMPI_TOGETHER,  /* collective writes of all ranks' windows, which need the windows */
	PMPI_MERGES,    /* epochs with an operation, which make puts accumulates */
	PMPI_RMA,       /* access to window memory without MPI, which needs the windows */
	PMPI_WINDOWS,   /* window memory */
	PMPI_FILES,     /* the MPI-IO cache */
	PMPI_BUFFERS,   /* MPI-IO buffers in windows */
	PMPI_LAST       /* calls that only one feature takes */
};

struct pmpi_feature {
	enum pmpi_place place;      /* its place in the order */
	struct pmpi_calls take;     /* functions of the calls that it takes; NULL: it does not */
	struct pmpi_calls next;     /* functions that pass each call on; pmpi_register sets them */
	struct pmpi_feature *below; /* next feature in the order; pmpi_register sets it */
};

/* Called when the library is loaded, by PMPI_FEATURE. */
void pmpi_register(struct pmpi_feature *f);

#define PMPI_FEATURE(feature) \
	__attribute__((constructor)) static void register_##feature(void)                         \
	{                                                                                         \
		pmpi_register(&feature);                                                          \
	}

/*
 * Return address of this thread's last call of those that pmpi/calls marks "from"; NULL: the call
 * came from Fortran.
 */
extern _Thread_local const void *pmpi_caller __attribute__((visibility("hidden")));

/* ---- For entry points ---- */

/* The first function of each call. */
extern struct pmpi_calls pmpi_first;
/* Functions that call MPI. */
extern const struct pmpi_calls pmpi_mpi;

/*
 * Replaces each of n functions by the next function of its name behind this library. A function
 * without one stays.
 */
void pmpi_find_next(void *functions, const char *const *names, size_t n);

#endif
