/* SPDX-License-Identifier: BSD-3-Clause */
/* Predefined operations of MPI on words, and on elements in memory. */
#ifndef OPERATION_H
#define OPERATION_H

#include "rma/layout.h"

#include <string.h>

/* OP_PAIR: MPI_MINLOC and MPI_MAXLOC. OP_NONE: an operation of the program. */
enum op {
	OP_SUM, OP_REPLACE, OP_NO_OP, OP_PROD, OP_MIN, OP_MAX, OP_LAND, OP_LOR, OP_LXOR, OP_BAND,
	OP_BOR, OP_BXOR, OP_PAIR, OP_NONE
};

enum op op_find(MPI_Op op);

/* The most frequent operations come first. */
static inline enum op op_of(MPI_Op op)
{
	if (op == MPI_SUM)
		return OP_SUM;
	if (op == MPI_REPLACE)
		return OP_REPLACE;
	return op == MPI_NO_OP ? OP_NO_OP : op_find(op);
}

/* Whether MPI defines the operation for words of that kind. */
static inline bool op_suits(enum kind kind, enum op op)
{
	switch (kind) {
	case KIND_SIGNED:
	case KIND_UNSIGNED: return op < OP_PAIR;
	case KIND_FLOAT: return op <= OP_MAX;
	case KIND_BYTE:
		return op == OP_REPLACE || op == OP_NO_OP || (op >= OP_BAND && op < OP_PAIR);
	default: return false;
	}
}

static inline uint64_t word_of(const void *p, uint64_t size)
{
	uint64_t word = 0;

	if (size == sizeof(word))
		memcpy(&word, p, sizeof(word));
	else
		memcpy(&word, p, size);
	return word;
}

static inline void put_word(void *p, uint64_t word, uint64_t size)
{
	if (size == sizeof(word))
		memcpy(p, &word, sizeof(word));
	else
		memcpy(p, &word, size);
}

/* The new value of a word of so many bytes. */
uint64_t op_word(enum kind kind, enum op op, uint64_t size, uint64_t word, uint64_t with);

/* Whether the MPI computes an operation right, for a type that the operation suits. */
bool op_is_right(const struct basic *b, enum op op, MPI_Op mpi_op);

/*
 * Combines n elements of `from` into those of `target`. Their type suits the operation, or is of
 * KIND_OTHER.
 */
void op_combine(enum op op, MPI_Op mpi_op, const struct basic *b, const char *from, char *target,
		int n);

#endif
