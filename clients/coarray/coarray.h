/* SPDX-License-Identifier: BSD-3-Clause */
/* Coarrays that are kept in files, for the calls of programs. */
#ifndef COARRAY_H
#define COARRAY_H

#include <stdbool.h>

/* Returns whether MPI is initialized, and coarrays are kept. */
bool coarray_is_active(void);
/* Does a `sync all` that reaches storage. */
void coarray_sync(void);

#endif
