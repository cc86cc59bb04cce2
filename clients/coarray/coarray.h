/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls.c needs of coarray.c. */
#ifndef COARRAY_H
#define COARRAY_H

#include <stdbool.h>

/* MPI has begun, and coarrays are to be kept. */
bool coarray_active(void);
/* A `sync all` that reaches storage. */
void coarray_sync(void);

#endif
