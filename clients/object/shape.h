/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic of arrays that are divided into chunks. */
#ifndef OBJECT_SHAPE_H
#define OBJECT_SHAPE_H

#include "common/minmax.h"

#include <stdbool.h>
#include <ummap-object.h>

/* A box of elements within an array, or of chunks within the grid of chunks. */
struct box {
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
};

/* Checks a shape, and completes it: no 0 in chunk, and no chunk longer than the array. */
int shape_complete(const struct umobject_shape *given, struct umobject_shape *shape);
/* Whether a shape, once completed, equals a complete one. */
bool shape_equals(const struct umobject_shape *given, const struct umobject_shape *complete);

/* All shapes below must be complete. */

/* Bytes of the array. */
uint64_t shape_bytes(const struct umobject_shape *shape);
/* The box of an existing chunk. */
struct box shape_chunk(const struct umobject_shape *shape, uint64_t number);
/* Bytes of a box; 0: it is empty. */
uint64_t box_bytes(const struct umobject_shape *shape, const struct box *box);
/* Finds the elements that two boxes have in common. Returns false if there are none. */
bool box_meet(unsigned rank, const struct box *a, const struct box *b, struct box *common);
bool box_within(const struct umobject_shape *shape, const struct box *box);
/* Copies the box `part` from memory with the elements of `from` to memory with those of `to`. */
void box_copy(const struct umobject_shape *shape, const struct box *part, const char *data,
	      const struct box *from, char *copy, const struct box *to);

/* The chunks that a box touches, in the order of their numbers. */
struct grid {
	unsigned rank;
	struct box box;                    /* their places in the grid of chunks */
	uint64_t place[UMOBJECT_RANK_MAX]; /* current place */
};

/* Begins with the first chunk that a box touches, which must not be empty. */
struct grid grid_begin(const struct umobject_shape *shape, const struct box *box);
bool grid_next(struct grid *g);
/* Number of the current chunk. */
uint64_t grid_number(const struct umobject_shape *shape, const struct grid *g);

/*
 * Visits the elements of a box that lies in two larger boxes a and b, all in row-major order, as
 * runs of bytes that are contiguous in both. Example: b is a chunk, and a is the caller's array.
 */
struct runs {
	unsigned rank;                     /* number of dimensions, without those within a run */
	size_t run;                        /* bytes of each run */
	uint64_t count[UMOBJECT_RANK_MAX]; /* number of runs in each dimension, innermost first */
	uint64_t at[UMOBJECT_RANK_MAX];    /* index of the current run */
	uint64_t step_a[UMOBJECT_RANK_MAX], step_b[UMOBJECT_RANK_MAX]; /* bytes to the next run */
	uint64_t a, b;                     /* offsets of the current run in the two boxes */
};

void runs_begin(struct runs *r, const struct umobject_shape *shape, const struct box *common,
		const struct box *a, const struct box *b);
bool runs_next(struct runs *r);

#endif
