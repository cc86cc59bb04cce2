/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of libcaf, OpenCoarrays' library between gfortran's programs and MPI, shared or part of the program. */
#ifndef COARRAY_LIBCAF_H
#define COARRAY_LIBCAF_H

#include <stdbool.h>
#include <stddef.h>

/* Its functions that call MPI for something that coarrays have to know of. */
enum libcaf_function { LIBCAF_NONE, LIBCAF_REGISTER, LIBCAF_DEREGISTER, LIBCAF_SYNC_IMAGES };

enum libcaf_found {
	LIBCAF_ABSENT,      /* a program without coarrays */
	LIBCAF_PRESENT,
	LIBCAF_HIDDEN       /* a Fortran program whose symbols were removed: it may have one */
};

/* Once, before any of what follows. */
enum libcaf_found libcaf_find(void);
/* Whose instruction that is. */
enum libcaf_function libcaf_function_at(const void *address);

/* The type of the coarray that this thread is registering, such as "real 8", where libcaf is shared; else "". */
const char *libcaf_type(void);

#endif
