/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI packs and unpacks what has gaps. Between processes of one kind, what it packs are the bytes themselves. */
#include "rma/local.h"

#include <limits.h>
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

/* From the program's memory to ours, or back; in calls for so many items as MPI can count the bytes of. */
static bool pack_at(char *bytes, char *buf, MPI_Datatype type, int64_t count, bool out)
{
	int64_t item = (int64_t)local_size(type, 1), most = item ? LAYOUT_PACKED / item : 0;
	MPI_Aint low, extent;

	if (most == 0 || PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS)
		return false;
	for (int64_t done = 0; done < count;) {
		int n = (int)(count - done < most ? count - done : most), len = (int)(n * item), at = 0, code;

		if (out)
			code = PMPI_Unpack(bytes + done * item, len, &at, buf + done * extent, n, type, MPI_COMM_SELF);
		else
			code = PMPI_Pack(buf + done * extent, n, type, bytes + done * item, len, &at, MPI_COMM_SELF);
		if (code != MPI_SUCCESS)
			return false;
		done += n;
	}
	return true;
}

/* MPICH takes no MPI_BOTTOM there: then the same type counts from somewhere else. */
static bool pack(char *bytes, char *buf, MPI_Datatype type, int64_t count, bool out)
{
	static char anchor;
	MPI_Aint back = -(MPI_Aint)(intptr_t)&anchor, low, extent;
	MPI_Datatype moved, sized;
	bool good = false;
	int one = 1;

	if (buf)
		return pack_at(bytes, buf, type, count, out);
	if (PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS ||
	    PMPI_Type_create_hindexed(1, &one, &back, type, &moved) != MPI_SUCCESS)
		return false;
	if (PMPI_Type_create_resized(moved, 0, extent, &sized) == MPI_SUCCESS) {
		PMPI_Type_commit(&sized);
		good = pack_at(bytes, &anchor, sized, count, out);
		PMPI_Type_free(&sized);
	}
	PMPI_Type_free(&moved);
	return good;
}

bool local_take(struct local *l, const void *buf, MPI_Datatype type, int64_t count, bool direct, bool filled)
{
	uint64_t plain = type_bytes(type, count), bytes = local_size(type, count);

	*l = (struct local){ .at = (char *)buf };
	if (plain && direct)
		return true;
	if (!plain && local_size(type, 1) > (uint64_t)LAYOUT_PACKED)
		return false;
	l->at = l->own = malloc(bytes);
	if (!l->own)
		return false;
	if (!filled)
		return true;
	if (plain)
		memcpy(l->at, buf, bytes);
	else if (!pack(l->at, (char *)buf, type, count, false))
		local_drop(l);
	return l->own;
}

void local_return(const struct local *l, void *buf, MPI_Datatype type, int64_t count)
{
	if (!l->own)
		return;
	if (type_bytes(type, count))
		memcpy(buf, l->at, type_bytes(type, count));
	else
		pack(l->at, buf, type, count, true);
}

void local_drop(struct local *l)
{
	free(l->own);
	l->own = NULL;
}

/* ---- Elements ---- */

/* n elements that are packed, as they are in memory. */
static bool spread(struct local *l, const struct basic *b, uint64_t n)
{
	struct local packed = *l;
	int at = 0;

	l->at = l->own = n * (uint64_t)b->extent <= INT_MAX ? calloc(n, (size_t)b->extent) : NULL;
	if (l->own && packed.at)
		PMPI_Unpack(packed.at, (int)(n * b->size), &at, l->at, (int)n, b->type, MPI_COMM_SELF);
	local_drop(&packed);
	return l->own;
}

bool local_take_elements(struct local *l, const void *buf, MPI_Datatype type, int64_t count, const struct basic *b, bool direct,
			 bool filled)
{
	if (!basic_has_gaps(b))
		return local_take(l, buf, type, count, direct, filled);
	*l = (struct local){ 0 };
	return (!filled || local_take(l, buf, type, count, false, true)) && spread(l, b, local_size(type, count) / b->size);
}

void local_return_elements(const struct local *l, void *buf, MPI_Datatype type, int64_t count, const struct basic *b)
{
	uint64_t bytes = local_size(type, count);
	struct local packed;
	int at = 0;

	if (!basic_has_gaps(b)) {
		local_return(l, buf, type, count);
		return;
	}
	packed.at = packed.own = malloc(bytes);
	if (packed.own)
		PMPI_Pack(l->at, (int)(bytes / b->size), b->type, packed.at, (int)bytes, &at, MPI_COMM_SELF);
	local_return(&packed, buf, type, count);
	local_drop(&packed);
}
