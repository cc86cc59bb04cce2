/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_SHAPE_H
#define OBJECT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ummap-object.h>

/* A box of elements within an array or a chunk. */
struct box {
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
};

/* With no 0 in chunk, and chunks no longer than the array; -1 with a sentence where it is no shape, or more bytes than there can be. */
int shape_complete(const struct umobject_shape *given, struct umobject_shape *shape);
/* Bytes of the array. */
uint64_t shape_bytes(const struct umobject_shape *shape);
/* Bytes of a box. */
uint64_t box_bytes(const struct umobject_shape *shape, const struct box *box);
/* What two boxes have in common; false: nothing. */
bool box_meet(unsigned rank, const struct box *a, const struct box *b, struct box *common);
bool box_within(const struct umobject_shape *shape, const struct box *box);
/* The chunks that a box touches, by their places in the grid of chunks. */
void shape_grid(const struct umobject_shape *shape, const struct box *box, struct box *grid);
uint64_t shape_number(const struct umobject_shape *shape, const uint64_t *place);

/*
 * Goes over a box within a larger one, both in row-major order, by runs of bytes that stand together in both the outer and
 * another box of other extents: the array in the caller's memory, and a chunk.
 */
struct runs {
	unsigned rank;                      /* of what is left when dimensions that run on were joined */
	size_t run;                         /* bytes of each run */
	uint64_t count[UMOBJECT_RANK_MAX];  /* runs in each dimension */
	uint64_t at[UMOBJECT_RANK_MAX];
	uint64_t step_a[UMOBJECT_RANK_MAX], step_b[UMOBJECT_RANK_MAX]; /* bytes from one to the next */
	uint64_t a, b;                      /* where the run stands now, in bytes */
};

/* The common box within a and within b: the first run is at runs->a and runs->b, and the next one after runs_next, while that is true. */
void runs_begin(struct runs *r, const struct umobject_shape *shape, const struct box *common, const struct box *a, const struct box *b);
bool runs_next(struct runs *r);

#endif
