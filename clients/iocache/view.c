/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI requires that the blocks of a filetype are in ascending order and do not overlap, so a binary
 * search finds the place of a byte in the file. The layout of a type that rma/layout.c does not
 * support is determined by packing bytes that contain their own offsets.
 */
#include "iocache/view.h"

#include "rma/layout.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PACKED_EXTENT ((MPI_Aint)64 << 20) /* bytes of a type whose layout packing determines */

void view_init(struct view *v)
{
	*v = (struct view){ .etype = 1, .size = 1, .extent = 1 };
}

void view_free(struct view *v)
{
	free(v->runs);
	v->runs = NULL;
}

static struct run *new_runs(size_t n)
{
	return malloc((n + 1) * sizeof(struct run));
}

static bool set_by_layout(struct view *v, const struct layout *l)
{
	int64_t before = 0;

	v->size = (int64_t)l->size;
	v->extent = l->extent;
	if (l->n == 1 && l->blocks->len == (uint64_t)l->extent && l->blocks->at == 0)
		return true;
	v->runs = new_runs(l->n);
	if (!v->runs)
		return false;
	for (v->n = 0; v->n < l->n; v->n++) {
		v->runs[v->n] = (struct run){ l->blocks[v->n].at, before };
		before += (int64_t)l->blocks[v->n].len;
	}
	v->runs[v->n].before = before;
	return true;
}

/* Stores the offset of each byte of a type's data: one pass for each byte of an offset. */
static bool pack_places(MPI_Datatype type, MPI_Aint low, MPI_Aint len, int size,
			unsigned char *bytes, int64_t *place)
{
	unsigned char *packed = bytes + len;

	memset(place, 0, (size_t)size * sizeof(*place));
	for (int digit = 0; digit < 4; digit++) {
		int at = 0;

		for (MPI_Aint i = 0; i < len; i++)
			bytes[i] = (unsigned char)(i >> (8 * digit));
		if (PMPI_Pack(bytes - low, 1, type, packed, size, &at, MPI_COMM_SELF) !=
			    MPI_SUCCESS ||
		    at != size)
			return false;
		for (int i = 0; i < size; i++)
			place[i] |= (int64_t)packed[i] << (8 * digit);
	}
	return true;
}

static bool runs_of(struct view *v, const int64_t *place, MPI_Aint low)
{
	v->runs = new_runs((size_t)v->size);
	if (!v->runs)
		return false;
	for (int64_t i = 0; i < v->size; i++) {
		if (i == 0 || place[i] != place[i - 1] + 1)
			v->runs[v->n++] = (struct run){ low + place[i], i };
	}
	v->runs[v->n].before = v->size;
	return true;
}

static bool set_by_packing(struct view *v, MPI_Datatype type)
{
	MPI_Aint low, len, unused, extent;
	unsigned char *bytes = NULL;
	int64_t *place = NULL;
	bool good = false;
	int size;

	if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size <= 0 ||
	    PMPI_Type_get_true_extent(type, &low, &len) != MPI_SUCCESS || len > MAX_PACKED_EXTENT ||
	    PMPI_Type_get_extent(type, &unused, &extent) != MPI_SUCCESS)
		return false;
	v->size = size;
	v->extent = extent;
	bytes = malloc((size_t)len + (size_t)size);
	place = malloc((size_t)size * sizeof(*place));
	if (bytes && place)
		good = pack_places(type, low, len, size, bytes, place) && runs_of(v, place, low);
	free(bytes);
	free(place);
	return good;
}

bool view_set(struct view *v, int64_t disp, MPI_Datatype etype, MPI_Datatype filetype)
{
	const struct layout *l = layout_of(filetype);
	struct view new = { .disp = disp };
	MPI_Count size, data;

	if (PMPI_Type_size_x(etype, &size) != MPI_SUCCESS || size <= 0 ||
	    PMPI_Type_size_x(filetype, &data) != MPI_SUCCESS)
		return false;
	new.etype = size;
	if (data != 0 && (l ? !set_by_layout(&new, l) : !set_by_packing(&new, filetype))) {
		view_free(&new);
		return false;
	}
	view_free(v);
	*v = new;
	return true;
}

/* The last run that begins at or before byte `data` of an item. */
static size_t find_run(const struct view *v, int64_t data)
{
	size_t low = 0, high = v->n;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (v->runs[middle].before <= data)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int64_t view_place(const struct view *v, int64_t data, int64_t *run)
{
	int64_t item, rest;
	size_t k;

	if (!v->runs) {
		*run = INT64_MAX - v->disp - data;
		return v->disp + data;
	}
	item = data / v->size;
	rest = data % v->size;
	k = find_run(v, rest);
	*run = v->runs[k + 1].before - rest;
	return v->disp + item * v->extent + v->runs[k].at + (rest - v->runs[k].before);
}

bool view_has(const struct view *v, int64_t data)
{
	int64_t item, place;

	if (v->size == 0)
		return true;
	item = v->runs ? data / v->size : data;
	return !__builtin_mul_overflow(item, v->runs ? v->extent : 1, &place) &&
	       !__builtin_add_overflow(place, v->disp, &place) &&
	       !__builtin_add_overflow(place, v->runs ? v->runs[v->n - 1].at + v->size : 0,
				       &place) &&
	       place < INT64_MAX / 2;
}

int64_t view_data(const struct view *v, int64_t size)
{
	int64_t low = 0, high, run;

	if (size <= v->disp || v->size == 0)
		return 0;
	if (!v->runs)
		return size - v->disp;
	/* Places ascend with data, so a binary search finds the end. */
	high = ((size - v->disp) / (v->extent > 0 ? v->extent : 1) + 2) * v->size;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (view_place(v, middle, &run) < size)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
