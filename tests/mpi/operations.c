/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * operations - epochs with UMMPI_OP on windows of each kind. For each operation and each datatype
 * that MPI defines it for, a put changes the target, and a get changes the origin, as
 * MPI_Reduce_local changes a copy. Concurrent puts of all ranks lose nothing, each target has its
 * own operation, and invalid epochs are refused.
 */
#include "common.h"

#include <ummap-mpi.h>

#define ITEMS 24
#define MAX_ITEM 32                   /* bytes of an item */
#define PART (ITEMS * MAX_ITEM)       /* bytes that a rank has for each other rank */

static const MPI_Op ops[] = UMMPI_OPS;
#define OPS ((int)(sizeof(ops) / sizeof(*ops)))

enum sort { INTEGER, REAL, COMPLEX, LOGICAL, BYTES, PAIR, TEXT };

static bool is_defined(MPI_Op op, enum sort sort)
{
	bool order = op == MPI_MAX || op == MPI_MIN, sum = op == MPI_SUM || op == MPI_PROD;
	bool logical = op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR,
	     bits = op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;

	if (op == MPI_REPLACE)
		return true;
	switch (sort) {
	case INTEGER: return order || sum || logical || bits;
	case REAL: return order || sum;
	case COMPLEX: return sum;
	case LOGICAL: return logical;
	case BYTES: return bits;
	case PAIR: return op == MPI_MAXLOC || op == MPI_MINLOC;
	default: return false;
	}
}

struct kind {
	MPI_Datatype type;
	enum sort sort;
};

static uint64_t random_state;

static void draw_items(const struct kind *k, char *items)
{
	MPI_Aint low, extent;

	MPI_Type_get_extent(k->type, &low, &extent);
	for (int i = 0; i < ITEMS; i++, items += extent) {
		int n = (int)(next_random(&random_state) % 5);

		if (k->sort == LOGICAL)
			*items = n & 1;
		else if (k->sort == COMPLEX)
			memcpy(items, (double[]){ n, 1 }, 2 * sizeof(double));
		else if (k->type == MPI_DOUBLE)
			memcpy(items, &(double){ n }, sizeof(double));
		else if (k->type == MPI_FLOAT)
			memcpy(items, &(float){ (float)n }, sizeof(float));
		else if (k->type == MPI_LONG_DOUBLE)
			*(long double *)(void *)items = n;
		else if (k->type == MPI_DOUBLE_INT)
			memcpy(items, &(double){ n }, sizeof(double)),
				memcpy(items + 8, &(int32_t){ i }, 4);
		else if (k->type == MPI_2INT)
			memcpy(items, (int32_t[]){ n, i }, 8);
		else if (k->sort == TEXT || k->sort == BYTES)
			*items = (char)(n + 60);
		else
			memcpy(items, &(int64_t){ n }, (size_t)extent); /* the low-order bytes */
	}
}

/* Returns the offset of the items of rank `from` in each part. */
static MPI_Aint place_of(int from)
{
	return from * PART;
}

static void check_items(const struct kind *k, MPI_Op op, const char *got, const char *want,
			const char *what)
{
	char a[PART], b[PART];
	int at = 0, bt = 0, size;

	/* Gaps do not count. */
	MPI_Type_size(k->type, &size);
	MPI_Pack(got, ITEMS, k->type, a, PART, &at, MPI_COMM_SELF);
	MPI_Pack(want, ITEMS, k->type, b, PART, &bt, MPI_COMM_SELF);
	for (int i = 0; i < ITEMS * size; i++) {
		/* A long double has ten bytes of data. */
		if (k->type == MPI_LONG_DOUBLE && i % 16 >= 10)
			continue;
		check(a[i] == b[i], "%s, sort %d, size %d, operation %d: byte %d is %d, not %d",
		      what, k->sort, size, ummpi_op(op) >> UMMPI_OP_SHIFT, i, a[i], b[i]);
	}
}

