/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between buffers of the program and adjacent bytes, by the layout of the datatype. If that
 * is unknown, MPI packs and unpacks: between processes of one kind, it packs the bytes as they are.
 */
#include "rma/local.h"

#include "common/minmax.h"

#include <stdlib.h>
#include <string.h>

uint64_t local_size(MPI_Datatype type, int64_t count)
{
	uint64_t bytes = type_bytes(type, count);
	MPI_Count size;

	if (bytes || count <= 0 || type == MPI_DATATYPE_NULL)
		return bytes;
	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size <= 0 ||
	    __builtin_mul_overflow((uint64_t)size, (uint64_t)count, &bytes))
		return 0;
	return bytes;
}

/* Packs items, or unpacks them (out), in calls for as many as MPI counts the bytes of. */
static bool pack_by_mpi(char *bytes, char *buf, MPI_Datatype type, int64_t count, bool out)
{
	int64_t item = (int64_t)local_size(type, 1), most = item ? LAYOUT_PACKED / item : 0;
	MPI_Aint low, extent;

	if (most == 0 || PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS)
		return false;
	for (int64_t done = 0; done < count;) {
		int n = (int)(count - done < most ? count - done : most), len = (int)(n * item);
		char *packed = bytes + done * item, *items = buf + done * extent;
		int at = 0, code;

		if (out)
			code = PMPI_Unpack(packed, len, &at, items, n, type, MPI_COMM_SELF);
		else
			code = PMPI_Pack(items, n, type, packed, len, &at, MPI_COMM_SELF);
		if (code != MPI_SUCCESS)
			return false;
		done += n;
	}
	return true;
}

/* Copies bytes between two layouts, as many as both have. */
static void copy_layouts(struct layout_cursor to, struct layout_cursor from)
{
	while (to.items > 0 && from.items > 0) {
		uint64_t to_len, from_len, len;
		char *there = (char *)(intptr_t)layout_cursor_address(&to, &to_len);
		const char *here = (char *)(intptr_t)layout_cursor_address(&from, &from_len);

		len = min_u64(to_len, from_len);
		memcpy(there, here, len);
		layout_cursor_advance(&to, len);
		layout_cursor_advance(&from, len);
	}
}

static struct layout_cursor begin_at(const struct layout *l, const void *buf, int64_t count)
{
	return layout_cursor_begin(l, (int64_t)(intptr_t)buf, count);
}

/* Copies items to adjacent elements, or back (out): of b's type, or of bytes if b is NULL. */
static bool pack(char *bytes, char *buf, MPI_Datatype type, int64_t count, const struct basic *b,
		 bool out)
{
	const struct layout *l = layout_of(type), *packed = layout_of(b ? b->type : MPI_BYTE);
	struct layout_cursor there, here;

	if (!l || !packed)
		return !b && pack_by_mpi(bytes, buf, type, count, out);
	there = begin_at(packed, bytes, (int64_t)(local_size(type, count) / packed->size));
	here = begin_at(l, buf, count);
	copy_layouts(out ? here : there, out ? there : here);
	return true;
}

bool local_take(struct local *l, const void *buf, MPI_Datatype type, int64_t count, bool direct,
		bool filled)
{
	uint64_t plain = type_bytes(type, count);

	*l = (struct local){ .at = (char *)buf };
	if (plain && direct)
		return true;
	if (!plain && !layout_of(type) && local_size(type, 1) > (uint64_t)LAYOUT_PACKED)
		return false;
	l->at = l->own = malloc(local_size(type, count));
	if (l->own && filled && !pack(l->at, (char *)buf, type, count, NULL, false))
		local_drop(l);
	return l->own;
}

void local_return(const struct local *l, void *buf, MPI_Datatype type, int64_t count)
{
	if (l->own)
		pack(l->at, buf, type, count, NULL, true);
}

void local_drop(struct local *l)
{
	free(l->own);
	l->own = NULL;
}

bool local_take_elements(struct local *l, const void *buf, MPI_Datatype type, int64_t count,
			 const struct basic *b, bool direct, bool filled)
{
	if (!basic_has_gaps(b))
		return local_take(l, buf, type, count, direct, filled);
	l->at = l->own = calloc(local_size(type, count) / b->size, (size_t)b->extent);
	if (l->own && filled && !pack(l->at, (char *)buf, type, count, b, false))
		local_drop(l);
	return l->own;
}

void local_return_elements(const struct local *l, void *buf, MPI_Datatype type, int64_t count,
			   const struct basic *b)
{
	if (l->own)
		pack(l->at, buf, type, count, basic_has_gaps(b) ? b : NULL, true);
}
