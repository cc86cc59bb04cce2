/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predefined types, and those that MPI_Type_contiguous and MPI_Type_dup make of them. Predefined types never change and
 * never go, so what is known of one is kept; a place in the table belongs to the first that comes. Lock: around new
 * entries.
 */
#include "rma/layout.h"

#include <pthread.h>
#include <stdatomic.h>

/* Types of types of types. */
#define DEPTH 8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct type_entry type_table[TYPE_PLACES];

/* ---- Predefined types ---- */

static bool is_among(MPI_Datatype type, const MPI_Datatype *types, size_t n)
{
	size_t i = 0;

	while (i < n && types[i] != type)
		i++;
	return i < n;
}

static enum kind kind_of(MPI_Datatype type)
{
	const MPI_Datatype is_signed[] = {
		MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T,
		MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8,
	};
	const MPI_Datatype is_unsigned[] = {
		MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
		MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
	};
	const MPI_Datatype is_float[] = { MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8 };

	if (is_among(type, is_signed, sizeof(is_signed) / sizeof(*is_signed)))
		return KIND_SIGNED;
	if (is_among(type, is_unsigned, sizeof(is_unsigned) / sizeof(*is_unsigned)))
		return KIND_UNSIGNED;
	if (is_among(type, is_float, sizeof(is_float) / sizeof(*is_float)))
		return KIND_FLOAT;
	return type == MPI_BYTE ? KIND_BYTE : KIND_OTHER;
}

static bool ask(MPI_Datatype type, struct basic *b)
{
	MPI_Aint low, extent;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS)
		return false;
	*b = (struct basic){ type, (uint64_t)size, extent, kind_of(type) };
	return low == 0 && size > 0;
}

static void keep(const struct basic *b, struct type_entry *e)
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
	    !type_is_predefined(combiner) || !ask(type, b))
		return false;
	keep(b, type_entry(type));
	return true;
}

/* ---- Without gaps ---- */

static uint64_t item_bytes(MPI_Datatype type, int depth)
{
	int integers, addresses, types, combiner, count = 1;
	MPI_Datatype base;
	struct basic b;
	uint64_t bytes;

	if (type_basic(type, &b))
		return b.extent == (int64_t)b.size ? b.size : 0;
	if (type == MPI_DATATYPE_NULL ||
	    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return 0;
	if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || depth == DEPTH)
		return 0;
	if (PMPI_Type_get_contents(type, integers, addresses, types, &count, NULL, &base) != MPI_SUCCESS)
		return 0;
	bytes = count > 0 ? item_bytes(base, depth + 1) * (uint64_t)count : 0;
	/* What is handed out has to be freed, unless it is predefined. */
	if (PMPI_Type_get_envelope(base, &integers, &addresses, &types, &combiner) == MPI_SUCCESS && !type_is_predefined(combiner))
		PMPI_Type_free(&base);
	return bytes;
}

/* Programs put contiguous types and a rest together for more bytes than an int counts. Smaller ones may have many blocks, and are
 * not looked at so closely. */
static uint64_t large_item_bytes(MPI_Datatype type)
{
	const struct layout *l;
	MPI_Count size;

	if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size <= LAYOUT_PACKED)
		return 0;
	l = layout_of(type);
	return l && l->n == 1 && l->blocks->at == 0 && (int64_t)l->size == l->extent ? l->size : 0;
}

uint64_t type_bytes(MPI_Datatype type, int64_t count)
{
	const struct basic *b = type_known(type);
	uint64_t item, bytes;

	if (count <= 0)
		return 0;
	if (b)
		item = b->extent == (int64_t)b->size ? b->size : 0;
	else
		item = item_bytes(type, 0);
	if (!b && !item)
		item = large_item_bytes(type);
	return !__builtin_mul_overflow(item, (uint64_t)count, &bytes) ? bytes : 0;
}