static void model(MPI_Op op, const struct kind *k, const char *from, char *to)
{
	MPI_Aint low, extent;

	MPI_Type_get_extent(k->type, &low, &extent);
	if (op == MPI_REPLACE)
		memcpy(to, from, (size_t)(ITEMS * extent));
	else
		MPI_Reduce_local(from, to, ITEMS, k->type, op);
}

/* Whether the library refuses the operation: pairs in windows of Open MPI. */
static bool is_refused(MPI_Win win, const struct kind *k, MPI_Op op, int target, bool ours)
{
	char item[MAX_ITEM] = { 0 };
	int code = MPI_SUCCESS;

#ifdef OPEN_MPI
	if (k->sort != PAIR)
		return false;
	MPI_Win_lock(MPI_LOCK_SHARED, target, UMMPI_OP(op), win);
	code = MPI_Put(item, 1, k->type, target, place_of(rank), 1, k->type, win);
	MPI_Win_unlock(target, win);
	check(code == MPI_SUCCESS || !ours, "a put of pairs");
	if (code != MPI_SUCCESS)
		check_error(code, MPI_ERR_OP, "Open MPI cannot combine them");
#else
	(void)win, (void)k, (void)op, (void)target, (void)ours, (void)item;
#endif
	return code != MPI_SUCCESS;
}

