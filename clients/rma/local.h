/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program passes to an operation, as bytes one behind the other. */
#ifndef LOCAL_H
#define LOCAL_H

#include "rma/layout.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct local {
	char *at;
	char *own;               /* memory of ours; NULL: it is the program's */
};

/* Bytes of count items; 0: none, or nobody can tell. */
uint64_t local_size(MPI_Datatype type, int64_t count);
/* As bytes: in place, where they are and `direct` allows it, else in memory of ours, with the program's bytes in it if
 * `filled`. false: there is no memory, or an item is larger than MPI packs. */
bool local_take(struct local *l, const void *buf, MPI_Datatype type, int64_t count, bool direct, bool filled);
/* Gives them to the program. */
void local_return(const struct local *l, void *buf, MPI_Datatype type, int64_t count);
void local_drop(struct local *l);

/* The same as elements of a predefined type, of which the datatype is made: as they are in memory, with gaps where they have some. */
bool local_take_elements(struct local *l, const void *buf, MPI_Datatype type, int64_t count, const struct basic *b, bool direct,
			 bool filled);
void local_return_elements(const struct local *l, void *buf, MPI_Datatype type, int64_t count, const struct basic *b);

#endif
