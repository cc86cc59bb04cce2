/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks are numbered in row-major order of their places in the grid. */
#include "object/shape.h"

#include "object/error.h"

#include <string.h>

size_t umobject_type_size(enum umobject_type type)
{
	switch (type) {
	case UMOBJECT_INT8:
	case UMOBJECT_UINT8:
		return 1;
	case UMOBJECT_INT16:
	case UMOBJECT_UINT16:
		return 2;
	case UMOBJECT_INT32:
	case UMOBJECT_UINT32:
	case UMOBJECT_FLOAT:
		return 4;
	case UMOBJECT_INT64:
	case UMOBJECT_UINT64:
	case UMOBJECT_DOUBLE:
		return 8;
	case UMOBJECT_LDOUBLE:
		return sizeof(long double);
	}
	return 0;
}

int shape_complete(const struct umobject_shape *given, struct umobject_shape *shape)
{
	uint64_t bytes = umobject_type_size(given->type);
	unsigned d;

	if (!bytes)
		return object_fail(EINVAL, "cannot use shape.type %d: it must be one of "
				   "UMOBJECT_INT8 to UMOBJECT_LDOUBLE", (int)given->type);
	if (given->rank > UMOBJECT_RANK_MAX)
		return object_fail(EINVAL, "cannot use shape.rank %u: it must be at most %d",
				   given->rank, UMOBJECT_RANK_MAX);
	*shape = (struct umobject_shape){ .type = given->type, .rank = given->rank };
	for (d = 0; d < given->rank; d++) {
		uint64_t dim = given->dims[d], chunk = given->chunk[d];

		if (dim == 0)
			return object_fail(EINVAL, "cannot use shape.dims[%u] = 0: an array has at "
					   "least one element", d);
		if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > INT64_MAX)
			return object_fail(EINVAL, "cannot use shape.dims: the array has more "
					   "bytes than a file can have");
		shape->dims[d] = dim;
		shape->chunk[d] = chunk == 0 || chunk > dim ? dim : chunk;
	}
	return 0;
}

bool shape_equals(const struct umobject_shape *given, const struct umobject_shape *complete)
{
	struct umobject_shape shape;

	return shape_complete(given, &shape) == 0 && memcmp(&shape, complete, sizeof(shape)) == 0;
}

static uint64_t count_bytes(const struct umobject_shape *shape, const uint64_t *count)
{
	uint64_t bytes = umobject_type_size(shape->type);

	for (unsigned d = 0; d < shape->rank; d++)
		bytes *= count[d];
	return bytes;
}

uint64_t shape_bytes(const struct umobject_shape *shape)
{
	return count_bytes(shape, shape->dims);
}

uint64_t box_bytes(const struct umobject_shape *shape, const struct box *box)
{
	return count_bytes(shape, box->count);
}

static uint64_t chunks_along(const struct umobject_shape *shape, unsigned d)
{
	return (shape->dims[d] - 1) / shape->chunk[d] + 1;
}

static uint64_t count_chunks(const struct umobject_shape *shape)
{
	uint64_t n = 1;
	unsigned d;

	for (d = 0; d < shape->rank; d++)
		n *= chunks_along(shape, d);
	return n;
}

uint64_t umobject_chunks(const struct umobject_shape *given)
{
	struct umobject_shape shape;

	return shape_complete(given, &shape) < 0 ? 0 : count_chunks(&shape);
}

uint64_t umobject_chunk(const struct umobject_shape *given, uint64_t number, uint64_t *start,
			uint64_t *count)
{
	struct umobject_shape shape;
	uint64_t elements = 1;
	unsigned d;

	if (shape_complete(given, &shape) < 0 || number >= count_chunks(&shape))
		return 0;
	for (d = shape.rank; d-- > 0;) {
		uint64_t along = chunks_along(&shape, d);

		start[d] = number % along * shape.chunk[d];
		count[d] = min_u64(shape.dims[d] - start[d], shape.chunk[d]);
		number /= along;
		elements *= count[d];
	}
	return elements;
}

struct box shape_chunk(const struct umobject_shape *shape, uint64_t number)
{
	struct box box = { { 0 }, { 0 } };

	umobject_chunk(shape, number, box.start, box.count);
	return box;
}

bool box_meet(unsigned rank, const struct box *a, const struct box *b, struct box *common)
{
	for (unsigned d = 0; d < rank; d++) {
		uint64_t start = max_u64(a->start[d], b->start[d]);
		uint64_t end = min_u64(a->start[d] + a->count[d], b->start[d] + b->count[d]);

		if (start >= end)
			return false;
		common->start[d] = start;
		common->count[d] = end - start;
	}
	return true;
}

bool box_within(const struct umobject_shape *shape, const struct box *box)
{
	for (unsigned d = 0; d < shape->rank; d++)
		if (box->start[d] > shape->dims[d] ||
		    box->count[d] > shape->dims[d] - box->start[d])
			return false;
	return true;
}

void box_copy(const struct umobject_shape *shape, const struct box *part, const char *data,
	      const struct box *from, char *copy, const struct box *to)
{
	struct runs r;

	runs_begin(&r, shape, part, from, to);
	do
		memcpy(copy + r.b, data + r.a, r.run);
	while (runs_next(&r));
}

struct grid grid_begin(const struct umobject_shape *shape, const struct box *box)
{
	struct grid g = { .rank = shape->rank };

	for (unsigned d = 0; d < shape->rank; d++) {
		uint64_t last = (box->start[d] + box->count[d] - 1) / shape->chunk[d];

		g.place[d] = g.box.start[d] = box->start[d] / shape->chunk[d];
		g.box.count[d] = last + 1 - g.place[d];
	}
	return g;
}

bool grid_next(struct grid *g)
{
	for (unsigned d = g->rank; d-- > 0;) {
		if (++g->place[d] < g->box.start[d] + g->box.count[d])
			return true;
		g->place[d] = g->box.start[d];
	}
	return false;
}

uint64_t grid_number(const struct umobject_shape *shape, const struct grid *g)
{
	uint64_t number = 0;

	for (unsigned d = 0; d < shape->rank; d++)
		number = number * chunks_along(shape, d) + g->place[d];
	return number;
}

void runs_begin(struct runs *r, const struct umobject_shape *shape, const struct box *common,
		const struct box *a, const struct box *b)
{
	uint64_t size = umobject_type_size(shape->type), row_a = size, row_b = size;
	bool contiguous = true; /* whether all dimensions so far are whole in both boxes */
	unsigned d, n = 0;

	*r = (struct runs){ .run = size };
	for (d = shape->rank; d-- > 0;) {
		r->a += (common->start[d] - a->start[d]) * row_a;
		r->b += (common->start[d] - b->start[d]) * row_b;
		if (contiguous) {
			r->run *= common->count[d];
		} else {
			r->count[n] = common->count[d];
			r->step_a[n] = row_a;
			r->step_b[n++] = row_b;
		}
		contiguous = contiguous && common->count[d] == a->count[d] &&
			common->count[d] == b->count[d];
		row_a *= a->count[d];
		row_b *= b->count[d];
	}
	r->rank = n;
}

bool runs_next(struct runs *r)
{
	unsigned d;

	for (d = 0; d < r->rank; d++) {
		if (++r->at[d] < r->count[d]) {
			r->a += r->step_a[d];
			r->b += r->step_b[d];
			return true;
		}
		r->a -= r->step_a[d] * (r->count[d] - 1);
		r->b -= r->step_b[d] * (r->count[d] - 1);
		r->at[d] = 0;
	}
	return false;
}
