/* SPDX-License-Identifier: BSD-3-Clause */
/* libcaf, OpenCoarrays' library between programs of gfortran and MPI. It is a shared library, or a
 * part of the program. */
#ifndef COARRAY_LIBCAF_H
#define COARRAY_LIBCAF_H

#include <stdbool.h>
#include <stddef.h>

/* The functions whose calls of MPI are treated specially. */
enum libcaf_function { LIBCAF_NONE, LIBCAF_REGISTER, LIBCAF_DEREGISTER, LIBCAF_SYNC_IMAGES };

enum libcaf_found {
	LIBCAF_ABSENT,  /* the program has no coarrays */
	LIBCAF_PRESENT, /* libcaf was found */
	LIBCAF_HIDDEN   /* a Fortran program without symbols, which may contain libcaf */
};

/* Finds libcaf; must be called before the other functions. */
enum libcaf_found libcaf_find(void);
/* Returns the function that contains this address. */
enum libcaf_function libcaf_function_at(const void *address);

/* Returns the type of the coarray that this thread registers, such as "real 8", or "" if libcaf is
 * not shared. */
const char *libcaf_type(void);

#endif
