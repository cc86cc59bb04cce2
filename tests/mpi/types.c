/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * types - puts, gets and accumulates of random nested datatypes of every kind on a window in
 * storage. The results must be those of a message with the same datatypes that each rank sends to
 * itself.
 */
#include "common.h"

#define SEG (4 * KIB)
#define SIZE (32 * SEG)
#define MIDDLE (SIZE / 2) /* origin of datatypes, which extend to both sides of it */
#define ROUNDS ((int)by_time(200, 3000))
#define DEPTH 2
#define MAX_BYTES (8 * KIB)

static char *base, model[SIZE], buffer[SIZE], other[SIZE];
static MPI_Win win;
static uint64_t random_state;

static int draw(int n)
{
	return (int)(next_random(&random_state) % (uint64_t)n);
}

/* ---- Types ---- */

static MPI_Datatype predefined(bool plain)
{
	const MPI_Datatype types[] = { MPI_INT32_T, MPI_BYTE,      MPI_INT64_T,   MPI_DOUBLE,
				       MPI_INT16_T, MPI_SHORT_INT, MPI_DOUBLE_INT };

	return types[draw(plain ? 5 : 7)];
}

static MPI_Datatype make_type(int depth, MPI_Datatype basic);

static void make_array(MPI_Datatype old, MPI_Datatype *new)
{
	int sizes[3], subs[3], starts[3], hows[3], args[3], grid[3],
		dims = 1 + draw(3), order = draw(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
	int processes = 1, size;

	for (int i = 0; i < dims; i++) {
		const int distributions[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
					      MPI_DISTRIBUTE_NONE };

		sizes[i] = 2 + draw(4);
		subs[i] = 1 + draw(sizes[i]);
		starts[i] = draw(sizes[i] - subs[i] + 1);
		hows[i] = distributions[draw(3)];
		grid[i] = hows[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + draw(2);
		args[i] = hows[i] == MPI_DISTRIBUTE_CYCLIC && draw(2) ? 1 + draw(2) :
									MPI_DISTRIBUTE_DFLT_DARG;
		processes *= grid[i];
	}
	if (draw(2))
		MPI_Type_create_subarray(dims, sizes, subs, starts, order, old, new);
	else
		MPI_Type_create_darray(processes, draw(processes), dims, sizes, hows, args, grid,
				       order, old, new);
	MPI_Type_size(*new, &size);
	if (size > 0)
		return;
	/* OpenMPI 4.1 ignores gaps around an empty datatype. */
	MPI_Type_free(new);
	MPI_Type_dup(old, new);
}

/* Makes a datatype of blocks that do not overlap, in a random order. */
static void make_blocks(int how, MPI_Datatype old, MPI_Datatype *new)
{
	int n = 1 + draw(4), lengths[4], at[4], same = 1 + draw(2);
	MPI_Aint low, extent, bytes[4];
	MPI_Datatype olds[4] = { old, old, old, old };

	MPI_Type_get_extent(old, &low, &extent);
	for (int i = 0; i < n; i++) {
		lengths[i] = 1 + draw(2);
		at[i] = 3 * (draw(2) ? i : n - 1 - i);
	}
	for (int i = 1; i < n; i++)
		at[i] = at[0] ? 3 * (n - 1 - i) : 3 * i;
	for (int i = 0; i < n; i++)
		bytes[i] = at[i] * extent;
	switch (how) {
	case 0: MPI_Type_indexed(n, lengths, at, old, new); break;
	case 1: MPI_Type_create_hindexed(n, lengths, bytes, old, new); break;
	case 2: MPI_Type_create_indexed_block(n, same, at, old, new); break;
	case 3: MPI_Type_create_hindexed_block(n, same, bytes, old, new); break;
	default: MPI_Type_create_struct(n, lengths, bytes, olds, new);
	}
}

static MPI_Datatype make_type(int depth, MPI_Datatype basic)
{
	MPI_Datatype old, new;
	MPI_Aint low, extent;
	int how;

	if (depth == 0)
		return basic;
	old = make_type(depth - 1, basic);
	MPI_Type_get_extent(old, &low, &extent);
	how = draw(12);
	if (how < 5)
		make_blocks(how, old, &new);
	else if (how < 7)
		make_array(old, &new);
	else if (how == 7)
		MPI_Type_contiguous(1 + draw(4), old, &new);
	else if (how == 8)
		MPI_Type_dup(old, &new);
	else if (how == 9)
		MPI_Type_vector(1 + draw(4), 1 + draw(2), 2 + draw(2), old, &new);
	else if (how == 10)
		MPI_Type_create_hvector(1 + draw(4), 1, -extent - 8 * draw(3), old, &new);
	else
		MPI_Type_create_resized(old, low, extent + 8 * draw(3), &new);
	if (old != basic)
		MPI_Type_free(&old);
	return new;
}

/* Makes a structure of two different datatypes. */
static MPI_Datatype make_mixed(void)
{
	MPI_Datatype types[2] = { make_type(1, MPI_INT32_T), make_type(1, MPI_DOUBLE) }, new;
	MPI_Aint low, extent, at[2] = { 0 };
	int lengths[2] = { 1, 1 + draw(2) };

	MPI_Type_get_extent(types[0], &low, &extent);
	at[1] = extent + 256;
	MPI_Type_create_struct(2, lengths, at, types, &new);
	MPI_Type_free(&types[0]);
	MPI_Type_free(&types[1]);
	return new;
}

/* Whether `n` items fit into the memory and have at most MAX_BYTES. */
static bool fits(MPI_Datatype type, int n)
{
	MPI_Aint low, extent, true_low, true_extent;
	int size;

	MPI_Type_get_extent(type, &low, &extent);
	MPI_Type_get_true_extent(type, &true_low, &true_extent);
	MPI_Type_size(type, &size);
	return size > 0 && size * n <= (int)MAX_BYTES && true_low > -(MPI_Aint)MIDDLE / 4 &&
	       true_low + true_extent < (MPI_Aint)MIDDLE / 4 && extent * n < (MPI_Aint)MIDDLE / 4 &&
	       extent > 0 && true_extent <= extent;
}

/* ---- The same transfer by window and by message ---- */

static void copy_as(const void *from, int n, MPI_Datatype type, void *to, int m,
		    MPI_Datatype to_type)
{
	MPI_Sendrecv(from, n, type, 0, 0, to, m, to_type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void randomize(void)
{
	for (size_t i = 0; i < SIZE; i++)
		buffer[i] = (char)draw(256);
	memcpy(other, buffer, SIZE);
}

static int next(void)
{
	return (rank + 1) % ranks;
}

static void fetch(char *to)
{
	MPI_Get(to, (int)SIZE, MPI_BYTE, next(), 0, (int)SIZE, MPI_BYTE, win);
	MPI_Win_flush(next(), win);
}

/* One side has the datatype, and the other side the same datatype or its basic datatype. */
static void run(MPI_Datatype type, MPI_Datatype basic, int n, bool mixed)
{
	int size, basic_size, count = n;
	MPI_Datatype here = type;
	MPI_Aint at = (MPI_Aint)MIDDLE + draw(64);
	char *mine = buffer + MIDDLE;

	MPI_Type_size(type, &size);
	MPI_Type_size(basic, &basic_size);
	if (!mixed && draw(2)) {
		here = basic;
		count = size / basic_size * n;
	}
	randomize();
	if (draw(2)) {
		MPI_Put(mine, count, here, next(), at, n, type, win);
		copy_as(mine, count, here, model + at, n, type);
	} else {
		MPI_Get(mine, count, here, next(), at, n, type, win);
		copy_as(model + at, n, type, other + MIDDLE, count, here);
	}
	MPI_Win_flush(next(), win);
	check(memcmp(buffer, other, SIZE) == 0, "what was got");
	fetch(buffer);
	check(memcmp(buffer, model, SIZE) == 0, "what is there");
}

static void run_random(void)
{
	MPI_Datatype basic = predefined(false), type;
	bool mixed = draw(5) == 0;
	int n = 1 + draw(3);

	type = mixed ? make_mixed() : make_type(1 + draw(DEPTH), basic);
	MPI_Type_commit(&type);
	if (fits(type, n))
		run(type, basic, n, mixed);
	MPI_Type_free(&type);
}

/* ---- Accumulates ---- */

/*
 * Computes an operation on two integers of `size` bytes. MPI_Reduce_local is not used, because
 * sums of small integers saturate with OpenMPI 4.1, and all 16-bit integers are signed with
 * MPICH 4.0.
 */
static uint64_t result(int op, int size, bool is_signed, uint64_t a, uint64_t b)
{
	int shift = 64 - 8 * size;
	bool less =
		is_signed ? (int64_t)(a << shift) < (int64_t)(b << shift) : a << shift < b << shift;
	const uint64_t results[] = { a + b,  a * b,    less ? a : b, less ? b : a, a && b,
				     a || b, !a != !b, a & b,        a | b,        a ^ b };

	return results[op];
}

static void run_operations(MPI_Datatype type, int size, bool is_signed, int n)
{
	static const uint64_t values[] = {
		0,     0,     1,          2,          127,        128,           255,
		32768, 65535, 0x80000000, 0xffffffff, UINT64_MAX, UINT64_MAX - 1
	};
	const MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_LAND,
			       MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR };
	char from[64 * 8], was[64 * 8], got[64 * 8], there[64 * 8];
	int op = draw(10), len = n * size;

	for (int i = 0; i < n; i++) {
		memcpy(from + i * size, &values[draw(13)], (size_t)size);
		memcpy(was + i * size, &values[draw(13)], (size_t)size);
	}
	MPI_Put(was, len, MPI_BYTE, next(), 64, len, MPI_BYTE, win);
	MPI_Win_flush(next(), win);
	if (n == 1)
		MPI_Fetch_and_op(from, got, type, next(), 64, ops[op], win);
	else
		MPI_Get_accumulate(from, n, type, got, n, type, next(), 64, n, type, ops[op], win);
	MPI_Win_flush(next(), win);
	check(memcmp(got, was, (size_t)len) == 0, "operation %d on %d of %d bytes", op, n, size);
	MPI_Get(there, len, MPI_BYTE, next(), 64, len, MPI_BYTE, win);
	MPI_Win_flush(next(), win);
	for (int i = 0; i < n; i++) {
		uint64_t a = 0, b = 0, c = 0, want;

		memcpy(&a, was + i * size, (size_t)size);
		memcpy(&b, from + i * size, (size_t)size);
		memcpy(&c, there + i * size, (size_t)size);
		want = result(op, size, is_signed, a, b) << (64 - 8 * size) >> (64 - 8 * size);
		check(c == want,
		      "operation %d on %d bytes of %d: %" PRIx64 " and %" PRIx64 " make %" PRIx64
		      ", not %" PRIx64,
		      op, size, n, a, b, c, want);
	}
}

/* Operations on one word, on a few, and on many. */
static void test_operations(void)
{
	const struct { MPI_Datatype type; int size; bool is_signed;
	} words[] = {
		{ MPI_INT8_T, 1, true },    { MPI_UINT8_T, 1, false },  { MPI_INT16_T, 2, true },
		{ MPI_UINT16_T, 2, false }, { MPI_INT32_T, 4, true },   { MPI_UINT32_T, 4, false },
		{ MPI_INT64_T, 8, true },   { MPI_UINT64_T, 8, false },
	};

	for (int round = 0; round < ROUNDS; round++) {
		size_t i = (size_t)draw(sizeof(words) / sizeof(*words));

		run_operations(words[i].type, words[i].size, words[i].is_signed,
			       draw(2) ? 1 : 2 + draw(60));
	}
}

/* Sums of pairs with gaps, and of floating-point numbers with small integral values. */
static void test_sums(void)
{
	struct {
		double value;
		int32_t at;
	} pairs[3] = { { 1.5, 7 }, { 2.5, 9 }, { 3.5, 2 } },
	  mine[3] = { { 2.5, 3 }, { 2.5, 3 }, { 2.5, 3 } };
	double reals[20], got[20];
	char after[16] = "not of the pairs";

	MPI_Put(pairs, 3, MPI_DOUBLE_INT, next(), 128, 3, MPI_DOUBLE_INT, win);
	MPI_Put(after, 4, MPI_BYTE, next(), 128 + 44, 4, MPI_BYTE, win);
	MPI_Accumulate(mine, 3, MPI_DOUBLE_INT, next(), 128, 3, MPI_DOUBLE_INT, MPI_MAXLOC, win);
	MPI_Win_flush(next(), win);
	MPI_Get(pairs, 3, MPI_DOUBLE_INT, next(), 128, 3, MPI_DOUBLE_INT, win);
	MPI_Get(after + 8, 4, MPI_BYTE, next(), 128 + 44, 4, MPI_BYTE, win);
	MPI_Win_flush(next(), win);
	check(pairs[0].value == 2.5 && pairs[0].at == 3 && pairs[1].at == 3 &&
	      pairs[2].value == 3.5 && pairs[2].at == 2);
	check(memcmp(after, after + 8, 4) == 0, "bytes of the gap behind the last pair");
	for (int n = 1; n <= 20; n += 19) {
		for (int i = 0; i < 20; i++)
			reals[i] = i;
		MPI_Put(reals, 20, MPI_DOUBLE, next(), 256, 20, MPI_DOUBLE, win);
		MPI_Accumulate(reals, n, MPI_DOUBLE, next(), 256, n, MPI_DOUBLE, MPI_SUM, win);
		MPI_Get(got, 20, MPI_DOUBLE, next(), 256, 20, MPI_DOUBLE, win);
		MPI_Win_flush(next(), win);
		for (int i = 0; i < 20; i++)
			check(got[i] == (i < n ? 2 * i : i));
	}
}

/* ---- Windows ---- */

static void test_window(MPI_Info info, bool paged)
{
	check(MPI_Win_allocate(SIZE, 1, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	memset(base, 0, SIZE);
	memset(model, 0, SIZE);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, win);
	for (int i = 0; i < ROUNDS; i++) {
		run_random();
		if (paged && i % 16 == 0)
			check(umadvise(base + draw(SIZE / SEG) * (int)SEG, SEG,
				       UMMAP_ADV_DONTNEED) == 0);
	}
	test_operations();
	test_sums();
	MPI_Win_unlock(next(), win);
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	uint64_t seed = (uint64_t)time(NULL);

	set_budget(2 *
		   SIZE); /* evictions happen by umadvise(3) only, because storage may be slow */
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	random_state = seed + (uint64_t)rank * 1000;
	test_window(storage_hints("kernel.%r", "storage_alloc_engine", "kernel", NULL), false);
	test_window(storage_hints("paged.%r", "storage_alloc_engine", "segv",
				  "storage_alloc_segsize", "4K", NULL),
		    true);
	MPI_Finalize();
	return 0;
}