static void one(MPI_Win win, const struct kind *k, MPI_Op op, int target, bool with_request)
{
	_Alignas(16) char mine[PART], theirs[PART], back[PART];
	MPI_Request request = MPI_REQUEST_NULL;

	memset(mine, 0, PART);
	memset(theirs, 0, PART);
	memset(back, 0, PART);
	draw_items(k, theirs);
	draw_items(k, mine);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
	MPI_Put(theirs, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win);
	MPI_Win_unlock(target, win);

	MPI_Win_lock(MPI_LOCK_SHARED, target, UMMPI_OP(op), win);
	if (with_request) {
		MPI_Rput(mine, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win,
			 &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		MPI_Put(mine, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win);
	}
	MPI_Win_unlock(target, win);
	MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
	MPI_Get(back, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win);
	MPI_Win_unlock(target, win);
	model(op, k, mine, theirs);
	check_items(k, op, back, theirs, "put");

	MPI_Win_lock(MPI_LOCK_SHARED, target, UMMPI_OP(op), win);
	if (with_request) {
		MPI_Rget(mine, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win,
			 &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		memcpy(back, mine, PART);
		MPI_Get(mine, ITEMS, k->type, target, place_of(rank), ITEMS, k->type, win);
	}
	if (with_request)
		memcpy(back, mine, PART); /* checked in the other round */
	else
		model(op, k, theirs, back);
	MPI_Win_unlock(target, win);
	check_items(k, op, mine, back, "get");
}

static void test_all_types(MPI_Win win, bool ours)
{
	const struct kind kinds[] = {
		{ MPI_INT32_T, INTEGER },
		{ MPI_INT64_T, INTEGER },
		{ MPI_UINT64_T, INTEGER },
		{ MPI_INT8_T, INTEGER },
		{ MPI_UINT16_T, INTEGER },
		{ MPI_DOUBLE, REAL },
		{ MPI_FLOAT, REAL },
		{ MPI_LONG_DOUBLE, REAL },
		{ MPI_C_DOUBLE_COMPLEX, COMPLEX },
		{ MPI_C_BOOL, LOGICAL },
		{ MPI_BYTE, BYTES },
		{ MPI_2INT, PAIR },
		{ MPI_DOUBLE_INT, PAIR },
		{ MPI_CHAR, TEXT },
		{ MPI_CXX_BOOL, LOGICAL },
		{ MPI_CXX_DOUBLE_COMPLEX, COMPLEX },
		{ MPI_COMPLEX16, COMPLEX },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		for (int j = 0; j < OPS; j++) {
			char item[MAX_ITEM] = { 0 };

			if (is_defined(ops[j], kinds[i].sort)) {
				if (is_refused(win, &kinds[i], ops[j], rank, ours))
					continue;
				one(win, &kinds[i], ops[j], (rank + 1) % ranks,
				    (i + (size_t)j) % 2);
				one(win, &kinds[i], ops[j], rank, (i + (size_t)j) % 2 == 0);
				continue;
			}
			MPI_Win_lock(MPI_LOCK_SHARED, rank, UMMPI_OP(ops[j]), win);
			check_error(MPI_Put(item, 1, kinds[i].type, rank, 0, 1, kinds[i].type, win),
				    MPI_ERR_OP, "does not define");
			check_error(MPI_Get(item, 1, kinds[i].type, rank, 0, 1, kinds[i].type, win),
				    MPI_ERR_OP, "does not define");
			MPI_Win_unlock(rank, win);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Concurrent puts ---- */

/*
 * Only locks of the library are used with MPI_MODE_NOCHECK: afterwards, exclusive locks of MPICH
 * 4.0 and of OpenMPI's osc/pt2pt may wait forever.
 */
static void test_sums(MPI_Win win, bool ours)
{
	int64_t zero[ITEMS] = { 0 }, add[ITEMS], got[ITEMS], rounds = (int64_t)by_time(100, 1000);

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	MPI_Put(zero, ITEMS, MPI_INT64_T, rank, 0, ITEMS, MPI_INT64_T, win);
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < ITEMS; i++)
		add[i] = i + 1;
	MPI_Win_lock_all(UMMPI_OP(MPI_SUM) | (ours ? MPI_MODE_NOCHECK : 0), win);
	for (int64_t n = 0; n < rounds; n++) {
		for (int target = 0; target < ranks; target++)
			MPI_Put(add, n % 2 ? ITEMS : 3, MPI_INT64_T, target, 0, n % 2 ? ITEMS : 3,
				MPI_INT64_T, win);
		if (n % 16 == 0)
			MPI_Win_flush_all(win);
	}
	MPI_Win_flush_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < ITEMS; i++)
		got[i] = 1000;
	MPI_Get(got, ITEMS, MPI_INT64_T, (rank + 1) % ranks, 0, ITEMS, MPI_INT64_T, win);
	MPI_Win_unlock_all(win);
	for (int64_t i = 0; i < ITEMS; i++) {
		int64_t want = 1000 + (i + 1) * ranks * (i < 3 ? rounds : rounds / 2);

		check(got[i] == want, "%" PRId64 ": %" PRId64 ", not %" PRId64, i, got[i], want);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Several targets, and datatypes with gaps ---- */

static void test_operations_of_targets(MPI_Win win)
{
	int32_t start[4] = { 5, 5, 5, 5 }, mine[4] = { 2, 7, 2, 7 }, got[4];
	int first = rank, second = (rank + 1) % ranks;

	if (ranks == 1)
		return;
	for (int target = first;; target = second) {
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		MPI_Put(start, 4, MPI_INT32_T, target, place_of(rank), 4, MPI_INT32_T, win);
		MPI_Win_unlock(target, win);
		if (target == second)
			break;
	}
	MPI_Win_lock(MPI_LOCK_SHARED, first, UMMPI_OP(MPI_MAX), win);
	MPI_Win_lock(MPI_LOCK_SHARED, second, UMMPI_OP(MPI_PROD), win);
	MPI_Put(mine, 4, MPI_INT32_T, first, place_of(rank), 4, MPI_INT32_T, win);
	MPI_Put(mine, 4, MPI_INT32_T, second, place_of(rank), 4, MPI_INT32_T, win);
	MPI_Win_unlock(first, win);
	MPI_Win_lock(MPI_LOCK_SHARED, first, 0, win);
	MPI_Get(got, 4, MPI_INT32_T, first, place_of(rank), 4, MPI_INT32_T, win);
	MPI_Win_unlock(first, win);
	check(got[0] == 5 && got[1] == 7, "%d %d", got[0], got[1]);
	MPI_Win_unlock(second, win);
	MPI_Win_lock(MPI_LOCK_SHARED, second, 0, win);
	MPI_Get(got, 4, MPI_INT32_T, second, place_of(rank), 4, MPI_INT32_T, win);
	MPI_Win_unlock(second, win);
	check(got[0] == 10 && got[1] == 35, "%d %d", got[0], got[1]);
}

static void test_gaps(MPI_Win win)
{
	int32_t start[12], mine[12], got[12];
	MPI_Datatype third, back;

	/* Every third item, in ascending and in descending order. */
	MPI_Type_vector(4, 1, 3, MPI_INT32_T, &third);
	MPI_Type_create_hvector(4, 1, -12, MPI_INT32_T, &back);
	MPI_Type_commit(&third);
	MPI_Type_commit(&back);
	for (int i = 0; i < 12; i++)
		start[i] = 100, mine[i] = i;
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	MPI_Put(start, 12, MPI_INT32_T, rank, place_of(rank), 12, MPI_INT32_T, win);
	MPI_Win_unlock(rank, win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, UMMPI_OP(MPI_SUM), win);
	MPI_Put(mine + 9, 1, back, rank, place_of(rank), 1, third, win);
	MPI_Win_flush(rank, win);
	memcpy(got, mine, sizeof(got));
	MPI_Get(got + 9, 1, back, rank, place_of(rank), 1, third, win);
	MPI_Win_unlock(rank, win);
	for (int i = 0; i < 12; i++)
		check(got[i] == (i % 3 ? i : i + 100 + i), "%d: %d", i, got[i]);
	MPI_Type_free(&third);
	MPI_Type_free(&back);
}

/* ---- Invalid epochs ---- */

static void add(void *from, void *to, int *n, MPI_Datatype *type)
{
	(void)from, (void)to, (void)n, (void)type;
}

static void test_invalid_epochs(MPI_Win win)
{
	const int one[] = { 1, 1 };
	const MPI_Aint at[] = { 0, 8 };
	const MPI_Datatype two[] = { MPI_INT64_T, MPI_DOUBLE };
	char item[64] = { 0 };
	MPI_Datatype mixed;
	int64_t value = 7;
	MPI_Op mine;

	MPI_Op_create(add, 1, &mine);
	check_error(MPI_Win_lock(MPI_LOCK_SHARED, rank, UMMPI_OP(mine), win), MPI_ERR_OP,
		    "predefined operation");
	check_error(MPI_Win_lock_all(UMMPI_OP(mine), win), MPI_ERR_OP, "predefined operation");
	check_error(MPI_Win_lock_all(UMMPI_OP(MPI_NO_OP), win), MPI_ERR_OP, "predefined operation");
	MPI_Op_free(&mine);
	MPI_Type_create_struct(2, one, at, two, &mixed);
	MPI_Type_commit(&mixed);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, UMMPI_OP(MPI_SUM), win);
	check_error(MPI_Put(item, 1, mixed, rank, 0, 1, mixed, win), MPI_ERR_TYPE,
		    "the same predefined type");
	check_error(MPI_Get(item, 1, mixed, rank, 0, 1, mixed, win), MPI_ERR_TYPE,
		    "the same predefined type");
	check_error(MPI_Put(item, 1, MPI_INT64_T, rank, 0, 1, MPI_DOUBLE, win), MPI_ERR_TYPE,
		    "the same predefined type");
	/* An epoch without accesses is valid. */
	check(MPI_Get(item, 0, MPI_INT64_T, rank, 0, 0, MPI_INT64_T, win) == MPI_SUCCESS);
	check(MPI_Put(item, 1, MPI_INT64_T, MPI_PROC_NULL, 0, 1, MPI_INT64_T, win) == MPI_SUCCESS);
	MPI_Win_unlock(rank, win);
	MPI_Type_free(&mixed);
	/* A refused epoch has no effect on later epochs. */
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	MPI_Put(&value, 1, MPI_INT64_T, rank, place_of(rank), 1, MPI_INT64_T, win);
	MPI_Put(&value, 1, MPI_INT64_T, rank, place_of(rank), 1, MPI_INT64_T, win);
	MPI_Win_unlock(rank, win);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	MPI_Get(item, 1, MPI_INT64_T, rank, place_of(rank), 1, MPI_INT64_T, win);
	MPI_Win_unlock(rank, win);
	check(memcmp(item, &value, sizeof(value)) == 0);
}

/* ---- Values for which MPIs have wrong results: this file computes the expected results ---- */

#define LIMITS 96

/* Combines two integers of `bytes` bytes. */
static uint64_t combine(MPI_Op op, uint64_t a, uint64_t b, int bytes, bool is_signed)
{
	const int shift = 64 - 8 * bytes;
	const uint64_t flip = is_signed ? (uint64_t)1 << 63 : 0;
	const bool less = ((a << shift) ^ flip) < ((b << shift) ^ flip);

	if (op == MPI_SUM)
		return (a + b) << shift >> shift;
	return (op == MPI_MIN) == less ? a << shift >> shift : b << shift >> shift;
}

static void put_limits(MPI_Win win, MPI_Op op, MPI_Datatype type, bool is_signed)
{
	const uint64_t words[] = { 0,      1,      0x7f,       0x80,       0xff,
				   0x7fff, 0x8000, 0x80000000, 1ull << 63, UINT64_MAX };
	_Alignas(16) char start[PART], mine[PART], back[PART], here[PART];
	int bytes, target = (rank + 1) % ranks;

	MPI_Type_size(type, &bytes);
	for (int i = 0; i < LIMITS; i++) {
		memcpy(start + i * bytes, &words[i % 10], (size_t)bytes);
		memcpy(mine + i * bytes, &words[i / 10], (size_t)bytes);
	}
	memcpy(here, mine, sizeof(here));
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
	MPI_Put(start, LIMITS, type, target, place_of(rank), LIMITS, type, win);
	MPI_Win_unlock(target, win);
	MPI_Win_lock(MPI_LOCK_SHARED, target, UMMPI_OP(op), win);
	check(MPI_Get(here, LIMITS, type, target, place_of(rank), LIMITS, type, win) ==
	      MPI_SUCCESS);
	check(MPI_Put(mine, LIMITS, type, target, place_of(rank), LIMITS, type, win) ==
	      MPI_SUCCESS);
	MPI_Win_unlock(target, win);
	MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
	MPI_Get(back, LIMITS, type, target, place_of(rank), LIMITS, type, win);
	MPI_Win_unlock(target, win);
	for (int i = 0; i < LIMITS; i++) {
		uint64_t want = combine(op, words[i % 10], words[i / 10], bytes, is_signed);

		check(memcmp(back + i * bytes, &want, (size_t)bytes) == 0,
		      "put, operation %d, %d bytes, %#" PRIx64 " and %#" PRIx64,
		      ummpi_op(op) >> UMMPI_OP_SHIFT, bytes, words[i % 10], words[i / 10]);
		check(memcmp(here + i * bytes, &want, (size_t)bytes) == 0,
		      "get, operation %d, %d bytes, %#" PRIx64 " and %#" PRIx64,
		      ummpi_op(op) >> UMMPI_OP_SHIFT, bytes, words[i % 10], words[i / 10]);
	}
}

static void test_limits(MPI_Win win)
{
	const MPI_Op three[] = { MPI_SUM, MPI_MIN, MPI_MAX };
	const struct {
		MPI_Datatype type;
		bool is_signed;
	} types[] = {
		{ MPI_UINT8_T, false },  { MPI_UNSIGNED_SHORT, false },
		{ MPI_UINT32_T, false }, { MPI_UNSIGNED_LONG, false },
		{ MPI_UINT64_T, false }, { MPI_INT8_T, true },
		{ MPI_SHORT, true },     { MPI_OFFSET, true },
		{ MPI_INT64_T, true },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		for (int j = 0; j < 3; j++)
			put_limits(win, three[j], types[i].type, types[i].is_signed);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks put to the same unsigned words concurrently: no put is lost. */
static void test_maximum(MPI_Win win)
{
	uint64_t words[ITEMS], got[ITEMS], rounds = by_time(30, 300);

	memset(words, 0, sizeof(words));
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	MPI_Put(words, ITEMS, MPI_UINT64_T, rank, 0, ITEMS, MPI_UINT64_T, win);
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(UMMPI_OP(MPI_MAX), win);
	for (uint64_t n = 0; n < rounds; n++) {
		for (uint64_t i = 0; i < ITEMS; i++)
			words[i] = ((n % 2) << 63) + n * (uint64_t)ranks + (uint64_t)rank + i;
		MPI_Put(words, ITEMS, MPI_UINT64_T, (int)(n % (uint64_t)ranks), 0, ITEMS,
			MPI_UINT64_T, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	MPI_Get(got, ITEMS, MPI_UINT64_T, rank, 0, ITEMS, MPI_UINT64_T, win);
	MPI_Win_unlock(rank, win);
	for (uint64_t i = 0; i < ITEMS; i++) {
		uint64_t want = 0;

		for (uint64_t n = 0; n < rounds; n++) {
			uint64_t word =
				((n % 2) << 63) + n * (uint64_t)ranks + (uint64_t)ranks - 1 + i;

			if (n % (uint64_t)ranks == (uint64_t)rank && word > want)
				want = word;
		}
		check(got[i] == want, "word %" PRIu64 ": %#" PRIx64 ", not %#" PRIx64, i, got[i],
		      want);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A put to elements between two displacements is right or refused. */
static void test_wide_unit(void)
{
	_Alignas(16) uint32_t part[4] = { 5, 5, 5, 5 };
	const uint32_t mine[] = { 0x80000000, 3, 0x90000000 };
	MPI_Win win;
	int code;

	MPI_Win_create(part, sizeof(part), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, UMMPI_OP(MPI_MAX), win);
	check(MPI_Put(mine, 1, MPI_UINT32_T, rank, 1, 1, MPI_UINT32_T, win) == MPI_SUCCESS);
	code = MPI_Put(mine, 3, MPI_UINT32_T, rank, 0, 3, MPI_UINT32_T, win);
	MPI_Win_unlock(rank, win);
	if (code != MPI_SUCCESS)
		check_error(code, MPI_ERR_DISP, "displacement unit");
	check(part[2] == (code ? mine[0] : mine[2]) && part[0] == (code ? 5 : mine[0]) &&
	      part[1] == 5);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
}

static void window(MPI_Win win, bool ours)
{
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	test_all_types(win, ours);
	test_sums(win, ours);
	test_operations_of_targets(win);
	test_gaps(win);
	test_limits(win);
	test_maximum(win);
	test_invalid_epochs(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Aint size;
	MPI_Info info;
	MPI_Win win;
	void *base;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	random_state = (uint64_t)rank + 1;
	size = (MPI_Aint)ranks * PART;
	MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	window(win, false);
	base = calloc(1, (size_t)size);
	MPI_Win_create(base, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	window(win, false);
	free(base);
	test_wide_unit();
	info = storage_hints("merged.%r", NULL);
	MPI_Win_allocate(size, 1, info, MPI_COMM_WORLD, &base, &win);
	/* The faulting rank pages this window, so the locks are those of the library. */
	window(win, strcmp(getenv("UMMAP_ENGINE") ? getenv("UMMAP_ENGINE") : "", "segv") == 0);
	MPI_Info_free(&info);
	MPI_Finalize();
	return 0;
}
