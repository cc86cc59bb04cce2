/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Reduce_local combines elements where its results are right. Some MPIs compute wrong results
 * for integers: MPICH 4.0 compares unsigned types as signed ones, Open MPI compares MPI_OFFSET as
 * an unsigned type, and its component op/avx saturates sums of 8 and 16 bits in vectors. So the
 * first use of an operation with a type of integers compares MPI_Reduce_local with the arithmetic
 * of this file. If they differ, the MPI never computes that operation.
 */
#include "rma/operation.h"

#include <stdatomic.h>

enum op op_find(MPI_Op op)
{
	const MPI_Op ops[] = { MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR,
			       MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC };
	const enum op same[] = { OP_PROD, OP_MIN, OP_MAX, OP_LAND, OP_LOR, OP_LXOR,
				 OP_BAND, OP_BOR, OP_BXOR, OP_PAIR, OP_PAIR };

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		if (ops[i] == op)
			return same[i];
	}
	return OP_NONE;
}

/* Extends a word of so many bytes by its sign. */
static inline int64_t extend_sign(uint64_t word, uint64_t size)
{
	unsigned shift = 64 - 8 * (unsigned)size;

	return (int64_t)(word << shift) >> shift;
}

static uint64_t combine_integers(enum kind kind, enum op op, uint64_t size, uint64_t a, uint64_t b)
{
	bool less = a < b;

	if (kind == KIND_SIGNED)
		less = extend_sign(a, size) < extend_sign(b, size);
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
	case OP_MAX: return (op == OP_MIN) == less ? a : b;
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
	/* Rounding the exact sum or product of floats in a double once more changes nothing. */
	f[0] = (float)combine_doubles(op, (double)f[0], (double)f[1]);
	memcpy(&word, &f[0], sizeof(float));
	return word;
}

/* ---- Trials of the MPI ---- */

/* Number of elements of a trial: two vector registers of bytes, and a rest. */
#define TRIAL_ELEMENTS 131

/* The operands of a trial are all pairs of these, cut to the size of the type. */
static const uint64_t trial_words[] = {
	0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
	0x7fffffffffffffff, 0x8000000000000000, UINT64_MAX, 0x123456789abcdef0,
};

#define TRIAL_WORDS (sizeof(trial_words) / sizeof(*trial_words))

/* MPI defines logical operations for C integers only. Open MPI ends programs that use others. */
static bool is_left_undefined(MPI_Datatype type, enum op op)
{
	const MPI_Datatype fortran[] = { MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
					 MPI_INTEGER8 };

	return op >= OP_LAND && op <= OP_LXOR &&
	       type_is_one_of(type, fortran, sizeof(fortran) / sizeof(*fortran));
}

/* Whether MPI_Reduce_local and op_word agree for one pair of operands. */
static bool agree_on(enum op op, MPI_Op mpi_op, const struct basic *b, uint64_t word,
		     uint64_t with, int n)
{
	uint64_t from[TRIAL_ELEMENTS], to[TRIAL_ELEMENTS], want = 0;

	for (size_t i = 0; i < (size_t)n; i++) {
		put_word((char *)from + i * b->size, with, b->size);
		put_word((char *)to + i * b->size, word, b->size);
	}
	put_word(&want, op_word(b->kind, op, b->size, word_of(to, b->size), word_of(from, b->size)),
		 b->size);
	if (PMPI_Reduce_local(from, to, n, b->type, mpi_op) != MPI_SUCCESS)
		return false;
	for (size_t i = 0; i < (size_t)n; i++) {
		if (word_of((char *)to + i * b->size, b->size) != want)
			return false;
	}
	return true;
}

static bool agree_on_all(enum op op, MPI_Op mpi_op, const struct basic *b)
{
	if (is_left_undefined(b->type, op))
		return false;
	for (size_t i = 0; i < TRIAL_WORDS * TRIAL_WORDS; i++) {
		uint64_t word = trial_words[i / TRIAL_WORDS];
		uint64_t with = trial_words[i % TRIAL_WORDS];

		if (!agree_on(op, mpi_op, b, word, with, 1) ||
		    !agree_on(op, mpi_op, b, word, with, TRIAL_ELEMENTS))
			return false;
	}
	return true;
}

/*
 * For each place of type_table, two bits for each operation: bit 2 * op if its trial is over, and
 * bit 2 * op + 1 if it passed.
 */
static _Atomic uint32_t verdicts[TYPE_PLACES];

bool op_is_right(const struct basic *b, enum op op, MPI_Op mpi_op)
{
	const uint32_t over = 1u << (2 * op), passed = over << 1;
	bool has_place = type_known(b->type);
	_Atomic uint32_t *verdict = &verdicts[type_entry(b->type) - type_table];
	uint32_t known = has_place ? atomic_load_explicit(verdict, memory_order_relaxed) : 0;
	bool right;

	if (b->kind == KIND_OTHER || b->kind == KIND_FLOAT || op >= OP_PAIR || op == OP_REPLACE ||
	    op == OP_NO_OP)
		return true;
	if (known & over)
		return known & passed;
	right = agree_on_all(op, mpi_op, b);
	if (has_place)
		atomic_fetch_or(verdict, right ? over | passed : over);
	return right;
}

void op_combine(enum op op, MPI_Op mpi_op, const struct basic *b, const char *from, char *target,
		int n)
{
	if (op == OP_REPLACE)
		memcpy(target, from, (size_t)n * (size_t)b->extent);
	else if (op == OP_NO_OP)
		return;
	else if (op_is_right(b, op, mpi_op))
		PMPI_Reduce_local(from, target, n, b->type, mpi_op);
	else for (int i = 0; i < n; i++, from += b->size, target += b->size)
		put_word(target, op_word(b->kind, op, b->size, word_of(target, b->size),
					 word_of(from, b->size)), b->size);
}
