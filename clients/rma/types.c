/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which datatypes are bytes without gaps: predefined ones, and those that MPI_Type_contiguous and MPI_Type_dup make of
 * them. Predefined types never change and never go, so what is known of one is kept; a place in the table belongs to
 * the first that comes. Lock: around new entries.
 */
#include "rma/shm.h"

#include <pthread.h>

#define PLACES 64
/* Types of types of types. */
#define DEPTH 8

struct entry {
	_Atomic uintptr_t key;   /* the handle; 0: free. Written last */
	uint64_t bytes;          /* of one item; 0: there are gaps */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry table[PLACES];

/* Handles are pointers or numbers, whose low bits say most. */
static uintptr_t key_of(MPI_Datatype type)
{
	return (uintptr_t)type;
}

static struct entry *entry_of(uintptr_t key)
{
	return &table[(key * 0x9E3779B97F4A7C15ull) >> 58];
}

static inline bool is_known(MPI_Datatype type, const struct entry *e)
{
	return atomic_load_explicit(&e->key, memory_order_acquire) == key_of(type);
}

static uint64_t ask(MPI_Datatype type)
{
	MPI_Aint low, extent;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS)
		return 0;
	return low == 0 && size > 0 && extent == (MPI_Aint)size ? (uint64_t)size : 0;
}

static uint64_t learn(MPI_Datatype type, struct entry *e)
{
	uint64_t bytes = ask(type);

	pthread_mutex_lock(&lock);
	if (!atomic_load(&e->key)) {
		e->bytes = bytes;
		atomic_store_explicit(&e->key, key_of(type), memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return bytes;
}

static uint64_t item_bytes(MPI_Datatype type, int depth)
{
	int integers, addresses, types, combiner, count = 1;
	struct entry *e = entry_of(key_of(type));
	MPI_Datatype base;
	uint64_t bytes;

	if (is_known(type, e))
		return e->bytes;
	if (type == MPI_DATATYPE_NULL ||
	    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return 0;
	if (combiner == MPI_COMBINER_NAMED)
		return learn(type, e);
	if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || depth == DEPTH)
		return 0;
	if (PMPI_Type_get_contents(type, integers, addresses, types, &count, NULL, &base) != MPI_SUCCESS)
		return 0;
	bytes = count > 0 ? item_bytes(base, depth + 1) * (uint64_t)count : 0;
	/* What is handed out has to be freed, unless it is predefined. */
	if (PMPI_Type_get_envelope(base, &integers, &addresses, &types, &combiner) == MPI_SUCCESS &&
	    combiner != MPI_COMBINER_NAMED)
		PMPI_Type_free(&base);
	return bytes;
}

uint64_t type_bytes(MPI_Datatype type, int64_t count)
{
	const struct entry *e = entry_of(key_of(type));
	uint64_t item = is_known(type, e) ? e->bytes : item_bytes(type, 0), bytes;

	return count > 0 && !__builtin_mul_overflow(item, (uint64_t)count, &bytes) ? bytes : 0;
}
