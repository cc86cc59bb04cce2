/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of the program as adjacent bytes. */
#ifndef LOCAL_H
#define LOCAL_H

#include "rma/layout.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct local {
	char *at;                /* the bytes */
	char *own;               /* memory of this module; NULL: they are the program's */
};

/* Bytes of `count` items; 0: none, or the number is unknown. */
uint64_t local_size(MPI_Datatype type, int64_t count);

/*
 * Makes adjacent bytes of a buffer: in place, if `direct` allows it and they have no gaps, else in
 * memory of this module, which has the program's bytes if `filled`. false: no memory, or the layout
 * is unknown and an item is larger than MPI packs.
 */
bool local_take(struct local *l, const void *buf, MPI_Datatype type, int64_t count, bool direct,
		bool filled);
/* Copies the bytes to the program's buffer, unless they are there. */
void local_return(const struct local *l, void *buf, MPI_Datatype type, int64_t count);
void local_drop(struct local *l);

/*
 * The same for elements of the predefined type of which the datatype consists, as they are in
 * memory: with gaps between them, if the type has gaps.
 */
bool local_take_elements(struct local *l, const void *buf, MPI_Datatype type, int64_t count,
			 const struct basic *b, bool direct, bool filled);
void local_return_elements(const struct local *l, void *buf, MPI_Datatype type, int64_t count,
			   const struct basic *b);

#endif
