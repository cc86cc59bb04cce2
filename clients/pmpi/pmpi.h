/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of MPI on their way from the program. A feature takes some of them: it has a function for each, which is given what
 * the program has passed, with counts of any size, and calls the same one of `next` if MPI is to do it. Several features may
 * take one call. A call that is to be taken for the first time is a line in pmpi/calls; another feature is a file with a
 * struct pmpi_feature, and its place in the order below.
 *
 * What the library wants of MPI for itself it calls by PMPI_, and no feature and no tool sees it.
 */
#ifndef PMPI_H
#define PMPI_H

#include "pmpi/calls.h"

#include <stddef.h>

/* From the program to MPI. Two of one place have no call in common. */
enum pmpi_place {
	PMPI_COARRAY,   /* windows that are coarrays */
	PMPI_TOGETHER,  /* what all ranks write together, as long as windows are there */
	PMPI_MERGES,    /* epochs with an operation: puts that are accumulates */
	PMPI_RMA,       /* copies, in the place of operations of windows that are there */
	PMPI_WINDOWS,
	PMPI_FILES,     /* that have a cache */
	PMPI_BUFFERS,   /* of MPI-IO */
	PMPI_LAST       /* what is taken by one feature only */
};

struct pmpi_feature {
	enum pmpi_place place;
	struct pmpi_calls take;     /* NULL: not this one */
	struct pmpi_calls next;     /* filled in, all of them */
	struct pmpi_feature *below; /* the same */
};

/* When the library is loaded: see PMPI_FEATURE. */
void pmpi_register(struct pmpi_feature *f);

#define PMPI_FEATURE(feature) \
	__attribute__((constructor)) static void register_##feature(void) { pmpi_register(&feature); }

/* Where this thread's last call came from, of those for which pmpi/calls says "from"; NULL: from
 * Fortran. */
extern _Thread_local const void *pmpi_caller __attribute__((visibility("hidden")));

/* ---- For what is made from pmpi/calls, and for Fortran's calls beside it ---- */

/* Where calls of the program go. */
extern struct pmpi_calls pmpi_first;
/* MPI's own. */
extern const struct pmpi_calls pmpi_mpi;

/* Puts the function that comes behind this library by each name in the place of that of n functions; where there is none,
 * that stays. */
void pmpi_find_next(void *functions, const char *const *names, size_t n);

#endif
