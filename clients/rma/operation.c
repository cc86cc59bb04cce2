/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI does what it does right (MPI_Reduce_local); words of numbers are combined here. */
#include "rma/operation.h"

enum op op_find(MPI_Op op)
{
	const MPI_Op ops[] = { MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC,
			       MPI_MAXLOC };
	const enum op same[] = { OP_PROD, OP_MIN, OP_MAX, OP_LAND, OP_LOR, OP_LXOR, OP_BAND, OP_BOR, OP_BXOR, OP_PAIR, OP_PAIR };

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		if (ops[i] == op)
			return same[i];
	}
	return OP_NONE;
}

static uint64_t combine_signed(enum op op, int64_t a, int64_t b)
{
	switch (op) {
	case OP_MIN: return (uint64_t)(a < b ? a : b);
	case OP_MAX: return (uint64_t)(a > b ? a : b);
	default: return 0;
	}
}

/* Of so many bytes, with their sign. */
static inline int64_t extend(uint64_t word, uint64_t size)
{
	unsigned shift = 64 - 8 * (unsigned)size;

	return (int64_t)(word << shift) >> shift;
}

static uint64_t combine_integers(enum kind kind, enum op op, uint64_t size, uint64_t a, uint64_t b)
{
	switch (op) {
	case OP_SUM: return a + b;
	case OP_PROD: return a * b;
	case OP_LAND: return a && b;
	case OP_LOR: return a || b;
	case OP_LXOR: return !a != !b;
	case OP_BAND: return a & b;
	case OP_BOR: return a | b;
	case OP_BXOR: return a ^ b;
	case OP_MIN:
	case OP_MAX:
		if (kind == KIND_SIGNED)
			return combine_signed(op, extend(a, size), extend(b, size));
		return (op == OP_MIN) == (a < b) ? a : b;
	default: return b;
	}
}

static double combine_doubles(enum op op, double a, double b)
{
	switch (op) {
	case OP_SUM: return a + b;
	case OP_PROD: return a * b;
	case OP_MIN: return a < b ? a : b;
	case OP_MAX: return a > b ? a : b;
	default: return b;
	}
}

static float combine_floats(enum op op, float a, float b)
{
	switch (op) {
	case OP_SUM: return a + b;
	case OP_PROD: return a * b;
	case OP_MIN: return a < b ? a : b;
	case OP_MAX: return a > b ? a : b;
	default: return b;
	}
}

uint64_t op_word(enum kind kind, enum op op, uint64_t size, uint64_t word, uint64_t with)
{
	double d[2];
	float f[2];

	if (kind != KIND_FLOAT || op == OP_REPLACE)
		return combine_integers(kind, op, size, word, with);
	if (size == sizeof(double)) {
		memcpy(&d[0], &word, sizeof(double));
		memcpy(&d[1], &with, sizeof(double));
		d[0] = combine_doubles(op, d[0], d[1]);
		memcpy(&word, &d[0], sizeof(double));
		return word;
	}
	memcpy(&f[0], &word, sizeof(float));
	memcpy(&f[1], &with, sizeof(float));
	f[0] = combine_floats(op, f[0], f[1]);
	memcpy(&word, &f[0], sizeof(float));
	return word;
}

/* OpenMPI 4.1 adds small numbers so that they stay at their limits, and for MPICH 4.0 all numbers of 16 bits have signs. */
static bool is_theirs_right(const struct basic *b, enum op op)
{
	return b->kind == KIND_OTHER || (b->size >= 4 && (b->kind != KIND_UNSIGNED || (op != OP_MIN && op != OP_MAX)));
}

void op_combine(enum op op, MPI_Op mpi_op, const struct basic *b, const char *from, char *target, int n)
{
	if (op == OP_REPLACE)
		memcpy(target, from, (size_t)n * (size_t)b->extent);
	else if (op == OP_NO_OP)
		return;
	else if (is_theirs_right(b, op))
		PMPI_Reduce_local(from, target, n, b->type, mpi_op);
	else for (int i = 0; i < n; i++, from += b->size, target += b->size)
		put_word(target, op_word(b->kind, op, b->size, word_of(target, b->size), word_of(from, b->size)), b->size);
}
