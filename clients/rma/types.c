/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predefined types, and types without gaps. Predefined types never change and never end, so their
 * properties are kept. An entry of the table belongs to the first type that hashes to it. Lock: for
 * new entries.
 */
#include "rma/layout.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct type_entry type_table[TYPE_PLACES];

/* ---- Predefined types ---- */

bool type_is_one_of(MPI_Datatype type, const MPI_Datatype *types, size_t n)
{
	size_t i = 0;

	while (i < n && types[i] != type)
		i++;
	return i < n;
}

static enum kind kind_of(MPI_Datatype type)
{
	const MPI_Datatype is_signed[] = {
		MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T,
		MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT,
		MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8,
	};
	const MPI_Datatype is_unsigned[] = {
		MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
		MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
	};
	const MPI_Datatype is_float[] = {
		MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8,
	};

	if (type_is_one_of(type, is_signed, sizeof(is_signed) / sizeof(*is_signed)))
		return KIND_SIGNED;
	if (type_is_one_of(type, is_unsigned, sizeof(is_unsigned) / sizeof(*is_unsigned)))
		return KIND_UNSIGNED;
	if (type_is_one_of(type, is_float, sizeof(is_float) / sizeof(*is_float)))
		return KIND_FLOAT;
	return type == MPI_BYTE ? KIND_BYTE : KIND_OTHER;
}

static bool ask_mpi(MPI_Datatype type, struct basic *b)
{
	MPI_Aint low, extent;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS)
		return false;
	*b = (struct basic){ type, (uint64_t)size, extent, kind_of(type) };
	return low == 0 && size > 0;
}

static void keep_basic(const struct basic *b, struct type_entry *e)
{
	pthread_mutex_lock(&lock);
	if (!atomic_load(&e->key)) {
		e->basic = *b;
		atomic_store_explicit(&e->key, (uintptr_t)b->type, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

bool type_basic(MPI_Datatype type, struct basic *b)
{
	const struct basic *known = type_known(type);
	int integers, addresses, types, combiner;

	if (known) {
		*b = *known;
		return true;
	}
	if (type == MPI_DATATYPE_NULL ||
	    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
	    !type_is_predefined(combiner) || !ask_mpi(type, b))
		return false;
	keep_basic(b, type_entry(type));
	return true;
}

/* ---- Types without gaps ---- */

/* Bytes of an item, if it has no gaps; else 0. Only types whose extents say so are taken apart. */
static uint64_t item_bytes(MPI_Datatype type)
{
	MPI_Aint low, extent, true_low, true_extent;
	const struct layout *l;
	MPI_Count size;

	if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS || extent != size ||
	    PMPI_Type_get_true_extent(type, &true_low, &true_extent) != MPI_SUCCESS ||
	    true_low != 0 || true_extent != size)
		return 0;
	l = layout_of(type);
	return l && l->n == 1 ? l->size : 0;
}

uint64_t type_bytes(MPI_Datatype type, int64_t count)
{
	const struct basic *b = type_known(type);
	uint64_t item, bytes;

	if (count <= 0)
		return 0;
	if (b)
		item = basic_has_gaps(b) ? 0 : b->size;
	else
		item = item_bytes(type);
	return !__builtin_mul_overflow(item, (uint64_t)count, &bytes) ? bytes : 0;
}
